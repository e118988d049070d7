"""Changing by REST: binding, allocating, machines; dry runs, waiting, idempotency and entity tags."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flask.testing import FlaskClient

from tests.api.conftest import GPU
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.service import Service
from vgpumgr_api.app import create_app

Allocate = Callable[..., dict[str, Any]]


def drivers(client: FlaskClient) -> dict[str, str]:
    return {gpu["address"]: gpu["driver"] for gpu in client.get("/v1/gpus").get_json()["items"]}


def test_a_dry_run_answers_the_plan_and_changes_nothing(client: FlaskClient) -> None:
    before = drivers(client)
    plan = client.post(f"/v1/gpus/{GPU}/bind?dry_run=true", json={}).get_json()
    assert [step["kind"] for step in plan["steps"]][-1] == "remember-binding"
    assert client.post("/v1/allocations?dry_run=true", json={"vm": "a"}).get_json()["refusal"] is None
    assert drivers(client) == before
    assert client.get("/v1/operations").get_json()["items"] == []


def test_binding_is_an_operation_that_can_be_waited_for(client: FlaskClient) -> None:
    answer = client.post(f"/v1/gpus/{GPU}/bind?wait=30", json={})
    assert answer.status_code == 200
    operation = answer.get_json()
    assert operation["state"] == "succeeded"
    assert client.get(f"/v1/gpus/{GPU}").get_json()["driver"] == "vfio-pci"
    started = client.post(f"/v1/gpus/{GPU}/release", json={})
    location = started.headers.get("Location", f"/v1/operations/{started.get_json()['id']}")
    assert client.get(f"{location}?wait=30").get_json()["state"] == "succeeded"
    assert client.get(f"/v1/gpus/{GPU}").get_json()["driver"] == "nvidia"


def test_a_refusal_says_why_and_what_to_do(client: FlaskClient) -> None:
    answer = client.post("/v1/gpus/0000:02:00.0/bind", json={})
    assert answer.status_code == 409
    problem = answer.get_json()
    assert problem["reasons"]
    assert problem["hint"]


def test_the_life_of_an_allocation(client: FlaskClient, allocate: Allocate) -> None:
    before = client.get("/v1/host/inventory").get_json()
    allocation = allocate("vm1", gpu=GPU)
    assert allocation["state"] == "ready"
    assert client.get(f"/v1/gpus/{GPU}").get_json()["passthrough"]["state"] == "reserved"
    xml = client.get(f"/v1/allocations/{allocation['id']}/xml?template=windows11-desktop")
    assert xml.mimetype == "application/xml"
    assert xml.get_data(as_text=True).count("<hostdev") == 1
    vm = client.post("/v1/vms", json={"allocation_id": allocation["id"]})
    assert vm.status_code == 201
    assert client.post("/v1/vms/vm1/start").get_json()["state"] == "running"
    assert client.get(f"/v1/allocations/{allocation['id']}").get_json()["state"] == "attached"
    assert client.get(f"/v1/gpus/{GPU}").get_json()["passthrough"]["state"] == "in-use"
    busy = client.delete(f"/v1/allocations/{allocation['id']}")
    assert (busy.status_code, busy.get_json()["code"]) == (409, "vm-running")
    assert client.post("/v1/vms/vm1/stop", json={"force": True}).get_json()["state"] == "shut-off"
    released = client.delete(f"/v1/allocations/{allocation['id']}?wait=30")
    assert (released.status_code, released.get_json()["state"]) == (200, "released")
    assert client.delete(f"/v1/allocations/{allocation['id']}").status_code == 200
    assert client.get("/v1/vms/vm1").status_code == 404
    assert client.get("/v1/host/inventory").get_json() == before


def test_what_an_operator_bound_stays_bound_after_a_release(client: FlaskClient, allocate: Allocate) -> None:
    client.post(f"/v1/gpus/{GPU}/bind?wait=30", json={})
    allocation = allocate("vm1", gpu=GPU)
    client.delete(f"/v1/allocations/{allocation['id']}?wait=30")
    assert client.get(f"/v1/gpus/{GPU}").get_json()["passthrough"]["state"] == "ready"


def test_one_gpu_never_goes_to_two_vms(client: FlaskClient) -> None:
    app = client.application

    def ask(number: int) -> int:
        body = {"vm": f"vm{number}", "gpu": GPU}
        return app.test_client().post("/v1/allocations?wait=30", json=body).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(ask, range(8)))
    assert statuses == [201] + [409] * 7


def test_when_nothing_fits_every_gpu_has_its_reason(client: FlaskClient, allocate: Allocate) -> None:
    allocate("vm1", gpu=GPU)
    problem = client.post("/v1/allocations", json={"vm": "vm2", "gpu": GPU}).get_json()
    assert problem["code"] == "no-candidate"
    assert {reason["code"] for reason in problem["reasons"]} == {"reserved"}, "of the one that was asked for"
    every = client.post("/v1/allocations", json={"vm": "vm2", "count": 9}).get_json()
    assert {"kind-not-offered", "reserved", "too-few", "vfs-enabled"} <= {
        reason["code"] for reason in every["reasons"]
    }
    refusals = client.post("/v1/candidates", json={"vm": "vm2", "gpu": GPU}).get_json()["refusals"]
    assert len(refusals) == len(client.get("/v1/gpus").get_json()["items"])


def test_a_gpu_to_allocate_goes_by_any_address_of_its_own(client: FlaskClient, allocate: Allocate) -> None:
    assert allocate("vm1", gpu="3B:00.0")["request"]["gpu"] == GPU
    for path in ("/v1/allocations", "/v1/allocations?dry_run=true", "/v1/candidates"):
        answer = client.post(path, json={"vm": "vm2", "gpu": "0000:99:00.0"})
        assert (answer.status_code, answer.get_json()["code"]) == (404, "gpu-unknown")


def test_an_allocation_that_is_over_is_not_waited_for(client: FlaskClient, allocate: Allocate) -> None:
    path = f"/v1/allocations/{allocate('vm1')['id']}"
    assert client.delete(f"{path}?wait=30").get_json()["state"] == "released"
    problem = client.get(f"{path}/xml").get_json()
    assert (problem["code"], problem["hint"]) == ("allocation-not-ready", "allocate anew")


def test_a_vm_has_one_live_allocation(client: FlaskClient, allocate: Allocate) -> None:
    allocate("vm1")
    problem = client.post("/v1/allocations", json={"vm": "vm1"}).get_json()
    assert problem["code"] == "vm-has-allocation"


def test_an_idempotency_key_makes_a_request_happen_once(client: FlaskClient) -> None:
    headers = {"Idempotency-Key": "k1"}
    first = client.post("/v1/allocations?wait=30", json={"vm": "vm1"}, headers=headers)
    again = client.post("/v1/allocations?wait=30", json={"vm": "vm1"}, headers=headers)
    assert again.get_json() == first.get_json()
    assert again.status_code == first.status_code == 201
    assert again.headers["Idempotency-Replayed"] == "true"
    other = client.post("/v1/allocations?wait=30", json={"vm": "vm2"}, headers=headers)
    assert (other.status_code, other.get_json()["code"]) == (422, "idempotency-key-reused")
    assert len(client.get("/v1/allocations").get_json()["items"]) == 1


def test_a_request_that_failed_may_be_sent_again_under_its_key(client: FlaskClient) -> None:
    headers = {"Idempotency-Key": "k1"}
    assert client.post("/v1/allocations", json={"vm": "v", "count": 60}, headers=headers).status_code == 409
    assert client.post("/v1/allocations", json={"vm": "v", "count": 1}, headers=headers).status_code in (201, 202)


def test_if_match_guards_against_surprises(client: FlaskClient, allocate: Allocate) -> None:
    allocation = allocate("vm1")
    path = f"/v1/allocations/{allocation['id']}"
    etag = client.get(path).headers["ETag"]
    stale = client.delete(path, headers={"If-Match": '"0"'})
    assert (stale.status_code, stale.get_json()["code"]) == (412, "generation-mismatch")
    assert client.delete(f"{path}?wait=30", headers={"If-Match": etag}).status_code == 200


def test_foreign_domains_are_shown_and_never_touched(client: FlaskClient) -> None:
    names = {vm["name"]: vm["ours"] for vm in client.get("/v1/vms").get_json()["items"]}
    assert names == {"test": False}
    for answer in (
        client.post("/v1/vms/test/stop", json={"force": True}),
        client.post("/v1/vms/test/start"),
        client.delete("/v1/vms/test"),
    ):
        assert (answer.status_code, answer.get_json()["code"]) == (409, "vm-foreign")
    assert client.get("/v1/vms/test").get_json()["state"] == "running"


def test_a_vm_of_a_foreign_name_is_not_overwritten(client: FlaskClient, allocate: Allocate) -> None:
    allocation = allocate("test")
    answer = client.post("/v1/vms", json={"allocation_id": allocation["id"]})
    assert (answer.status_code, answer.get_json()["code"]) == (409, "vm-foreign")


def test_pages_of_allocations_go_on_where_the_last_one_ended(client: FlaskClient, allocate: Allocate) -> None:
    made = [allocate(f"vm{number}")["id"] for number in range(2)]
    first = client.get("/v1/allocations?limit=1").get_json()
    second = client.get(f"/v1/allocations?limit=1&cursor={first['next_cursor']}").get_json()
    assert [item["id"] for item in first["items"] + second["items"]] == made[::-1]
    assert second["next_cursor"] is None


def test_a_domain_is_checked_against_the_host(client: FlaskClient) -> None:
    xml = (
        "<hostdev mode='subsystem' type='pci' managed='no'><source>"
        "<address domain='0x0000' bus='0x3b' slot='0x00' function='0x0'/></source></hostdev>"
    )
    body = client.post("/v1/domain-checks", json={"xml": xml}).get_json()
    assert body["devices"] == [{"type": "pci", "address": GPU, "uuid": None, "owner": None}]
    assert "device-not-detached" in {problem["code"] for problem in body["problems"]}


def test_the_application_answers_only_to_its_own_names(client: FlaskClient) -> None:
    app = create_app(None)
    answer = app.test_client().get("/healthz", headers={"Host": "evil.example"})
    assert (answer.status_code, answer.get_json()["code"]) == (421, "host-not-allowed")


def test_a_vm_that_went_off_by_itself_frees_its_allocation_at_the_next_start(
    client: FlaskClient, service: Service, allocate: Allocate
) -> None:
    allocation = allocate("vm1", gpu=GPU)
    client.post("/v1/vms", json={"allocation_id": allocation["id"]})
    client.post("/v1/vms/vm1/start")
    assert service._hypervisor is not None
    service._hypervisor.destroy("vm1")
    path = f"/v1/allocations/{allocation['id']}"
    assert client.get(path).get_json()["state"] == "attached"
    service.start()
    assert client.get(path).get_json()["state"] == "ready"
    service._hypervisor.start("vm1")
    service.start()
    assert client.get(path).get_json()["state"] == "attached"


def test_a_gpu_that_a_foreign_vm_has_is_not_made_ours(client: FlaskClient, service: Service) -> None:
    kernel = service.kernel
    assert isinstance(kernel, SimulatedKernel)
    kernel.load_module("vfio-pci")
    kernel.write(f"/sys/bus/pci/devices/{GPU}/driver_override", "vfio-pci")
    kernel.write("/sys/bus/pci/drivers/nvidia/unbind", GPU)
    kernel.write("/sys/bus/pci/drivers_probe", GPU)
    kernel.hold(GPU, 4711, "qemu-system-x86")
    for verb in ("bind", "release"):
        answer = client.post(f"/v1/gpus/{GPU}/{verb}", json={"force": True})
        assert (answer.status_code, answer.get_json()["code"]) == (409, "in-use"), verb
    assert service._at_desk.store.bindings.get(GPU) is None
    kernel.let_go(4711)
    assert client.post(f"/v1/gpus/{GPU}/bind?wait=30", json={}).get_json()["state"] == "succeeded"
