"""The codes of a GPU's ``passthrough.reasons``, each with what it means. Published: additions only.

All of them keep the GPU from being assigned except those in :data:`INFORMATIVE`.
"""

from __future__ import annotations

from types import MappingProxyType

PASSTHROUGH_REASONS = MappingProxyType(
    {
        "kind-not-offered": "a server's own console or a fabric switch: it belongs to the host",
        "failed": "the GPU does not work, or was quarantined; it is not offered until that is mended",
        "iommu-inactive": "no IOMMU is at work on this host: nothing can be given to a VM safely",
        "no-iommu-group": "the IOMMU works, but this function is in none of its groups",
        "boot-display": "the firmware's and the host's console is on this GPU",
        "framebuffer-held": "a boot framebuffer still owns part of a BAR: a guest could not use the GPU",
        "group-shared": "other endpoints of the IOMMU group are in use by the host and are not part of the card",
        "vfs-enabled": "virtual functions are enabled: the card is being sliced and cannot go as a whole",
        "vgpu-live": "vGPUs live on the card",
        "in-use-by-host": "a process, a mount, an interface or a monitor of this host uses the GPU",
        "in-use": "a VM or another process holds the GPU, or its IOMMU group, through VFIO",
        "owner-unknown": "the GPU is on a VFIO driver and it could not be seen whether somebody uses it",
        "reserved": "the GPU is promised to an allocation",
        "parked": "taken from its host driver, but not ready for a VM yet: binding finishes that",
    }
)

INFORMATIVE = frozenset({"parked"})
"""Codes that explain a state and do not stand in the way."""
