"""What comes and goes while the service runs becomes events, once, and nothing else does."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.test_service_recovery import GPU, open_on, small_host
from tests.unit.test_vgpu_allocations import CARD, allocate, open_host
from vgpumgr.allocations import presence, watcher
from vgpumgr.allocations.states import sources
from vgpumgr.kernel.port import MDEV_DEVICES, KernelEvent, Watch
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.model.allocation import Allocation, AllocationRequest, AllocationState
from vgpumgr.model.event import EventType, Happening, Wanted
from vgpumgr.plans.executor import execute
from vgpumgr.plans.journal import MemoryJournal
from vgpumgr.plans.step import StepContext
from vgpumgr.service import Service
from vgpumgr.vgpu.vf_plans import plan_slice

SECONDS = 30.0
Told = list[tuple[str, str]]
DEVICES = ("gpu.", "vgpu.", "allocation.device-")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "SETTLE_SECONDS", 0.02)
    monkeypatch.setattr(watcher, "AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(watcher, "FIRST_PAUSE", 0.02)


def told(service: Service) -> Told:
    """Events about devices, oldest first."""
    events = service.events.follow(after=0).events
    return [(event.what.type, event.what.subject) for event in events if event.what.type.startswith(DEVICES)]


def until(service: Service, wanted: Told) -> None:
    """Wait for what is wanted, then a little for what is not.

    In any order: a look that was under way may see one thing before the other.
    """
    end = time.monotonic() + SECONDS
    while sorted(told(service)) != sorted(wanted) and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.1)
    assert sorted(told(service)) == sorted(wanted)


def last(service: Service, kind: EventType) -> Happening:
    return service.events.list(Wanted(type=kind), limit=1).items[0].what


@contextmanager
def watching(kernel: SimulatedKernel, folder: Path) -> Iterator[Service]:
    service = open_on(kernel, folder)
    eye = service.watch()
    service.start()
    eye.start()
    try:
        yield service
    finally:
        service.close()


def allocated(service: Service) -> Allocation:
    allocation = service.allocate(AllocationRequest(vm="vm", tenant="red", gpu=GPU))
    assert allocation.operation_id is not None
    service.wait(allocation.operation_id, None)
    return service.allocation(allocation.id)


def count_looks(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    looks: list[None] = []
    plain = presence.see

    def see(*arguments: object) -> presence.Presence:
        looks.append(None)
        return plain(*arguments)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(watcher, "see", see)
    return looks


def test_a_gpu_that_is_pulled_out_and_plugged_in_again(tmp_path: Path) -> None:
    kernel = small_host()
    with watching(kernel, tmp_path) as service:
        kernel.lose(GPU)
        until(service, [("gpu.removed", GPU)])
        kernel.plug(GPU)
        until(service, [("gpu.removed", GPU), ("gpu.added", GPU)])
        assert [gpu.address for gpu in service.inventory().gpus] == [GPU]
        added = last(service, EventType.GPU_ADDED)
        assert added.data["vendor_id"] == "10de"
        assert added.tenant is None
        assert GPU in added.message


def test_an_allocation_tells_its_tenant_what_is_missing_and_what_is_back(tmp_path: Path) -> None:
    kernel = small_host()
    with watching(kernel, tmp_path) as service:
        allocation = allocated(service)
        kernel.lose(GPU)
        missing = [("gpu.removed", GPU), ("allocation.device-missing", allocation.id)]
        until(service, missing)
        event = last(service, EventType.DEVICE_MISSING)
        assert (event.tenant, event.allocation_id, event.data["device"]) == ("red", allocation.id, GPU)
        assert [warning.code for warning in service.allocation(allocation.id).warnings] == ["gpu-missing"]
        kernel.plug(GPU)
        until(service, [*missing, ("gpu.added", GPU), ("allocation.device-back", allocation.id)])
        assert service.allocation(allocation.id).warnings == ()


def test_what_went_while_the_service_was_away_is_told_once_however_often_it_starts(tmp_path: Path) -> None:
    kernel = small_host()
    with watching(kernel, tmp_path) as service:
        allocation = allocated(service)
    kernel.lose(GPU)
    for _ in range(2):
        with watching(kernel, tmp_path) as service:
            until(service, [("allocation.device-missing", allocation.id)])


def test_a_vgpu_that_comes_and_goes_is_told(tmp_path: Path) -> None:
    service = open_host(tmp_path, "vdi-a40")
    execute("op", plan_slice(service.kernel, service.gpu(CARD)), StepContext(service.kernel), MemoryJournal())
    service.watch().start()
    allocation = allocate(service, "desk-1")
    name = str(allocation.devices[0].handle)
    until(service, [("vgpu.added", name)])
    service.kernel.write(f"{MDEV_DEVICES}/{name}/remove", "1")
    until(service, [("vgpu.added", name), ("vgpu.removed", name), ("allocation.device-missing", allocation.id)])
    event = last(service, EventType.VGPU_REMOVED)
    sriov = service.gpu(CARD).sriov
    assert sriov is not None
    assert event.data["parent"] in sriov.vfs
    service.close()


def test_what_a_release_takes_is_not_missing(tmp_path: Path) -> None:
    service = open_host(tmp_path, "vdi-a40")
    execute("op", plan_slice(service.kernel, service.gpu(CARD)), StepContext(service.kernel), MemoryJournal())
    service.watch().start()
    allocation = allocate(service, "desk-1")
    name = str(allocation.devices[0].handle)
    released = service.release_allocation(allocation.id)
    assert released.operation_id is not None
    service.wait(released.operation_id, None)
    until(service, [("vgpu.added", name), ("vgpu.removed", name)])
    service.close()


def test_what_is_lost_in_the_middle_of_a_release_is_not_missing(tmp_path: Path) -> None:
    kernel = small_host()
    with watching(kernel, tmp_path) as service:
        allocation, state = allocated(service), AllocationState.RELEASING
        service._at_desk.store.allocations.change(allocation.id, state, sources(state))
        kernel.lose(GPU)
        until(service, [("gpu.removed", GPU)])


def test_what_was_seen_of_an_allocation_that_changes_meanwhile_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = small_host()
    with watching(kernel, tmp_path) as service:
        allocation = allocated(service)
        store, changed = service._at_desk.store, False
        plain = store.events.append_of_allocation

        def change_first(*arguments: object) -> bool:
            nonlocal changed
            if not changed:
                changed = True
                store.allocations.change(allocation.id, AllocationState.ATTACHED, sources(AllocationState.ATTACHED))
            return plain(*arguments)  # type: ignore[arg-type]  # passed on as they came

        monkeypatch.setattr(store.events, "append_of_allocation", change_first)
        kernel.lose(GPU)
        until(service, [("gpu.removed", GPU), ("allocation.device-missing", allocation.id)])
        assert last(service, EventType.DEVICE_MISSING).data["generation"] == allocation.generation + 1


def test_a_burst_is_one_look_and_a_binding_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "SETTLE_SECONDS", 0.3)
    kernel = small_host()
    looks = count_looks(monkeypatch)
    with watching(kernel, tmp_path) as service:
        until(service, [])
        before = len(looks)
        service.wait(service.bind(GPU).id, None)
        service.wait(service.release(GPU).id, None)
        time.sleep(2 * watcher.SETTLE_SECONDS)
        assert len(looks) == before
        for number in range(100):
            kernel.machine.emit("add", "pci", f"0000:99:00.{number % 8}", {})
        end = time.monotonic() + SECONDS
        while len(looks) == before and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.2)
        assert len(looks) == before + 1, "also of functions that are gone already"
        assert told(service) == []


@pytest.mark.parametrize("fault", [OSError(5, "Input/output error"), ValueError("a fault of ours")], ids=str)
def test_a_look_that_fails_is_logged_and_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    kernel = small_host()
    with watching(kernel, tmp_path) as service:
        until(service, [])
        plain, failures = presence.see, [fault, fault]

        def see(*arguments: object) -> presence.Presence:
            if failures:
                raise failures.pop()
            return plain(*arguments)  # type: ignore[arg-type]  # passed on as they came

        monkeypatch.setattr(watcher, "see", see)
        with caplog.at_level(logging.ERROR):
            kernel.lose(GPU)
            until(service, [("gpu.removed", GPU)])
    faults = [record for record in caplog.records if record.exc_info]
    assert len(faults) == 2
    assert all("trying again" in record.getMessage() for record in faults)


class LosingWatch:
    """Events come so fast that the first poll has lost some."""

    def __init__(self, plain: Watch) -> None:
        self._plain = plain
        self.wake = plain.wake
        self._lost = True

    def poll(self, timeout: float | None) -> KernelEvent | None:
        if self._lost:
            self._lost = False
            raise OSError(105, "No buffer space available")
        return self._plain.poll(timeout)


def test_after_lost_messages_everything_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = small_host()
    plain, first = kernel.watch, True

    @contextmanager
    def watch() -> Iterator[Watch]:
        nonlocal first
        with plain() as opened:
            if first:
                first = False
                kernel.lose(GPU)
                while opened.poll(0) is not None:
                    continue
                yield LosingWatch(opened)
            else:
                yield opened

    monkeypatch.setattr(kernel, "watch", watch)
    with watching(kernel, tmp_path) as service:
        until(service, [("gpu.removed", GPU)])


def test_a_read_that_fails_is_no_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = small_host()
    before = presence.see(kernel, None)
    plain = kernel.read

    def read(path: str) -> bytes:
        if f"/{GPU}/" in path:
            raise OSError(5, "Input/output error", path)
        return plain(path)

    monkeypatch.setattr(kernel, "read", read)
    assert presence.see(kernel, None).gpus == {}, "it can no longer be told for a GPU"
    assert presence.news(before, presence.see(kernel, before)) == []


def test_another_card_in_the_same_place_is_one_gone_and_one_come() -> None:
    before, after = (presence.see(small_host(device), None) for device in ("2235", "2230"))
    assert [str(item.type) for item in presence.news(before, after)] == ["gpu.removed", "gpu.added"]


def test_it_can_be_stopped_at_any_time(tmp_path: Path) -> None:
    kernel = small_host()
    service = open_on(kernel, tmp_path)
    eye = service.watch()
    eye.stop()
    eye.start()
    assert eye._thread is None
    service.close()
    for pause in (0.0, 0.01, 0.05):
        service = open_on(kernel, tmp_path)
        eye = service.watch()
        eye.start()
        time.sleep(pause)
        began = time.monotonic()
        service.close()
        assert time.monotonic() - began < watcher.STOP_SECONDS / 2
        assert eye._thread is not None
        assert not eye._thread.is_alive()
