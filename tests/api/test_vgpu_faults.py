"""Faults while vGPUs are made, seen by REST: a stable code, the card as it is, nothing half made or kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.unit.vgpu_hosts import A40, T4, nvidia, service_of, simulated
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.kernel.simulated.faults import Mishap
from vgpumgr.service import Service
from vgpumgr_api.app import create_app

ENABLED = {"total": 8, "enabled": 8, "vf_driver": "nvidia"}
FIRST, SECOND = "0000:3b:00.0", "0000:5e:00.0"
HOSTS = {
    "mdev": (nvidia("mdev", T4, 16384) | {"id": "10de:1eb8"}, "GRID T4-4Q", 4),
    "mdev-on-vfs": (nvidia("mdev-vf", A40) | {"sriov": ENABLED}, "NVIDIA A40-12Q", 4),
    "vendor-vfio": (nvidia("vendor-vfio", A40) | {"sriov": ENABLED}, "NVIDIA A40-12Q", 4),
}
WRITE = {"mdev": "/create", "mdev-on-vfs": "/create", "vendor-vfio": "/current_vgpu_type"}


@pytest.fixture(params=sorted(HOSTS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def service(kind: str, tmp_path: Path) -> Iterator[Service]:
    """Two cards of one kind, and a kernel whose patience is short."""
    card = HOSTS[kind][0]
    opened = service_of(tmp_path, card, card | {"address": SECOND}, write_deadline_seconds=0.1)
    yield opened
    opened.close()


@pytest.fixture
def kernel(service: Service) -> SimulatedKernel:
    return simulated(service)


@pytest.fixture
def client(service: Service) -> FlaskClient:
    return create_app(service).test_client()


@pytest.fixture
def make(client: FlaskClient, kind: str) -> Callable[..., dict[str, Any]]:
    def post(count: int = 1, gpu: str = FIRST) -> dict[str, Any]:
        body = {"profile": HOSTS[kind][1], "count": count, "gpu": gpu}
        answer: dict[str, Any] = client.post("/v1/vgpus?wait=30", json=body).get_json()
        return answer

    return post


def fits(client: FlaskClient, kind: str, gpu: str = FIRST) -> int:
    items = client.get(f"/v1/profiles?gpu={gpu}&limit=500").get_json()["items"]
    return sum(item["creatable"] for item in items if item["name"] == HOSTS[kind][1])


def vgpus(client: FlaskClient) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get("/v1/vgpus?limit=500").get_json()["items"]
    return items


def test_a_write_that_hangs_ends_at_its_deadline_and_names_who_holds_the_card(
    client: FlaskClient, kernel: SimulatedKernel, kind: str, make: Callable[..., dict[str, Any]]
) -> None:
    kernel.hold(FIRST, 77, "cuda-thing")
    kernel.faults.add(WRITE[kind], Mishap.HANG, times=1)
    failed = make(2)
    assert (failed["state"], failed["error"]["code"]) == ("failed", "deadline-exceeded")
    reasons = {reason["code"]: reason["message"] for reason in failed["error"]["reasons"]}
    assert "cuda-thing (pid 77)" in reasons["holder-process"]
    assert (vgpus(client), fits(client, kind)) == ([], 4)
    assert client.get(f"/v1/gpus/{FIRST}").get_json()["vgpu"]["instances"] == []
    assert make(4, SECOND)["state"] == "succeeded"
    assert make(4)["state"] == "succeeded"


def test_what_comes_late_from_a_write_that_hung_is_ours_and_can_go(
    client: FlaskClient, kernel: SimulatedKernel, kind: str, make: Callable[..., dict[str, Any]]
) -> None:
    if kind == "vendor-vfio":
        pytest.skip("a VF that has a type tells nothing of who gave it")
    kernel.faults.add("/create", Mishap.HANG, times=1)
    assert make()["state"] == "failed"
    step = client.get("/v1/operations").get_json()["items"][0]["id"]
    made = client.get(f"/v1/operations/{step}").get_json()["steps"][1]["address"]
    parent = kernel.list("/sys/class/mdev_bus")[0]
    (type_id,) = {
        item["id"]
        for item in client.get(f"/v1/profiles?gpu={FIRST}&limit=500").get_json()["items"]
        if item["name"] == HOSTS[kind][1]
    }
    kernel.write(f"/sys/class/mdev_bus/{parent}/mdev_supported_types/{type_id}/create", made)
    assert [(item["id"], item["ours"], item["live"]) for item in vgpus(client)] == [(made, True, True)]
    assert fits(client, kind) == 3
    assert client.delete(f"/v1/vgpus/{made}?wait=30").get_json()["state"] == "succeeded"
    assert (vgpus(client), fits(client, kind)) == ([], 4)


def test_a_delete_that_hangs_keeps_the_vgpu_and_can_be_asked_again(
    client: FlaskClient, kernel: SimulatedKernel, kind: str, make: Callable[..., dict[str, Any]]
) -> None:
    make(2)
    first = vgpus(client)[0]["id"]
    kernel.faults.add("/remove|current_vgpu_type 0", Mishap.HANG, times=1)
    failed = client.delete(f"/v1/vgpus/{first}?wait=30").get_json()
    assert (failed["state"], failed["error"]["code"]) == ("failed", "deadline-exceeded")
    assert [(item["ours"], item["live"]) for item in vgpus(client)] == [(True, True)] * 2
    assert client.delete(f"/v1/vgpus/{first}?wait=30").get_json()["state"] == "succeeded"
    assert (len(vgpus(client)), fits(client, kind)) == (1, 3)


def test_an_allocation_whose_release_hangs_can_be_released_again(
    client: FlaskClient, service: Service, kernel: SimulatedKernel, kind: str
) -> None:
    body = {"vm": "desk-1", "profile": HOSTS[kind][1], "count": 2, "gpu": FIRST}
    allocation = client.post("/v1/allocations?wait=30", json=body).get_json()
    kernel.faults.add("/remove|current_vgpu_type 0", Mishap.HANG, times=1)
    path = f"/v1/allocations/{allocation['id']}"
    client.delete(f"{path}?wait=30")
    failed = client.get(path).get_json()
    assert (failed["state"], failed["error"]["code"]) == ("failed", "deadline-exceeded")
    client.delete(f"{path}?wait=30")
    assert client.get(path).get_json()["state"] == "released"
    assert (vgpus(client), fits(client, kind), service._at_desk.store.allocations.claims()) == ([], 4, [])


def test_a_hang_halfway_takes_back_what_was_made(
    client: FlaskClient, kernel: SimulatedKernel, kind: str, make: Callable[..., dict[str, Any]]
) -> None:
    after(kernel, WRITE[kind], 2, lambda: kernel.faults.add(WRITE[kind], Mishap.HANG, times=1))
    failed = make(3)
    assert (failed["state"], failed["error"]["code"]) == ("failed", "deadline-exceeded")
    assert (vgpus(client), fits(client, kind), fits(client, kind, SECOND)) == ([], 4, 4)


def after(kernel: SimulatedKernel, pattern: str, number: int, happen: Callable[[], object]) -> None:
    """Let something happen right after the ``number``-th write to such a path."""
    plain, seen = kernel.write, 0

    def write(path: str, text: str, **options: Any) -> None:
        nonlocal seen
        plain(path, text, **options)
        seen += pattern in path
        if pattern in path and seen == number:
            happen()

    kernel.write = write


def at_record(service: Service, number: int, happen: Callable[[], object]) -> None:
    """Let something happen right after the ``number``-th record of the journal."""
    operations = service._at_desk.store.operations
    plain, seen = operations.step, 0

    def step(*arguments: Any, **options: Any) -> None:
        nonlocal seen
        plain(*arguments, **options)
        seen += 1
        if seen == number:
            happen()

    operations.step = step


RECORDS = range(1, 9)
"""Two vGPUs are made and remembered: four steps, each with its start and its end."""


@pytest.mark.parametrize("record", RECORDS)
def test_a_reload_of_the_driver_at_any_moment_leaves_all_or_nothing(
    record: int,
    client: FlaskClient,
    service: Service,
    kernel: SimulatedKernel,
    kind: str,
    make: Callable[..., dict[str, Any]],
) -> None:
    at_record(service, record, lambda: kernel.reload_driver(FIRST))
    ended = make(2)
    instances = client.get(f"/v1/gpus/{FIRST}").get_json()["vgpu"]["instances"]
    assert service._at_desk.store.operations.reservations() == []
    if ended["state"] == "succeeded":
        # A reload before the first write does no harm to a card without VFs; after the last, both come back.
        assert len(instances) in (0, 2)
        assert [item["ours"] for item in vgpus(client)] == [True, True]
    else:
        assert (ended["state"], vgpus(client), instances) == ("failed", [], [])
        assert ended["error"]["code"] in ("parent-gone", "vgpu-lost")
    if kind != "mdev":
        assert client.get(f"/v1/gpus/{FIRST}").get_json()["vgpu"]["reasons"][0]["code"] == "vfs-off"
        assert client.post(f"/v1/gpus/{FIRST}/slice?wait=30", json={}).get_json()["state"] == "succeeded"
    assert fits(client, kind) == 4 - len(vgpus(client))
    assert make(4, SECOND)["state"] == "succeeded"


@pytest.mark.parametrize("record", RECORDS)
def test_a_card_that_disappears_at_any_moment_leaves_all_or_nothing(
    record: int,
    client: FlaskClient,
    service: Service,
    kernel: SimulatedKernel,
    make: Callable[..., dict[str, Any]],
) -> None:
    at_record(service, record, lambda: kernel.lose(FIRST))
    ended = make(2)
    answer = client.get(f"/v1/gpus/{FIRST}")
    assert (answer.status_code, answer.get_json()["code"]) == (404, "gpu-unknown")
    assert service._at_desk.store.operations.reservations() == []
    if ended["state"] == "succeeded":
        lost = vgpus(client)
        assert [item["live"] for item in lost] == [False, False]
        for item in lost:
            assert client.delete(f"/v1/vgpus/{item['id']}?wait=30").get_json()["state"] == "succeeded"
    assert vgpus(client) == []
    assert make(4, SECOND)["state"] == "succeeded"


@pytest.mark.parametrize("record", RECORDS)
def test_an_allocation_whose_card_disappears_can_be_released(
    record: int, client: FlaskClient, service: Service, kernel: SimulatedKernel, kind: str
) -> None:
    at_record(service, record, lambda: kernel.lose(FIRST))
    body = {"vm": "desk-1", "profile": HOSTS[kind][1], "count": 2, "gpu": FIRST}
    answer = client.post("/v1/allocations?wait=30", json=body)
    allocation = client.get("/v1/allocations").get_json()["items"][0]
    assert allocation["state"] in ("ready", "failed"), answer.get_json()
    path = f"/v1/allocations/{allocation['id']}"
    released = client.delete(f"{path}?wait=30")
    assert released.status_code in (200, 202), released.get_json()
    assert client.get(path).get_json()["state"] == "released"
    assert (vgpus(client), service._at_desk.store.allocations.claims()) == ([], [])
