"""Puts a machine together: a template, the guest's shape, and exactly the allocated devices.

Every device gets a PCIe root port of its own, so that the guest sees it as on real hardware and it can be
unplugged. A whole GPU becomes one multifunction device there, its companions beside it in one slot.
"""

from __future__ import annotations

from collections.abc import Iterable

from lxml import etree

from vgpumgr.address import parse
from vgpumgr.domain.parser import NAMESPACE
from vgpumgr.model.domain import DomainRequest, GuestDevice

SPARE_PORTS = 4
"""Root ports left free for devices that are plugged in while the guest runs."""


def compose(template: etree._Element, request: DomainRequest) -> str:
    """The domain XML, indented, in a stable order. ``template`` is changed: pass a fresh copy."""
    _identity(template, request)
    _size(template, request)
    _placement(template, request)
    devices = template.find("devices")
    assert devices is not None, "templates are checked when they are loaded"
    _root_ports(devices, len(request.devices) + SPARE_PORTS)
    for path in request.shape.disks:
        _disk(devices, path)
    if request.shape.network:
        _network(devices, request.shape.network)
    for index, device in enumerate(request.devices):
        _device(devices, device, index, console=devices.find("graphics") is not None)
    etree.indent(template, space="  ")
    return etree.tostring(template, encoding="unicode", pretty_print=True)


def _identity(root: etree._Element, request: DomainRequest) -> None:
    name = _child(root, "name")
    name.text = request.name
    for old in root.findall("uuid"):
        root.remove(old)
    uuid = etree.Element("uuid")
    uuid.text = request.uuid
    name.addnext(uuid)
    metadata = root.find("metadata")
    if metadata is None:
        metadata = etree.Element("metadata")
        uuid.addnext(metadata)
    ours = etree.SubElement(metadata, f"{{{NAMESPACE}}}allocation", nsmap={"vgpumgr": NAMESPACE})
    ours.set("id", request.allocation)


def _size(root: etree._Element, request: DomainRequest) -> None:
    for tag in ("memory", "currentMemory"):
        element = _child(root, tag)
        element.set("unit", "MiB")
        element.text = str(request.shape.memory_mib)
    _child(root, "vcpu").text = str(request.shape.vcpus)


def _placement(root: etree._Element, request: DomainRequest) -> None:
    """Memory near the GPUs, where they all sit on one known node. Preferred: a full node must not stop a VM."""
    nodes = {device.numa_node for device in request.devices}
    if len(nodes) != 1 or None in nodes or root.find("numatune") is not None:
        return
    tune = etree.Element("numatune")
    etree.SubElement(tune, "memory", mode="preferred", nodeset=str(nodes.pop()))
    _child(root, "vcpu").addnext(tune)


def _child(root: etree._Element, tag: str) -> etree._Element:
    found = root.find(tag)
    return etree.SubElement(root, tag) if found is None else found


def _root_ports(devices: etree._Element, count: int) -> None:
    """Root ports 1 to ``count``, after the root complex."""
    at = devices.find("controller[@model='pcie-root']")
    for index in range(count, 0, -1):
        port = etree.Element("controller", type="pci", index=str(index), model="pcie-root-port")
        if at is None:
            devices.insert(0, port)
        else:
            at.addnext(port)


def _disk(devices: etree._Element, path: str) -> None:
    number = len(devices.findall("disk"))
    disk = etree.SubElement(devices, "disk", type="file", device="disk")
    etree.SubElement(disk, "driver", name="qemu", type="raw" if path.endswith((".raw", ".img")) else "qcow2")
    etree.SubElement(disk, "source", file=path)
    etree.SubElement(disk, "target", dev=f"vd{chr(ord('a') + number)}", bus="virtio")


def _network(devices: etree._Element, name: str) -> None:
    interface = etree.SubElement(devices, "interface", type="network")
    etree.SubElement(interface, "source", network=name)
    etree.SubElement(interface, "model", type="virtio")


def _device(devices: etree._Element, device: GuestDevice, index: int, *, console: bool) -> None:
    if device.mdev is not None:
        shown = "on" if console and device.display else "off"
        hostdev = _hostdev(devices, "mdev", "no", model="vfio-pci", display=shown)
        etree.SubElement(_source(hostdev), "address", uuid=device.mdev)
        _finish(hostdev, f"ua-vgpu{index}", index + 1, 0, multifunction=False)
        return
    many = len(device.functions) > 1
    for number, function in enumerate(device.functions):
        hostdev = _hostdev(devices, "pci", "yes" if device.managed else "no")
        address = parse(function)
        etree.SubElement(
            _source(hostdev),
            "address",
            domain=f"0x{address.domain:04x}",
            bus=f"0x{address.bus:02x}",
            slot=f"0x{address.slot:02x}",
            function=f"0x{address.function:x}",
        )
        alias = f"ua-gpu{index}" if number == 0 else f"ua-gpu{index}-{number}"
        _finish(hostdev, alias, index + 1, number, multifunction=many and number == 0)


def _hostdev(devices: etree._Element, kind: str, managed: str, **extra: str) -> etree._Element:
    return etree.SubElement(devices, "hostdev", {"mode": "subsystem", "type": kind, "managed": managed, **extra})


def _source(hostdev: etree._Element) -> etree._Element:
    return etree.SubElement(hostdev, "source")


def _finish(hostdev: etree._Element, alias: str, bus: int, function: int, *, multifunction: bool) -> None:
    """A name that detaching needs, and the place in the guest."""
    etree.SubElement(hostdev, "alias", name=alias)
    place = {
        "type": "pci",
        "domain": "0x0000",
        "bus": f"0x{bus:02x}",
        "slot": "0x00",
        "function": f"0x{function:x}",
    }
    etree.SubElement(hostdev, "address", place | ({"multifunction": "on"} if multifunction else {}))


def functions_of(primary: str, companions: Iterable[str]) -> tuple[str, ...]:
    """A GPU's functions in guest order: the primary one is function 0, the others follow in bus order."""
    return (primary, *sorted(companions, key=parse))
