"""Puts a machine together: a template, the guest's shape, and exactly the allocated devices.

Every GPU and vGPU gets a PCIe root port of its own, so that the guest sees it as on real hardware and it can be
unplugged. A whole GPU becomes one multifunction device there, its companions beside it in one slot.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy

from lxml import etree

from vgpumgr.address import parse
from vgpumgr.domain.document import NAMESPACE
from vgpumgr.domain.firmware import make_room
from vgpumgr.domain.guest_disks import add_disk
from vgpumgr.domain.parser import host_devices
from vgpumgr.errors import UsageError
from vgpumgr.model.domain import DomainRequest, GuestDevice

SPARE_PORTS = 4
"""Root ports left free for devices that are plugged in while the guest runs."""
_FUNCTIONS = 8
"""Functions that fit into one guest slot."""


def compose(template: etree._Element, request: DomainRequest) -> str:
    """The domain XML, indented, in a stable order; ``template`` is left as it is.

    Raises UsageError ``domain-request-invalid`` for what cannot stand in a domain.
    """
    root = deepcopy(template)
    devices = root.find("devices")
    if devices is None:
        raise _invalid("the template has no <devices>")
    try:
        _identity(root, request)
        _size(root, request)
        _placement(root, request)
        for path in request.shape.disks:
            add_disk(devices, path)
        if request.shape.network:
            _network(devices, request.shape.network)
        _host_devices(devices, request)
    except ValueError as error:  # lxml's, for control characters: they cannot be written in XML.
        raise _invalid(f"a name or path cannot be written in XML: {error}") from error
    make_room(root, request.devices)
    etree.indent(root, space="  ")
    _exactly_allocated(root, request)
    return etree.tostring(root, encoding="unicode", pretty_print=True)


def functions_of(primary: str, companions: Iterable[str]) -> tuple[str, ...]:
    """A GPU's functions in guest order: the primary one is function 0, the others follow in bus order."""
    return (primary, *sorted(companions, key=parse))


def _invalid(message: str) -> UsageError:
    return UsageError(message, code="domain-request-invalid")


def _identity(root: etree._Element, request: DomainRequest) -> None:
    """Name, UUID, and the mark by which the domain is known to be ours (a copied template may carry another)."""
    if not request.name.strip() or "/" in request.name:
        raise _invalid(f"{request.name!r} cannot name a libvirt domain: no slash, and not blank")
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
    for old in metadata.findall(f"{{{NAMESPACE}}}allocation"):
        metadata.remove(old)
    ours = etree.SubElement(metadata, f"{{{NAMESPACE}}}allocation", nsmap={"vgpumgr": NAMESPACE})
    ours.set("id", request.allocation)


def _size(root: etree._Element, request: DomainRequest) -> None:
    shape = request.shape
    if shape.memory_mib < 1 or shape.vcpus < 1:
        raise _invalid("a guest needs at least 1 MiB of memory and one processor")
    for tag in ("memory", "currentMemory"):
        element = _child(root, tag)
        element.set("unit", "MiB")
        element.text = str(shape.memory_mib)
    vcpu = _child(root, "vcpu")
    vcpu.text = str(shape.vcpus)
    _drop(vcpu, "current")
    topology = root.find("cpu/topology")
    if topology is not None:
        for key, value in (("sockets", 1), ("dies", 1), ("cores", shape.vcpus), ("threads", 1)):
            topology.set(key, str(value))


def _placement(root: etree._Element, request: DomainRequest) -> None:
    """Memory and processors near the GPUs, where they all sit on one known node.

    Memory is *preferred* there: a full node must not stop a VM.
    """
    nodes = {device.numa_node for device in request.devices}
    vcpu = _child(root, "vcpu")
    if len(nodes) != 1 or None in nodes or root.find("numatune") is not None:
        return
    if request.node_cpus and root.find("cputune") is None and vcpu.get("cpuset") is None:
        vcpu.set("cpuset", request.node_cpus)
    tune = etree.Element("numatune")
    etree.SubElement(tune, "memory", mode="preferred", nodeset=str(nodes.pop()))
    vcpu.addnext(tune)


def _child(root: etree._Element, tag: str) -> etree._Element:
    found = root.find(tag)
    return etree.SubElement(root, tag) if found is None else found


def _drop(element: etree._Element, attribute: str) -> None:
    if attribute in element.attrib:
        del element.attrib[attribute]


def _network(devices: etree._Element, name: str) -> None:
    interface = etree.SubElement(devices, "interface", type="network")
    etree.SubElement(interface, "source", network=name)
    etree.SubElement(interface, "model", type="virtio")


# -- host devices ---------------------------------------------------------------------------------------
def _host_devices(devices: etree._Element, request: DomainRequest) -> None:
    slots = [slot for index, device in enumerate(request.devices) for slot in _slots(device, index)]
    first = _root_ports(devices, len(slots) + SPARE_PORTS)
    console = devices.find("graphics") is not None
    for bus, slot in enumerate(slots, start=first):
        for function, hostdev in slot:
            if hostdev.get("type") == "mdev" and not console:
                hostdev.set("display", "off")
                _drop(hostdev, "ramfb")
            _place(hostdev, bus, function, multifunction=len(slot) > 1 and function == 0)
            devices.append(hostdev)


def _slots(device: GuestDevice, index: int) -> list[list[tuple[int, etree._Element]]]:
    """The guest slots of one device, each with its functions and their numbers in the guest."""
    if device.mdev is not None:
        return [[(0, _mdev(device, f"ua-vgpu{index}"))]]
    numbered = [
        (number, _pci(address, device.managed, f"ua-gpu{index}" + (f"-{number}" if number else "")))
        for number, address in enumerate(device.functions)
    ]
    return [
        [(number % _FUNCTIONS, hostdev) for number, hostdev in numbered[start : start + _FUNCTIONS]]
        for start in range(0, len(numbered), _FUNCTIONS)
    ]


def _mdev(device: GuestDevice, alias: str) -> etree._Element:
    shown = {"display": "on"} if device.display else {"display": "off"}
    if device.display and device.ramfb:
        shown["ramfb"] = "on"
    hostdev = _hostdev("mdev", {"managed": "no", "model": "vfio-pci", **shown})
    etree.SubElement(etree.SubElement(hostdev, "source"), "address", uuid=device.mdev or "")
    etree.SubElement(hostdev, "alias", name=alias)
    return hostdev


def _pci(function: str, managed: bool, alias: str) -> etree._Element:
    hostdev = _hostdev("pci", {"managed": "yes" if managed else "no"})
    address = parse(function)
    etree.SubElement(
        etree.SubElement(hostdev, "source"),
        "address",
        domain=f"0x{address.domain:04x}",
        bus=f"0x{address.bus:02x}",
        slot=f"0x{address.slot:02x}",
        function=f"0x{address.function:x}",
    )
    etree.SubElement(hostdev, "alias", name=alias)
    return hostdev


def _hostdev(kind: str, attributes: dict[str, str]) -> etree._Element:
    return etree.Element("hostdev", {"mode": "subsystem", "type": kind} | attributes)


def _place(hostdev: etree._Element, bus: int, function: int, *, multifunction: bool) -> None:
    place = {
        "type": "pci",
        "domain": "0x0000",
        "bus": f"0x{bus:02x}",
        "slot": "0x00",
        "function": f"0x{function:x}",
    }
    etree.SubElement(hostdev, "address", place | ({"multifunction": "on"} if multifunction else {}))


def _root_ports(devices: etree._Element, count: int) -> int:
    """Add ``count`` root ports behind the PCI controllers there are; the index of the first one.

    A root port's index is the number of the guest bus behind it.
    """
    controllers = devices.findall("controller[@type='pci']")
    used = [int(index) for item in controllers if (index := item.get("index", "")).isdecimal()]
    first = max(used, default=0) + 1
    last = controllers[-1] if controllers else None
    for number in range(first + count - 1, first - 1, -1):
        port = etree.Element("controller", type="pci", index=str(number), model="pcie-root-port")
        if last is None:
            devices.insert(0, port)
        else:
            last.addnext(port)
    return first


def _exactly_allocated(root: etree._Element, request: DomainRequest) -> None:
    """What goes to libvirt holds the allocated devices: no more, no fewer."""
    wanted = [key for device in request.devices for key in ((device.mdev,) if device.mdev else device.functions)]
    found = [device.key for device in host_devices(root)]
    if sorted(found) != sorted(wanted) or len(set(found)) != len(found):
        raise _invalid(f"the domain would hold {', '.join(found) or 'no device'} instead of {', '.join(wanted)}")
