"""What is remembered of a host across reboots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

OPERATOR = "operator"
"""The owner of what an operator asked for by name; allocations own things by their ids."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A GPU that shall be on VFIO. ``fingerprint`` (``"10de:2235"``) tells whether the same card is still there.

    ``originals`` maps each function that was moved to the driver it had (``None``: it had none); ``driver`` is
    what was asked for (``auto``); ``owner`` is :data:`OPERATOR` or an allocation's id.
    """

    address: str
    fingerprint: str
    driver: str
    originals: Mapping[str, str | None] = field(default_factory=dict)
    owner: str = OPERATOR


@dataclass(frozen=True, slots=True)
class VgpuRecord:
    """A vGPU of ours. ``id`` is its UUID or its VF's address; it is made again by ``profile`` on ``gpu``."""

    id: str
    gpu: str
    fingerprint: str
    parent: str
    backend: str
    profile_id: str
    profile: str
    params: Mapping[str, str] = field(default_factory=dict)
    allocation_id: str | None = None


@dataclass(frozen=True, slots=True)
class CardSetup:
    """How a card shall be cut, also after the next boot. ``None``: never asked for, left as it is.

    ``vfs`` is the number of virtual functions; ``layout`` the shapes of its GPU instances in MIG mode;
    ``scheduler`` a policy's name.
    """

    address: str
    fingerprint: str
    vfs: int | None = None
    mig: bool | None = None
    layout: tuple[str, ...] | None = None
    mixed_size: bool | None = None
    scheduler: str | None = None
    ecc: bool | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """vGPUs that an operation is going to make for an operator: promised until it ends, however it ends."""

    gpu: str
    profile_id: str
    count: int
