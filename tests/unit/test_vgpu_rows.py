"""Card by card, on simulated hosts: the answer is right, the limit can be reached, and one more is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.vgpu_hosts import (
    A40,
    CARD,
    T4,
    blackwell,
    flex,
    gvt,
    h100,
    host,
    look,
    nvidia,
    order,
    run,
    set_modes,
)
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.telemetry.nvml import open_nvml
from vgpumgr.vgpu.modes import Modes
from vgpumgr.vgpu.names import same_profile
from vgpumgr.vgpu.nvml_port import NvmlPort
from vgpumgr.vgpu.port import Order
from vgpumgr.vgpu.vf_plans import plan_slice

Prepare = Callable[[SimulatedKernel, NvmlPort], None]
GIB = 1024
M60 = {"prefix": "GRID M60", "Q": {"first": 12, "gib": [1, 2, 4, 8]}}
A2 = {"prefix": "NVIDIA A2", "Q": {"first": 744, "gib": [1, 2, 4, 8, 16]}, "C": {"first": 754, "gib": [4, 8, 16]}}
A16 = {"prefix": "NVIDIA A16", "Q": {"first": 711, "gib": [1, 2, 4, 8, 16]}}
A100 = {
    "prefix": "GRID A100",
    "C": {"first": 468, "gib": [4, 5, 8, 10, 20, 40]},
    "MIG": {"first": 474, "of": ["1-5C", "2-10C", "3-20C", "4-20C", "7-40C"]},
}
L40S = {"prefix": "NVIDIA L40S", "Q": {"first": 1147, "gib": [1, 2, 3, 4, 6, 8, 12, 16, 24, 48]}}


def a100() -> dict[str, Any]:
    return nvidia("mdev-vf", A100, 40 * GIB, mig={"slices": 7}) | {"id": "10de:20b0"}


H100_SHARED = {
    "prefix": "NVIDIA H100XM",
    "C": {"first": 2001, "gib": [10, 80]},
    "MIG": {"first": 2101, "of": ["1-5C", "1-10C", "2-10C", "2-20C"]},
}


def h100_shared() -> dict[str, Any]:
    """The card under a driver that shares GPU instances by time."""
    return nvidia("vendor-vfio", H100_SHARED, 81920, mig={"slices": 7, "time_sliced": True}) | {"id": "10de:2330"}


def mi210(enabled: int) -> dict[str, Any]:
    """AMD's own driver makes the VF when it is loaded; until then there is none."""
    sriov: dict[str, Any] = {"total": 1, "offset": 1, "vf_class": "038000"}
    if enabled:
        sriov["enabled"] = enabled
    return {"address": CARD, "id": "1002:740f", "class": "038000", "driver": "gim", "sriov": sriov}


def as_it_is(kernel: SimulatedKernel, nvml: NvmlPort) -> None:
    """Nothing to prepare."""


def cut(kernel: SimulatedKernel, nvml: NvmlPort) -> None:
    run(kernel, plan_slice(kernel, look(kernel, nvml)[1]))


def in_mig(*layout: str) -> Prepare:
    def prepare(kernel: SimulatedKernel, nvml: NvmlPort) -> None:
        set_modes(kernel, nvml, Modes(mig=True))
        cut(kernel, nvml)
        set_modes(kernel, nvml, Modes(layout=layout))

    return prepare


def mixed(kernel: SimulatedKernel, nvml: NvmlPort) -> None:
    cut(kernel, nvml)
    set_modes(kernel, nvml, Modes(mixed_size=True))


def eight_vfs(kernel: SimulatedKernel, nvml: NvmlPort) -> None:
    run(kernel, plan_slice(kernel, look(kernel)[1], 8))


ROWS = [
    pytest.param(nvidia("mdev", T4, 16 * GIB), as_it_is, "T4-4Q", 4, "max-instances", id="T4"),
    pytest.param(nvidia("mdev", T4, 16 * GIB), as_it_is, "T4-16C", 1, "max-instances", id="T4-whole"),
    pytest.param(nvidia("mdev", M60, 8 * GIB), as_it_is, "M60-2Q", 4, "max-instances", id="M60"),
    pytest.param(nvidia("mdev-vf", A2, 16 * GIB), cut, "A2-4C", 4, "max-instances", id="A2"),
    pytest.param(nvidia("mdev-vf", A16, 16 * GIB), cut, "A16-2Q", 8, "max-instances", id="A16"),
    pytest.param(nvidia("mdev-vf", A40), cut, "A40-16C", 3, "max-instances", id="A40"),
    pytest.param(nvidia("vendor-vfio", A40), cut, "A40-1Q", 32, "max-instances", id="A40-vendor-vfio"),
    pytest.param(a100(), cut, "A100-8C", 5, "max-instances", id="A100"),
    pytest.param(a100(), cut, "A100-1-5C", 0, "mig-off", id="A100-mig-off"),
    pytest.param(a100(), in_mig(*["1g.5gb"] * 7), "A100-1-5C", 7, "mig-instances-taken", id="A100-mig"),
    pytest.param(a100(), in_mig("3g.20gb", "3g.20gb"), "A100-3-20C", 2, "mig-instances-taken", id="A100-halves"),
    pytest.param(a100(), in_mig("7g.40gb"), "A100-40C", 0, "mig-on", id="A100-mig-on"),
    pytest.param(nvidia("vendor-vfio", L40S), cut, "L40S-12Q", 4, "max-instances", id="L40S"),
    pytest.param(nvidia("vendor-vfio", L40S, mixed=True), mixed, "L40S-16Q", 2, "max-instances", id="L40S-mixed"),
    pytest.param(h100(), cut, "H100XM-16C", 5, "max-instances", id="H100"),
    pytest.param(h100(), mixed, "H100XM-16C", 4, "max-instances", id="H100-mixed"),
    pytest.param(h100(), in_mig("4g.40gb", "2g.20gb", "1g.10gb"), "H100XM-2-20C", 1, "mig-instances-taken",
                 id="H100-mig"),
    pytest.param(h100_shared(), in_mig("1g.10gb", "2g.20gb", "1g.10gb"), "H100XM-1-5C", 4, "mig-instances-taken",
                 id="H100-time-sliced-mig"),
    pytest.param(h100_shared(), in_mig("1g.10gb", "2g.20gb"), "H100XM-2-10C", 2, "mig-instances-taken",
                 id="H100-time-sliced-mig-two-slices"),
    pytest.param(blackwell(), in_mig("1g.24gb", "1g.24gb", "2g.48gb"), "RTX Pro 6000 Blackwell DC-1-12Q", 4,
                 "mig-instances-taken", id="time-sliced-mig"),
    pytest.param(gvt(), as_it_is, "i915-GVTg_V5_8", 4, "framebuffer", id="GVT-g"),
    pytest.param(flex(), eight_vfs, "vf-8086-56c0", 8, "vfs-fixed", id="Flex-170"),
    pytest.param(mi210(1), as_it_is, "vf-1002-740f", 1, "vfs-fixed", id="MI210"),
    pytest.param(mi210(0), as_it_is, "vf-1002-740f", 0, "vfs-by-driver", id="MI210-without-VF"),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "prepare", "profile", "most", "why_not_more"), ROWS)
def test_the_answer_is_right_to_the_last_one(
    entry: dict[str, Any],
    prepare: Prepare,
    profile: str,
    most: int,
    why_not_more: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = host(entry)
    nvml = open_nvml(kernel)
    prepare(kernel, nvml)
    for left in range(most, 0, -1):
        assert creatable(kernel, nvml, profile) == left
        planned = order(kernel, Order(profile), nvml=nvml)
        run(kernel, planned.plan)
    assert creatable(kernel, nvml, profile) == 0
    monkeypatch.setattr(kernel, "write", _no_write)
    refusal = order(kernel, Order(profile), nvml=nvml).plan.refusal
    assert refusal is not None
    assert [reason.code for reason in refusal.reasons] == [why_not_more]


DC = "RTX Pro 6000 Blackwell DC"
STATES = [
    pytest.param(nvidia("mdev", T4, 16 * GIB), as_it_is, ["T4-4Q"],
                 {"T4-4C": 3, "T4-4Q": 3, "T4-8Q": 0, "T4-2Q": 0, "T4-16C": 0}, id="T4"),
    pytest.param(nvidia("mdev", M60, 8 * GIB), as_it_is, ["M60-1Q"] * 3,
                 {"M60-1Q": 5, "M60-2Q": 0, "M60-8Q": 0}, id="M60"),
    pytest.param(nvidia("mdev-vf", A2, 16 * GIB), cut, ["A2-4Q", "A2-4C", "A2-4Q"],
                 {"A2-4Q": 1, "A2-4C": 1, "A2-1Q": 0, "A2-8C": 0}, id="A2"),
    pytest.param(nvidia("mdev-vf", A16, 16 * GIB), cut, ["A16-8Q"],
                 {"A16-8Q": 1, "A16-16Q": 0, "A16-4Q": 0}, id="A16"),
    pytest.param(nvidia("mdev-vf", A40), cut, ["A40-24Q"], {"A40-24C": 1, "A40-24Q": 1, "A40-48Q": 0, "A40-1B": 0},
                 id="A40"),
    pytest.param(nvidia("vendor-vfio", A40), cut, ["A40-2Q", "A40-2B"], {"A40-2Q": 22, "A40-2B": 22, "A40-4Q": 0},
                 id="A40-vendor-vfio"),
    pytest.param(a100(), cut, ["A100-10C"] * 2, {"A100-10C": 2, "A100-20C": 0, "A100-5C": 0, "A100-1-5C": 0},
                 id="A100"),
    pytest.param(a100(), in_mig("3g.20gb", "2g.10gb", "1g.5gb"), ["A100-3-20C"],
                 {"A100-3-20C": 0, "A100-2-10C": 1, "A100-1-5C": 1, "A100-7-40C": 0, "A100-20C": 0}, id="A100-mig"),
    pytest.param(nvidia("vendor-vfio", L40S), cut, ["L40S-16Q"], {"L40S-16Q": 2, "L40S-24Q": 0, "L40S-8Q": 0},
                 id="L40S"),
    pytest.param(nvidia("vendor-vfio", L40S, mixed=True), mixed, ["L40S-24Q"],
                 {"L40S-24Q": 1, "L40S-16Q": 1, "L40S-12Q": 2, "L40S-8Q": 2, "L40S-6Q": 4, "L40S-48Q": 0},
                 id="L40S-mixed"),
    pytest.param(h100(), mixed, ["H100XM-40C", "H100XM-8C"],
                 {"H100XM-40C": 0, "H100XM-20C": 1, "H100XM-16C": 1, "H100XM-10C": 3, "H100XM-8C": 3,
                  "H100XM-5C": 6, "H100XM-80C": 0}, id="H100-mixed"),
    pytest.param(h100(), in_mig("3g.40gb", "2g.20gb", "1g.10gb"), ["H100XM-1-10C"],
                 {"H100XM-3-40C": 1, "H100XM-2-20C": 1, "H100XM-1-10C": 0, "H100XM-4-40C": 0, "H100XM-40C": 0},
                 id="H100-mig"),
    pytest.param(h100_shared(), in_mig("1g.10gb", "1g.10gb", "2g.20gb"), ["H100XM-1-5C"],
                 {"H100XM-1-5C": 3, "H100XM-1-10C": 1, "H100XM-2-10C": 2, "H100XM-2-20C": 1},
                 id="H100-time-sliced-mig"),
    pytest.param(blackwell(), in_mig("1g.24gb", "1g.24gb"), [f"{DC}-1-12Q"], {f"{DC}-1-12Q": 3, f"{DC}-1-24Q": 1},
                 id="time-sliced-mig"),
    pytest.param(gvt(), as_it_is, ["i915-GVTg_V5_4"], {"i915-GVTg_V5_4": 1, "i915-GVTg_V5_8": 2}, id="GVT-g"),
    pytest.param(flex(), eight_vfs, ["vf-8086-56c0"] * 3, {"vf-8086-56c0": 5}, id="Flex-170"),
    pytest.param(mi210(1), as_it_is, ["vf-1002-740f"], {"vf-1002-740f": 0}, id="MI210"),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "prepare", "there", "left"), STATES)
def test_what_is_there_leaves_room_for_this(
    entry: dict[str, Any], prepare: Prepare, there: list[str], left: dict[str, int]
) -> None:
    kernel = host(entry)
    nvml = open_nvml(kernel)
    prepare(kernel, nvml)
    for profile in there:
        run(kernel, order(kernel, Order(profile), nvml=nvml).plan)
    assert {profile: creatable(kernel, nvml, profile) for profile in left} == left


@pytest.mark.parametrize(("entry", "prepare", "there", "left"), STATES)
def test_what_is_said_to_fit_can_be_made_and_one_more_cannot(
    entry: dict[str, Any],
    prepare: Prepare,
    there: list[str],
    left: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for profile, most in left.items():
        kernel = host(entry)
        nvml = open_nvml(kernel)
        prepare(kernel, nvml)
        for other in there:
            run(kernel, order(kernel, Order(other), nvml=nvml).plan)
        if most:
            run(kernel, order(kernel, Order(profile, most), nvml=nvml).plan)
        monkeypatch.setattr(kernel, "write", _no_write)
        refusal = order(kernel, Order(profile), nvml=nvml).plan.refusal
        assert refusal is not None, profile
        assert refusal.reasons, profile


def creatable(kernel: SimulatedKernel, nvml: NvmlPort, wanted: str) -> int:
    found = look(kernel, nvml)[1].vgpu.profiles
    return next(item.creatable for item in found if same_profile(wanted, item.id, item.name))


def _no_write(path: str, text: str, **_: Any) -> None:
    raise AssertionError(f"{path} was written although the order is refused")
