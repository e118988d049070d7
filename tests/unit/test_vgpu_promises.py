"""What is being made is spoken for: from the answer to the request until the operation's end, crash or not."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.databases import put_empty_database
from tests.unit.vgpu_hosts import A40, CARD, flex, host, nvidia, t4
from vgpumgr.allocations.desk import Desk
from vgpumgr.errors import ConflictError, RefusedError, VgpumgrError
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.kernel.simulated.faults import Mishap
from vgpumgr.model.allocation import AllocationRequest, AllocationState
from vgpumgr.model.operation import Operation
from vgpumgr.plans.lock import HostLock
from vgpumgr.plans.step import StepContext
from vgpumgr.service import Service
from vgpumgr.store.store import Store, open_store

OTHER = "0000:5e:00.0"
ENABLED = {"total": 32, "enabled": 32, "vf_driver": "nvidia"}


def a40(scheme: str = "mdev-vf", address: str = CARD) -> dict[str, Any]:
    return nvidia(scheme, A40) | {"address": address, "sriov": ENABLED}


def open_on(kernel: SimulatedKernel, folder: Path) -> Service:
    store = open_store(put_empty_database(folder), "host")
    desk = Desk(store, StepContext(kernel, {Store: store}), HostLock(), lambda: str(uuid4()))
    service = Service(kernel, desk=desk)
    service.start()
    return service


@pytest.fixture
def kernel() -> SimulatedKernel:
    return host(a40())


@pytest.fixture
def service(kernel: SimulatedKernel, tmp_path: Path) -> Iterator[Service]:
    opened = open_on(kernel, tmp_path)
    yield opened
    opened.close()


def more_of(service: Service, name: str, gpu: str = CARD) -> int:
    return sum(offer.creatable for offer in service.profiles(gpu) if offer.profile.name == name)


def limit_of(service: Service, name: str) -> str:
    (found,) = (item for item in service.gpu(CARD).vgpu.profiles if item.name == name)
    assert found.limit is not None
    return found.limit.code


def ended(service: Service, *operations: Operation) -> list[str]:
    return [service.wait(operation.id, None).state for operation in operations]


def request(profile: str, count: int = 1, vm: str = "desk-1") -> AllocationRequest:
    return AllocationRequest(vm, profile=profile, count=count)


def test_a_queued_create_has_its_room(service: Service) -> None:
    with service._at_desk._lock.held():
        first = service.slices.create("A40-8Q", 4)
        assert more_of(service, "NVIDIA A40-8Q") == 2
        assert more_of(service, "NVIDIA A40-8C") == 2
        assert (more_of(service, "NVIDIA A40-4Q"), limit_of(service, "NVIDIA A40-4Q")) == (0, "size-class")
        with pytest.raises(RefusedError) as refused:
            service.slices.create("A40-8Q", 3)
        assert refused.value.code == "no-capacity"
        assert "promised" in refused.value.reasons[0].message
        with pytest.raises(RefusedError, match="nothing on this host"):
            service.allocate(request("A40-8Q", 3))
        assert service.candidates(request("A40-8Q", 2)).candidates
        assert not service.candidates(request("A40-16Q")).candidates
        second = service.slices.create("A40-8Q", 2)
        assert limit_of(service, "NVIDIA A40-8Q") == "reserved"
    assert ended(service, first, second) == ["succeeded"] * 2
    assert limit_of(service, "NVIDIA A40-8Q") == "max-instances"
    assert service._at_desk.store.operations.reservations() == []


def test_a_queued_allocation_and_a_create_do_not_share_the_last_place(service: Service) -> None:
    with service._at_desk._lock.held():
        service.allocate(request("A40-24Q", 2))
        with pytest.raises(RefusedError) as refused:
            service.slices.create("A40-24Q", 1)
    assert refused.value.code == "no-capacity"


def test_a_create_that_fails_lets_its_room_go(service: Service, kernel: SimulatedKernel) -> None:
    kernel.faults.add("/create", Mishap.FAIL, errno=errno.EINVAL)
    assert ended(service, service.slices.create("A40-8Q", 4)) == ["failed"]
    kernel.faults.clear()
    assert more_of(service, "NVIDIA A40-8Q") == 6


def test_a_create_that_is_refused_at_its_turn_lets_its_room_go(service: Service, kernel: SimulatedKernel) -> None:
    with service._at_desk._lock.held():
        operation = service.slices.create("A40-8Q", 4)
        foreign = kernel.list("/sys/class/mdev_bus")[0]
        kernel.write(f"/sys/class/mdev_bus/{foreign}/mdev_supported_types/nvidia-559/create", str(uuid4()))
    assert ended(service, operation) == ["failed"]
    assert service._at_desk.store.operations.reservations() == []


def test_a_crash_ends_what_was_promised(kernel: SimulatedKernel, tmp_path: Path) -> None:
    dying = open_on(kernel, tmp_path)
    with dying._at_desk._lock.held():
        operation = dying.slices.create("A40-8Q", 4)
        after = open_on(kernel, tmp_path)
    assert after.operation(operation.id).state == "failed"
    assert more_of(after, "NVIDIA A40-8Q") == 6
    after.close()


def test_of_many_at_once_only_one_gets_the_last_place(service: Service) -> None:
    def one(number: int) -> bool:
        try:
            if number % 2:
                service.slices.create("A40-48Q")
            else:
                service.allocate(request("A40-48Q", vm=f"desk-{number}"))
        except VgpumgrError as error:
            assert error.code in ("no-capacity", "no-candidate")
            return False
        return True

    with service._at_desk._lock.held(), ThreadPoolExecutor(8) as clients:
        accepted = list(clients.map(one, range(8)))
    assert accepted.count(True) == 1


def test_a_look_that_hangs_does_not_gather_all_requests_behind_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vgpumgr.allocations.desk.ADMISSION_SECONDS", 0.05)
    with service._at_desk.admission():
        for ask in (lambda: service.slices.create("A40-8Q"), lambda: service.allocate(request("A40-8Q"))):
            with pytest.raises(ConflictError) as busy:
                ask()
            assert busy.value.code == "host-busy"
    assert ended(service, service.slices.create("A40-8Q")) == ["succeeded"]


def test_a_card_that_is_going_to_be_cut_for_one_is_not_promised_to_another(tmp_path: Path) -> None:
    service = open_on(host(flex()), tmp_path)
    assert service.profiles(CARD)[0].creatable == 31
    with service._at_desk._lock.held():
        operation = service.slices.create("vf-8086-56c0", 2)
        assert limit_of(service, service.profiles(CARD)[0].profile.name) == "reserved"
        with pytest.raises(RefusedError):
            service.slices.create("vf-8086-56c0")
    assert ended(service, operation) == ["succeeded"]
    service.close()


def test_a_card_with_promised_vgpus_does_not_go_as_a_whole(tmp_path: Path) -> None:
    service = open_on(host(t4()), tmp_path)
    with service._at_desk._lock.held():
        operation = service.slices.create("T4-4Q")
        reasons = service.gpu(CARD).passthrough.reasons
        assert [reason.code for reason in reasons if reason.code.startswith("vgpu")] == ["vgpu-promised"]
        with pytest.raises(RefusedError):
            service.allocate(AllocationRequest("whole"))
        with pytest.raises(RefusedError):
            service.bind(CARD)
    assert ended(service, operation) == ["succeeded"]
    service.close()


def at_each_record(service: Service, see: Callable[[], None]) -> None:
    """Look whenever the journal is written: before and after each step."""
    operations = service._at_desk.store.operations
    plain = operations.step

    def step(*arguments: Any, **options: Any) -> None:
        plain(*arguments, **options)
        see()

    operations.step = step


@pytest.mark.parametrize(
    ("entry", "profile", "most"),
    [
        pytest.param(a40(), "NVIDIA A40-8Q", 6, id="mdev-on-vfs"),
        pytest.param(a40("vendor-vfio"), "NVIDIA A40-8Q", 6, id="vendor-vfio"),
        pytest.param(t4(), "GRID T4-2Q", 8, id="mdev"),
        pytest.param(flex(enabled=8), "vf-8086-56c0", 8, id="plain-vfs"),
    ],
)
def test_what_is_being_made_counts_once_at_every_moment(
    entry: dict[str, Any], profile: str, most: int, tmp_path: Path
) -> None:
    service = open_on(host(entry), tmp_path)
    seen: set[int] = set()

    def see() -> None:
        found = [item for item in service.gpu(CARD).vgpu.profiles if profile in (item.id, item.name)]
        seen.update(item.creatable for item in found)

    at_each_record(service, see)
    assert ended(service, service.slices.create(profile, 3)) == ["succeeded"]
    allocation = service.allocate(request(profile, 2))
    service.wait(str(allocation.operation_id), None)
    assert service.allocation(allocation.id).state is AllocationState.READY
    see()
    assert seen == {most - 3, most - 5}
    service.close()


def test_while_one_card_is_cut_the_other_stays_promised(tmp_path: Path) -> None:
    service = open_on(host(a40(), a40(address=OTHER)), tmp_path)
    seen: set[int] = set()
    at_each_record(service, lambda: seen.add(sum(more_of(service, "NVIDIA A40-24Q", gpu) for gpu in (CARD, OTHER))))
    allocation = service.allocate(request("A40-24Q", 3))
    service.wait(str(allocation.operation_id), None)
    assert service.allocation(allocation.id).state is AllocationState.READY
    assert seen == {1}
    service.close()
