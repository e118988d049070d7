"""The tables. Every row carries its host's id, so that a fleet needs no new shape."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import JSON, ForeignKey, Index, MetaData, String, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

_NAMING = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
ID = String(40)
TIME = String(32)
"""UTC in ISO 8601 with microseconds and ``Z``: sorts as text, and reads the same in every database."""


class Base(DeclarativeBase):
    """What all tables share."""

    metadata = MetaData(naming_convention=_NAMING)
    type_annotation_map: ClassVar[dict[Any, Any]] = {dict[str, Any]: JSON, list[Any]: JSON}


class OperationRow(Base):
    """An operation; ``plan_kind`` and ``after_crash`` are set when its plan is journaled."""

    __tablename__ = "operations"
    __table_args__ = (Index("ix_operations_host_created", "host_id", "created_at", "id"),)
    id: Mapped[str] = mapped_column(ID, primary_key=True)
    host_id: Mapped[str] = mapped_column(String(64))
    kind: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(String(255))
    state: Mapped[str] = mapped_column(String(16), index=True)
    after_crash: Mapped[str] = mapped_column(String(16), default="back")
    allocation_id: Mapped[str | None] = mapped_column(ID)
    error: Mapped[dict[str, Any] | None]
    created_at: Mapped[str] = mapped_column(TIME)
    updated_at: Mapped[str] = mapped_column(TIME)


class StepRow(Base):
    """One step of an operation: the journal."""

    __tablename__ = "operation_steps"
    operation_id: Mapped[str] = mapped_column(ForeignKey("operations.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    host_id: Mapped[str] = mapped_column(String(64))
    record: Mapped[dict[str, Any]]
    describe: Mapped[str]
    address: Mapped[str | None] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))
    error: Mapped[str | None]


class AllocationRow(Base):
    """An allocation. ``live_vm`` is the VM's name while the allocation lives: one live allocation per VM."""

    __tablename__ = "allocations"
    __table_args__ = (
        UniqueConstraint("host_id", "live_vm", name="uq_allocations_live_vm"),
        Index("ix_allocations_host_created", "host_id", "created_at", "id"),
    )
    id: Mapped[str] = mapped_column(ID, primary_key=True)
    host_id: Mapped[str] = mapped_column(String(64))
    tenant_id: Mapped[str] = mapped_column(String(64), index=True)
    vm: Mapped[str] = mapped_column(String(255))
    live_vm: Mapped[str | None] = mapped_column(String(255))
    state: Mapped[str] = mapped_column(String(16), index=True)
    generation: Mapped[int]
    request: Mapped[dict[str, Any]]
    devices: Mapped[list[Any]]
    operation_id: Mapped[str | None] = mapped_column(ID)
    domain_uuid: Mapped[str | None] = mapped_column(ID)
    error: Mapped[dict[str, Any] | None]
    lease_expires_at: Mapped[str | None] = mapped_column(TIME)
    created_at: Mapped[str] = mapped_column(TIME)
    updated_at: Mapped[str] = mapped_column(TIME)


class ClaimRow(Base):
    """A claim on something that only one may have: a GPU's function, or a vGPU (by UUID or VF).

    The database's unique constraint is what keeps one GPU from going to two VMs, whoever asks how.
    """

    __tablename__ = "claims"
    __table_args__ = (UniqueConstraint("host_id", "resource", name="uq_claims_resource"),)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    host_id: Mapped[str] = mapped_column(String(64))
    resource: Mapped[str] = mapped_column(String(64))
    gpu: Mapped[str] = mapped_column(String(64))
    profile_id: Mapped[str | None] = mapped_column(String(64))
    allocation_id: Mapped[str] = mapped_column(ForeignKey("allocations.id"), index=True)


class ReservationRow(Base):
    """vGPUs that an operation is going to make for an operator. It goes with the operation's end."""

    __tablename__ = "reservations"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    host_id: Mapped[str] = mapped_column(String(64), index=True)
    operation_id: Mapped[str] = mapped_column(ForeignKey("operations.id"), index=True)
    gpu: Mapped[str] = mapped_column(String(64))
    profile_id: Mapped[str] = mapped_column(String(64))
    count: Mapped[int]


class BindingRow(Base):
    """A GPU that shall be on VFIO, also after the next boot, and what it was before."""

    __tablename__ = "bindings"
    __table_args__ = (UniqueConstraint("host_id", "address", name="uq_bindings_address"),)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    host_id: Mapped[str] = mapped_column(String(64))
    address: Mapped[str] = mapped_column(String(32))
    fingerprint: Mapped[str] = mapped_column(String(16))
    driver: Mapped[str] = mapped_column(String(64))
    originals: Mapped[dict[str, Any]]
    owner: Mapped[str] = mapped_column(String(40))
    created_at: Mapped[str] = mapped_column(TIME)


class VgpuRow(Base):
    """A vGPU of ours, by profile and card, so that it can be made again after a reboot or a kernel upgrade."""

    __tablename__ = "vgpus"
    __table_args__ = (UniqueConstraint("host_id", "vgpu_id", name="uq_vgpus_vgpu_id"),)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    host_id: Mapped[str] = mapped_column(String(64))
    vgpu_id: Mapped[str] = mapped_column(String(64))
    gpu: Mapped[str] = mapped_column(String(32))
    fingerprint: Mapped[str] = mapped_column(String(16))
    parent: Mapped[str] = mapped_column(String(32))
    backend: Mapped[str] = mapped_column(String(16))
    profile_id: Mapped[str] = mapped_column(String(64))
    profile: Mapped[str] = mapped_column(String(128))
    params: Mapped[dict[str, Any]]
    allocation_id: Mapped[str | None] = mapped_column(ID)
    created_at: Mapped[str] = mapped_column(TIME)


class CardSetupRow(Base):
    """How a card shall be cut, also after the next boot: the fields of ``CardSetup`` that were asked for."""

    __tablename__ = "card_setups"
    host_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    address: Mapped[str] = mapped_column(String(32), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(16))
    setup: Mapped[dict[str, Any]]
    created_at: Mapped[str] = mapped_column(TIME)


class IdempotencyRow(Base):
    """The answer to a request that carried an idempotency key; ``status`` is 0 while there is none.

    ``operations`` are the ids of what was made for it, in order.
    """

    __tablename__ = "idempotency_keys"
    host_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    request_hash: Mapped[str] = mapped_column(String(64))
    status: Mapped[int]
    body: Mapped[dict[str, Any] | None]
    headers: Mapped[dict[str, Any] | None]
    operations: Mapped[list[Any] | None]
    created_at: Mapped[str] = mapped_column(TIME)


class QuarantineRow(Base):
    """A GPU that failed its check after use: not offered again until an operator lifts it."""

    __tablename__ = "quarantine"
    host_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    address: Mapped[str] = mapped_column(String(32), primary_key=True)
    reason: Mapped[str]
    created_at: Mapped[str] = mapped_column(TIME)


class EventCounterRow(Base):
    """The id of a host's last event."""

    __tablename__ = "event_counters"
    host_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    last: Mapped[int]


class EventRow(Base):
    """Something that happened; ``tenant_id`` where it is about an allocation."""

    __tablename__ = "events"
    host_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    time: Mapped[str] = mapped_column(TIME)
    type: Mapped[str] = mapped_column(String(32))
    subject: Mapped[str] = mapped_column(String(255))
    message: Mapped[str]
    data: Mapped[dict[str, Any]]
    tenant_id: Mapped[str | None] = mapped_column(String(64))
    allocation_id: Mapped[str | None] = mapped_column(ID)
