"""Idempotency keys: what they cover, and how long they are remembered."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient

from tests.api.conftest import GPU
from vgpumgr import service as use_cases
from vgpumgr.service import Service

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
