"""Cutting cards into virtual functions: the kernel's rules, the vendor's tool, shares, and what must stop it."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.vgpu_hosts import (
    CARD,
    create,
    delete,
    flex,
    h100,
    host,
    look,
    nvidia,
    run,
    set_modes,
    sliced,
    state,
)
from vgpumgr.errors import FailedError
from vgpumgr.inventory import take_inventory
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.kernel.simulated.faults import Mishap
from vgpumgr.plans.plan import Plan
from vgpumgr.telemetry.nvml import open_nvml
from vgpumgr.vgpu.modes import Modes
from vgpumgr.vgpu.nvml_port import NvmlPort
from vgpumgr.vgpu.sriov_manage import sriov_tool
from vgpumgr.vgpu.sriov_steps import SriovTool
from vgpumgr.vgpu.vf_plans import plan_slice
from vgpumgr.vgpu.vf_shares import VfShare

DEVICE = f"/sys/bus/pci/devices/{CARD}"


def slice_plan(kernel: SimulatedKernel, count: int | None = None, share: VfShare | None = None) -> Plan:
    return plan_slice(kernel, look(kernel)[1], count, share)


def writes(plan: Plan) -> list[tuple[str, str | None]]:
    return [(step.target_path.rpartition("/")[2], step.target_value) for step in plan.steps if step.target_path]


def refusal_code(plan: Plan) -> str:
    assert plan.refusal is not None
    return plan.refusal.code


def test_nvidia_vfs_are_all_enabled_and_stay_with_their_driver() -> None:
    kernel = host(nvidia("mdev-vf"))
    plan = slice_plan(kernel)
    assert writes(plan) == [("sriov_numvfs", "32")]
    run(kernel, plan)
    gpu = look(kernel)[1]
    assert gpu.sriov is not None
    assert gpu.sriov.num_vfs == 32
    assert {kernel.driver(vf) for vf in gpu.sriov.vfs} == {"nvidia"}


def test_plain_vfs_come_without_a_driver_and_autoprobe_is_restored() -> None:
    kernel = host(flex())
    plan = slice_plan(kernel, 4)
    assert writes(plan) == [
        ("sriov_drivers_autoprobe", "0"),
        ("sriov_numvfs", "4"),
        ("sriov_drivers_autoprobe", "1"),
    ]
    run(kernel, plan)
    gpu = look(kernel)[1]
    assert gpu.sriov is not None
    assert {kernel.driver(vf) for vf in gpu.sriov.vfs} == {None}
    assert kernel.read(f"{DEVICE}/sriov_drivers_autoprobe") == b"1\n"


def test_from_one_number_to_another_goes_through_none() -> None:
    kernel = host(flex())
    run(kernel, slice_plan(kernel, 4))
    plan = slice_plan(kernel, 7)
    assert [value for name, value in writes(plan) if name == "sriov_numvfs"] == ["0", "7"]
    run(kernel, plan)
    assert len(state(kernel).instances) == 7


def test_the_number_there_is_needs_nothing() -> None:
    kernel = host(flex())
    run(kernel, slice_plan(kernel, 4))
    assert slice_plan(kernel, 4).steps == ()


@pytest.mark.parametrize("count", [32, -1])
def test_numbers_out_of_range_are_refused_before_any_write(count: int) -> None:
    assert refusal_code(slice_plan(host(flex()), count)) == "vfs-above-limit"


def test_a_card_without_the_capability() -> None:
    plain = {"address": CARD, "id": "10de:1eb8", "class": "030200", "driver": "nvidia"}
    assert refusal_code(slice_plan(host(plain), 2)) == "not-capable"


def test_a_driver_that_cannot_says_so_and_nothing_is_left() -> None:
    kernel = host(flex(refuses="ENOENT"))
    with pytest.raises(FailedError) as caught:
        run(kernel, slice_plan(kernel, 2))
    assert caught.value.code == "driver-cannot-enable"
    assert kernel.read(f"{DEVICE}/sriov_drivers_autoprobe") == b"1\n"
    assert state(kernel).instances == ()


def test_nvidias_tool_does_what_its_driver_refuses() -> None:
    entry = nvidia("mdev-vf")
    entry["sriov"] = entry["sriov"] | {"refuses": "EPERM"}
    kernel = host(entry)
    called: list[str] = []

    def enable(address: str) -> None:
        called.append(address)
        shape = kernel.machine.functions[address].sriov
        assert shape is not None
        kernel.machine.functions[address].sriov = replace(shape, refuses=0)
        kernel.write(f"{DEVICE}/sriov_numvfs", "32")

    run(kernel, slice_plan(kernel), {SriovTool: SriovTool(enable, called.append)})
    assert called == [CARD]
    assert fits_something(kernel)


def refusing(entry: dict[str, Any]) -> SimulatedKernel:
    """A host whose driver refuses the plain write, as NVIDIA's does, and says so in the kernel's log."""
    return host(entry | {"sriov": entry["sriov"] | {"refuses": "ENOENT"}})


@pytest.mark.parametrize("count", [None, 0])
def test_gpu_instances_that_the_tool_wipes_are_there_again(count: int | None) -> None:
    kernel = refusing(h100())
    nvml = open_nvml(kernel)
    ports = {NvmlPort: nvml, SriovTool: sriov_tool(kernel)}
    set_modes(kernel, nvml, Modes(mig=True))
    if count == 0:
        run(kernel, plan_slice(kernel, look(kernel, nvml)[1], nvml=nvml), ports)
    set_modes(kernel, nvml, Modes(layout=("3g.40gb", "2g.20gb")))
    before = nvml.card(CARD)
    run(kernel, plan_slice(kernel, look(kernel, nvml)[1], count, nvml=nvml), ports)
    after = nvml.card(CARD)
    assert before is not None and after is not None
    assert [(item.shape, item.start) for item in after.gpu_instances] == [
        (item.shape, item.start) for item in before.gpu_instances
    ]


def test_mixed_sizes_that_the_tool_wipes_are_on_again() -> None:
    kernel = refusing(nvidia("vendor-vfio", mixed=True))
    nvml = open_nvml(kernel)
    set_modes(kernel, nvml, Modes(mixed_size=True))
    run(
        kernel,
        plan_slice(kernel, look(kernel, nvml)[1], nvml=nvml),
        {NvmlPort: nvml, SriovTool: sriov_tool(kernel)},
    )
    card = nvml.card(CARD)
    assert card is not None
    assert card.mixed_size is True


def test_what_the_log_says_of_nvidias_plain_write_does_not_bar_its_tool() -> None:
    kernel = refusing(nvidia("vendor-vfio"))
    ports: dict[type, object] = {SriovTool: sriov_tool(kernel)}
    kernel.machine.messages.append(f"nvidia {CARD}: driver does not support SR-IOV configuration via sysfs")
    (gpu,) = take_inventory(kernel).gpus
    assert gpu.sriov is not None
    assert gpu.sriov.driver_ready is False
    run(kernel, slice_plan(kernel), ports)
    assert kernel.read(f"{DEVICE}/sriov_numvfs") != b"0\n"
    run(kernel, plan_slice(kernel, take_inventory(kernel).gpus[0], 0), ports)
    assert kernel.read(f"{DEVICE}/sriov_numvfs") == b"0\n"


def fits_something(kernel: SimulatedKernel) -> bool:
    return any(profile.creatable for profile in state(kernel).profiles)


def test_live_vgpus_keep_a_card_from_being_cut_anew() -> None:
    kernel = sliced(nvidia("mdev-vf"))
    (device,) = create(kernel, "NVIDIA A40-8Q")
    assert refusal_code(slice_plan(kernel, 0)) == "vgpu-live"
    delete(kernel, device.handle or "")
    run(kernel, slice_plan(kernel, 0))
    assert [reason.code for reason in state(kernel).reasons] == ["vfs-off"]


def test_claimed_vfs_keep_a_card_from_being_cut_anew() -> None:
    kernel = host(flex())
    run(kernel, slice_plan(kernel, 4))
    plan = plan_slice(kernel, look(kernel)[1], 2, claimed={"0000:3b:00.2"})
    assert refusal_code(plan) == "reserved"


def test_a_vf_is_given_to_vfio_and_taken_back() -> None:
    kernel = host(flex())
    run(kernel, slice_plan(kernel, 4))
    (device,) = create(kernel, "vf-8086-56c0")
    handle = device.handle or ""
    assert kernel.driver(handle) == "vfio-pci"
    assert state(kernel).profiles[0].creatable == 3
    delete(kernel, handle)
    assert kernel.driver(handle) is None
    assert state(kernel).profiles[0].creatable == 4


def test_ordering_on_an_uncut_card_cuts_it_into_what_is_ordered() -> None:
    kernel = host(flex())
    devices = create(kernel, "vf-8086-56c0", 3)
    assert [device.handle for device in devices] == ["0000:3b:00.1", "0000:3b:00.2", "0000:3b:00.3"]
    assert {kernel.driver(device.handle or "") for device in devices} == {"vfio-pci"}
    assert state(kernel).profiles[0].creatable == 0


def with_shares(kernel: SimulatedKernel) -> SimulatedKernel:
    for number in (1, 2):
        for name in ("vram_quota", "exec_quantum_ms", "preempt_timeout_us"):
            path = f"{kernel.machine.functions[CARD].path}/sriov_admin/vf{number}/profile/{name}"
            kernel.machine.tree.write_text(path, "0")
    return kernel


def test_shares_are_set_before_the_vfs_exist() -> None:
    kernel = with_shares(host(flex()))
    plan = slice_plan(kernel, 2, VfShare(vram_bytes=4 << 30, exec_quantum_ms=20))
    names = [name for name, _ in writes(plan)]
    assert names == ["sriov_drivers_autoprobe", "vram_quota", "exec_quantum_ms", "vram_quota", "exec_quantum_ms",
                     "sriov_numvfs", "sriov_drivers_autoprobe"]  # fmt: skip
    run(kernel, plan)
    assert kernel.read(f"{DEVICE}/sriov_admin/vf2/profile/vram_quota") == b"4294967296"


def test_shares_are_taken_back_when_enabling_fails() -> None:
    kernel = with_shares(host(flex()))
    kernel.faults.add("sriov_numvfs", Mishap.FAIL, errno=errno.EIO)
    with pytest.raises(FailedError):
        run(kernel, slice_plan(kernel, 2, VfShare(vram_bytes=4 << 30)))
    assert kernel.read(f"{DEVICE}/sriov_admin/vf1/profile/vram_quota").strip() == b"0"


def test_a_driver_without_shares_refuses_them() -> None:
    assert refusal_code(slice_plan(host(flex()), 2, VfShare(exec_quantum_ms=20))) == "vf-share-unsupported"


def test_i915_keeps_shares_for_each_tile_of_its_display_device() -> None:
    kernel = host(flex())
    iov = f"{kernel.machine.functions[CARD].path}/drm/card1/prelim_iov"
    kernel.machine.tree.write_text(f"{iov}/pf/auto_provisioning", "1")
    for tile in ("gt0", "gt1"):
        for name in ("lmem_quota", "exec_quantum_ms"):
            kernel.machine.tree.write_text(f"{iov}/vf1/{tile}/{name}", "0")
    plan = slice_plan(kernel, 1, VfShare(vram_bytes=8 << 30))
    assert [(name, value) for name, value in writes(plan) if name in ("auto_provisioning", "lmem_quota")] == [
        ("auto_provisioning", "0"),
        ("lmem_quota", "8589934592"),
        ("lmem_quota", "8589934592"),
    ]
    run(kernel, plan)
    assert kernel.read(f"{iov}/vf1/gt1/lmem_quota") == b"8589934592"
