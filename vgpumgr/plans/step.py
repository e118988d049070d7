"""A step: the smallest change to a host that can be named, checked, done, verified and undone.

Steps are frozen dataclasses of plain values, so that the journal can keep them as JSON and a later process
can go on where a killed one stopped. What a step does lives in its class; what it is about, in its fields.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar, TypeVar, cast

from vgpumgr.errors import FailedError, UnavailableError, VgpumgrError
from vgpumgr.kernel.port import Kernel
from vgpumgr.model.json import JsonObject

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StepContext:
    """What steps may touch: the kernel, and other ports (libvirt, NVML) found by their type."""

    kernel: Kernel
    ports: Mapping[type, object] = field(default_factory=dict)

    def port(self, kind: type[T]) -> T:
        """The port of that type. Raises :class:`UnavailableError` when this host was set up without it."""
        found = self.ports.get(kind)
        if found is None:
            raise UnavailableError(f"this plan needs {kind.__name__}, which is not configured on this host")
        return cast(T, found)


_REGISTRY: dict[str, type[Step]] = {}


@dataclass(frozen=True)
class Step(ABC):
    """One step. Subclasses set ``kind`` (stable, kept in the journal) and are frozen dataclasses."""

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        kind = cls.__dict__.get("kind")
        if kind is not None:
            _REGISTRY[kind] = cls

    @abstractmethod
    def describe(self) -> str:
        """One sentence for a person: what this step does, to which device."""

    @abstractmethod
    def is_done(self, context: StepContext) -> bool:
        """Look at the host: is the wanted state already there? Must not change anything."""

    @abstractmethod
    def apply(self, context: StepContext) -> None:
        """Make the change. Raises OSError or :class:`VgpumgrError`; may leave the change half made."""

    @abstractmethod
    def undo(self, context: StepContext) -> None:
        """Take the change back, as far as it was made. Must be safe to call twice, or after a failed apply."""

    def verify(self, context: StepContext) -> None:
        """Read the host back after ``apply``. Raises :class:`FailedError` when the change did not take."""
        if not self.is_done(context):
            raise FailedError(f"read-back failed: {self.describe()}", code="verify-failed")

    def foreign(self, context: StepContext) -> VgpumgrError | None:
        """Asked once, before anything else: an error where what this step would make is there already and so is
        somebody else's. It must be neither taken for done nor undone.
        """
        return None

    def remark(self, context: StepContext) -> str | None:
        """What a reader must know although the step was done: where it went another way than it says."""
        return None

    @property
    def subject(self) -> str | None:
        """The PCI address (or UUID) this step is about."""
        return cast("str | None", getattr(self, "address", None))

    @property
    def target_path(self) -> str | None:
        """The kernel path this step writes, if it writes one."""
        return None

    @property
    def target_value(self) -> str | None:
        """The text this step writes there."""
        return None

    def to_json(self) -> JsonObject:
        """``{"kind", "address", "path", "value", "describe"}`` of DESIGN §6."""
        return {
            "kind": self.kind,
            "address": self.subject,
            "path": self.target_path,
            "value": self.target_value,
            "describe": self.describe(),
        }

    def to_record(self) -> JsonObject:
        """The step as the journal keeps it: its kind and its fields."""
        return {"kind": self.kind} | {item.name: getattr(self, item.name) for item in fields(self)}


def step_from_record(record: Mapping[str, object]) -> Step:
    """The step that :meth:`Step.to_record` wrote down. Raises :class:`FailedError` for an unknown kind."""
    values = dict(record)
    kind = str(values.pop("kind"))
    found = _REGISTRY.get(kind)
    if found is None:
        raise FailedError(f"the journal holds a step of unknown kind {kind!r}", code="journal-unreadable")
    revived = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return found(**revived)
