"""Puts a machine together: a template, the guest's shape, and exactly the allocated devices."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy

from lxml import etree

from vgpumgr.address import parse
from vgpumgr.domain.document import NAMESPACE
from vgpumgr.domain.firmware import make_room
from vgpumgr.domain.guest_devices import add_devices
from vgpumgr.domain.guest_disks import add_disk
from vgpumgr.domain.parser import host_devices
from vgpumgr.errors import UsageError
from vgpumgr.model.domain import DomainRequest


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
        add_devices(devices, request.devices)
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
    if "current" in vcpu.attrib:
        del vcpu.attrib["current"]
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


def _network(devices: etree._Element, name: str) -> None:
    interface = etree.SubElement(devices, "interface", type="network")
    etree.SubElement(interface, "source", network=name)
    etree.SubElement(interface, "model", type="virtio")


def _exactly_allocated(root: etree._Element, request: DomainRequest) -> None:
    """What goes to libvirt holds the allocated devices: no more, no fewer."""
    wanted = [key for device in request.devices for key in ((device.mdev,) if device.mdev else device.functions)]
    found = [device.key for device in host_devices(root)]
    if sorted(found) != sorted(wanted) or len(set(found)) != len(found):
        raise _invalid(f"the domain would hold {', '.join(found) or 'no device'} instead of {', '.join(wanted)}")
