"""vGPUs through the service, on a simulated VDI host: allocated, remembered, released, and never lost count of."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from vgpumgr.assembly import open_service
from vgpumgr.config import Config
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.kernel.simulated.faults import Mishap
from vgpumgr.model.allocation import Allocation, AllocationRequest, AllocationState
from vgpumgr.plans.executor import execute
from vgpumgr.plans.journal import MemoryJournal
from vgpumgr.plans.step import StepContext
from vgpumgr.service import Service
from vgpumgr.vgpu.vf_plans import plan_slice

CARD = "0000:3b:00.0"


def open_host(tmp_path: Path, name: str) -> Service:
    service = open_service(Config(state_dir=tmp_path, runtime_dir=tmp_path, simulate=name), libvirt=False)
    service.start()
    return service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    opened = open_host(tmp_path, "vdi-a40")
    execute("op", plan_slice(opened.kernel, opened.gpu(CARD)), StepContext(opened.kernel), MemoryJournal())
    yield opened
    opened.close()


def allocate(service: Service, vm: str, profile: str = "A40-8Q", count: int = 1, card: str = CARD) -> Allocation:
    allocation = service.allocate(AllocationRequest(vm=vm, profile=profile, count=count, gpu=card))
    assert allocation.operation_id is not None
    service.wait(allocation.operation_id, None)
    return service.allocation(allocation.id)


def more_of(service: Service, name: str) -> int:
    return sum(offer.creatable for offer in service.profiles(CARD) if offer.profile.name == name)


def test_an_allocation_gets_its_vgpus_and_gives_them_back(service: Service) -> None:
    allocation = allocate(service, "desk-1", count=2)
    assert allocation.state is AllocationState.READY
    made = {vgpu.id for vgpu in service.gpu(CARD).vgpu.instances}
    assert {device.handle for device in allocation.devices} == made
    assert more_of(service, "NVIDIA A40-8Q") == 4
    released = service.release_allocation(allocation.id)
    assert released.operation_id is not None
    assert service.wait(released.operation_id, None).state == "succeeded"
    assert service.gpu(CARD).vgpu.instances == ()
    assert more_of(service, "NVIDIA A40-8Q") == 6


def test_a_bad_vf_does_not_fail_an_allocation(tmp_path: Path) -> None:
    service = open_host(tmp_path, "ai-h100")
    card = "0000:18:00.0"
    execute("op", plan_slice(service.kernel, service.gpu(card)), StepContext(service.kernel), MemoryJournal())
    assert isinstance(service.kernel, SimulatedKernel)
    service.kernel.machine.cards[card].bad_vfs = frozenset({"0000:18:00.4"})
    allocation = allocate(service, "train-1", "H100XM-40C", 2, card)
    assert allocation.state is AllocationState.READY
    made = {vgpu.id for vgpu in service.gpu(card).vgpu.instances}
    assert {device.handle for device in allocation.devices} == made
    assert "0000:18:00.4" not in made
    service.close()


def test_a_refusing_driver_leaves_neither_vgpu_nor_claim(service: Service) -> None:
    assert isinstance(service.kernel, SimulatedKernel)
    service.kernel.faults.add("/create", Mishap.FAIL, errno=errno.EINVAL)
    allocation = allocate(service, "desk-1")
    assert allocation.state is AllocationState.FAILED
    assert allocation.error is not None
    assert allocation.error["code"] == "driver-refused"
    service.kernel.faults.clear()
    assert service.gpu(CARD).vgpu.instances == ()
    assert more_of(service, "NVIDIA A40-8Q") == 6


def test_a_driver_reload_does_not_keep_a_release_from_ending(service: Service) -> None:
    allocation = allocate(service, "desk-1")
    assert isinstance(service.kernel, SimulatedKernel)
    service.kernel.reload_driver(CARD)
    released = service.release_allocation(allocation.id)
    assert released.operation_id is not None
    assert service.wait(released.operation_id, None).state == "succeeded"
    assert service.allocation(allocation.id).state is AllocationState.RELEASED


def test_a_vgpu_in_use_keeps_its_allocation(service: Service) -> None:
    allocation = allocate(service, "desk-1")
    assert isinstance(service.kernel, SimulatedKernel)
    service.kernel.faults.add("/remove", Mishap.FAIL, errno=errno.EBUSY, times=1)
    released = service.release_allocation(allocation.id)
    assert released.operation_id is not None
    service.wait(released.operation_id, None)
    failed = service.allocation(allocation.id)
    assert failed.state is AllocationState.FAILED
    assert failed.error is not None
    assert failed.error["code"] == "vgpu-in-use"
    assert len(service.gpu(CARD).vgpu.instances) == 1


def test_what_a_driver_reload_took_stays_promised(service: Service) -> None:
    allocate(service, "desk-1", count=2)
    assert isinstance(service.kernel, SimulatedKernel)
    service.kernel.reload_driver(CARD)
    service.kernel.write(f"/sys/bus/pci/devices/{CARD}/sriov_numvfs", "32")
    assert service.gpu(CARD).vgpu.instances == ()
    assert more_of(service, "NVIDIA A40-8Q") == 4
    assert all(operation.state == "succeeded" for operation in service.restore_slices())
    assert len(service.gpu(CARD).vgpu.instances) == 2


def test_more_than_an_empty_card_takes_is_refused_with_the_reason(service: Service) -> None:
    refusal = service.slices.plan_create("A40-48Q", 2).refusal
    assert refusal is not None
    assert refusal.code == "no-capacity"
    assert {reason.code for reason in refusal.reasons} == {"max-instances"}
