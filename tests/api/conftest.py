"""The whole service on the simulated VDI host, with libvirt's in-process driver, behind Flask's test client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.databases import put_empty_database
from vgpumgr.assembly import open_service
from vgpumgr.config import Config
from vgpumgr.service import Service
from vgpumgr_api.app import create_app

GPU = "0000:3b:00.0"


def settings_in(folder: Path) -> Config:
    return Config(state_dir=folder, runtime_dir=folder, libvirt_uri="test:///default", simulate="vdi-a40")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    put_empty_database(tmp_path)
    opened = open_service(settings_in(tmp_path))
    opened.start()
    yield opened
    for vm in opened.vms():
        if vm.allocation is not None:
            opened.wait(opened.stop_vm(vm.name, force=True).id, None)
            opened.wait(opened.undefine_vm(vm.name).id, None)
    opened.close()


@pytest.fixture
def client(service: Service) -> FlaskClient:
    return create_app(service).test_client()


@pytest.fixture
def allocate(client: FlaskClient) -> Callable[..., dict[str, Any]]:
    """Allocate by REST and wait until it is ready."""

    def create(vm: str, **wanted: Any) -> dict[str, Any]:
        answer = client.post("/v1/allocations?wait=30", json={"vm": vm, **wanted})
        assert answer.status_code == 201, answer.get_data(as_text=True)
        body: dict[str, Any] = answer.get_json()
        return body

    return create
