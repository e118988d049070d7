"""kill -9 at every record of the journal: after the next start the work is finished or undone, never half done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.databases import put_empty_database
from vgpumgr.allocations.desk import Desk
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.kernel.simulated.build import build
from vgpumgr.model.allocation import AllocationRequest, AllocationState
from vgpumgr.plans.lock import HostLock
from vgpumgr.plans.step import StepContext
from vgpumgr.service import Service
from vgpumgr.store.store import Store, open_store

GPU = "0000:3b:00.0"
RECORDS = range(22)
"""More than any of these operations writes."""


def small_host(device: str = "2235") -> SimulatedKernel:
    gpu = {"address": GPU, "id": f"10de:{device}", "class": "030200", "driver": "nvidia"}
    audio = {"address": "0000:3b:00.1", "id": "10de:1aef", "class": "040300", "driver": "snd_hda_intel"}
    return build("small", {"functions": [gpu, audio]})


class KilledError(BaseException):
    """What kill -9 looks like from inside: nothing after it runs."""


def open_on(kernel: SimulatedKernel, folder: Path) -> Service:
    store = open_store(put_empty_database(folder), "host")
    context = StepContext(kernel, {Store: store})
    return Service(kernel, desk=Desk(store, context, HostLock(), lambda: str(uuid4())))


def kill_at(service: Service, record: int) -> Callable[[], bool]:
    """From the ``record``-th write to the journal on, the process is dead. Returns whether that came."""
    operations = service._at_desk.store.operations
    count = 0

    def dying(plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count > record:
                raise KilledError
            return plain(*args, **kwargs)

        return call

    for name in ("begin", "step", "end", "fail"):
        setattr(operations, name, dying(getattr(operations, name)))
    return lambda: count > record


def settle(service: Service, operation_id: str | None, died: Callable[[], bool]) -> None:
    """Wait until the worker is dead, or the operation ended without ever coming to the fatal record."""
    assert operation_id is not None
    worker = service._at_desk._runner._thread
    assert worker is not None
    while worker.is_alive() and (died() or not service.operation(operation_id).final):
        worker.join(0.005)
    service._at_desk._runner.wait(operation_id, None if worker.is_alive() else 0)


@pytest.fixture(autouse=True)
def _dying_threads_are_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.excepthook", lambda _arguments: None)


def drivers(kernel: SimulatedKernel) -> dict[str, tuple[str | None, bytes]]:
    return {
        name: (kernel.driver(name), kernel.read(f"/sys/bus/pci/devices/{name}/driver_override"))
        for name in kernel.list("/sys/bus/pci/devices")
    }


@pytest.mark.parametrize("record", RECORDS)
def test_binding(tmp_path: Path, record: int) -> None:
    kernel = small_host()
    before = drivers(kernel)
    service = open_on(kernel, tmp_path)
    service.start()
    died = kill_at(service, record)
    operation = service.bind(GPU)
    settle(service, operation.id, died)

    again = open_on(kernel, tmp_path)
    again.start()
    after = again.operation(operation.id)
    assert after.final
    if after.state == "succeeded":
        assert kernel.driver(GPU) == "vfio-pci"
        assert again._at_desk.store.bindings.get(GPU) is not None
    else:
        assert drivers(kernel) == before
        assert again._at_desk.store.bindings.get(GPU) is None
    again.close()


@pytest.mark.parametrize("record", RECORDS)
def test_allocating(tmp_path: Path, record: int) -> None:
    kernel = small_host()
    before = drivers(kernel)
    service = open_on(kernel, tmp_path)
    service.start()
    died = kill_at(service, record)
    allocation = service.allocate(AllocationRequest("vm1", gpu=GPU))
    settle(service, allocation.operation_id, died)

    again = open_on(kernel, tmp_path)
    again.start()
    found = again.allocation(allocation.id)
    if found.state is AllocationState.READY:
        assert kernel.driver(GPU) == "vfio-pci"
        assert again.gpu(GPU).passthrough.state == "reserved"
    else:
        assert found.state is AllocationState.FAILED
        assert drivers(kernel) == before
        assert again.gpu(GPU).passthrough.assignable
    again.close()


@pytest.mark.parametrize("record", RECORDS)
def test_releasing(tmp_path: Path, record: int) -> None:
    kernel = small_host()
    before = drivers(kernel)
    service = open_on(kernel, tmp_path)
    service.start()
    allocation = service.allocate(AllocationRequest("vm1", gpu=GPU))
    assert allocation.operation_id is not None
    service.wait(allocation.operation_id, None)
    died = kill_at(service, record)
    releasing = service.release_allocation(allocation.id)
    settle(service, releasing.operation_id, died)

    again = open_on(kernel, tmp_path)
    again.start()
    found = again.allocation(allocation.id)
    if found.state is AllocationState.FAILED:
        # It never began: nothing was touched, the claim is kept, and it can be released again.
        retried = again.release_allocation(allocation.id)
        assert retried.operation_id is not None
        again.wait(retried.operation_id, None)
        found = again.allocation(allocation.id)
    assert found.state is AllocationState.RELEASED
    assert drivers(kernel) == before
    assert again.gpu(GPU).passthrough.assignable
    again.close()


def test_bindings_are_restored_after_a_reboot(tmp_path: Path) -> None:
    service = open_on(small_host(), tmp_path)
    service.start()
    service.wait(service.bind(GPU).id, None)
    service.close()

    rebooted = small_host()
    assert rebooted.driver(GPU) == "nvidia"
    again = open_on(rebooted, tmp_path)
    again.start()
    assert rebooted.driver(GPU) == "vfio-pci"
    assert again.ready() == (True, [])
    assert again.operation(again.release(GPU).id) is not None
    again.close()
    assert rebooted.driver(GPU) == "nvidia"


def test_a_card_that_was_exchanged_is_not_bound(tmp_path: Path) -> None:
    service = open_on(small_host(), tmp_path)
    service.start()
    service.wait(service.bind(GPU).id, None)
    service.close()

    other = small_host(device="20b5")
    assert other.driver(GPU) == "nvidia"
    again = open_on(other, tmp_path)
    again.start()
    assert other.driver(GPU) == "nvidia"
    newest = again.operations().items[0]
    assert (newest.kind, newest.state) == ("restore", "failed")
    assert newest.error is not None
    assert newest.error["code"] == "gpu-changed"
    again.close()


def test_a_full_disk_undoes_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vgpumgr.errors import UnavailableError

    kernel = small_host()
    before = drivers(kernel)
    service = open_on(kernel, tmp_path)
    service.start()
    operations = service._at_desk.store.operations
    plain = operations.step
    calls = 0

    def full(*args: Any, **kwargs: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > 5:
            raise UnavailableError("the database failed: disk is full", code="store-full")
        plain(*args, **kwargs)

    monkeypatch.setattr(operations, "step", full)
    operation = service.bind(GPU)
    service.wait(operation.id, None)
    assert drivers(kernel) == before
    assert service.operation(operation.id).state == "failed"
    service.close()
