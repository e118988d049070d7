"""Steps that remember, in the store, which vGPUs are ours, and forget those that are gone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from vgpumgr.errors import FailedError
from vgpumgr.kernel.port import Kernel
from vgpumgr.model.allocation import DeviceKind
from vgpumgr.model.records import OPERATOR, VgpuRecord
from vgpumgr.plans.step import Step, StepContext
from vgpumgr.store.store import Store
from vgpumgr.vgpu.mdev_steps import mdev_parent
from vgpumgr.vgpu.vendor_steps import type_of

_BACKENDS = {DeviceKind.MDEV: "mdev", DeviceKind.TYPED_VF: "vendor-vfio", DeviceKind.VF: "sriov"}


@dataclass(frozen=True)
class RememberVgpu(Step):
    """Keep a vGPU that was just made, by profile and card. ``places`` are where it can have been made: a UUID, or
    the VF that was meant and those that could stand in for it.
    """

    kind: ClassVar[str] = "remember-vgpu"
    places: tuple[str, ...]
    gpu: str
    fingerprint: str
    device_kind: str
    profile_id: str
    profile: str
    owner: str
    params: str = ""

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"remember that {self.profile} on {self.gpu} is {self.owner}'s"

    @property
    def subject(self) -> str:
        """See :class:`Step`."""
        return self.places[0]

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        record = self._record(context.kernel)
        return record is not None and context.port(Store).vgpus.get(record.id) == record

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`. Raises :class:`FailedError` when the vGPU is not there."""
        record = self._record(context.kernel)
        if record is None:
            raise FailedError(f"the new {self.profile} on {self.gpu} is gone again", code="vgpu-lost")
        context.port(Store).vgpus.put(record)

    def undo(self, context: StepContext) -> None:
        """Forget it again."""
        vgpus = context.port(Store).vgpus
        for record in vgpus.all():
            if record.id in self.places and record.allocation_id == self._allocation_id:
                vgpus.remove(record.id)

    def _record(self, kernel: Kernel) -> VgpuRecord | None:
        found = self._found(kernel)
        if found is None:
            return None
        vgpu, parent = found
        return VgpuRecord(
            id=vgpu,
            gpu=self.gpu,
            fingerprint=self.fingerprint,
            parent=parent,
            backend=_BACKENDS[DeviceKind(self.device_kind)],
            profile_id=self.profile_id,
            profile=self.profile,
            params={"vgpu_params": self.params} if self.params else {},
            allocation_id=self._allocation_id,
        )

    @property
    def _allocation_id(self) -> str | None:
        return None if self.owner == OPERATOR else self.owner

    def _found(self, kernel: Kernel) -> tuple[str, str] | None:
        """The vGPU and the function it lives on, as the host shows them now."""
        if self.device_kind == DeviceKind.MDEV:
            parent = mdev_parent(kernel, self.places[0])
            return (self.places[0], parent) if parent is not None else None
        if self.device_kind == DeviceKind.TYPED_VF:
            return next(((vf, vf) for vf in self.places if type_of(kernel, vf) == self.profile_id), None)
        return self.places[0], self.places[0]


@dataclass(frozen=True)
class RememberParams(Step):
    """Keep the parameters of a vGPU of ours, so that it comes back with them."""

    kind: ClassVar[str] = "remember-vgpu-params"
    vgpu: str
    params: str
    prior: str = ""

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"remember the parameters of vGPU {self.vgpu}: {self.params or 'none'}"

    @property
    def subject(self) -> str:
        """See :class:`Step`."""
        return self.vgpu

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        record = context.port(Store).vgpus.get(self.vgpu)
        return record is not None and record.params.get("vgpu_params", "") == self.params

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`. Raises :class:`FailedError` when the vGPU is no longer ours."""
        if not self._put(context, self.params):
            raise FailedError(f"vGPU {self.vgpu} is gone", code="vgpu-lost")

    def undo(self, context: StepContext) -> None:
        """Go back to the parameters there were."""
        self._put(context, self.prior)

    def _put(self, context: StepContext, params: str) -> bool:
        vgpus = context.port(Store).vgpus
        record = vgpus.get(self.vgpu)
        if record is not None:
            vgpus.put(replace(record, params={"vgpu_params": params} if params else {}))
        return record is not None


@dataclass(frozen=True)
class ForgetVgpu(Step):
    """Let a vGPU of ours go from the store: it was deleted."""

    kind: ClassVar[str] = "forget-vgpu"
    vgpu: str

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"forget vGPU {self.vgpu}"

    @property
    def subject(self) -> str:
        """See :class:`Step`."""
        return self.vgpu

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return context.port(Store).vgpus.get(self.vgpu) is None

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.port(Store).vgpus.remove(self.vgpu)

    def undo(self, context: StepContext) -> None:
        """Nothing to take back: it is the last step of plans that only go forward."""
