"""Parents of mediated devices that are no PCI functions: drivers that make vGPUs without a card.

The kernel's samples (mtty, mdpy, mbochs) are such; their devices lie under ``/sys/devices/virtual``. A parent is a
GPU of the kind ``virtual``, and its address is its device's name.
"""

from __future__ import annotations

from collections.abc import Iterator

from vgpumgr.address import is_address
from vgpumgr.errors import Reason
from vgpumgr.inventory.reader import Reader, whole
from vgpumgr.kernel.port import MDEV_PARENTS
from vgpumgr.model.host import Gpu, GpuKind, Health, HealthStatus, Passthrough, PassthroughState, Topology
from vgpumgr.model.pci import PciFunction

_OURS = "vfio-pci"
"""What a guest sees as a PCI device. Parents of others (s390's channels and crypto) are no GPUs."""


def find_virtual_parents(reader: Reader) -> Iterator[Gpu]:
    """One GPU for each parent that is no PCI function, by name."""
    for name in reader.names(MDEV_PARENTS, "host"):
        if is_address(name) or not _makes_pci_devices(reader, name):
            continue
        if not (name.isascii() and name.isprintable()):
            reader.warn("name-malformed", f"{name!r} is no name that a kernel gives", "host")
            continue
        yield _parent(reader, name)


def _makes_pci_devices(reader: Reader, name: str) -> bool:
    base = f"{MDEV_PARENTS}/{name}/mdev_supported_types"
    return any(
        reader.text(f"{base}/{type_id}/device_api", name) in (_OURS, None)
        for type_id in reader.names(base, name)[:1]
    )


def _parent(reader: Reader, name: str) -> Gpu:
    base = f"{MDEV_PARENTS}/{name}"
    # A device of a class has no driver's link; its types are named by the class then, and so is it here.
    driver = reader.link_name(f"{base}/driver") or reader.link_name(f"{base}/subsystem")
    numa = whole(reader.text(f"{base}/numa_node", name) or "")
    reason = Reason("not-pci", f"{name} is no PCI device: its vGPUs can be given to VMs, itself it cannot", (name,))
    return Gpu(
        function=PciFunction(
            name, None, None, None, driver, None, numa if numa is not None and numa >= 0 else None
        ),
        kind=GpuKind.VIRTUAL,
        name=f"virtual device {name}",
        boot_display=False,
        companions=(),
        passthrough=Passthrough(False, PassthroughState.HOST, (reason,)),
        health=Health(HealthStatus.UNKNOWN),
        topology=Topology(None),
        holders_known=True,
    )
