"""Backend ``sriov``: the VFs are the slices (AMD, Intel); one is given to a VM by putting it on VFIO."""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.inventory.variants import best_vfio_driver
from vgpumgr.kernel.port import PCI_DEVICES, Kernel, read_text
from vgpumgr.model.allocation import AllocatedDevice, DeviceKind
from vgpumgr.model.host import Gpu
from vgpumgr.model.vgpu import Backend, Vgpu
from vgpumgr.plans.pci import LoadModule, Probe, SetOverride, Unbind, driver_of, override_of
from vgpumgr.plans.step import Step
from vgpumgr.vgpu.cards import Card, Offer
from vgpumgr.vgpu.checks import CheckVgpuIdle
from vgpumgr.vgpu.port import Making, Order, Room
from vgpumgr.vgpu.vf_plans import enable_steps, vf_addresses

_PLAIN = ("vfio-pci", "vfio-pci")


class SriovBackend:
    """See :class:`~vgpumgr.vgpu.port.VgpuBackend`."""

    kind = Backend.SRIOV

    def create(self, kernel: Kernel, card: Card, offer: Offer, order: Order, room: Room) -> Sequence[Making]:
        """Puts free VFs on VFIO. A card without any first enables as many as are ordered: that cuts the card."""
        if card.gpu.sriov is not None and card.gpu.sriov.num_vfs:
            chosen = room.free(offer.parents)[: order.count]
            first: Sequence[Step] = ()
        else:
            chosen = vf_addresses(kernel, card.gpu, order.count)
            first = enable_steps(kernel, card.gpu, order.count)
        room.taken.update(chosen)
        makings = []
        for index, vf in enumerate(chosen):
            steps = (*(first if index == 0 else ()), *_to_vfio(kernel, vf))
            device = AllocatedDevice(DeviceKind.VF, card.address, vf, offer.profile_id, offer.name)
            makings.append(Making(device, steps))
        return makings

    def delete(self, kernel: Kernel, card: Card, vgpu: Vgpu) -> Sequence[Step]:
        """Takes the VF off VFIO. It goes on to exist: how many there are is the card's matter."""
        steps: list[Step] = [CheckVgpuIdle(vgpu.id)]
        prior, driver = override_of(kernel, vgpu.id), driver_of(kernel, vgpu.id)
        if prior:
            steps.append(SetOverride(vgpu.id, "", prior))
        if driver is not None and is_vfio(kernel, card.gpu, vgpu.id):
            steps.append(Unbind(vgpu.id, driver, prior))
        return steps


def is_vfio(kernel: Kernel, gpu: Gpu, vf: str) -> bool:
    """True when a VF's driver is one of VFIO's."""
    driver = driver_of(kernel, vf) or ""
    return driver.endswith(("vfio-pci", "vfio_pci")) or kernel.exists(f"{PCI_DEVICES}/{vf}/vfio-dev")


def _to_vfio(kernel: Kernel, vf: str) -> list[Step]:
    modalias = read_text(kernel, f"{PCI_DEVICES}/{vf}/modalias")
    driver, module = best_vfio_driver(kernel, modalias) if modalias else _PLAIN
    current, prior = driver_of(kernel, vf), override_of(kernel, vf)
    steps: list[Step] = [LoadModule(module, driver), SetOverride(vf, driver, prior)]
    if current is not None and current != driver:
        steps.append(Unbind(vf, current, prior))
    steps.append(Probe(vf, driver))
    return steps
