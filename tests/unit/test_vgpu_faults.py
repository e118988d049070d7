"""What goes wrong while vGPUs are made and deleted: each a stable code, nothing half made, guests undisturbed."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from tests.unit.vgpu_hosts import (
    CARD,
    create,
    delete,
    fits,
    host,
    look,
    nvidia,
    order,
    run,
    sliced,
    state,
    t4,
)
from vgpumgr.errors import (
    DeadlineError,
    FailedError,
    NoCapacityError,
    VgpumgrError,
)
from vgpumgr.kernel.log import DeviceLog, KernelLog, open_log
from vgpumgr.kernel.port import MDEV_DEVICES
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.kernel.simulated.faults import Mishap
from vgpumgr.kernel.tree import Link
from vgpumgr.plans.executor import resume
from vgpumgr.plans.journal import MemoryJournal, StepState
from vgpumgr.plans.step import StepContext
from vgpumgr.vgpu.changes import plan_delete
from vgpumgr.vgpu.port import Order

FIRST_VF = "0000:3b:00.4"


def machine(entry: dict[str, Any]) -> SimulatedKernel:
    return sliced(entry) if "sriov" in entry else host(entry)


@pytest.mark.parametrize(
    ("code", "error", "stable"),
    [
        (errno.EINVAL, FailedError, "driver-refused"),
        (errno.EIO, FailedError, "driver-refused"),
        (errno.ENOSPC, NoCapacityError, "no-capacity"),
        (errno.EUSERS, NoCapacityError, "no-capacity"),
        (errno.ENODEV, FailedError, "parent-gone"),
        (errno.EEXIST, FailedError, "vgpu-exists"),
    ],
)
def test_a_refused_creation_has_a_stable_code_and_leaves_nothing(
    code: int, error: type[VgpumgrError], stable: str
) -> None:
    kernel = machine(t4())
    kernel.faults.add("/create", Mishap.FAIL, errno=code)
    with pytest.raises(error) as caught:
        create(kernel, "GRID T4-4Q")
    assert caught.value.code == stable
    assert f"errno {code}" in str([reason.message for reason in caught.value.reasons])
    assert state(kernel).instances == ()
    assert fits(kernel)["T4-4Q"] == 4


@pytest.mark.parametrize("scheme", ["mdev-vf", "vendor-vfio"])
def test_what_the_driver_logged_reaches_the_user(scheme: str) -> None:
    kernel = machine(nvidia(scheme) | {"sriov": {"total": 1, "vf_driver": "nvidia"}})
    planned = order(kernel, Order("NVIDIA A40-8Q"))
    kernel.machine.cards[CARD].bad_vfs = frozenset({FIRST_VF})
    kernel.machine.messages.append("something from before")
    with pytest.raises(FailedError) as caught:
        run(kernel, planned.plan, {KernelLog: open_log(kernel)})
    said = [reason.message for reason in caught.value.reasons if reason.code == "kernel-log"]
    assert said == ["NVRM: Failed to add vgpu create request: 0x38"]


def test_the_log_of_a_machine_gives_what_was_logged_since(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text("6,1,100,-;from before\n")
    with DeviceLog(str(log)).follow() as said, log.open("a") as writer:
        writer.write("4,2,200,-;NVRM: no room\n SUBSYSTEM=pci\n")
        writer.flush()
        assert said() == ["NVRM: no room"]


def test_a_log_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    with DeviceLog(str(tmp_path / "none")).follow() as said:
        assert list(said()) == []


def test_a_busy_driver_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("vgpumgr.vgpu.driver_answers.sleep", waits.append)
    kernel = machine(t4())
    kernel.faults.add("/create", Mishap.FAIL, errno=errno.EAGAIN, times=2)
    create(kernel, "GRID T4-4Q")
    assert len(state(kernel).instances) == 1
    assert len(waits) == 2


def test_a_driver_that_stays_busy_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vgpumgr.vgpu.driver_answers.sleep", lambda _: None)
    kernel = machine(t4())
    kernel.faults.add("/create", Mishap.FAIL, errno=errno.EBUSY)
    with pytest.raises(FailedError) as caught:
        create(kernel, "GRID T4-4Q")
    assert caught.value.code == "driver-busy"


def test_a_failure_halfway_takes_back_what_was_made() -> None:
    kernel = machine(t4())
    planned = order(kernel, Order("GRID T4-4Q", 3))
    kernel.faults.add(f"/create {planned.devices[2].handle}", Mishap.FAIL, errno=errno.EIO)
    with pytest.raises(FailedError):
        run(kernel, planned.plan)
    assert state(kernel).instances == ()


def test_what_cannot_be_taken_back_is_named() -> None:
    kernel = machine(t4())
    planned = order(kernel, Order("GRID T4-4Q", 2))
    kernel.faults.add(f"/create {planned.devices[1].handle}", Mishap.FAIL, errno=errno.EIO)
    kernel.faults.add("/remove", Mishap.FAIL, errno=errno.EIO)
    with pytest.raises(FailedError) as caught:
        run(kernel, planned.plan)
    left = [reason for reason in caught.value.reasons if reason.code == "left-behind"]
    assert len(left) == 1
    assert (planned.devices[0].handle or "nothing") in left[0].message


def test_a_write_that_silently_does_nothing_is_no_success() -> None:
    kernel = machine(nvidia("vendor-vfio"))
    kernel.faults.add("current_vgpu_type", Mishap.IGNORE)
    with pytest.raises(FailedError) as caught:
        create(kernel, "NVIDIA A40-8Q")
    assert caught.value.code == "verify-failed"


def test_a_write_that_hangs_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = machine(t4())
    kernel.faults.add("/create", Mishap.HANG)
    planned = order(kernel, Order("GRID T4-4Q"))
    write = kernel.write
    monkeypatch.setattr(kernel, "write", lambda path, text, deadline=0.01: write(path, text, deadline=deadline))
    with pytest.raises(DeadlineError):
        run(kernel, planned.plan)


def test_capacity_that_went_away_between_plan_and_write() -> None:
    kernel = machine(t4())
    planned = order(kernel, Order("GRID T4-16Q"))
    create(kernel, "GRID T4-16Q")
    with pytest.raises(NoCapacityError):
        run(kernel, planned.plan)
    assert len(state(kernel).instances) == 1


def test_a_driver_reload_between_plan_and_write() -> None:
    kernel = machine(nvidia("vendor-vfio"))
    planned = order(kernel, Order("NVIDIA A40-8Q"))
    kernel.reload_driver(CARD)
    with pytest.raises(FailedError):
        run(kernel, planned.plan)
    assert [reason.code for reason in state(kernel).reasons] == ["vfs-off"]


def test_a_parent_that_disappears() -> None:
    kernel = machine(t4())
    planned = order(kernel, Order("GRID T4-8Q"))
    kernel.lose(CARD)
    with pytest.raises(FailedError) as caught:
        run(kernel, planned.plan)
    assert caught.value.code == "parent-gone"


def guest_opens(kernel: SimulatedKernel, uuid: str, pid: int = 77) -> None:
    tree = kernel.machine.tree
    group = tree.readlink(f"{MDEV_DEVICES}/{uuid}/iommu_group").rpartition("/")[2]
    tree.write_text(f"/proc/{pid}/comm", "qemu-kvm")
    tree.put(f"/proc/{pid}/fd/9", Link(f"/dev/vfio/{group}"))


def test_a_vgpu_in_use_stays_until_its_guest_lets_go() -> None:
    kernel = machine(t4())
    (device,) = create(kernel, "GRID T4-8Q")
    guest_opens(kernel, device.handle or "")
    with pytest.raises(FailedError) as caught:
        delete(kernel, device.handle or "")
    assert caught.value.code == "vgpu-in-use"
    assert "qemu-kvm" in str([reason.message for reason in caught.value.reasons])
    assert len(state(kernel).instances) == 1
    kernel.let_go(77)
    delete(kernel, device.handle or "")
    assert state(kernel).instances == ()


def test_a_typed_vf_that_is_open_keeps_its_type() -> None:
    kernel = machine(nvidia("vendor-vfio"))
    (device,) = create(kernel, "NVIDIA A40-8Q")
    kernel.hold(device.handle or "", 78, "qemu-kvm")
    with pytest.raises(FailedError) as caught:
        delete(kernel, device.handle or "")
    assert caught.value.code == "vgpu-in-use"
    assert len(state(kernel).instances) == 1


def test_vgpus_of_others_are_never_touched() -> None:
    kernel = machine(t4())
    (device,) = create(kernel, "GRID T4-8Q")
    inventory, gpu = look(kernel)
    refusal = plan_delete(kernel, inventory, gpu, [device.handle or ""], ours=()).refusal
    assert refusal is not None
    assert refusal.code == "vgpu-foreign"


def test_a_vf_that_became_another_vgpu_is_not_cleared() -> None:
    kernel = machine(nvidia("vendor-vfio"))
    (device,) = create(kernel, "NVIDIA A40-8Q")
    inventory, gpu = look(kernel)
    handle = device.handle or ""
    plan = plan_delete(kernel, inventory, gpu, [handle], ours={handle})
    delete(kernel, handle)
    create(kernel, "NVIDIA A40-4Q")
    with pytest.raises(FailedError) as caught:
        run(kernel, plan)
    assert caught.value.code == "vgpu-changed"
    assert [vgpu.profile for vgpu in state(kernel).instances] == ["NVIDIA A40-4Q"]


def test_a_vgpu_that_cannot_be_read_any_more_is_not_taken_for_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = machine(nvidia("vendor-vfio"))
    handle = create(kernel, "NVIDIA A40-8Q")[0].handle or ""
    read = kernel.read

    def unreadable(path: str) -> bytes:
        if path.endswith(f"{handle}/nvidia/current_vgpu_type"):
            raise OSError(errno.EIO, "unreadable", path)
        return read(path)

    monkeypatch.setattr(kernel, "read", unreadable)
    with pytest.raises(FailedError) as caught:
        delete(kernel, handle)
    assert caught.value.code == "kernel-refused"


def test_a_creation_cut_short_by_a_crash_is_taken_back() -> None:
    kernel = machine(t4())
    plan = order(kernel, Order("GRID T4-4Q", 2)).plan
    journal = MemoryJournal()
    journal.begin("op", plan)
    context = StepContext(kernel)
    plan.steps[0].apply(context)
    journal.step("op", 0, StepState.DONE)
    plan.steps[1].apply(context)
    journal.step("op", 1, StepState.STARTED)
    resume(journal.unfinished()[0], context, journal)
    assert state(kernel).instances == ()
