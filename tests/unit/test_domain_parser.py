"""Which host devices a domain names is read as libvirt reads it."""

from __future__ import annotations

import re

import pytest

from tests.unit.guests import MDEV, domain, hostdev, mdev
from vgpumgr.domain.document import parse_domain
from vgpumgr.domain.parser import Way, host_devices, read_devices
from vgpumgr.hypervisor.library import load
from vgpumgr.model.domain import HostDevice

ATTRIBUTES = [
    "domain='0x0000' bus='0x3b' slot='0x00' function='0x0'",
    "domain='0' bus='59' slot='0' function='0'",
    "bus='0x3b'",
    "bus='0X3B' slot='31' function='7'",
    "bus='010'",
    "domain='0x10000' bus='1'",
    "domain='0xffffffff' bus='0xff' slot='0x1f' function='0x7'",
    "bus='08'",
    "bus='c3'",
    "bus='-1'",
    "bus='0x3b' slot='0x20'",
    "bus='0x3b' function='8'",
    "bus='0x100'",
    "domain='0x100000000' bus='1'",
    "bus=''",
    "bus='0x'",
]


def with_address(attributes: str) -> str:
    return domain(f"<hostdev mode='subsystem' type='pci'><source><address {attributes}/></source></hostdev>")


def read_by_libvirt(attributes: str) -> str | None:
    """The address as libvirt's own parser takes it, or ``None`` when it refuses."""
    libvirt = load()
    connection = libvirt.open("test:///default")
    xml = with_address(attributes).replace("type='kvm'", "type='test'").replace(" machine='q35'", "")
    try:
        kept = connection.defineXML(xml).XMLDesc(0)
    except libvirt.libvirtError:
        return None
    finally:
        connection.close()
    return host_devices(parse_domain(kept.encode()))[0].address


@pytest.mark.parametrize("attributes", ATTRIBUTES)
def test_an_address_is_read_as_libvirt_reads_it(attributes: str) -> None:
    (named,) = read_devices(parse_domain(with_address(attributes).encode()))
    expected = read_by_libvirt(attributes)
    assert (named.device.address if named.fault is None else None) == expected


def test_a_hexadecimal_number_without_0x_is_explained() -> None:
    (named,) = read_devices(parse_domain(with_address("bus='c3'").encode()))
    assert (
        named.fault
        == "bus='c3' of a PCI address is not a number; libvirt reads hexadecimal only with 0x: write 0xc3"
    )


def test_a_bus_in_the_place_of_the_slot_is_explained() -> None:
    (named,) = read_devices(parse_domain(with_address("domain='0x0001' slot='0xd6'").encode()))
    assert named.fault == "slot 0xd6 of 0001:00:d6.0 is above 0x1f; was bus='0xd6' meant?"


@pytest.mark.parametrize("written", [MDEV, MDEV.upper(), MDEV.replace("-", ""), f" {MDEV} "])
def test_a_uuid_is_read_in_all_its_spellings(written: str) -> None:
    assert host_devices(parse_domain(mdev(written).encode())) == (HostDevice("mdev", uuid=MDEV),)


@pytest.mark.parametrize(
    "written", ["", "c2177883", MDEV[:-1], MDEV + "0", MDEV.replace("c", "g"), "{" + MDEV + "}"]
)
def test_what_is_no_uuid_is_a_fault(written: str) -> None:
    (named,) = read_devices(parse_domain(mdev(written).encode()))
    assert (named.device.uuid, named.fault_code) == (None, "uuid-invalid")


def test_interfaces_and_nvme_disks_hold_host_devices_too() -> None:
    source = re.sub(r"</?hostdev[^>]*>", "", hostdev("41:10.2"))
    interface = f"<interface type='hostdev' managed='yes'>{source}</interface>"
    disk = (
        "<disk type='nvme' device='disk'><source type='pci' managed='yes' namespace='1'>"
        "<address domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></source></disk>"
    )
    found = [(named.way, named.device) for named in read_devices(parse_domain(domain(interface + disk).encode()))]
    assert found == [
        (Way.INTERFACE, HostDevice("pci", address="0000:41:10.2", managed=True)),
        (Way.NVME, HostDevice("pci", address="0000:01:00.0", managed=True)),
    ]


@pytest.mark.parametrize(
    ("argument", "device"),
    [
        ("vfio-pci,host=0000:3b:00.0,id=x", HostDevice("pci", address="0000:3b:00.0")),
        ("vfio-pci,host=3b:00.0", HostDevice("pci", address="0000:3b:00.0")),
        (
            "vfio-pci-nohotplug,sysfsdev=/sys/bus/pci/devices/0000:3b:00.0",
            HostDevice("pci", address="0000:3b:00.0"),
        ),
        (f"driver=vfio-pci,sysfsdev=/sys/bus/mdev/devices/{MDEV}", HostDevice("mdev", uuid=MDEV)),
        ('{"driver":"vfio-pci","host":"0000:3b:00.0","id":"x"}', HostDevice("pci", address="0000:3b:00.0")),
        ("vfio-pci", HostDevice("pci")),
        ("vfio-pci,host=somewhere", HostDevice("pci")),
    ],
)
def test_devices_among_the_qemu_arguments_are_noticed(argument: str, device: HostDevice) -> None:
    arguments = (
        "<q:commandline xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'>"
        f"<q:arg value='-device'/><q:arg value='{argument}'/></q:commandline>"
    )
    (named,) = read_devices(parse_domain(domain("", arguments).encode()))
    assert (named.way, named.device) == (Way.ARGUMENT, device)


@pytest.mark.parametrize("argument", ["virtio-net-pci,host=x", "{broken", '["vfio-pci"]', "{" * 2000])
def test_other_qemu_arguments_are_left_alone(argument: str) -> None:
    arguments = (
        "<q:commandline xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'>"
        f"<q:arg value='-device'/><q:arg value='{argument}'/></q:commandline>"
    )
    assert read_devices(parse_domain(domain("", arguments).encode())) == ()


@pytest.mark.parametrize(
    "device",
    [
        "<hostdev mode='subsystem' type='usb'><source><address bus='1' device='2'/></source></hostdev>",
        "<hostdev mode='capabilities' type='misc'><source><char>/dev/x</char></source></hostdev>",
        "<interface type='network'><source network='default'/></interface>",
        "<interface type='hostdev'><source><address type='usb' bus='0' device='2'/></source></interface>",
        "<disk type='file'><source file='/x'/></disk>",
    ],
)
def test_other_devices_are_no_host_devices_of_ours(device: str) -> None:
    assert read_devices(parse_domain(domain(device).encode())) == ()


def test_a_hostdev_in_somebodys_metadata_is_no_device() -> None:
    note = f"<metadata><x:note xmlns:x='urn:x'>{hostdev('3b:00.0')}</x:note></metadata>"
    assert read_devices(parse_domain(domain("", note).encode())) == ()


def test_a_hostdev_without_a_source_is_a_fault() -> None:
    (named,) = read_devices(parse_domain(b"<hostdev type='pci'/>"))
    assert named.fault_code == "source-missing"
