"""Two GPUs of one IOMMU group: both to one VM, with their companions and nothing else, and both back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from flask.testing import FlaskClient

from tests.databases import put_empty_database
from vgpumgr.assembly import open_service
from vgpumgr.config import Config
from vgpumgr_api.app import create_app

FIRST, MATE = "0000:3b:00.0", "0000:3c:00.0"
SOUNDS = ("0000:3b:00.1", "0000:3c:00.1")
_FUNCTIONS = [
    {"address": "0000:3a:00.0", "id": "8086:2030", "class": "060400", "driver": "pcieport", "group": 8},
    *({"address": name, "id": "10de:2204", "class": "030000", "driver": "nvidia"} for name in (FIRST, MATE)),
    *({"address": name, "id": "10de:1aef", "class": "040300", "driver": "snd_hda_intel"} for name in SOUNDS),
]
_SOURCE = re.compile(
    r'<source>\s*<address domain="0x(\w+)" bus="0x(\w+)" slot="0x(\w+)" function="0x(\w+)"/>\s*</source>'
)


def describe_pair(folder: Path) -> Path:
    behind = {"behind": "0000:3a:00.0", "group": 8}
    functions = [each if "group" in each else {**each, **behind} for each in _FUNCTIONS]
    file = folder / "pair.yaml"
    file.write_text(yaml.safe_dump({"functions": functions}), "utf-8")
    put_empty_database(folder)
    return file


def settings(folder: Path, file: Path) -> Config:
    return Config(state_dir=folder, runtime_dir=folder, libvirt_uri="test:///default", simulate=str(file))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[FlaskClient]:
    service = open_service(settings(tmp_path, describe_pair(tmp_path)))
    service.start()
    yield create_app(service).test_client()
    service.close()


def done(client: FlaskClient, path: str, body: dict[str, Any] | None = None, method: str = "POST") -> Any:
    answer = client.open(f"{path}?wait=30", method=method, json=body or {})
    assert answer.status_code in (200, 201, 204), answer.get_data(as_text=True)
    return answer.get_json(silent=True)


def drivers(client: FlaskClient) -> dict[str, str | None]:
    found = {}
    for gpu in client.get("/v1/gpus").get_json()["items"]:
        for function in (gpu, *gpu["companions"]):
            found[function["address"]] = function["driver"]
    return found


def test_both_go_to_one_vm_and_come_back(client: FlaskClient) -> None:
    before = drivers(client)
    done(client, f"/v1/gpus/{FIRST}/bind", {"also": [MATE, SOUNDS[1]]})
    allocation = done(client, "/v1/allocations", {"vm": "pair", "count": 2})
    xml = client.get(f"/v1/allocations/{allocation['id']}/xml").get_data(as_text=True)
    devices = [f"{domain}:{bus}:{slot}.{function}" for domain, bus, slot, function in _SOURCE.findall(xml)]
    assert sorted(devices) == sorted([FIRST, MATE, *SOUNDS])
    assert xml.count("<hostdev") == len(devices)

    done(client, "/v1/vms", {"allocation_id": allocation["id"]})
    done(client, "/v1/vms/pair/start")
    done(client, "/v1/vms/pair/stop", {"force": True})
    done(client, "/v1/vms/pair", method="DELETE")
    done(client, f"/v1/allocations/{allocation['id']}", method="DELETE")
    done(client, f"/v1/gpus/{FIRST}/release")
    assert drivers(client) == before


def test_both_are_had_from_their_host_drivers_and_go_back_to_them(client: FlaskClient) -> None:
    before = drivers(client)
    alone = client.post("/v1/candidates", json={"vm": "one"}).get_json()
    assert alone["candidates"] == []
    allocation = done(client, "/v1/allocations", {"vm": "pair", "count": 2})
    assert [device["gpu"] for device in allocation["devices"]] == [FIRST, MATE]
    assert set(drivers(client).values()) == {"vfio-pci"}
    done(client, f"/v1/allocations/{allocation['id']}", method="DELETE")
    assert drivers(client) == before


def test_after_a_reboot_both_are_bound_again(tmp_path: Path) -> None:
    file = describe_pair(tmp_path)
    for life in ("before", "after"):
        service = open_service(settings(tmp_path, file))
        service.start()
        client = create_app(service).test_client()
        if life == "before":
            done(client, "/v1/allocations", {"vm": "pair", "count": 2})
        assert set(drivers(client).values()) == {"vfio-pci"}
        ended = {item["state"] for item in client.get("/v1/operations").get_json()["items"]}
        assert ended == {"succeeded"}
        service.close()


@pytest.mark.parametrize("gpu", [FIRST, MATE])
@pytest.mark.parametrize("force", [False, True])
def test_neither_is_taken_from_the_vm_that_was_promised_both(client: FlaskClient, gpu: str, force: bool) -> None:
    done(client, f"/v1/gpus/{FIRST}/bind", {"also": [MATE, SOUNDS[1]]})
    done(client, "/v1/allocations", {"vm": "pair", "count": 2})
    assert client.post("/v1/allocations", json={"vm": "thief", "gpu": gpu}).status_code == 409
    answer = client.post(f"/v1/gpus/{gpu}/release", json={"force": force})
    assert (answer.status_code, answer.get_json()["code"]) == (409, "reserved")
