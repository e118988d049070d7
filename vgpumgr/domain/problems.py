"""The codes of the preflight's problems, each with what it means. Published: additions only."""

from __future__ import annotations

from types import MappingProxyType

PROBLEMS = MappingProxyType(
    {
        # What the XML tells by itself.
        "address-invalid": "a PCI address that cannot be: no number, a slot above 0x1f, a function above 7",
        "source-missing": "a host device names no source address",
        "uuid-invalid": "not the UUID of a mediated device",
        "model-missing": "a mediated device without `model='vfio-pci'`",
        "model-unknown": "a mediated device of a model that libvirt does not know",
        "device-twice": "one device is named twice in the domain",
        "display-without-graphics": "`display='on'` in a domain without `<graphics>`",
        "ramfb-twice": "`ramfb='on'` on more than one device",
        "guest-address-invalid": "a place in the guest that cannot be",
        "guest-address-twice": "two devices at one place in the guest",
        "guest-multifunction": "a guest slot whose function 0 is missing, or lacks `multifunction='on'`",
        "memory-limit": "`<hard_limit>` is below the memory that VFIO locks",
        "managed-ignored": "`managed='yes'` on a mediated device means nothing",
        "commandline-device": "a device goes to QEMU by `<qemu:commandline>`, behind libvirt's back",
        "libvirt-too-old": "this libvirt does not know an element or attribute and drops it",
        "schema": "libvirt's schema does not allow something; libvirt drops it, or refuses the domain",
        # What the host tells.
        "device-unknown": "no such PCI function on this host",
        "mdev-unknown": "no such mediated device on this host",
        "bridge": "a bridge: libvirt assigns only endpoints",
        "device-not-detached": "`managed='no'`, and the device is not on a VFIO driver",
        "managed-vgpu": "`managed='yes'` on a VF that carries a vGPU: it would be lost",
        "vf-without-type": "a VF that carries no vGPU yet",
        "vfs-enabled": "virtual functions are enabled: the card cannot go as a whole",
        "vf-token": "a VF of a card on vfio-pci: QEMU needs its VF token",
        "vgpu-live": "vGPUs live on the card, or a mediated device on the VF",
        "group-not-viable": "other members of the IOMMU group are on host drivers; they are named",
        "no-iommu-group": "the device is in no IOMMU group",
        "iommu-inactive": "no IOMMU is at work on this host",
        "device-failed": "the GPU does not work, or is in quarantine",
        "device-degraded": "the GPU works, but not as it should",
        "boot-display": "the host's console is on this GPU; an error where `managed='yes'` would take it",
        "framebuffer-held": "a boot framebuffer owns part of a BAR: the guest could not use the GPU",
        "in-use-by-host": "the host uses the device, and `managed='yes'` would take it away",
        "kind-not-offered": "a management display or a fabric switch",
        "companion-missing": "a function of the same card is not in the domain",
        "vgpu-promised": "vGPUs are promised on the card that are still to be made, or made again",
        "reserved": "the GPU is promised to an allocation",
        # What libvirt and the vGPU drivers tell.
        "device-in-use": "another VM, or a process, has the device",
        "group-in-use": "another VM has a member of the same IOMMU group, and so all of it",
        "owner-unknown": "libvirt could not be asked which VM has the device",
    }
)
