"""kill -9 of the service in the middle of its work: when it is back, the work is finished or undone, never half."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lab import boards
from tests.lab.host import DEVICES, Host

KILLER = Path(__file__).parent / "kill_at_step.py"
INSIDE = "/usr/local/lib/lab"
MDEVS = "ls /sys/bus/mdev/devices"


def crash_at(host: Host, position: int, *words: str) -> bool:
    """Run a command whose operation is killed at a step; wait for the service; whether the step was reached."""
    machine = host.machine
    machine.put(KILLER, INSIDE)
    machine.ok(
        f"rm -f /run/lab/killed; nohup python3 {INSIDE}/{KILLER.name} {position} >/run/lab/killed 2>&1 &"
        " until grep -q watching /run/lab/killed 2>/dev/null; do sleep 0.05; done"
    )
    host.vgpumgr(*words)
    machine.wait("grep -qE '^(killed|ended|nothing)' /run/lab/killed", what="the killer did its work")
    killed = "killed" in host.read("/run/lab/killed")
    host.wait_ready()
    return killed


def unfinished(host: Host) -> list[dict[str, Any]]:
    """Operations that are neither done nor undone."""
    return [item for item in host.get("/v1/operations") if item["state"] not in ("succeeded", "failed")]


@pytest.mark.parametrize("position", [2, 3, 4, 5])
def test_a_bind_that_was_killed_is_finished_or_undone(host: Host, position: int) -> None:
    reached = crash_at(host, position, "gpu", "bind", boards.RTX3090, "--yes")
    assert reached, "the plan of a bind has a step for each write"
    assert unfinished(host) == []
    bound = host.driver(boards.RTX3090) == "vfio-pci" and host.override(boards.RTX3090) == "vfio-pci"
    assert bound or host.at_home(boards.RTX3090)
    assert host.gpu(boards.RTX3090)["passthrough"]["state"] == ("ready" if bound else "host")
    host.vgpumgr("gpu", "release", boards.RTX3090, "--yes").done()
    assert host.at_home(boards.RTX3090)


@pytest.mark.parametrize("position", [0, 1])
def test_an_allocation_that_was_killed_is_ready_or_leaves_nothing(host: Host, position: int) -> None:
    words = ("alloc", "create", "--vm", "cut", "--gpu", boards.T4, "--profile", "GRID T4-8Q")
    reached = crash_at(host, position, *words)
    assert reached or position > 0
    assert unfinished(host) == []
    allocations = host.get("/v1/allocations?vm=cut")
    alive = [item for item in allocations if item["state"] in ("ready", "attached")]
    half = [item for item in allocations if item["state"] not in ("ready", "attached", "failed", "released")]
    assert half == []
    assert host.machine.ok(MDEVS).split() == [item["devices"][0]["handle"] for item in alive]
    for item in alive:
        host.vgpumgr("alloc", "release", item["id"], "--yes").done()
    assert host.machine.ok(MDEVS) == ""
    assert host.read(f"{DEVICES}/{boards.T4}/mdev_supported_types/nvidia-233/available_instances") == "2"
