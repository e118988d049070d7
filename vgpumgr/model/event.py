"""What happened on a host, as a row that is written once and never changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from vgpumgr.model.json import JsonObject

MAX_ID = 2**31 - 1
"""No event has a higher id."""
LOST = "events.lost"
"""What a stream says when events that it should go on with are not kept any more. It is never stored."""


class EventType(StrEnum):
    """Every type. There is one for each state of an allocation, and for each way an operation can end.

    A vGPU here is a mediated device: of a virtual function that gets a type, the kernel says nothing.
    """

    GPU_ADDED = "gpu.added"
    GPU_REMOVED = "gpu.removed"
    VGPU_ADDED = "vgpu.added"
    VGPU_REMOVED = "vgpu.removed"
    DEVICE_MISSING = "allocation.device-missing"
    DEVICE_BACK = "allocation.device-back"
    ALLOCATION_REQUESTED = "allocation.requested"
    ALLOCATION_RESERVED = "allocation.reserved"
    ALLOCATION_PREPARING = "allocation.preparing"
    ALLOCATION_READY = "allocation.ready"
    ALLOCATION_ATTACHED = "allocation.attached"
    ALLOCATION_RELEASING = "allocation.releasing"
    ALLOCATION_RELEASED = "allocation.released"
    ALLOCATION_FAILED = "allocation.failed"
    OPERATION_SUCCEEDED = "operation.succeeded"
    OPERATION_FAILED = "operation.failed"
    OPERATION_STUCK = "operation.stuck"


@dataclass(frozen=True, slots=True)
class Happening:
    """An event before it is written: what happened, to what, and what a person should read.

    ``subject`` is a GPU's address, a vGPU's or an allocation's id, or what an operation was on. ``tenant`` is the
    allocation's; ``None`` is the host's own affair.
    """

    type: EventType
    subject: str
    message: str
    data: JsonObject = field(default_factory=dict)
    tenant: str | None = None
    allocation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """An event as it was written. ``id`` counts a host's events, without gaps and in the order they became true."""

    id: int
    time: str
    what: Happening

    def to_json(self) -> JsonObject:
        """``{"id", "time", "type", "subject", "message", "tenant", "allocation_id", "data"}``."""
        return {
            "id": self.id,
            "time": self.time,
            "type": str(self.what.type),
            "subject": self.what.subject,
            "message": self.what.message,
            "tenant": self.what.tenant,
            "allocation_id": self.what.allocation_id,
            "data": self.what.data,
        }


class Wanted(NamedTuple):
    """Which events: all, or those that fit each of these exactly."""

    type: str | None = None
    subject: str | None = None
    tenant: str | None = None


EVERYTHING = Wanted()


class Stretch(NamedTuple):
    """A piece of the log, oldest event first.

    ``oldest`` and ``newest`` are the ids that the log holds, ``1`` and ``0`` while it is empty; ``read_to`` is the
    id after which to read on.
    """

    events: Sequence[Event]
    oldest: int
    newest: int
    read_to: int


def cause(error: JsonObject | None) -> JsonObject:
    """What an event says of an error: its code. Reasons can be many; the operation has them."""
    return {"error": error["code"]} if error and "code" in error else {}


def because(error: JsonObject | None) -> str:
    """The end of a message about something that failed."""
    return f": {error['message']}" if error and error.get("message") else ""
