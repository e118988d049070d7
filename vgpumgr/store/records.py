"""Bindings, vGPUs and quarantined GPUs: what is remembered of a host across reboots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Delete, delete, select

from vgpumgr.model.records import Binding, VgpuRecord
from vgpumgr.store.models import BindingRow, QuarantineRow, VgpuRow
from vgpumgr.store.session import Sessions


class Bindings:
    """GPUs that shall be on VFIO, one record per GPU."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def all(self) -> Sequence[Binding]:
        """Every binding of this host, in the order they were made."""
        query = select(BindingRow).where(BindingRow.host_id == self._sessions.host_id).order_by(BindingRow.id)
        with self._sessions.transaction() as session:
            return [_binding(row) for row in session.scalars(query)]

    def get(self, address: str) -> Binding | None:
        """The binding of one GPU."""
        return next((binding for binding in self.all() if binding.address == address), None)

    def put(self, binding: Binding) -> None:
        """Remember a binding, in the place of an earlier one of the same GPU."""
        with self._sessions.transaction() as session:
            session.execute(_delete_binding(self._sessions.host_id, binding.address))
            session.add(
                BindingRow(
                    host_id=self._sessions.host_id,
                    address=binding.address,
                    fingerprint=binding.fingerprint,
                    driver=binding.driver,
                    originals=dict(binding.originals),
                    owner=binding.owner,
                    created_at=self._sessions.now(),
                )
            )

    def remove(self, address: str) -> None:
        """Forget the binding of one GPU; one that is not there is fine."""
        with self._sessions.transaction() as session:
            session.execute(_delete_binding(self._sessions.host_id, address))


def _delete_binding(host_id: str, address: str) -> Delete:
    return delete(BindingRow).where(BindingRow.host_id == host_id, BindingRow.address == address)


def _binding(row: BindingRow) -> Binding:
    return Binding(row.address, row.fingerprint, row.driver, row.originals, row.owner)


class Vgpus:
    """vGPUs of ours."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def all(self) -> Sequence[VgpuRecord]:
        """Every vGPU of ours on this host, in the order they were made."""
        query = select(VgpuRow).where(VgpuRow.host_id == self._sessions.host_id).order_by(VgpuRow.id)
        with self._sessions.transaction() as session:
            return [_vgpu(row) for row in session.scalars(query)]

    def get(self, vgpu_id: str) -> VgpuRecord | None:
        """One vGPU of ours."""
        return next((record for record in self.all() if record.id == vgpu_id), None)

    def put(self, record: VgpuRecord) -> None:
        """Remember a vGPU, in the place of an earlier one of the same id."""
        with self._sessions.transaction() as session:
            session.execute(_delete_vgpu(self._sessions.host_id, record.id))
            session.add(
                VgpuRow(
                    host_id=self._sessions.host_id,
                    vgpu_id=record.id,
                    gpu=record.gpu,
                    fingerprint=record.fingerprint,
                    parent=record.parent,
                    backend=record.backend,
                    profile_id=record.profile_id,
                    profile=record.profile,
                    params=dict(record.params),
                    allocation_id=record.allocation_id,
                    created_at=self._sessions.now(),
                )
            )

    def remove(self, vgpu_id: str) -> None:
        """Forget a vGPU; one that is not there is fine."""
        with self._sessions.transaction() as session:
            session.execute(_delete_vgpu(self._sessions.host_id, vgpu_id))


def _delete_vgpu(host_id: str, vgpu_id: str) -> Delete:
    return delete(VgpuRow).where(VgpuRow.host_id == host_id, VgpuRow.vgpu_id == vgpu_id)


def _vgpu(row: VgpuRow) -> VgpuRecord:
    return VgpuRecord(
        row.vgpu_id,
        row.gpu,
        row.fingerprint,
        row.parent,
        row.backend,
        row.profile_id,
        row.profile,
        row.params,
        row.allocation_id,
    )


class Quarantine:
    """GPUs that failed their check after use."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def all(self) -> Mapping[str, str]:
        """Addresses with the reason of each."""
        query = select(QuarantineRow).where(QuarantineRow.host_id == self._sessions.host_id)
        with self._sessions.transaction() as session:
            return {row.address: row.reason for row in session.scalars(query)}

    def put(self, address: str, reason: str) -> None:
        """Quarantine a GPU."""
        with self._sessions.transaction() as session:
            session.merge(
                QuarantineRow(
                    host_id=self._sessions.host_id, address=address, reason=reason, created_at=self._sessions.now()
                )
            )

    def lift(self, address: str) -> None:
        """Offer a GPU again; one that is not there is fine."""
        with self._sessions.transaction() as session:
            row = session.get(QuarantineRow, (self._sessions.host_id, address))
            if row is not None:
                session.delete(row)
