"""Allocations and the claims that make them exclusive."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from vgpumgr.errors import ConflictError, NotFoundError
from vgpumgr.model.allocation import AllocatedDevice, Allocation, AllocationRequest, AllocationState, DeviceKind
from vgpumgr.model.event import EventType, Happening, because, cause
from vgpumgr.model.json import JsonObject
from vgpumgr.model.page import Page
from vgpumgr.store.events import add_event
from vgpumgr.store.models import AllocationRow, ClaimRow
from vgpumgr.store.operations import add_operation
from vgpumgr.store.session import Sessions, page_of


@dataclass(frozen=True, slots=True)
class Claim:
    """Something claimed. ``resource``: a PCI address or UUID, or ``GPU/slot`` for a vGPU not yet made."""

    resource: str
    gpu: str
    allocation_id: str
    profile_id: str | None = None


class Allocations:
    """The allocations of one host. Every change is one transaction, its event in it, and raises the generation."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(self, allocation: Allocation, claims: Sequence[Claim], operation_kind: str) -> None:
        """Write an allocation, its claims and its pending operation, all or nothing.

        ConflictError ``already-claimed`` when another allocation has one of the resources, ``vm-has-allocation``
        when the VM has a live allocation.
        """
        try:
            with self._sessions.transaction() as session:
                row = _row(allocation)
                session.add(row)
                session.flush()
                for claim in claims:
                    session.add(_claim_row(self._sessions.host_id, claim))
                assert allocation.operation_id is not None
                operation_id, subject = allocation.operation_id, allocation.id
                add_operation(session, self._sessions, operation_id, operation_kind, subject, subject)
                add_event(session, self._sessions, _transition(row))
        except IntegrityError as error:
            raise _conflict(error, allocation) from error

    def get(self, allocation_id: str) -> Allocation:
        """One allocation. NotFoundError ``allocation-unknown``."""
        with self._sessions.transaction() as session:
            return _allocation(self._find(session, allocation_id))

    def _find(self, session: Session, allocation_id: str) -> AllocationRow:
        row = session.get(AllocationRow, allocation_id)
        if row is None or row.host_id != self._sessions.host_id:
            raise NotFoundError(
                f"there is no allocation {allocation_id!r}",
                hint="'vgpumgr alloc list' shows them",
                code="allocation-unknown",
            )
        return row

    def list(
        self,
        *,
        states: Collection[str] = (),
        vm: str | None = None,
        tenant: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Allocation]:
        """Allocations, newest first."""
        query = select(AllocationRow).where(AllocationRow.host_id == self._sessions.host_id)
        if states:
            query = query.where(AllocationRow.state.in_(states))
        if vm is not None:
            query = query.where(AllocationRow.vm == vm)
        if tenant is not None:
            query = query.where(AllocationRow.tenant_id == tenant)
        with self._sessions.transaction() as session:
            rows, following = page_of(session, query, AllocationRow, limit, cursor)
            return Page([_allocation(row) for row in rows], following)

    def change(
        self,
        allocation_id: str,
        state: AllocationState,
        allowed: Collection[AllocationState],
        *,
        generation: int | None = None,
        operation: tuple[str, str] | None = None,
        devices: Sequence[AllocatedDevice] | None = None,
        domain_uuid: str | None = None,
        error: JsonObject | None = None,
        drop_claims: bool = False,
    ) -> Allocation:
        """Bring an allocation from one of the ``allowed`` states to ``state``.

        ``operation`` is the id and kind of a new pending operation. With ``drop_claims`` (and always when
        released) its claims, and its hold on the VM's name, go with the same transaction. ConflictError
        ``state-conflict`` from any other state, ``generation-mismatch`` when ``generation`` is given and not the
        present one.
        """
        with self._sessions.transaction() as session:
            row = self._find(session, allocation_id)
            _check(row, allowed, state, generation)
            before, row.state = row.state, state
            row.generation += 1
            row.updated_at = self._sessions.now()
            row.error = error
            if devices is not None:
                row.devices = [device.to_json() for device in devices]
            if domain_uuid is not None:
                row.domain_uuid = domain_uuid
            if operation is not None:
                row.operation_id = operation[0]
                add_operation(session, self._sessions, *operation, allocation_id, allocation_id)
            if drop_claims or state is AllocationState.RELEASED:
                row.live_vm = None
                session.execute(delete(ClaimRow).where(ClaimRow.allocation_id == allocation_id))
            if state != before:
                add_event(session, self._sessions, _transition(row))
            return _allocation(row)

    def claims(self) -> Sequence[Claim]:
        """Every live claim of this host."""
        query = select(ClaimRow).where(ClaimRow.host_id == self._sessions.host_id).order_by(ClaimRow.id)
        with self._sessions.transaction() as session:
            return [
                Claim(row.resource, row.gpu, row.allocation_id, row.profile_id) for row in session.scalars(query)
            ]


def _check(
    row: AllocationRow, allowed: Collection[AllocationState], after: AllocationState, generation: int | None
) -> None:
    if generation is not None and row.generation != generation:
        raise ConflictError(
            f"allocation {row.id} was changed meanwhile: generation {row.generation}, not {generation}",
            hint="read it again and decide anew",
            code="generation-mismatch",
        )
    if AllocationState(row.state) not in allowed:
        raise ConflictError(
            f"allocation {row.id} is {row.state}: it cannot become {after} from there",
            hint="wait for its operation to end, or look at it with 'vgpumgr alloc show'",
            code="state-conflict",
        )


def _transition(row: AllocationRow) -> Happening:
    """An allocation has come to a state."""
    data = {"vm": row.vm, "generation": row.generation, "operation_id": row.operation_id, **cause(row.error)}
    message = f"the allocation of {row.vm} is {row.state}{because(row.error)}"
    return Happening(EventType(f"allocation.{row.state}"), row.id, message, data, row.tenant_id, row.id)


def _conflict(error: IntegrityError, allocation: Allocation) -> ConflictError:
    text = str(error.orig)
    if "live_vm" in text:
        return ConflictError(
            f"the VM {allocation.vm} has an allocation already",
            hint="release it first, or ask for all its devices in one request",
            code="vm-has-allocation",
        )
    return ConflictError(
        "another request took one of these devices a moment ago",
        hint="ask again: other candidates may be left",
        code="already-claimed",
    )


def _row(item: Allocation) -> AllocationRow:
    return AllocationRow(
        id=item.id,
        host_id=item.host_id,
        tenant_id=item.tenant,
        vm=item.vm,
        live_vm=item.vm,
        state=item.state,
        generation=item.generation,
        request=item.request.to_json(),
        devices=[device.to_json() for device in item.devices],
        operation_id=item.operation_id,
        domain_uuid=item.domain_uuid,
        error=item.error,
        lease_expires_at=item.lease_expires_at,
        created_at=item.created_at,
        updated_at=item.updated_at,
    )


def _claim_row(host_id: str, claim: Claim) -> ClaimRow:
    return ClaimRow(
        host_id=host_id,
        resource=claim.resource,
        gpu=claim.gpu,
        profile_id=claim.profile_id,
        allocation_id=claim.allocation_id,
    )


def _allocation(row: AllocationRow) -> Allocation:
    return Allocation(
        id=row.id,
        host_id=row.host_id,
        tenant=row.tenant_id,
        vm=row.vm,
        state=AllocationState(row.state),
        generation=row.generation,
        request=AllocationRequest(**row.request),
        devices=tuple(_device(device) for device in row.devices),
        created_at=row.created_at,
        updated_at=row.updated_at,
        operation_id=row.operation_id,
        domain_uuid=row.domain_uuid,
        error=row.error,
        lease_expires_at=row.lease_expires_at,
    )


def _device(value: Mapping[str, Any]) -> AllocatedDevice:
    return AllocatedDevice(
        kind=DeviceKind(value["kind"]),
        gpu=value["gpu"],
        handle=value["handle"],
        profile_id=value["profile_id"],
        profile=value["profile"],
        companions=tuple(value["companions"]),
    )
