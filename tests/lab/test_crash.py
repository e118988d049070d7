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


BIND_STEPS = 7
"""Steps of a plan that binds a GPU without companions; of one that makes a vGPU: :data:`VGPU_STEPS`."""
VGPU_STEPS = 2
T4_8Q = f"{DEVICES}/{boards.T4}/mdev_supported_types/nvidia-233/available_instances"


def crash_at(host: Host, position: int, *words: str) -> None:
    """Run a command whose operation is killed at a step, which must be reached; then start the service again."""
    machine = host.machine
    machine.put(KILLER, INSIDE)
    machine.ok(
        f"rm -f /run/lab/killed; nohup python3 {INSIDE}/{KILLER.name} {position} >/run/lab/killed 2>&1 &"
        " until grep -q watching /run/lab/killed 2>/dev/null; do sleep 0.05; done"
    )
    host.vgpumgr(*words)
    machine.wait("grep -qE '^(killed|ended|nothing)' /run/lab/killed", what="the killer did its work")
    assert "killed" in host.read("/run/lab/killed"), f"no step {position}: {host.read('/run/lab/killed')}"
    machine.ok("systemctl start vgpumgr.socket vgpumgr.service", deadline=180)


def unfinished(host: Host) -> list[dict[str, Any]]:
    """Operations that are neither done nor undone."""
    return [item for item in host.get("/v1/operations") if item["state"] not in ("succeeded", "failed")]


def alive(host: Host, vm: str) -> list[dict[str, Any]]:
    """The VM's allocations that hold something; all of them must be whole."""
    found = host.get(f"/v1/allocations?vm={vm}")
    assert {item["state"] for item in found} <= {"ready", "failed", "released"}
    return [item for item in found if item["state"] == "ready"]


def bound_or_at_home(host: Host) -> bool:
    """Whether the GPU is bound, and shown so; else it must be as it was at boot."""
    bound = host.driver(boards.RTX3090) == "vfio-pci" and host.override(boards.RTX3090) == "vfio-pci"
    assert bound or host.at_home(boards.RTX3090)
    assert host.gpu(boards.RTX3090)["passthrough"]["state"] == ("ready" if bound else "host")
    return bound


def test_every_step_is_killed_below(host: Host) -> None:
    planned = host.vgpumgr("gpu", "bind", boards.RTX3090, "--plan").done()
    assert len(planned["steps"]) == BIND_STEPS
    planned = host.vgpumgr("vgpu", "create", "--gpu", boards.T4, "--profile", "GRID T4-8Q", "--plan").done()
    assert len(planned["steps"]) == VGPU_STEPS


@pytest.mark.parametrize("position", range(BIND_STEPS))
def test_a_bind_that_was_killed_is_finished_or_undone(host: Host, position: int) -> None:
    crash_at(host, position, "gpu", "bind", boards.RTX3090, "--yes")
    assert unfinished(host) == []
    bound_or_at_home(host)
    host.vgpumgr("gpu", "release", boards.RTX3090, "--yes").done()
    assert host.at_home(boards.RTX3090)


@pytest.mark.parametrize("position", range(BIND_STEPS))
def test_an_allocation_of_a_gpu_that_was_killed_is_ready_or_leaves_nothing(host: Host, position: int) -> None:
    crash_at(host, position, "alloc", "create", "--vm", "cut", "--gpu", boards.RTX3090)
    assert unfinished(host) == []
    left = alive(host, "cut")
    assert bound_or_at_home(host) is bool(left), "bound for the allocation, or neither"
    for item in left:
        host.vgpumgr("alloc", "release", item["id"], "--yes").done()
    assert host.at_home(boards.RTX3090)


@pytest.mark.parametrize("position", range(VGPU_STEPS))
def test_an_allocation_of_a_vgpu_that_was_killed_is_ready_or_leaves_nothing(host: Host, position: int) -> None:
    crash_at(host, position, "alloc", "create", "--vm", "cut", "--gpu", boards.T4, "--profile", "GRID T4-8Q")
    assert unfinished(host) == []
    left = alive(host, "cut")
    assert host.machine.ok(MDEVS).split() == [item["devices"][0]["handle"] for item in left]
    for item in left:
        host.vgpumgr("alloc", "release", item["id"], "--yes").done()
    assert host.machine.ok(MDEVS) == ""
    assert host.read(T4_8Q) == "2"
