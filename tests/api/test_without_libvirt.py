"""A libvirt that is away, or that nobody wants: what still works, and what is told about the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tests.api.conftest import GPU, settings_in
from tests.databases import put_empty_database
from vgpumgr.assembly import open_service
from vgpumgr.service import Service
from vgpumgr_api.app import create_app

Open = Callable[[str], FlaskClient]


@pytest.fixture
def open_with(tmp_path: Path) -> Iterator[Open]:
    """A service whose ``libvirt_uri`` is the one given."""
    opened: list[Service] = []

    def call(uri: str) -> FlaskClient:
        put_empty_database(tmp_path)
        service = open_service(settings_in(tmp_path)._replace(libvirt_uri=uri))
        opened.append(service)
        service.start()
        return create_app(service).test_client()

    yield call
    for service in opened:
        service.close()


def test_with_libvirt_away_gpus_are_seen_and_bound_and_what_needs_it_says_so(
    open_with: Open, tmp_path: Path
) -> None:
    client = open_with(f"qemu+unix:///system?socket={tmp_path}/nobody")
    assert client.get("/v1/gpus").status_code == 200
    assert client.post(f"/v1/gpus/{GPU}/bind?wait=30", json={}).get_json()["state"] == "succeeded"
    assert client.post(f"/v1/gpus/{GPU}/release?wait=30", json={}).get_json()["state"] == "succeeded"
    for answer in (
        client.get("/v1/vms"),
        client.post("/v1/allocations", json={"vm": "vm1", "gpu": GPU}),
        client.post("/v1/allocations?dry_run=true", json={"vm": "vm1", "gpu": GPU}),
    ):
        assert (answer.status_code, answer.get_json()["code"]) == (503, "libvirt-unavailable")
        assert "systemctl status libvirtd" in answer.get_json()["hint"]
    assert client.get("/v1/allocations").get_json()["items"] == []


def test_without_a_libvirt_uri_everything_but_virtual_machines_works(open_with: Open) -> None:
    client = open_with("")
    created = client.post("/v1/allocations?wait=30", json={"vm": "vm1", "gpu": GPU})
    assert (created.status_code, created.get_json()["state"]) == (201, "ready")
    released = client.delete(f"/v1/allocations/{created.get_json()['id']}?wait=30")
    assert released.get_json()["state"] == "released"
    vms = client.get("/v1/vms")
    assert (vms.status_code, vms.get_json()["code"]) == (503, "libvirt-unavailable")
    assert "libvirt_uri" in vms.get_json()["hint"]
