"""Virtual machines by REST: every change has a dry run, and what is refused says so before it is tried."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import pytest
from flask.testing import FlaskClient

from vgpumgr.errors import FailedError
from vgpumgr.service import Service

Allocate = Callable[..., dict[str, Any]]


@pytest.fixture
def vm(client: FlaskClient, allocate: Allocate) -> str:
    """A VM that is defined and off."""
    answer = client.post("/v1/vms", json={"allocation_id": allocate("vm1")["id"]})
    assert answer.headers["Location"] == "/v1/vms/vm1"
    return "/v1/vms/vm1"


def kinds(plan: dict[str, Any]) -> list[str]:
    return [step["kind"] for step in plan["steps"]]


def test_dry_runs_show_each_change_and_change_nothing(client: FlaskClient, vm: str) -> None:
    assert kinds(client.post(f"{vm}/start?dry_run=true").get_json()) == ["start-domain"]
    assert kinds(client.post(f"{vm}/stop?dry_run=true").get_json()) == []
    assert kinds(client.delete(f"{vm}?dry_run=true").get_json()) == ["undefine-domain"]
    assert client.get(vm).get_json()["state"] == "shut-off"
    client.post(f"{vm}/start")
    assert kinds(client.post(f"{vm}/start?dry_run=true").get_json()) == []
    plan = client.post(f"{vm}/stop?dry_run=true", json={"force": True}).get_json()
    assert [step["describe"] for step in plan["steps"]] == ["pull the plug of the VM vm1"]
    assert client.get(vm).get_json()["state"] == "running"


def test_a_running_vm_is_not_undefined(client: FlaskClient, vm: str) -> None:
    client.post(f"{vm}/start")
    assert client.delete(f"{vm}?dry_run=true").get_json()["refusal"]["code"] == "vm-running"
    assert (client.delete(vm).status_code, client.get(vm).status_code) == (409, 200)


def test_a_vm_can_be_stopped_twice_and_undefined_once(client: FlaskClient, vm: str) -> None:
    client.post(f"{vm}/start")
    for _ in range(2):
        assert client.post(f"{vm}/stop", json={"force": True}).get_json()["state"] == "shut-off"
    assert client.delete(vm).status_code == 204
    assert client.delete(vm).status_code == 404


def test_every_change_of_a_vm_is_in_the_journal(client: FlaskClient, vm: str) -> None:
    client.post(f"{vm}/start")
    client.post(f"{vm}/stop", json={"force": True})
    client.delete(vm)
    operations = client.get("/v1/operations?subject=vm1").get_json()["items"]
    assert [item["kind"] for item in operations] == ["undefine", "stop", "start", "define"]
    assert {item["state"] for item in operations} == {"succeeded"}


ASYNC = {"Prefer": "respond-async"}


@pytest.fixture
def slow(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Everything that is done to libvirt waits for this event, as it does for a QEMU that comes up slowly."""
    goes_on = threading.Event()
    monkeypatch.setattr(service._at_desk._lock, "held", partial(_after, goes_on, service._at_desk._lock.held))
    yield goes_on
    goes_on.set()


@contextmanager
def _after(event: threading.Event, held: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    event.wait()
    with held():
        yield


def test_a_slow_start_is_answered_with_its_operation(client: FlaskClient, vm: str, slow: threading.Event) -> None:
    for started in (client.post(f"{vm}/start?wait=0"), client.post(f"{vm}/start", headers=ASYNC)):
        operation = started.get_json()
        assert (started.status_code, operation["kind"], operation["state"]) == (202, "start", "pending")
        assert started.headers["Location"] == f"/v1/operations/{operation['id']}"
    assert started.headers["Preference-Applied"] == "respond-async"
    slow.set()
    assert client.get(f"{started.headers['Location']}?wait=30").get_json()["state"] == "succeeded"
    assert client.get(vm).get_json()["state"] == "running"
    allocation = client.get(vm).get_json()["allocation"]
    assert client.get(f"/v1/allocations/{allocation}").get_json()["state"] == "attached"


def test_every_change_of_a_vm_can_be_left_to_itself(client: FlaskClient, allocate: Allocate) -> None:
    def change(method: str, path: str, body: dict[str, Any]) -> None:
        begun = client.open(path, method=method, json=body, headers={"Prefer": "wait=5, Respond-Async"})
        assert (begun.status_code, begun.get_json()["subject"]) == (202, "vm1")
        assert client.get(f"{begun.headers['Location']}?wait=30").get_json()["state"] == "succeeded"

    change("POST", "/v1/vms", {"allocation_id": allocate("vm1")["id"]})
    change("POST", "/v1/vms/vm1/start", {})
    change("POST", "/v1/vms/vm1/stop", {"force": True})
    assert client.get("/v1/vms/vm1").get_json()["state"] == "shut-off"
    change("DELETE", "/v1/vms/vm1", {})
    assert client.get("/v1/vms/vm1").status_code == 404


def test_what_would_be_refused_is_refused_before_there_is_an_operation(client: FlaskClient) -> None:
    assert client.post("/v1/vms/test/start", headers=ASYNC).status_code == 409
    assert client.get("/v1/operations").get_json()["items"] == []


def test_a_start_that_fails_in_time_is_a_problem(
    client: FlaskClient, service: Service, vm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(name: str) -> None:
        raise FailedError("no memory", code="libvirt-failed")

    monkeypatch.setattr(service._libvirt, "start", start)
    answer = client.post(f"{vm}/start")
    assert (answer.status_code, answer.get_json()["code"]) == (500, "libvirt-failed")
    begun = client.post(f"{vm}/start", headers=ASYNC)
    ended = client.get(f"{begun.headers['Location']}?wait=30").get_json()
    assert (begun.status_code, ended["state"], ended["error"]["code"]) == (202, "failed", "libvirt-failed")


def test_a_definition_whose_answer_got_lost_is_found_by_its_key(
    client: FlaskClient, service: Service, allocate: Allocate, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, key = {"allocation_id": allocate("vm1")["id"]}, {"Idempotency-Key": "k"}
    with monkeypatch.context() as broken:
        broken.setattr(service.idempotency, "finish", None)
        assert client.post("/v1/vms", json=body, headers=key).status_code == 500
    again = client.post("/v1/vms", json=body, headers=key)
    assert (again.status_code, again.get_json()["name"]) == (201, "vm1")
    assert again.headers["Location"] == "/v1/vms/vm1"
    assert len(client.get("/v1/operations?subject=vm1").get_json()["items"]) == 1


def test_foreign_vms_are_refused_in_a_dry_run(client: FlaskClient) -> None:
    for answer in (
        client.post("/v1/vms/test/stop?dry_run=true"),
        client.post("/v1/vms/test/start?dry_run=true"),
        client.delete("/v1/vms/test?dry_run=true"),
    ):
        assert answer.get_json()["refusal"]["code"] == "vm-foreign"


@pytest.mark.parametrize("name", ["a%00b", "a%0ab", "%EF%BF%BF"])
def test_a_name_that_libvirt_cannot_hold_is_refused(client: FlaskClient, name: str) -> None:
    assert client.get(f"/v1/vms/{name}").status_code == 422


def test_vms_are_filtered(client: FlaskClient, vm: str) -> None:
    def names(query: str) -> list[str]:
        return [item["name"] for item in client.get(f"/v1/vms?{query}").get_json()["items"]]

    assert names("ours=true") == ["vm1"]
    assert names("ours=false") == ["test"]
    assert names("state=shut-off") == ["vm1"]
    assert client.get("/v1/vms?state=asleep").status_code == 422


def test_a_check_takes_the_xml_itself(client: FlaskClient) -> None:
    xml = b"<?xml version='1.0' encoding='iso-8859-1'?><domain><name>\xe4</name></domain>"
    answer = client.post("/v1/domain-checks", data=xml, content_type="application/xml")
    assert (answer.status_code, answer.get_json()["devices"]) == (200, [])
    bad = client.post("/v1/domain-checks", data=b"<domain", content_type="text/xml")
    assert (bad.status_code, bad.get_json()["code"]) == (400, "domain-xml-invalid")


def test_the_domain_of_an_allocation_may_have_what_is_promised_to_it(
    client: FlaskClient, allocate: Allocate
) -> None:
    xml = client.get(f"/v1/allocations/{allocate('vm1')['id']}/xml").get_data()
    answer = client.post("/v1/domain-checks", data=xml, content_type="application/xml")
    assert answer.get_json()["problems"] == []
    stranger = xml.replace(b"<metadata>", b"<title>").replace(b"</metadata>", b"</title>")
    answer = client.post("/v1/domain-checks", data=stranger, content_type="application/xml")
    assert "reserved" in {problem["code"] for problem in answer.get_json()["problems"]}
