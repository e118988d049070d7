"""What the slicing commands ask of a backend, in this process and over the service's socket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

if TYPE_CHECKING:
    from vgpumgr.cli.client import Client
    from vgpumgr.service import Service
    from vgpumgr.vgpu.modes import Modes

JsonObject = dict[str, Any]


class SliceBackend(Protocol):
    """The use-cases of :class:`vgpumgr.allocations.slices.Slices`, in JSON."""

    def vgpus(self, gpu: str | None) -> list[JsonObject]:
        """Every vGPU, or those of one GPU."""
        ...

    def vgpu(self, vgpu_id: str) -> JsonObject:
        """One vGPU."""
        ...

    def plan_vgpu_create(self, request: JsonObject) -> JsonObject:
        """The plan of :meth:`create_vgpus`."""
        ...

    def create_vgpus(self, request: JsonObject) -> JsonObject:
        """The operation that makes them. ``request``: profile, count, gpu, params."""
        ...

    def plan_vgpu_delete(self, vgpu_id: str) -> JsonObject:
        """The plan of :meth:`delete_vgpu`."""
        ...

    def delete_vgpu(self, vgpu_id: str) -> JsonObject:
        """The operation that deletes it."""
        ...

    def plan_vgpu_params(self, vgpu_id: str, request: JsonObject) -> JsonObject:
        """The plan of :meth:`set_vgpu_params`."""
        ...

    def set_vgpu_params(self, vgpu_id: str, request: JsonObject) -> JsonObject:
        """The operation that changes a vGPU's parameters. ``request``: params, frame_rate_limiter."""
        ...

    def plan_restore_vgpus(self) -> list[JsonObject]:
        """The plans of :meth:`restore_vgpus`, in order."""
        ...

    def restore_vgpus(self) -> list[JsonObject]:
        """The operations that bring back what is recorded and missing."""
        ...

    def plan_slice(self, address: str, request: JsonObject) -> JsonObject:
        """The plan of :meth:`slice_gpu`."""
        ...

    def slice_gpu(self, address: str, request: JsonObject) -> JsonObject:
        """The operation that cuts a card. ``request``: vfs, and shares of each VF."""
        ...

    def modes(self, address: str) -> JsonObject:
        """A card's modes."""
        ...

    def plan_modes(self, address: str, request: JsonObject) -> JsonObject:
        """The plan of :meth:`set_modes`."""
        ...

    def set_modes(self, address: str, request: JsonObject) -> JsonObject:
        """The operation that changes them. ``request``: mig, layout, mixed_size, scheduler,
        scheduler_at_load, ecc.
        """
        ...


class LocalSlices:
    """Answers from a service in this process."""

    _service: Service

    def vgpus(self, gpu: str | None) -> list[JsonObject]:
        """See :class:`SliceBackend`; so for every method here."""
        return [view.to_json() for view in self._service.slices.vgpus(gpu)]

    def vgpu(self, vgpu_id: str) -> JsonObject:
        """One vGPU."""
        return self._service.slices.vgpu(vgpu_id).to_json()

    def plan_vgpu_create(self, request: JsonObject) -> JsonObject:
        """The plan that makes vGPUs."""
        return self._service.slices.plan_create(**request).to_json()

    def create_vgpus(self, request: JsonObject) -> JsonObject:
        """The operation that makes vGPUs."""
        return self._service.slices.create(**request).to_json()

    def plan_vgpu_delete(self, vgpu_id: str) -> JsonObject:
        """The plan that deletes a vGPU."""
        return self._service.slices.plan_delete(vgpu_id).to_json()

    def delete_vgpu(self, vgpu_id: str) -> JsonObject:
        """The operation that deletes a vGPU."""
        return self._service.slices.delete(vgpu_id).to_json()

    def plan_vgpu_params(self, vgpu_id: str, request: JsonObject) -> JsonObject:
        """The plan that changes a vGPU's parameters."""
        wanted = (request.get("params"), request.get("frame_rate_limiter"))
        return self._service.slices.plan_params(vgpu_id, *wanted).to_json()

    def set_vgpu_params(self, vgpu_id: str, request: JsonObject) -> JsonObject:
        """The operation that changes a vGPU's parameters."""
        wanted = (request.get("params"), request.get("frame_rate_limiter"))
        return self._service.slices.set_params(vgpu_id, *wanted).to_json()

    def plan_restore_vgpus(self) -> list[JsonObject]:
        """The plans that bring back what is missing."""
        return [plan.to_json() for plan in self._service.plan_restore_slices()]

    def restore_vgpus(self) -> list[JsonObject]:
        """The operations that bring back what is missing."""
        return [operation.to_json() for operation in self._service.start_restore_slices()]

    def plan_slice(self, address: str, request: JsonObject) -> JsonObject:
        """The plan that cuts a card."""
        return self._service.slices.plan_slice(address, request.get("vfs")).to_json()

    def slice_gpu(self, address: str, request: JsonObject) -> JsonObject:
        """The operation that cuts a card."""
        return self._service.slices.slice(address, request.get("vfs")).to_json()

    def modes(self, address: str) -> JsonObject:
        """A card's modes."""
        return self._service.slices.modes(address).to_json()

    def plan_modes(self, address: str, request: JsonObject) -> JsonObject:
        """The plan that changes a card's modes."""
        return self._service.slices.plan_modes(address, _modes(request)).to_json()

    def set_modes(self, address: str, request: JsonObject) -> JsonObject:
        """The operation that changes a card's modes."""
        return self._service.slices.set_modes(address, _modes(request)).to_json()


def _modes(request: Mapping[str, Any]) -> Modes:
    from vgpumgr.vgpu.modes import Modes
    from vgpumgr.vgpu.nvml_port import Scheduler

    values = dict(request)
    values["at_load"] = values.pop("scheduler_at_load", False)
    if values.get("scheduler") is not None:
        values["scheduler"] = Scheduler(values["scheduler"])
    if values.get("layout") is not None:
        values["layout"] = tuple(values["layout"])
    return Modes(**values)


class RemoteSlices:
    """Answers from the running service."""

    _client: Client

    def vgpus(self, gpu: str | None) -> list[JsonObject]:
        """See :class:`SliceBackend`; so for every method here."""
        return list(self._client.pages("/v1/vgpus", {"gpu": gpu}))

    def vgpu(self, vgpu_id: str) -> JsonObject:
        """One vGPU."""
        found: JsonObject = self._client.get(_vgpu(vgpu_id))
        return found

    def plan_vgpu_create(self, request: JsonObject) -> JsonObject:
        """The plan that makes vGPUs."""
        return self._change("/v1/vgpus", request, dry_run=True)

    def create_vgpus(self, request: JsonObject) -> JsonObject:
        """The operation that makes vGPUs."""
        return self._change("/v1/vgpus", request)

    def plan_vgpu_delete(self, vgpu_id: str) -> JsonObject:
        """The plan that deletes a vGPU."""
        plan: JsonObject = self._client.delete(_vgpu(vgpu_id), {"dry_run": True})
        return plan

    def delete_vgpu(self, vgpu_id: str) -> JsonObject:
        """The operation that deletes a vGPU."""
        operation: JsonObject = self._client.delete(_vgpu(vgpu_id))
        return operation

    def plan_vgpu_params(self, vgpu_id: str, request: JsonObject) -> JsonObject:
        """The plan that changes a vGPU's parameters."""
        return self._change(f"{_vgpu(vgpu_id)}/params", request, dry_run=True)

    def set_vgpu_params(self, vgpu_id: str, request: JsonObject) -> JsonObject:
        """The operation that changes a vGPU's parameters."""
        return self._change(f"{_vgpu(vgpu_id)}/params", request)

    def plan_restore_vgpus(self) -> list[JsonObject]:
        """The plans that bring back what is missing."""
        plans: list[JsonObject] = self._change("/v1/vgpus/restore", {}, dry_run=True)["plans"]
        return plans

    def restore_vgpus(self) -> list[JsonObject]:
        """The operations that bring back what is missing."""
        operations: list[JsonObject] = self._change("/v1/vgpus/restore", {})["operations"]
        return operations

    def plan_slice(self, address: str, request: JsonObject) -> JsonObject:
        """The plan that cuts a card."""
        return self._change(f"/v1/gpus/{quote(address)}/slice", request, dry_run=True)

    def slice_gpu(self, address: str, request: JsonObject) -> JsonObject:
        """The operation that cuts a card."""
        return self._change(f"/v1/gpus/{quote(address)}/slice", request)

    def modes(self, address: str) -> JsonObject:
        """A card's modes."""
        found: JsonObject = self._client.get(f"/v1/gpus/{quote(address)}/modes")
        return found

    def plan_modes(self, address: str, request: JsonObject) -> JsonObject:
        """The plan that changes a card's modes."""
        return self._change(f"/v1/gpus/{quote(address)}/modes", request, dry_run=True)

    def set_modes(self, address: str, request: JsonObject) -> JsonObject:
        """The operation that changes a card's modes."""
        return self._change(f"/v1/gpus/{quote(address)}/modes", request)

    def _change(self, path: str, request: JsonObject, dry_run: bool = False) -> JsonObject:
        body = {key: value for key, value in request.items() if value is not None}
        answer: JsonObject = self._client.post(path, body, {"dry_run": True} if dry_run else None)
        return answer


def _vgpu(vgpu_id: str) -> str:
    return f"/v1/vgpus/{quote(vgpu_id, safe=':')}"
