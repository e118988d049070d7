"""Every PCI function of the host, with as few reads as will do: a link, ``uevent``, ``numa_node``, ``driver``."""

from __future__ import annotations

from vgpumgr import address
from vgpumgr.inventory.classes import gpu_kind, is_network, is_vfio_driver
from vgpumgr.inventory.reader import Reader, clean, hex_id, whole
from vgpumgr.kernel.port import PCI_DEVICES
from vgpumgr.model.pci import PciFunction

_MAX_NODES = 1024
"""Linux counts NUMA nodes below 2**10; a larger number is nonsense."""


def read_functions(reader: Reader, group_of: dict[str, int]) -> dict[str, PciFunction]:
    """All functions by address, in bus order. ``group_of`` is what the group directories said."""
    names = reader.names(PCI_DEVICES, "host")
    # A wider domain is a longer name, and names of one length sort as their numbers do.
    names.sort(key=lambda name: (len(name), name))
    functions = {}
    for name in names:
        if address.is_address(name):
            functions[name] = _read_function(reader, name, group_of)
        else:
            reader.warn("not-an-address", f"{PCI_DEVICES}/{name} is not named as a PCI function", name)
    return functions


def _read_function(reader: Reader, name: str, group_of: dict[str, int]) -> PciFunction:
    base = f"{PCI_DEVICES}/{name}"
    class_id, vendor, device = _identity(reader, base, name)
    driver = reader.link_name(f"{base}/driver")
    group = group_of.get(name)
    if group is None:
        group = _group_from_link(reader, base, name)
    gpu_like = gpu_kind(class_id, vendor, device) is not None
    vfio = is_vfio_driver(driver)
    physfn = None
    if gpu_like or is_network(class_id):
        physfn = _physical_function(reader, base)
        vfio = vfio or (gpu_like and driver is not None and reader.kernel.exists(f"{base}/vfio-dev"))
    return PciFunction(
        address=name,
        class_id=class_id,
        vendor_id=vendor,
        device_id=device,
        driver=clean(driver) if driver else None,
        iommu_group=group,
        numa_node=_numa_node(reader, base, name),
        bridges=_bridges(reader, base, name),
        physfn=physfn,
        vfio=vfio,
    )


def _identity(reader: Reader, base: str, name: str) -> tuple[str | None, str | None, str | None]:
    """Class, vendor and device: one read of ``uevent``; attribute by attribute where that does not tell."""
    uevent = "\n" + (reader.text(f"{base}/uevent", name) or "")
    class_id = hex_id(_field(uevent, "\nPCI_CLASS="), 6)
    vendor_text, _, device_text = _field(uevent, "\nPCI_ID=").partition(":")
    vendor, device = hex_id(vendor_text, 4), hex_id(device_text, 4)
    if class_id is None:
        class_id = reader.hex(f"{base}/class", 6, name)
    if vendor is None:
        vendor = reader.hex(f"{base}/vendor", 4, name)
    if device is None:
        device = reader.hex(f"{base}/device", 4, name)
    if class_id is None:
        reader.warn("class-unknown", f"{name} has no class: it cannot be told whether it is a GPU", name)
    return class_id, vendor, device


def _field(uevent: str, key: str) -> str:
    start = uevent.find(key)
    if start < 0:
        return ""
    start += len(key)
    end = uevent.find("\n", start)
    return uevent[start:end] if end >= 0 else uevent[start:]


def _numa_node(reader: Reader, base: str, name: str) -> int | None:
    node = reader.integer(f"{base}/numa_node", name)
    if node is None or node < 0:
        return None
    if node >= _MAX_NODES:
        reader.malformed(f"{base}/numa_node", str(node), name)
        return None
    return node


def _group_from_link(reader: Reader, base: str, name: str) -> int | None:
    """The group's number from the link's text alone: in a recording the link may dangle."""
    text = reader.link_name(f"{base}/iommu_group")
    if text is None:
        return None
    number = whole(text)
    if number is None or number < 0:
        reader.malformed(f"{base}/iommu_group", text, name)
        return None
    return number


def _physical_function(reader: Reader, base: str) -> str | None:
    name = reader.link_name(f"{base}/physfn")
    return name if name is not None and address.is_address(name) else None


def _bridges(reader: Reader, base: str, name: str) -> tuple[str, ...]:
    """The functions between the root bus and ``name``, from the text of the device link.

    A host bridge nested in the path (VMD) starts a new hierarchy: what is before it is no PCIe parent.
    """
    parts = (reader.link(base) or "").split("/")
    for index in range(len(parts) - 1, -1, -1):
        if parts[index].startswith("pci"):
            return tuple(part for part in parts[index + 1 :] if part != name and address.is_address(part))
    return ()
