"""The codes of a GPU's ``passthrough.reasons`` and of slicing, each with what it means. Published: additions only.

All of the former keep the GPU from being assigned except those in :data:`INFORMATIVE`.
"""

from __future__ import annotations

from types import MappingProxyType

PASSTHROUGH_REASONS = MappingProxyType(
    {
        "kind-not-offered": "a server's own console or a fabric switch: it belongs to the host",
        "not-pci": "no PCI device, but a driver that makes vGPUs without one: they can be given to VMs, it cannot",
        "failed": "the GPU does not work, or was quarantined; it is not offered until that is mended",
        "iommu-inactive": "no IOMMU is at work on this host: nothing can be given to a VM safely",
        "no-iommu-group": "the IOMMU works, but this function is in none of its groups",
        "boot-display": "the firmware's and the host's console is on this GPU",
        "framebuffer-held": "a boot framebuffer still owns part of a BAR: a guest could not use the GPU",
        "group-shared": "other endpoints of the IOMMU group are in use by the host and are not part of the card",
        "vfs-enabled": "virtual functions are enabled: the card is being sliced and cannot go as a whole",
        "vgpu-live": "vGPUs live on the card",
        "vgpu-promised": "vGPUs are promised on the card that are still to be made, or made again",
        "in-use-by-host": "a process, a mount, an interface or a monitor of this host uses the GPU",
        "in-use": "a VM or another process holds the GPU, or its IOMMU group, through VFIO",
        "owner-unknown": "the GPU, or its IOMMU group, is on VFIO and it cannot be seen whether somebody uses it",
        "reserved": "the GPU is promised to an allocation",
        "parked": "taken from its host driver, but not ready for a VM yet: binding finishes that",
    }
)

INFORMATIVE = frozenset({"parked"})
"""Codes that explain a state and do not stand in the way."""

VGPU_REASONS = MappingProxyType(
    {
        # Why a card offers nothing now.
        "not-capable": "the kernel shows neither vGPU types nor virtual functions for the card",
        "host-driver-absent": "the card is on no driver, or on VFIO: only its host driver makes vGPUs",
        "vfs-off": "no virtual function is enabled; 'vgpumgr gpu slice' enables them",
        "no-vgpu-interface": "the virtual functions show no vGPU types: the driver is no vGPU host driver",
        "driver-cannot-enable": "the card's driver cannot enable virtual functions",
        "vfs-by-driver": "the driver chooses the number of virtual functions when it is loaded",
        # Why not more of a profile fit.
        "max-instances": "the card takes no more vGPUs of this size",
        "size-class": "the card takes one size at a time, and holds or is promised another",
        "placement": "in mixed-size mode, no more aligned places are free for this size",
        "framebuffer": "the framebuffer that is left holds no more of them",
        "reserved": "what would fit is promised: to allocations, to vGPUs in the making, to those that were lost",
        "vfs-taken": "no more virtual functions are free",
        "vfs-fixed": "only virtual functions that exist can be given; their number changes through 0 only",
        "not-offered": "the driver does not offer the profile now",
        "driver-offer": "the driver says that no more are available",
        "max-instances-unknown": "nothing tells how many the card takes: one at a time can be told for sure",
        "capacity-unknown": "nothing tells whether the card takes any",
        "mig-on": "the card is in MIG mode: only MIG-backed profiles fit",
        "mig-off": "the profile needs MIG mode, which is off",
        "mig-no-instance": "the card has no GPU instance of the profile's shape",
        "mig-instances-taken": "the GPU instances of the profile's shape are full",
        "mig-instances-unknown": "the library that counts GPU instances does not answer: one can be told for sure",
        # Why a change is refused.
        "profile-unknown": "no card here has the profile; names and ids match exactly",
        "profile-other-card": "another card has the profile, not the one that was named",
        "count-invalid": "fewer than one was asked for",
        "vgpu-foreign": "somebody else made the vGPU: it is shown, counted and never touched",
        "vf-foreign": "somebody else gave the virtual function away: it is shown, counted and never touched",
        "vf-not-given": "a virtual function that nobody was given: there is nothing to delete",
        "vgpu-allocated": "the vGPU belongs to an allocation and goes with it",
        "vgpu-in-use": "a guest has the vGPU",
        "holders-unknown": "it cannot be seen whether somebody has the vGPU open",
        "vgpu-live": "vGPUs live on the card, which the change would take",
        "vfs-above-limit": "more virtual functions than the card has",
        "vf-share-unsupported": "the driver has no shares to set for each virtual function",
        "nvml-absent": "NVIDIA's management library does not answer on this host",
        "nvml-no-card": "the library does not show the card: it is on VFIO, or off the bus",
        "mig-unsupported": "the card has no MIG mode",
        "mig-shape-unknown": "the card has no GPU instances of this shape",
        "mig-no-place": "the GPU instances asked for do not fit on the card together",
        "mixed-size-unsupported": "the card takes one size of vGPU at a time only",
        "scheduler-unsupported": "the card does not support the scheduler",
        "driver-option-unknown": "the driver has no parameters for single cards",
        "driver-option-foreign": "another file, or the command line, sets the parameter that would be written",
        "params-unsupported": "vGPUs of the card take no plugin parameters under its driver",
        "limiter-unsupported": "the frame-rate limiter works with the best-effort scheduler only",
        "vgpu-missing": "the vGPU is recorded, and not on the host",
        "ecc-unsupported": "the card has no error correction to switch",
        "gpu-missing": "the card that was cut is not there any more",
        "gpu-changed": "another card is in the place of the one that was cut",
        # What happened in a change.
        "at-next-load": "a warning: it counts when the driver is loaded again, or after a reboot",
        "planned-later": "a warning: what waits for an earlier change of the card is planned when that is done",
        "vf-skipped": "a virtual function refused the vGPU; another one took it",
        "driver-refused": "the driver refused, with the errno that is named; the kernel log has its reason",
        "kernel-log": "what the kernel logged meanwhile, in its own words",
        "driver-busy": "the driver stayed busy cleaning up an earlier vGPU",
        "parent-gone": "the function, or the profile on it, vanished: a driver reload, or a lost device",
        "vgpu-exists": "a vGPU of that UUID exists",
        "vgpu-changed": "the virtual function carries another vGPU by now",
        "vgpu-lost": "the vGPU vanished right after it was made",
        "mig-reset-needed": "the board takes the MIG mode at its next reset",
        "sriov-tool-missing": "the driver refuses the plain write, and NVIDIA's sriov-manage is not installed",
        "sriov-tool-failed": "NVIDIA's sriov-manage failed; its words are in the message",
    }
)
"""Codes of ``vgpu.reasons``, of a profile's ``limit``, and of refusals and failures of slicing."""
