"""Slicing by REST: cutting cards, making and deleting vGPUs, modes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.api.conftest import GPU, settings_in
from tests.databases import put_empty_database
from vgpumgr.assembly import open_service
from vgpumgr.kernel.simulated.machine import SimulatedKernel
from vgpumgr.service import Service
from vgpumgr_api.app import create_app

Allocate = Callable[..., dict[str, Any]]
CUT = "0000:5e:00.0"
"""A card of the simulated host whose VFs are enabled when it boots."""


def profiles(client: FlaskClient, gpu: str = CUT) -> dict[str, int]:
    items = client.get(f"/v1/profiles?gpu={gpu}&limit=500").get_json()["items"]
    return {item["name"]: item["creatable"] for item in items}


def test_one_call_tells_how_many_more_fit(client: FlaskClient) -> None:
    before = client.get("/v1/profiles?name=NVIDIA A40-8Q").get_json()["items"]
    assert [(item["creatable"], len(item["gpus"])) for item in before] == [(12, 2)]


def test_a_card_before_slicing_says_what_lists_its_profiles(client: FlaskClient) -> None:
    answer = client.get(f"/v1/profiles?gpu={GPU}").get_json()
    assert (answer["items"], [reason["code"] for reason in answer["reasons"]]) == ([], ["vfs-off"])
    assert "/v1/gpus/{address}/slice" in answer["hint"]
    assert "vgpumgr" not in answer["hint"]
    assert client.get(f"/v1/profiles?gpu={CUT}").get_json()["hint"] == ""


def test_vgpus_are_made_listed_and_deleted(client: FlaskClient) -> None:
    answer = client.post("/v1/vgpus?wait=30", json={"profile": "NVIDIA A40-8Q", "count": 2, "gpu": CUT})
    assert answer.get_json()["state"] == "succeeded", answer.get_json()
    items = client.get(f"/v1/vgpus?gpu={CUT}&ours=true").get_json()["items"]
    assert [(item["profile"], item["ours"], item["live"]) for item in items] == [("NVIDIA A40-8Q", True, True)] * 2
    assert profiles(client)["NVIDIA A40-8C"] == 4
    assert profiles(client)["NVIDIA A40-4Q"] == 0
    for item in items:
        assert client.get(f"/v1/vgpus/{item['id']}").get_json() == item
        assert client.delete(f"/v1/vgpus/{item['id']}?wait=30").get_json()["state"] == "succeeded"
    assert client.get("/v1/vgpus").get_json()["items"] == []
    assert profiles(client)["NVIDIA A40-8Q"] == 6


def test_a_dry_run_makes_nothing(client: FlaskClient) -> None:
    plan = client.post("/v1/vgpus?dry_run=true", json={"profile": "A40-8Q", "gpu": CUT}).get_json()
    assert [step["kind"] for step in plan["steps"]] == ["create-mdev", "remember-vgpu"]
    assert client.get("/v1/vgpus").get_json()["items"] == []


def test_refusals_say_what_ends_it(client: FlaskClient) -> None:
    answer = client.post("/v1/vgpus", json={"profile": "NVIDIA A40-8Q", "count": 7, "gpu": CUT})
    assert (answer.status_code, answer.get_json()["code"]) == (409, "no-capacity")
    assert answer.get_json()["reasons"]
    answer = client.post("/v1/vgpus", json={"profile": "NVIDIA A40-8q", "gpu": CUT})
    assert (answer.status_code, answer.get_json()["code"]) == (409, "profile-unknown")
    assert client.get("/v1/vgpus/no-such").status_code == 404


def test_an_allocations_vgpu_is_not_deleted_by_hand(client: FlaskClient, allocate: Allocate) -> None:
    allocation = allocate("desk-1", profile="NVIDIA A40-8Q")
    (device,) = allocation["devices"]
    answer = client.delete(f"/v1/vgpus/{device['handle']}")
    assert (answer.status_code, answer.get_json()["code"]) == (409, "vgpu-allocated")


def test_a_card_is_cut_and_made_whole(client: FlaskClient) -> None:
    assert client.post(f"/v1/gpus/{GPU}/slice?wait=30", json={}).get_json()["state"] == "succeeded"
    assert client.get(f"/v1/gpus/{GPU}").get_json()["sriov"]["num_vfs"] == 32
    assert profiles(client, GPU)["NVIDIA A40-48Q"] == 1
    assert client.post(f"/v1/gpus/{GPU}/slice?wait=30", json={"vfs": 0}).get_json()["state"] == "succeeded"
    assert client.get(f"/v1/gpus/{GPU}").get_json()["sriov"]["num_vfs"] == 0
    answer = client.post(f"/v1/gpus/{GPU}/slice", json={"vfs": 33})
    assert (answer.status_code, answer.get_json()["code"]) == (409, "vfs-above-limit")


def test_modes_are_shown_set_and_refused(client: FlaskClient) -> None:
    modes = client.get(f"/v1/gpus/{GPU}/modes").get_json()
    assert (modes["source"], modes["mig"], modes["scheduler"]) == ("simulated NVML", None, "best-effort")
    answer = client.post(f"/v1/gpus/{GPU}/modes?wait=30", json={"scheduler": "equal-share"})
    assert answer.get_json()["state"] == "succeeded"
    assert client.get(f"/v1/gpus/{GPU}/modes").get_json()["scheduler"] == "equal-share"
    answer = client.post(f"/v1/gpus/{GPU}/modes", json={"mig": True})
    assert (answer.status_code, answer.get_json()["code"]) == (409, "mig-unsupported")
    assert client.post(f"/v1/gpus/{GPU}/modes", json={"layout": ["3x.9"]}).status_code == 422


def test_a_reload_of_the_driver_is_made_good(client: FlaskClient, service: Service) -> None:
    client.post(f"/v1/gpus/{GPU}/slice?wait=30", json={})
    client.post("/v1/vgpus?wait=30", json={"profile": "NVIDIA A40-8Q", "count": 2, "gpu": GPU})
    before = client.get("/v1/vgpus").get_json()["items"]
    assert isinstance(service.kernel, SimulatedKernel)
    service.kernel.reload_driver(GPU)
    assert [item["live"] for item in client.get("/v1/vgpus").get_json()["items"]] == [False, False]
    plans = client.post("/v1/vgpus/restore?dry_run=true", json={}).get_json()["plans"]
    assert [plan["kind"] for plan in plans] == ["restore-card", "restore-vgpu", "restore-vgpu"]
    answer = client.post("/v1/vgpus/restore?wait=30", json={})
    assert answer.status_code == 200
    assert [item["state"] for item in answer.get_json()["operations"]] == ["succeeded"] * 3
    assert client.get("/v1/vgpus").get_json()["items"] == before
    assert client.post("/v1/vgpus/restore", json={}).get_json() == {"plans": [], "operations": []}


def test_restoring_without_waiting_names_the_operations(client: FlaskClient, service: Service) -> None:
    client.post(f"/v1/gpus/{GPU}/slice?wait=30", json={})
    assert isinstance(service.kernel, SimulatedKernel)
    service.kernel.reload_driver(GPU)
    answer = client.post("/v1/vgpus/restore", json={})
    (operation,) = answer.get_json()["operations"]
    assert answer.status_code in (200, 202)
    ended = client.get(f"/v1/operations/{operation['id']}?wait=30").get_json()
    assert (ended["kind"], ended["subject"], ended["state"]) == ("restore-card", GPU, "succeeded")


def test_a_scheduler_for_the_next_load_of_the_driver_is_shown_as_configured(
    client: FlaskClient, service: Service
) -> None:
    body = {"scheduler": "fixed-share", "scheduler_at_load": True}
    plan = client.post(f"/v1/gpus/{GPU}/modes?dry_run=true", json=body).get_json()
    assert [step["kind"] for step in plan["steps"]] == ["set-driver-option"]
    assert [warning["code"] for warning in plan["warnings"]] == ["at-next-load"]
    assert client.post(f"/v1/gpus/{GPU}/modes?wait=30", json=body).get_json()["state"] == "succeeded"
    modes = client.get(f"/v1/gpus/{GPU}").get_json()["vgpu"]["modes"]
    assert (modes["scheduler"], modes["scheduler_configured"]) == ("best-effort", "fixed-share")
    assert isinstance(service.kernel, SimulatedKernel)
    service.kernel.reload_module("nvidia")
    modes = client.get(f"/v1/gpus/{GPU}/modes").get_json()
    assert (modes["scheduler"], modes["scheduler_configured"]) == ("fixed-share", "fixed-share")
    assert client.post("/v1/vgpus/restore", json={}).get_json()["operations"] == []


@pytest.fixture
def samples(tmp_path: Path) -> Iterator[FlaskClient]:
    """A host with the kernel's sample drivers of mediated devices."""
    put_empty_database(tmp_path)
    opened = open_service(settings_in(tmp_path)._replace(simulate="mdev-samples"))
    opened.start()
    yield create_app(opened).test_client()
    opened.close()


def test_a_parent_that_is_no_pci_device_is_a_gpu_by_its_name(samples: FlaskClient) -> None:
    gpu = samples.get("/v1/gpus/mbochs").get_json()
    assert (gpu["kind"], gpu["vendor_id"], gpu["passthrough"]["assignable"]) == ("virtual", None, False)
    assert [item["address"] for item in samples.get("/v1/gpus?kind=virtual").get_json()["items"]] == [
        "mbochs",
        "mdpy",
        "mtty",
    ]
    answer = samples.post("/v1/vgpus?wait=30", json={"profile": "mbochs-large", "count": 4, "gpu": "mbochs"})
    assert answer.get_json()["state"] == "succeeded"
    assert profiles(samples, "mbochs") == {"small": 0, "medium": 0, "large": 0}
    answer = samples.post("/v1/vgpus", json={"profile": "mbochs-small", "gpu": "mbochs"})
    assert (answer.status_code, answer.get_json()["code"]) == (409, "no-capacity")
    (first, *_) = samples.get("/v1/vgpus?gpu=mbochs").get_json()["items"]
    assert (first["parent"], first["gpu"], first["ours"]) == ("mbochs", "mbochs", True)
    assert samples.delete(f"/v1/vgpus/{first['id']}?wait=30").get_json()["state"] == "succeeded"
    body = {"vm": "desk-1", "profile": "mbochs-small", "gpu": "mbochs"}
    assert samples.post("/v1/allocations?wait=30", json=body).status_code == 201
    assert samples.get("/v1/gpus/mbochx").status_code == 400


def test_a_vgpus_limiter_is_shown_and_changed(client: FlaskClient) -> None:
    client.post("/v1/vgpus?wait=30", json={"profile": "NVIDIA A40-8Q", "gpu": CUT})
    (item,) = client.get(f"/v1/vgpus?gpu={CUT}").get_json()["items"]
    assert (item["params"], item["frame_rate_limiter"]) == ("", None)
    path = f"/v1/vgpus/{item['id']}/params"
    plan = client.post(f"{path}?dry_run=true", json={"frame_rate_limiter": False}).get_json()
    assert [step["value"] for step in plan["steps"]][1] == "frame_rate_limiter=0"
    assert client.post(f"{path}?wait=30", json={"frame_rate_limiter": False}).get_json()["state"] == "succeeded"
    assert client.get(f"/v1/vgpus/{item['id']}").get_json()["frame_rate_limiter"] is False
    assert client.post(path, json={"params": "rm -rf;"}).status_code == 422
    assert client.post("/v1/vgpus/no-such/params", json={}).status_code == 404
