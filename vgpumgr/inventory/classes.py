"""What a PCI class and vendor say about a function: GPU or not, which kind, bridge or not."""

from __future__ import annotations

from functools import lru_cache

from vgpumgr.model.host import GpuKind

NVIDIA = "10de"

_ACCELERATORS = ("1200", "0b40")
_DISPLAY_BASE = "03"

_MANAGEMENT_VENDORS = frozenset(
    {
        "1a03",  # ASPEED
        "102b",  # Matrox: the G200 cores inside nearly every vendor's management controller
        "1050",  # Nuvoton (Winbond)
        "126f",  # Silicon Motion
        "18ca",  # XGI
        "19a2",  # Emulex (ServerEngines Pilot)
    }
)
"""Makers whose display functions are server consoles: they belong to the host, always."""

_MANAGEMENT_CHIPS = frozenset(
    {
        ("19e5", "1711"),  # HiSilicon Hibmc, beside Huawei's accelerators of the same vendor id
        ("1002", "515e"),  # ATI ES1000 / RN50
        ("1002", "5969"),  # ATI ES1000
        ("1002", "4752"),  # ATI Rage XL, the server console of its day
    }
)


@lru_cache(maxsize=1024)
def gpu_kind(class_id: str | None, vendor: str | None, device: str | None) -> GpuKind | None:
    """The kind of a GPU-like function, ``None`` for everything else.

    An emulated display (virtio-gpu, bochs, ...) is a GPU: on a host that is itself a VM it can be given away.
    """
    if class_id is None:
        return None
    if class_id.startswith(_DISPLAY_BASE):
        managed = vendor in _MANAGEMENT_VENDORS or (vendor, device) in _MANAGEMENT_CHIPS
        return GpuKind.BMC_VGA if managed else GpuKind.GPU
    if class_id.startswith(_ACCELERATORS):
        return GpuKind.ACCELERATOR
    if class_id.startswith("0680") and vendor == NVIDIA:
        return GpuKind.NVSWITCH
    return None


def is_network(class_id: str | None) -> bool:
    """True for network controllers of any sort, InfiniBand (0207) included."""
    return class_id is not None and class_id.startswith("02")


def is_audio(class_id: str | None) -> bool:
    """True for the audio function that goes with a display."""
    return class_id is not None and class_id.startswith(("0403", "0401"))


def is_vfio_driver(name: str | None) -> bool:
    """True for vfio-pci and its variants by name: ``mlx5_vfio_pci``, ``xe-vfio-pci``, ``nvgrace_gpu_vfio_pci``."""
    return name is not None and name.endswith(("vfio-pci", "vfio_pci"))
