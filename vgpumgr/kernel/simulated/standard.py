"""What every simulated machine has: the usual drivers and modules, and a /proc with a first process."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from vgpumgr.kernel.simulated import pci
from vgpumgr.kernel.tree import File, Link

if TYPE_CHECKING:
    from vgpumgr.kernel.simulated.machine import Machine

_LOADABLE = {
    "vfio_pci": ("vfio-pci",),
    "nvgrace_gpu_vfio_pci": ("nvgrace_gpu_vfio_pci",),
    "xe_vfio_pci": ("xe-vfio-pci",),
    "mlx5_vfio_pci": ("mlx5_vfio_pci",),
}
_ALIASES = """\
alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci
alias vfio_pci:v000010DEd00002342sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci
alias vfio_pci:v000010DEd00002345sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci
alias vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i* mlx5_vfio_pci
alias vfio_pci:v00008086d0000E211sv*sd*bc*sc*i* xe_vfio_pci
"""


def add_standard(machine: Machine, *, hostname: str, release: str, cmdline: str = "") -> None:
    """Add what is not there yet; nothing that a recording brought is replaced."""
    tree = machine.tree
    for module, drivers in _LOADABLE.items():
        machine.modules.setdefault(module, drivers)
    for driver in ("pcieport", "pci-stub"):
        if driver not in machine.drivers:
            pci.register_driver(machine, driver)
    texts = {
        "/proc/sys/kernel/hostname": hostname,
        "/proc/sys/kernel/osrelease": release,
        "/proc/cmdline": cmdline,
        "/proc/swaps": "Filename\tType\tSize\tUsed\tPriority",
        "/proc/self/mountinfo": "1 1 0:1 / / rw - rootfs rootfs rw",
        f"/lib/modules/{release}/modules.alias": _ALIASES.rstrip(),
    }
    for path, text in texts.items():
        if not tree.exists(path):
            tree.write_text(path, text)
    tree.write_text("/proc/1/comm", "systemd")
    tree.put("/proc/1/fd/0", Link("/dev/null"))
    for path in ("/sys/bus/pci/drivers_probe", "/sys/bus/pci/rescan"):
        tree.put(path, File(error=errno.EACCES))
    for path in ("/sys/kernel/iommu_groups", "/sys/bus/mdev/devices", "/sys/module", "/dev/vfio"):
        if not tree.exists(path):
            tree.mkdir(path)
