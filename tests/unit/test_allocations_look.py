"""What the rest of the house adds to the inventory: promises and VMs, by IOMMU group."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from tests.databases import put_empty_database
from vgpumgr.allocations.bindings import plan_lasting_release
from vgpumgr.allocations.desk import Desk
from vgpumgr.allocations.look import Promises, look
from vgpumgr.allocations.manager import Manager
from vgpumgr.allocations.slicing import Slicing
from vgpumgr.binding import plan_release
from vgpumgr.errors import ConflictError
from vgpumgr.kernel.simulated.build import build
from vgpumgr.kernel.simulated.machine import SimulatedKernel
from vgpumgr.model.allocation import AllocationRequest
from vgpumgr.model.host import Gpu
from vgpumgr.placement import place
from vgpumgr.plans.lock import HostLock
from vgpumgr.plans.step import StepContext
from vgpumgr.store.store import Store, open_store

FIRST, MATE, OTHER = "10000:17:00.0", "10000:18:00.0", "10000:19:00.0"


def host() -> SimulatedKernel:
    groups = {FIRST: 5, MATE: 5, OTHER: 6}
    card = {"id": "10de:1ff2", "class": "030000", "driver": "vfio-pci"}
    return build(
        "test", {"functions": [{"address": name, "group": group, **card} for name, group in groups.items()]}
    )


def by_address(*gpus: Gpu) -> dict[str, tuple[str, bool]]:
    return {gpu.address: (str(gpu.passthrough.state), gpu.passthrough.assignable) for gpu in gpus}


def test_a_gpu_in_the_group_of_a_promised_one_is_not_offered_to_another_vm() -> None:
    gpus = look(host(), Promises(gpus={FIRST: "a-1"})).gpus
    assert by_address(*gpus) == {FIRST: ("reserved", False), MATE: ("reserved", False), OTHER: ("ready", True)}
    mate = next(gpu for gpu in gpus if gpu.address == MATE)
    assert f"a-1, which has {FIRST}" in mate.passthrough.reasons[0].message


def test_a_gpu_in_the_group_of_a_vms_is_in_use() -> None:
    gpus = look(host(), owners={FIRST: "desktop-7"}).gpus
    assert by_address(*gpus) == {FIRST: ("in-use", False), MATE: ("in-use", False), OTHER: ("ready", True)}
    mate = next(gpu for gpu in gpus if gpu.address == MATE)
    assert mate.passthrough.reasons[0].message == f"{FIRST} belongs to desktop-7"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    store = open_store(put_empty_database(tmp_path), "host")
    desk = Desk(store, StepContext(host(), {Store: store}), HostLock(None), lambda: str(uuid4()))
    yield desk
    desk.close()


def manager_at(desk: Desk) -> Manager:
    return Manager(desk, lambda _: look(desk.context.kernel), Slicing(desk))


def test_two_gpus_of_one_group_never_go_to_two_vms_at_once(desk: Desk) -> None:
    """Everybody has looked before anybody has claimed: only the store can tell them apart."""
    crowd, manager, seen = 8, manager_at(desk), look(desk.context.kernel)

    def ask(number: int) -> str:
        request = AllocationRequest(f"vm-{number}", gpu=(FIRST, MATE)[number % 2])
        candidate = place(seen, request).candidates[0]
        try:
            return manager.allocate(request, candidate).devices[0].gpu
        except ConflictError as error:
            return error.code

    with ThreadPoolExecutor(crowd) as pool:
        answers = sorted(pool.map(ask, range(crowd)))
    assert answers.count("already-claimed") == crowd - 1


def test_one_vm_has_the_group_as_a_whole_and_gives_it_back(desk: Desk) -> None:
    manager, request = manager_at(desk), AllocationRequest("pair", count=2)
    pairs = place(look(desk.context.kernel), request).candidates
    both = next(item for item in pairs if {device.gpu for device in item.devices} == {FIRST, MATE})
    allocation = manager.allocate(request, both)
    assert (allocation.operation_id and desk.wait(allocation.operation_id, 30).state) == "succeeded"
    released = manager.release(allocation.id)
    assert (released.operation_id and desk.wait(released.operation_id, 30).state) == "succeeded"
    assert desk.store.allocations.claims() == []


def test_a_gpu_that_was_on_vfio_before_its_allocation_stays_there(desk: Desk) -> None:
    manager, kernel = manager_at(desk), desk.context.kernel
    request = AllocationRequest("vm", gpu=OTHER)
    allocation = manager.allocate(request, place(look(kernel), request).candidates[0])
    assert (allocation.operation_id and desk.wait(allocation.operation_id, 30).state) == "succeeded"
    kept = desk.store.bindings.get(OTHER)
    assert kept is not None, "it must be bound again after a reboot"
    released = manager.release(allocation.id)
    assert (released.operation_id and desk.wait(released.operation_id, 30).state) == "succeeded"
    assert by_address(*look(kernel).gpus)[OTHER] == ("ready", True)
    assert desk.store.bindings.get(OTHER) is None


@pytest.mark.parametrize("force", [False, True])
def test_what_binds_an_allocations_gpu_anew_after_a_reboot_is_not_forgotten_for_an_operator(
    desk: Desk, force: bool
) -> None:
    manager, kernel = manager_at(desk), desk.context.kernel
    request = AllocationRequest("vm", gpu=OTHER)
    allocation = manager.allocate(request, place(look(kernel), request).candidates[0])
    assert (allocation.operation_id and desk.wait(allocation.operation_id, 30).state) == "succeeded"
    seen = look(kernel, Promises(gpus={OTHER: allocation.id}))
    gpu = next(gpu for gpu in seen.gpus if gpu.address == OTHER)
    plan = plan_lasting_release(kernel, seen, gpu, desk.store, force=force)
    assert (plan.steps, plan.refusal and plan.refusal.code) == ((), "reserved")


def test_an_operator_who_releases_it_wants_a_host_driver_and_hears_why_there_is_none(desk: Desk) -> None:
    gpu = next(gpu for gpu in look(desk.context.kernel).gpus if gpu.address == OTHER)
    operation = desk.submit(
        "release", OTHER, lambda: plan_release(desk.context.kernel, look(desk.context.kernel), gpu)
    )
    ended = desk.wait(operation.id, 30)
    assert ended.error is not None
    assert (ended.error["code"], "vfio-pci again" in str(ended.error["message"])) == ("verify-failed", True)
    assert "ids=" in str(ended.error["hint"])
