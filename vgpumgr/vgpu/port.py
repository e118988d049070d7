"""The protocol that every backend speaks, and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import uuid4

from vgpumgr.kernel.port import Kernel
from vgpumgr.model.allocation import AllocatedDevice
from vgpumgr.model.vgpu import Backend, Vgpu
from vgpumgr.plans.step import Step
from vgpumgr.vgpu.cards import Card, Offer


@dataclass(frozen=True, slots=True)
class Order:
    """``count`` vGPUs of one profile (its id or its name) on one card, with plugin parameters for each."""

    profile: str
    count: int = 1
    params: str = ""


def random_uuid() -> str:
    """A fresh UUID in the kernel's spelling."""
    return str(uuid4())


@dataclass(slots=True)
class Room:
    """What a backend may use for the vGPUs of one plan.

    ``taken`` are functions that are claimed: by allocations, or by orders earlier in the plan (a backend adds
    what it uses). ``new_uuid`` names new mediated devices. ``prefer`` is a function to use first if it is free.
    """

    taken: set[str] = field(default_factory=set)
    new_uuid: Callable[[], str] = random_uuid
    prefer: str = ""
    later: int = 0
    """Functions that orders later in the plan need: no spares are made of them."""

    def free(self, parents: Collection[str]) -> list[str]:
        """The functions among these that nobody claimed, the preferred one first."""
        return sorted(
            (parent for parent in parents if parent not in self.taken), key=lambda name: name != self.prefer
        )


@dataclass(frozen=True, slots=True)
class Making:
    """Steps that make one vGPU, and the device it will be. A bad VF can move it: read it back (``made``)."""

    device: AllocatedDevice
    steps: tuple[Step, ...]


class VgpuBackend(Protocol):
    """One way of slicing a card."""

    @property
    def kind(self) -> Backend:
        """Which way."""
        ...

    def create(self, kernel: Kernel, card: Card, offer: Offer, order: Order, room: Room) -> Sequence[Making]:
        """Steps for each vGPU of an order that fits; capacity was checked before."""
        ...

    def delete(self, kernel: Kernel, card: Card, vgpu: Vgpu) -> Sequence[Step]:
        """Steps that make a vGPU go."""
        ...
