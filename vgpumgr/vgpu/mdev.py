"""Backend ``mdev``: vGPUs are mediated devices, on the card itself or one to each of its VFs."""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.kernel.port import MDEV_DEVICES, Kernel, read_text
from vgpumgr.model.allocation import AllocatedDevice, DeviceKind
from vgpumgr.model.vgpu import Backend, Vgpu
from vgpumgr.plans.step import Step
from vgpumgr.vgpu.cards import Card, Offer
from vgpumgr.vgpu.checks import CheckVgpuIdle
from vgpumgr.vgpu.mdev_steps import CreateMdev, RemoveMdev, SetParams
from vgpumgr.vgpu.port import Making, Order, Room
from vgpumgr.vgpu.spares import share_out


class MdevBackend:
    """See :class:`~vgpumgr.vgpu.port.VgpuBackend`."""

    kind = Backend.MDEV

    def create(self, kernel: Kernel, card: Card, offer: Offer, order: Order, room: Room) -> Sequence[Making]:
        """See :class:`~vgpumgr.vgpu.port.VgpuBackend`."""
        if card.free_vfs is None:
            places: list[tuple[str, tuple[str, ...]]] = [(card.address, ())] * order.count
        else:
            places = share_out(room, offer.parents, order.count)
        return [self._one(card, offer, order, parent, spares, room.new_uuid()) for parent, spares in places]

    def _one(
        self, card: Card, offer: Offer, order: Order, parent: str, spares: tuple[str, ...], uuid: str
    ) -> Making:
        steps: list[Step] = [CreateMdev(parent, offer.profile_id, uuid, offer.name, spares)]
        if order.params:
            steps.append(SetParams(params_path(uuid), order.params))
        device = AllocatedDevice(DeviceKind.MDEV, card.address, uuid, offer.profile_id, offer.name)
        return Making(device, tuple(steps))

    def delete(self, kernel: Kernel, card: Card, vgpu: Vgpu) -> Sequence[Step]:
        """See :class:`~vgpumgr.vgpu.port.VgpuBackend`."""
        params = read_text(kernel, params_path(vgpu.id)) or ""
        return (CheckVgpuIdle(vgpu.id), RemoveMdev(vgpu.parent, vgpu.profile_id, vgpu.id, params))


def params_path(uuid: str) -> str:
    """Where the plugin parameters of a mediated device stand."""
    return f"{MDEV_DEVICES}/{uuid}/nvidia/vgpu_params"
