"""The waiting room: bounded, so that the service still answers; emptied when the service stops."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import cast

from vgpumgr.model.operation import Operation
from vgpumgr.service import Service
from vgpumgr_api.waiting import WaitingRoom

RUNNING = Operation("o1", "h", "bind", "0000:3b:00.0", "running", "t", "t")


class Operations:
    """Stands in for the service: an operation that ends when the test says so."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.waits: list[float] = []
        self.asked = threading.Semaphore(0)

    def operation(self, operation_id: str) -> Operation:
        return replace(RUNNING, state="succeeded" if self.ended.is_set() else "running")

    def wait(self, operation_id: str, seconds: float) -> Operation:
        self.waits.append(seconds)
        self.asked.release()
        self.ended.wait(seconds)
        return self.operation(operation_id)


def room(operations: Operations, seats: int = 1) -> WaitingRoom:
    return WaitingRoom(cast(Service, operations), seats)


def test_without_a_time_to_wait_the_operation_is_as_it_is() -> None:
    operations = Operations()
    assert room(operations).wait("o1", 0).state == "running"
    assert operations.waits == []


def test_a_wait_ends_with_the_operation() -> None:
    operations = Operations()
    found: list[Operation] = []
    place = room(operations)
    waiter = threading.Thread(target=lambda: found.append(place.wait("o1", 300)))
    waiter.start()
    operations.asked.acquire()
    operations.ended.set()
    waiter.join(60)
    assert [item.state for item in found] == ["succeeded"]


def test_who_finds_no_seat_is_answered_soon() -> None:
    operations = Operations()
    place = room(operations)
    waiter = threading.Thread(target=place.wait, args=("o1", 300))
    waiter.start()
    operations.asked.acquire()
    assert place.wait("o1", 300).state == "running"
    assert min(operations.waits) < 1
    operations.ended.set()
    waiter.join(60)


def test_when_the_service_stops_everybody_is_answered() -> None:
    operations = Operations()
    found: list[Operation] = []
    place = room(operations)
    waiter = threading.Thread(target=lambda: found.append(place.wait("o1", 300)))
    waiter.start()
    operations.asked.acquire()
    place.close()
    waiter.join(60)
    assert [item.state for item in found] == ["running"]


def test_a_seat_is_free_again_after_a_wait() -> None:
    operations = Operations()
    operations.ended.set()
    place = room(operations)
    assert [place.wait("o1", 300).state for _ in range(3)] == ["succeeded"] * 3
