"""GPUs that are pulled out, and vGPUs that somebody removes, while an allocation counts on them."""

from __future__ import annotations

from pathlib import Path

from tests.unit.test_service_recovery import GPU, open_on, small_host
from tests.unit.test_vgpu_allocations import CARD, allocate, open_host
from vgpumgr.kernel.port import MDEV_DEVICES
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.model.allocation import Allocation, AllocationRequest, AllocationState
from vgpumgr.plans.executor import execute
from vgpumgr.plans.journal import MemoryJournal
from vgpumgr.plans.step import StepContext
from vgpumgr.service import Service
from vgpumgr.vgpu.vf_plans import plan_slice


def allocated(folder: Path) -> tuple[SimulatedKernel, Service, Allocation]:
    """A service with one whole GPU allocated."""
    kernel = small_host()
    service = open_on(kernel, folder)
    service.start()
    allocation = service.allocate(AllocationRequest(vm="loser", gpu=GPU))
    assert allocation.operation_id is not None
    service.wait(allocation.operation_id, None)
    return kernel, service, service.allocation(allocation.id)


def codes(allocation: Allocation) -> list[tuple[str, tuple[str, ...]]]:
    return [(warning.code, warning.addresses) for warning in allocation.warnings]


def test_an_allocation_says_that_its_gpu_is_gone(tmp_path: Path) -> None:
    kernel, service, before = allocated(tmp_path)
    assert (before.state, before.warnings) == (AllocationState.READY, ())
    kernel.lose(GPU)
    assert codes(service.allocation(before.id)) == [("gpu-missing", (GPU,))]
    assert [codes(item) for item in service.allocations().items] == [[("gpu-missing", (GPU,))]]
    notices = [(notice.code, notice.subject) for notice in service.inventory().warnings]
    assert ("gpu-missing", GPU) in notices
    service.close()


def test_a_companion_that_is_gone_counts_as_well(tmp_path: Path) -> None:
    kernel, service, before = allocated(tmp_path)
    companion = GPU.replace(".0", ".1")
    kernel.lose(companion)
    assert codes(service.allocation(before.id)) == [("gpu-missing", (companion,))]
    service.close()


def test_releasing_a_gpu_that_is_gone_forgets_it_for_good(tmp_path: Path) -> None:
    kernel, service, allocation = allocated(tmp_path)
    kernel.lose(GPU)
    released = service.release_allocation(allocation.id)
    assert released.operation_id is not None
    assert service.wait(released.operation_id, None).state == "succeeded"
    after = service.allocation(allocation.id)
    assert (after.state, after.warnings) == (AllocationState.RELEASED, ())
    assert service.restore_bindings() == []
    service.close()


def test_an_allocation_says_that_its_vgpu_is_gone(tmp_path: Path) -> None:
    service = open_host(tmp_path, "vdi-a40")
    execute("op", plan_slice(service.kernel, service.gpu(CARD)), StepContext(service.kernel), MemoryJournal())
    allocation = allocate(service, "desk-1", count=2)
    first, second = (str(device.handle) for device in allocation.devices)
    service.kernel.write(f"{MDEV_DEVICES}/{first}/remove", "1")
    assert codes(service.allocation(allocation.id)) == [("vgpu-missing", (first,))]
    service.kernel.write(f"{MDEV_DEVICES}/{second}/remove", "1")
    assert [addresses for _, addresses in codes(service.allocation(allocation.id))] == [(first,), (second,)]
    service.close()
