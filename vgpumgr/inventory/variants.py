"""Which VFIO driver fits a function best: the variant drivers that the host's modules announce.

A variant driver (nvgrace, xe, mlx5 …) announces devices with ``alias vfio_pci:v…`` lines in
``modules.alias``, in the form of the functions' own ``pci:`` modalias. Of several that match, the one that
says most about the device wins; ``vfio-pci`` serves the rest. (libvirt ≥ 10 chooses the same way.)
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from vgpumgr.kernel.port import Kernel, list_or_empty, read_text

GENERIC = "vfio-pci"
GENERIC_MODULE = "vfio_pci"
_ALIAS = "alias vfio_pci:"
_HYPHENATED = {"vfio_pci": "vfio-pci", "xe_vfio_pci": "xe-vfio-pci"}
"""Drivers whose name is not their module's; all other variants are named like their module."""


def best_vfio_driver(kernel: Kernel, modalias: str | None) -> tuple[str, str]:
    """``(driver, module)`` for a function's ``pci:…`` modalias; the generic pair when nothing fits better."""
    if not modalias or not modalias.startswith("pci:"):
        return GENERIC, GENERIC_MODULE
    device = modalias.removeprefix("pci:")
    matching = [(pattern, module) for pattern, module in _aliases(kernel) if fnmatchcase(device, pattern)]
    if not matching:
        return GENERIC, GENERIC_MODULE
    _, module = min(matching, key=lambda item: (item[0].count("*"), item[1]))
    return driver_name(kernel, module), module


def driver_name(kernel: Kernel, module: str) -> str:
    """The PCI driver that a module brings: seen when it is loaded, else by the rule of names."""
    for name in list_or_empty(kernel, f"/sys/module/{module}/drivers"):
        if name.startswith("pci:"):
            return name.removeprefix("pci:")
    return _HYPHENATED.get(module, module)


def module_of(driver: str) -> str:
    """The module that brings a VFIO driver: module names have underscores where drivers may have hyphens."""
    return driver.replace("-", "_")


def _aliases(kernel: Kernel) -> Iterator[tuple[str, str]]:
    release = read_text(kernel, "/proc/sys/kernel/osrelease")
    if not release or "/" in release:
        return
    text = read_text(kernel, f"/lib/modules/{release}/modules.alias") or ""
    for line in text.splitlines():
        if line.startswith(_ALIAS):
            pattern, _, module = line.removeprefix(_ALIAS).rpartition(" ")
            # The catch-all lines (``v*d*…``) belong to vfio-pci's own override form and say nothing of a device.
            if pattern.strip() and not pattern.startswith("v*d*"):
                yield pattern.strip(), module
