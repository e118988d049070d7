"""Backend ``vendor-vfio``: a VF is given a type, stays on its vendor's driver, and is the vGPU."""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.kernel.port import Kernel, read_text
from vgpumgr.model.allocation import AllocatedDevice, DeviceKind
from vgpumgr.model.vgpu import Backend, Vgpu
from vgpumgr.plans.step import Step
from vgpumgr.vgpu.cards import Card, Offer
from vgpumgr.vgpu.checks import CheckVgpuIdle
from vgpumgr.vgpu.port import Making, Order, Room
from vgpumgr.vgpu.spares import share_out
from vgpumgr.vgpu.vendor_steps import ClearVgpuType, SetVfParams, SetVgpuType, params_path


class VendorVfioBackend:
    """See :class:`~vgpumgr.vgpu.port.VgpuBackend`."""

    kind = Backend.VENDOR_VFIO

    def create(self, kernel: Kernel, card: Card, offer: Offer, order: Order, room: Room) -> Sequence[Making]:
        """See :class:`~vgpumgr.vgpu.port.VgpuBackend`."""
        places = share_out(room, offer.parents, order.count)
        return [self._one(kernel, card, offer, order, vf, spares) for vf, spares in places]

    def _one(
        self, kernel: Kernel, card: Card, offer: Offer, order: Order, vf: str, spares: tuple[str, ...]
    ) -> Making:
        steps: list[Step] = [SetVgpuType(vf, offer.profile_id, offer.name, spares)]
        if order.params or any(read_text(kernel, params_path(place)) for place in (vf, *spares)):
            steps.append(SetVfParams(vf, offer.profile_id, order.params, spares))
        device = AllocatedDevice(DeviceKind.TYPED_VF, card.address, vf, offer.profile_id, offer.name)
        return Making(device, tuple(steps))

    def delete(self, kernel: Kernel, card: Card, vgpu: Vgpu) -> Sequence[Step]:
        """See :class:`~vgpumgr.vgpu.port.VgpuBackend`."""
        params = read_text(kernel, params_path(vgpu.id)) or ""
        return (CheckVgpuIdle(vgpu.id), ClearVgpuType(vgpu.id, vgpu.profile_id, params))
