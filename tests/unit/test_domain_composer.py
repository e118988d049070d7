"""Composed domains: golden documents, exactly the allocated devices, valid for libvirt, the same every time."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from tests.unit.guests import DOMAIN_UUID, MDEV, OTHER_MDEV, OWN, domain, request
from vgpumgr.address import PciAddress
from vgpumgr.domain.composer import compose, functions_of
from vgpumgr.domain.document import NAMESPACE, QEMU_NAMESPACE, allocation_of, parse_domain
from vgpumgr.domain.parser import host_devices, read_devices
from vgpumgr.domain.preflight import check
from vgpumgr.domain.schema import validate
from vgpumgr.domain.templates import Templates
from vgpumgr.errors import UsageError
from vgpumgr.model.domain import DomainRequest, GuestDevice, GuestShape

GOLDEN = Path(__file__).parents[1] / "golden" / "domains"
REGENERATE = "VGPUMGR_GOLDEN"
"""Set it to write the golden documents anew; then read the difference before it is committed."""

WHOLE = GuestDevice(
    ("0000:09:00.0", "0000:09:00.1", "0000:09:00.2", "0000:09:00.3"), numa_node=1, bar_bytes=(16 << 30) + (32 << 20)
)
SECOND_SEGMENT = GuestDevice(("0001:d6:00.0",), numa_node=1, bar_bytes=256 << 30)
WIDE_DOMAIN = GuestDevice(("10000:01:00.0",), managed=True)
VGPU = GuestDevice(mdev=MDEV, display=True, numa_node=0)
WITH_RAMFB = GuestDevice(mdev=MDEV, display=True, ramfb=True)
SECOND_VGPU = GuestDevice(mdev=OTHER_MDEV, numa_node=0)
TYPED_VF = GuestDevice(("0000:26:00.5",))
SHAPE = GuestShape(65536, 16, ("/srv/images/system.qcow2", "/srv/images/data.raw", "/dev/vg0/scratch"), "default")

COMBINATIONS: dict[str, tuple[GuestDevice, ...]] = {
    "nothing": (),
    "whole-gpu": (WHOLE,),
    "two-gpus": (WHOLE, SECOND_SEGMENT),
    "managed-wide-domain": (WIDE_DOMAIN,),
    "mdev": (VGPU,),
    "mdev-ramfb": (WITH_RAMFB,),
    "two-mdevs": (VGPU, SECOND_VGPU),
    "typed-vf": (TYPED_VF,),
    "all-kinds": (WHOLE, VGPU, TYPED_VF),
}
TEMPLATES = ("linux-compute", "windows11-desktop")


def composed(name: str, wanted: DomainRequest) -> etree._Element:
    return parse_domain(compose(Templates().load(name), wanted).encode())


@pytest.mark.parametrize("devices", COMBINATIONS.values(), ids=COMBINATIONS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_with_every_device_is_valid_for_libvirt(name: str, devices: tuple[GuestDevice, ...]) -> None:
    root = composed(name, replace(request(*devices, shape=SHAPE), node_cpus="0-15,32-47"))
    assert validate(root) == []
    assert [problem for problem in check(root, None, {}).problems if problem.severity == "error"] == []


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("combination", ["whole-gpu", "mdev", "typed-vf"])
def test_a_domain_is_the_golden_document(name: str, combination: str) -> None:
    wanted = replace(request(*COMBINATIONS[combination], shape=SHAPE), node_cpus="0-15,32-47")
    text = compose(Templates().load(name), wanted)
    path = GOLDEN / f"{name}-{combination}.xml"
    if REGENERATE in os.environ:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


addresses = st.builds(
    PciAddress,
    st.one_of(st.integers(0, 0xFFFF), st.integers(0x10000, 0xFFFFFFFF)),
    st.integers(0, 0xFF),
    st.integers(0, 0x1F),
    st.integers(0, 7),
).map(str)


@st.composite
def device_lists(draw: st.DrawFn) -> tuple[GuestDevice, ...]:
    """Distinct devices of all kinds, in any order and number."""
    functions = draw(st.lists(addresses, unique=True, max_size=24))
    devices = [
        GuestDevice(mdev=str(uuid), display=draw(st.booleans())) for uuid in draw(st.sets(st.uuids(), max_size=4))
    ]
    while functions:
        size = draw(st.integers(1, len(functions)))
        devices.append(GuestDevice(tuple(functions[:size]), managed=draw(st.booleans())))
        functions = functions[size:]
    return tuple(draw(st.permutations(devices)))


@given(device_lists(), st.sampled_from(TEMPLATES))
def test_what_is_composed_is_read_back_exactly(devices: tuple[GuestDevice, ...], name: str) -> None:
    root = composed(name, request(*devices))
    wanted = [
        (key, device.managed and device.mdev is None)
        for device in devices
        for key in ([device.mdev] if device.mdev else device.functions)
    ]
    assert [(device.key, device.managed) for device in host_devices(root)] == wanted
    assert allocation_of(root) == "allocation-1"
    assert check(root, None, {}).fatal is False


def test_a_whole_gpu_is_one_multifunction_device_behind_its_own_port() -> None:
    root = composed("linux-compute", request(TYPED_VF, WHOLE))
    places = [dict(item.find("address").attrib) for item in root.iterfind("devices/hostdev")]
    assert {(place["bus"], place["slot"]) for place in places[1:]} == {("0x02", "0x00")}
    assert [place["function"] for place in places[1:]] == ["0x0", "0x1", "0x2", "0x3"]
    assert [place.get("multifunction") for place in places] == [None, "on", None, None, None]


def test_more_functions_than_a_slot_holds_go_behind_a_second_port() -> None:
    functions = tuple(f"0000:{bus:02x}:00.0" for bus in range(10))
    root = composed("linux-compute", request(GuestDevice(functions)))
    places = [item.find("address") for item in root.iterfind("devices/hostdev")]
    assert [(place.get("bus"), place.get("function")) for place in places if place is not None][7:] == [
        ("0x01", "0x7"),
        ("0x02", "0x0"),
        ("0x02", "0x1"),
    ]


def test_every_device_has_a_port_and_some_stay_free() -> None:
    devices = tuple(GuestDevice((f"0000:{bus:02x}:00.0",)) for bus in range(1, 17))
    root = composed("windows11-desktop", request(*devices, shape=SHAPE))
    ports = [int(item.get("index", "")) for item in root.iterfind("devices/controller[@model='pcie-root-port']")]
    used = {int(item.get("bus", ""), 16) for item in root.iterfind("devices/hostdev/address")}
    assert used == set(range(1, 17))
    # xHCI, virtio-serial, the random source, three disks and the network stand behind ports as well.
    assert ports == list(range(1, 16 + 7 + 4 + 1))


def test_ports_of_a_template_keep_their_numbers() -> None:
    template = Templates().load("linux-compute")
    devices = template.find("devices")
    assert devices is not None
    devices.insert(1, etree.Element("controller", type="pci", index="5", model="pcie-root-port"))
    root = parse_domain(compose(template, request(TYPED_VF)).encode())
    assert root.find("devices/hostdev/address").get("bus") == "0x06"


def test_addresses_have_fixed_width_and_lower_case() -> None:
    root = composed("linux-compute", request(GuestDevice(("0001:d6:00.0",)), GuestDevice(("1abcd:0a:1f.7",))))
    sources = [dict(item.attrib) for item in root.iterfind("devices/hostdev/source/address")]
    assert sources == [
        {"domain": "0x0001", "bus": "0xd6", "slot": "0x00", "function": "0x0"},
        {"domain": "0x1abcd", "bus": "0x0a", "slot": "0x1f", "function": "0x7"},
    ]


def test_aliases_are_stable_and_libvirts_own() -> None:
    root = composed("linux-compute", request(WHOLE, VGPU))
    aliases = [item.get("name") for item in root.iterfind("devices/hostdev/alias")]
    assert aliases == ["ua-gpu0", "ua-gpu0-1", "ua-gpu0-2", "ua-gpu0-3", "ua-vgpu1"]


def test_composing_twice_gives_the_same_and_leaves_the_template_alone() -> None:
    template = Templates().load("linux-compute")
    before = etree.tostring(template)
    first, second = (compose(template, request(WHOLE, VGPU, shape=SHAPE)) for _ in range(2))
    assert first == second
    assert etree.tostring(template) == before


def test_the_mark_of_a_copied_template_is_replaced() -> None:
    template = parse_domain(
        domain(
            "", f"<metadata><v:allocation xmlns:v='{NAMESPACE}' id='old'/><x xmlns='urn:x'/></metadata>"
        ).encode()
    )
    root = parse_domain(compose(template, request()).encode())
    assert allocation_of(root) == "allocation-1"
    assert len(root.findall(f"metadata/{{{NAMESPACE}}}allocation")) == 1
    assert root.find("metadata/{urn:x}x") is not None


def test_a_vgpu_shows_its_screen_only_where_there_is_one() -> None:
    for name, shown in (("linux-compute", ("off", None)), ("windows11-desktop", ("on", "on"))):
        hostdev = composed(name, request(WITH_RAMFB)).find("devices/hostdev")
        assert hostdev is not None
        assert (hostdev.get("display"), hostdev.get("ramfb")) == shown


def test_the_guest_has_the_shape_that_was_asked_for() -> None:
    root = composed("windows11-desktop", request(shape=SHAPE))
    assert (root.findtext("name"), root.findtext("uuid")) == (OWN, DOMAIN_UUID)
    assert (root.findtext("memory"), root.find("memory").get("unit")) == ("65536", "MiB")
    assert root.findtext("vcpu") == "16"
    assert root.find("cpu/topology").get("cores") == "16"
    disks = [
        (disk.get("type"), disk.find("driver").get("type"), disk.find("target").get("dev"))
        for disk in root.iterfind("devices/disk")
    ]
    assert disks == [("file", "qcow2", "vda"), ("file", "raw", "vdb"), ("block", "raw", "vdc")]
    assert root.find("devices/interface/source").get("network") == "default"


def test_a_cd_image_is_a_cd_and_disk_names_go_on_after_z() -> None:
    paths = ("/srv/setup.iso", *(f"/srv/{number}.qcow2" for number in range(28)))
    root = composed("linux-compute", request(shape=GuestShape(disks=paths)))
    disks = root.findall("devices/disk")
    assert (disks[0].get("device"), disks[0].find("target").get("dev")) == ("cdrom", "sda")
    assert [disk.find("target").get("dev") for disk in disks[-3:]] == ["vdz", "vdaa", "vdab"]
    assert validate(root) == []


def test_memory_and_processors_stay_near_the_gpus_on_one_node() -> None:
    near = composed("linux-compute", replace(request(WHOLE, SECOND_SEGMENT), node_cpus="16-31"))
    assert near.find("numatune/memory").attrib == {"mode": "preferred", "nodeset": "1"}
    assert near.find("vcpu").get("cpuset") == "16-31"
    for devices in ((WHOLE, VGPU), (WIDE_DOMAIN,), ()):
        apart = composed("linux-compute", replace(request(*devices), node_cpus="16-31"))
        assert apart.find("numatune") is None
        assert apart.find("vcpu").get("cpuset") is None


@pytest.mark.parametrize(
    ("cpu", "bars", "phys_bits", "firmware"),
    [
        ("<cpu mode='host-passthrough'/>", 16 << 30, False, None),
        ("<cpu mode='host-passthrough'/>", 64 << 30, True, None),
        ("<cpu mode='custom'><model>EPYC</model></cpu>", 16 << 30, False, None),
        ("<cpu mode='custom'><model>EPYC</model></cpu>", 64 << 30, False, "65536"),
        ("", (128 << 30) + (96 << 20), False, "262144"),
    ],
)
def test_the_firmware_gets_a_window_that_holds_the_bars(
    cpu: str, bars: int, phys_bits: bool, firmware: str | None
) -> None:
    template = parse_domain(domain("", cpu).encode())
    root = parse_domain(compose(template, request(replace(SECOND_SEGMENT, bar_bytes=bars))).encode())
    assert (root.find("cpu/maxphysaddr[@mode='passthrough']") is not None) == phys_bits
    arguments = [item.get("value") for item in root.iter(f"{{{QEMU_NAMESPACE}}}arg")]
    wanted = ["-fw_cfg", f"name=opt/ovmf/X-PciMmio64Mb,string={firmware}"] if firmware else []
    assert arguments == wanted


@pytest.mark.parametrize(
    "wanted",
    [
        replace(request(), name=""),
        replace(request(), name="a/b"),
        replace(request(), name="a\x01b"),
        request(shape=GuestShape(disks=("relative.qcow2",))),
        request(shape=GuestShape(network="a\x00b")),
        request(shape=GuestShape(memory_mib=0)),
        request(shape=GuestShape(vcpus=0)),
        request(TYPED_VF, TYPED_VF),
        request(VGPU, VGPU),
    ],
)
def test_what_cannot_stand_in_a_domain_is_refused(wanted: DomainRequest) -> None:
    with pytest.raises(UsageError) as caught:
        compose(Templates().load("linux-compute"), wanted)
    assert caught.value.code == "domain-request-invalid"


def test_a_template_with_devices_of_its_own_is_refused() -> None:
    template = parse_domain(domain("<hostdev type='mdev' model='vfio-pci'/>").encode())
    assert len(read_devices(template)) == 1
    smuggled = parse_domain(
        domain(
            f"<hostdev type='mdev' model='vfio-pci'><source><address uuid='{MDEV}'/></source></hostdev>"
        ).encode()
    )
    with pytest.raises(UsageError):
        compose(smuggled, request(TYPED_VF))


def test_companions_follow_the_primary_function_in_bus_order() -> None:
    assert functions_of("ffff:01:00.0", ["10000:01:00.1", "ffff:01:00.1"]) == (
        "ffff:01:00.0",
        "ffff:01:00.1",
        "10000:01:00.1",
    )
