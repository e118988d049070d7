"""Idempotency keys: what they cover, and how long they are remembered."""

from __future__ import annotations

from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tests.api.conftest import GPU, settings_in
from vgpumgr import service as use_cases
from vgpumgr.assembly import open_service
from vgpumgr.errors import UnavailableError
from vgpumgr.service import Service
from vgpumgr_api import allocations
from vgpumgr_api.app import create_app

KEY = {"Idempotency-Key": "k1"}


def test_a_dry_run_uses_no_key(client: FlaskClient) -> None:
    path = f"/v1/gpus/{GPU}/bind"
    for text in ("true", "1", "yes"):
        assert "steps" in client.post(f"{path}?dry_run={text}", json={}, headers=KEY).get_json()
    assert client.post(f"{path}?wait=30&dry_run=0", json={}, headers=KEY).get_json()["state"] == "succeeded"
    again = client.post(f"{path}?wait=30", json={}, headers=KEY)
    assert again.headers["Idempotency-Replayed"] == "true"


def test_a_key_belongs_to_one_resource(client: FlaskClient) -> None:
    client.post(f"/v1/gpus/{GPU}/bind?wait=30", json={}, headers=KEY)
    other = client.post(f"/v1/gpus/{GPU}/release", json={}, headers=KEY)
    assert (other.status_code, other.get_json()["code"]) == (422, "idempotency-key-reused")


def test_an_answer_given_again_has_its_headers(client: FlaskClient) -> None:
    first = client.post("/v1/allocations?wait=30", json={"vm": "vm1"}, headers=KEY)
    again = client.post("/v1/allocations?wait=30", json={"vm": "vm1"}, headers=KEY)
    for name in ("Location", "ETag"):
        assert again.headers[name] == first.headers[name]


def test_a_fault_leaves_the_key_unused(
    client: FlaskClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(service, "allocate", None)
        assert client.post("/v1/allocations", json={"vm": "vm1"}, headers=KEY).status_code == 500
    assert client.post("/v1/allocations?wait=30", json={"vm": "vm1"}, headers=KEY).status_code == 201


class LostError(BaseException):
    """The process is dead, as after kill -9: nothing after it runs."""


def lost(*_arguments: object, **_named: object) -> None:
    raise LostError


def test_a_fault_after_allocating_leaves_the_key_with_the_allocation(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(allocations, "preparing", None)
        assert client.post("/v1/allocations", json={"vm": "vm1"}, headers=KEY).status_code == 500
    again = client.post("/v1/allocations?wait=30", json={"vm": "vm1"}, headers=KEY)
    assert (again.status_code, again.get_json()["state"]) == (201, "ready")
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.headers["Location"] == f"/v1/allocations/{again.get_json()['id']}"
    assert len(client.get("/v1/allocations").get_json()["items"]) == 1


def test_an_answer_that_could_not_be_kept_is_made_from_what_was_done(
    client: FlaskClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind = f"/v1/gpus/{GPU}/bind?wait=30"
    with monkeypatch.context() as broken:
        broken.setattr(service.idempotency, "finish", None)
        assert client.post(bind, json={}, headers=KEY).status_code == 500
    again = client.post(bind, json={}, headers=KEY)
    assert (again.status_code, again.get_json()["kind"]) == (200, "bind")
    assert len(client.get("/v1/operations?subject=" + GPU).get_json()["items"]) == 1


def test_an_operation_that_cannot_be_queued_is_taken_back(
    client: FlaskClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(service._at_desk, "enqueue", unavailable)
        assert client.post("/v1/allocations", json={"vm": "vm1"}, headers=KEY).status_code == 503
    again = client.post("/v1/allocations?wait=30", json={"vm": "vm1"}, headers=KEY)
    assert (again.status_code, again.get_json()["state"]) == (201, "ready")
    assert [item["state"] for item in client.get("/v1/allocations").get_json()["items"]] == ["ready", "failed"]


def unavailable(*_arguments: object) -> None:
    raise UnavailableError("full", code="store-full")


@pytest.mark.parametrize(
    ("place", "step", "allocations_made"), [("idempotency", "finish", 1), ("_at_desk", "enqueue", 2)]
)
def test_after_a_crash_the_key_gives_what_was_made(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, step: str, allocations_made: int
) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(getattr(service, place), step, lost)
        dying.setattr(service.idempotency, "forget", lost)
        with pytest.raises(LostError):
            create_app(service).test_client().post("/v1/allocations?wait=30", json={"vm": "vm1"}, headers=KEY)
    after = open_service(settings_in(tmp_path))
    try:
        after.start()
        client = create_app(after).test_client()
        answer = client.post("/v1/allocations?wait=30", json={"vm": "vm1"}, headers=KEY)
        assert (answer.status_code, answer.get_json()["state"]) == (201, "ready")
        assert len(client.get("/v1/allocations").get_json()["items"]) == allocations_made
    finally:
        after.close()


def test_keys_are_remembered_over_a_restart_but_not_for_ever(
    client: FlaskClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind = f"/v1/gpus/{GPU}/bind?wait=30"
    client.post(bind, json={}, headers=KEY)
    service.start()
    assert "Idempotency-Replayed" in client.post(bind, json={}, headers=KEY).headers
    monkeypatch.setattr(use_cases, "KEYS_KEPT_DAYS", -1)
    service.start()
    assert "Idempotency-Replayed" not in client.post(bind, json={}, headers=KEY).headers
