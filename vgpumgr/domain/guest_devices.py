"""The allocated devices in the guest.

Every GPU and vGPU gets a PCIe root port of its own, so that the guest sees it as on real hardware and it can be
unplugged. A whole GPU becomes one multifunction device there, its companions beside it in one slot.
"""

from __future__ import annotations

from collections.abc import Sequence

from lxml import etree

from vgpumgr.address import parse
from vgpumgr.model.domain import GuestDevice

SPARE_PORTS = 4
"""Root ports left free for devices that are plugged in while the guest runs."""
_FUNCTIONS = 8
"""Functions that fit into one guest slot."""
_ON_PORTS = frozenset({"interface", "rng", "filesystem", "vsock"})
_PORT_CONTROLLERS = frozenset({"usb", "scsi", "virtio-serial"})


def add_devices(devices: etree._Element, allocated: Sequence[GuestDevice]) -> None:
    """Append the allocated devices in order, and the root ports that they and the rest of the guest need."""
    slots = [slot for index, device in enumerate(allocated) for slot in _slots(device, index)]
    first = _root_ports(devices, len(slots) + _port_users(devices) + SPARE_PORTS)
    console = devices.find("graphics") is not None
    for bus, slot in enumerate(slots, start=first):
        for function, hostdev in slot:
            if hostdev.get("display") == "on" and not console:
                _without_display(hostdev)
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


def _without_display(hostdev: etree._Element) -> None:
    """libvirt refuses a display in a domain without ``<graphics>``."""
    hostdev.set("display", "off")
    if "ramfb" in hostdev.attrib:
        del hostdev.attrib["ramfb"]


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


def _port_users(devices: etree._Element) -> int:
    """Devices that libvirt will put behind a root port each: the spare ones must stay spare."""
    virtio = sum(
        item.tag in _ON_PORTS or (item.tag == "disk" and item.find("target[@bus='virtio']") is not None)
        for item in devices
    )
    return virtio + sum(item.get("type") in _PORT_CONTROLLERS for item in devices.iterfind("controller"))


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
