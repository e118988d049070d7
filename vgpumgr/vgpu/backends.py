"""Which backend serves a card: told by what the kernel showed when the card was read."""

from __future__ import annotations

from vgpumgr.model.vgpu import Backend
from vgpumgr.vgpu.mdev import MdevBackend
from vgpumgr.vgpu.port import VgpuBackend
from vgpumgr.vgpu.sriov import SriovBackend
from vgpumgr.vgpu.vendor_vfio import VendorVfioBackend

_BACKENDS: dict[Backend, VgpuBackend] = {
    Backend.MDEV: MdevBackend(),
    Backend.VENDOR_VFIO: VendorVfioBackend(),
    Backend.SRIOV: SriovBackend(),
}


def backend_of(kind: Backend) -> VgpuBackend:
    """The backend of that kind; they keep no state."""
    return _BACKENDS[kind]
