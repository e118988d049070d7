"""Entity tags: nobody changes what somebody else has changed since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.api.conftest import GPU

Allocate = Callable[..., dict[str, Any]]


def test_what_has_not_changed_is_not_sent_again(client: FlaskClient) -> None:
    first = client.get(f"/v1/gpus/{GPU}")
    again = client.get(f"/v1/gpus/{GPU}", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")


def test_a_gpu_that_changed_since_is_not_bound(client: FlaskClient) -> None:
    path = f"/v1/gpus/{GPU}"
    tag = client.get(path).headers["ETag"]
    assert client.post(f"{path}/bind?wait=30", json={}, headers={"If-Match": tag}).status_code == 200
    stale = client.post(f"{path}/release", json={}, headers={"If-Match": tag})
    assert (stale.status_code, stale.get_json()["code"]) == (412, "generation-mismatch")
    now = client.get(path).headers["ETag"]
    assert now in stale.get_json()["detail"]
    assert client.post(f"{path}/release?wait=30", json={}, headers={"If-Match": f'"x", {now}'}).status_code == 200


def test_a_vm_that_changed_since_is_not_stopped(client: FlaskClient, allocate: Allocate) -> None:
    client.post("/v1/vms", json={"allocation_id": allocate("vm1")["id"]})
    tag = client.get("/v1/vms/vm1").headers["ETag"]
    assert client.post("/v1/vms/vm1/start", headers={"If-Match": tag}).status_code == 200
    for stale in (
        client.post("/v1/vms/vm1/stop", json={"force": True}, headers={"If-Match": tag}),
        client.delete("/v1/vms/vm1", headers={"If-Match": tag}),
    ):
        assert stale.status_code == 412
    assert client.get("/v1/vms/vm1").get_json()["state"] == "running"


def test_an_allocation_s_tag_is_its_generation(client: FlaskClient, allocate: Allocate) -> None:
    allocation = allocate("vm1")
    path = f"/v1/allocations/{allocation['id']}"
    assert client.get(path).headers["ETag"] == f'"{allocation["generation"]}"'
    assert client.delete(f"{path}?wait=30", headers={"If-Match": "*"}).status_code == 200


def test_a_weak_tag_is_not_enough_for_a_change(client: FlaskClient, allocate: Allocate) -> None:
    path = f"/v1/allocations/{allocate('vm1')['id']}"
    tag = client.get(path).headers["ETag"]
    assert client.delete(path, headers={"If-Match": f"W/{tag}"}).status_code == 412


def test_a_dry_run_keeps_to_the_tag_too(client: FlaskClient) -> None:
    answer = client.post(f"/v1/gpus/{GPU}/bind?dry_run=true", json={}, headers={"If-Match": '"old"'})
    assert answer.status_code == 412


@pytest.mark.parametrize("text", ["", " ", ","])
def test_a_tag_that_is_none_is_said_to_be(client: FlaskClient, text: str) -> None:
    answer = client.post(f"/v1/gpus/{GPU}/bind?dry_run=true", json={}, headers={"If-Match": text})
    assert (answer.status_code, answer.get_json()["code"]) == (400, "etag-invalid")
