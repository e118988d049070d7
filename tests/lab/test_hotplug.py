"""GPUs that come and go while the service runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import boards
from tests.lab.host import DEVICES, Host
from tests.lab.qmp import QmpError


@pytest.fixture
def spare(host: Host) -> Iterator[str]:
    """A GPU in the spare slot; out again afterwards."""
    host.machine.plug()
    host.machine.wait(f"test -e {DEVICES}/{boards.SPARE_ADDRESS}/driver", what="Linux saw the plugged GPU")
    yield boards.SPARE_ADDRESS
    try:
        host.machine.pull()
    except QmpError:
        host.machine.wait(f"test ! -e {DEVICES}/{boards.SPARE_ADDRESS}", what="the pulled GPU is gone")


def addresses(host: Host) -> list[str]:
    return [gpu["address"] for gpu in host.get("/v1/gpus")]


def test_a_plugged_gpu_is_seen_and_a_pulled_one_is_not(host: Host, spare: str) -> None:
    gpu = host.gpu(spare)
    assert (gpu["vendor_id"], gpu["device_id"], gpu["driver"]) == ("10de", "2230", "nvidia")
    status, body = host.rest("GET", f"/v1/gpus/{spare}")
    assert (status, body["address"]) == (200, spare)
    host.machine.pull()
    assert spare not in addresses(host)
    status, body = host.rest("GET", f"/v1/gpus/{spare}")
    assert (status, body["code"]) == (404, "gpu-unknown")


def test_an_allocated_gpu_that_is_pulled_is_released_without_it(host: Host, spare: str) -> None:
    allocation = host.allocate("loser", "--gpu", spare)
    assert allocation["state"] == "ready"
    host.machine.pull()
    assert spare not in addresses(host)
    refused = host.vgpumgr("vm", "define", allocation["id"], "--template", "lab-look", "--memory", "256")
    assert refused.status != 0, "a VM cannot have what is gone"
    host.vgpumgr("alloc", "release", allocation["id"], "--yes")
    shown = host.get(f"/v1/allocations/{allocation['id']}")
    assert shown["state"] in ("released", "failed")
    assert host.rest("GET", "/readyz")[0] == 200
