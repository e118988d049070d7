"""A plan being carried out, as a user sees it."""

from __future__ import annotations

from dataclasses import dataclass

from vgpumgr.model.json import JsonObject


@dataclass(frozen=True, slots=True)
class OperationStep:
    """One step of an operation: what it does, how far it is, what went wrong.

    ``error`` of a step that is done tells what went wrong on the way, such as a virtual function that refused.
    """

    describe: str
    state: str
    kind: str
    address: str | None = None
    error: str | None = None

    def to_json(self) -> JsonObject:
        """``{"kind", "address", "describe", "state", "error"}``."""
        return {
            "kind": self.kind,
            "address": self.address,
            "describe": self.describe,
            "state": self.state,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Operation:
    """A plan carried out, now or earlier. ``state``: pending, running, succeeded, failed (undone) or stuck.

    ``subject`` is a GPU's address, or an allocation's id where ``kind`` begins with ``allocation-``.
    """

    id: str
    host_id: str
    kind: str
    subject: str
    state: str
    created_at: str
    updated_at: str
    steps: tuple[OperationStep, ...] = ()
    error: JsonObject | None = None
    allocation_id: str | None = None

    @property
    def final(self) -> bool:
        """True when nothing more will happen by itself."""
        return self.state not in ("pending", "running")

    def to_json(self) -> JsonObject:
        """All fields by name."""
        return {
            "id": self.id,
            "host_id": self.host_id,
            "kind": self.kind,
            "subject": self.subject,
            "state": self.state,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "steps": [step.to_json() for step in self.steps],
            "error": self.error,
            "allocation_id": self.allocation_id,
        }
