"""GPUs that come and go while the service runs."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.lab import boards
from tests.lab.host import DEVICES, Host
from tests.lab.qmp import QmpError

EVENT_SECONDS = 30.0
"""How long a message of udev's, and a look at the host, may take under an emulated host."""


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


@pytest.fixture
def before(host: Host) -> int:
    """The id of the newest event before anything is plugged in."""
    newest = host.get("/v1/events?limit=1")
    return newest[0]["id"] if newest else 0


def wait_told(host: Host, after: int, *wanted: tuple[str, str]) -> int:
    """Wait until events of these types and subjects are told; the id of the newest."""
    end = time.monotonic() + EVENT_SECONDS
    while True:
        events = host.get(f"/v1/events?after={after}&limit=500")
        told = {(event["type"], event["subject"]) for event in events}
        if told.issuperset(wanted):
            return int(events[0]["id"])
        assert time.monotonic() < end, f"{set(wanted) - told} was not told, but {told}"
        time.sleep(0.5)


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


def test_events_and_the_allocation_tell_of_a_gpu_that_goes_and_comes_back(
    host: Host, before: int, spare: str
) -> None:
    plugged = wait_told(host, before, ("gpu.added", spare))
    allocation = host.allocate("loser", "--gpu", spare)
    host.machine.pull()
    pulled = wait_told(host, plugged, ("gpu.removed", spare), ("allocation.device-missing", allocation["id"]))
    shown = host.get(f"/v1/allocations/{allocation['id']}")
    assert (shown["state"], [warning["code"] for warning in shown["warnings"]]) == ("ready", ["gpu-missing"])
    host.machine.plug()
    wait_told(host, pulled, ("gpu.added", spare), ("allocation.device-back", allocation["id"]))
    assert host.get(f"/v1/allocations/{allocation['id']}")["warnings"] == []
    host.vgpumgr("alloc", "release", allocation["id"], "--yes").done()
    assert host.get(f"/v1/allocations/{allocation['id']}")["state"] == "released"


def test_a_gpu_that_is_removed_by_surprise_is_told_as_well(host: Host, before: int, spare: str) -> None:
    plugged = wait_told(host, before, ("gpu.added", spare))
    host.machine.ok(f"echo 1 >{DEVICES}/{spare}/remove")
    removed = wait_told(host, plugged, ("gpu.removed", spare))
    assert spare not in addresses(host)
    host.machine.ok("echo 1 >/sys/bus/pci/rescan")
    wait_told(host, removed, ("gpu.added", spare))
