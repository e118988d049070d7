"""From a request to a running guest that sees, and uses, what it was given; and back."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ElementTree

from tests.lab import boards
from tests.lab.host import DEVICES, GUEST_LOG, Host
from tests.lab.image.assemble import GUEST_PIXEL

PAINTED = (GUEST_PIXEL[2], GUEST_PIXEL[1], GUEST_PIXEL[0])
"""Red, green, blue of the colour that the guest fills its screen with."""


def seen_by_guest(lines: list[str]) -> list[tuple[str, str, str]]:
    """``(address, vendor, device)`` of what the guest found on its PCI buses."""
    words = [line.split() for line in lines if line.startswith("pci ")]
    return [(item[1], item[2], item[3]) for item in words]


def slots_in_domain(host: Host, vm: str) -> list[str]:
    """Guest addresses of the host devices in libvirt's running definition."""
    domain = ElementTree.fromstring(host.machine.ok(f"virsh dumpxml {vm}"))
    parts = [device.attrib for device in domain.findall("devices/hostdev/address")]
    numbers = [[int(item[key], 16) for key in ("domain", "bus", "slot", "function")] for item in parts]
    return [f"{segment:04x}:{bus:02x}:{slot:02x}.{function:x}" for segment, bus, slot, function in numbers]


def test_a_guest_sees_a_whole_gpu_and_it_comes_back(host: Host) -> None:
    allocation = host.allocate("desk-gpu", "--gpu", boards.RTX3090)
    assert allocation["state"] == "ready"
    lines = host.run_guest(allocation, "lab-look")
    (slot,) = slots_in_domain(host, "desk-gpu")
    assert (slot, "0x10de", "0x2204") in seen_by_guest(lines)
    assert any(line.split() == ["bar", slot, "0x5A5AC3C3"] for line in lines), lines
    assert host.gpu(boards.RTX3090)["passthrough"]["state"] == "in-use"
    host.end_guest(allocation)
    assert host.at_home(boards.RTX3090)


def test_a_guest_uses_a_mediated_device(host: Host) -> None:
    allocation = host.allocate("desk-mdev", "--gpu", boards.T4, "--profile", "GRID T4-8Q")
    uuid = allocation["devices"][0]["handle"]
    assert host.read(f"{DEVICES}/{boards.T4}/mdev_supported_types/nvidia-233/available_instances") == "1"
    lines = host.run_guest(allocation, "lab-look")
    (slot,) = slots_in_domain(host, "desk-mdev")
    assert (slot, "0x10de", "0x1eb8") in seen_by_guest(lines)
    assert any(line.split() == ["bar", slot, "0x5A5AC3C3"] for line in lines), lines
    instances = host.gpu(boards.T4)["vgpu"]["instances"]
    assert [(item["id"], item["profile_id"]) for item in instances] == [(uuid, "nvidia-233")]
    host.end_guest(allocation)
    assert host.machine.ok("ls /sys/bus/mdev/devices") == ""
    assert host.read(f"{DEVICES}/{boards.T4}/mdev_supported_types/nvidia-233/available_instances") == "2"


def test_a_guest_draws_on_a_gpu_by_dma_and_interrupts(host: Host) -> None:
    """The guest's driver paints its screen: commands and pixels go by DMA through the emulated IOMMU, and their
    completion by interrupts. The outer QEMU, which plays the GPU, takes the picture.
    """
    allocation = host.allocate("desk-draw", "--gpu", boards.VIRTIO_GPU)
    lines = host.run_guest(allocation, "lab-draw")
    assert any(line.startswith("screen ") and "missing" not in line for line in lines), lines
    interrupts = host.machine.ok(f"grep -E 'virtio[0-9]+-(control|virtqueues)' {GUEST_LOG}").split()
    assert int(interrupts[1]) > 0, interrupts
    width, height, pixels = parse_ppm(host.machine.picture("screen"))
    middle = (height // 2 * width + width // 2) * 3
    assert struct.unpack_from("3B", pixels, middle) == PAINTED
    host.end_guest(allocation)
    assert host.at_home(boards.VIRTIO_GPU)


def test_a_guest_has_a_function_with_a_type(host: Host) -> None:
    host.vgpumgr("gpu", "slice", boards.L40S, "--vfs", "4", "--yes")
    allocation = host.allocate("desk-vf", "--gpu", boards.L40S, "--profile", "NVIDIA L40S-12Q")
    vf = allocation["devices"][0]["handle"]
    assert host.read(f"{DEVICES}/{vf}/nvidia/current_vgpu_type") == "1153"
    lines = host.run_guest(allocation, "lab-look")
    assert any(line.split()[2:4] == ["0x10de", "0x26b9"] for line in lines if line.startswith("pci ")), lines
    assert host.driver(vf) == "nvidia", "a VF with a type stays on its own driver"
    host.end_guest(allocation)
    assert host.read(f"{DEVICES}/{vf}/nvidia/current_vgpu_type") == "0"
    host.vgpumgr("gpu", "slice", boards.L40S, "--vfs", "0", "--yes").done()


def test_a_foreign_vm_keeps_its_gpu(host: Host) -> None:
    where = "domain='0x0000' bus='0x0b' slot='0x00' function='0x0'"
    xml = (
        "<domain type='kvm'><name>foreign</name><memory unit='MiB'>128</memory>"
        "<os><type machine='q35'>hvm</type></os>"
        "<devices><hostdev mode='subsystem' type='pci' managed='yes'><source>"
        f"<address {where}/></source></hostdev></devices></domain>"
    )
    host.machine.write("/tmp/foreign.xml", xml)
    host.machine.ok("virsh create --paused /tmp/foreign.xml")
    gpu = host.gpu(boards.RTX3090)
    assert gpu["passthrough"]["state"] == "in-use"
    assert "foreign" in str(gpu["passthrough"]["reasons"])
    for verb in ("release", "bind"):
        assert host.vgpumgr("gpu", verb, boards.RTX3090, "--yes").status == 3
    assert host.vgpumgr("alloc", "create", "--vm", "mine", "--gpu", boards.RTX3090).status == 3
    assert host.vgpumgr("vm", "stop", "foreign", "--force", "--yes").status != 0
    assert host.machine.ok("virsh domstate foreign") == "paused"
    host.machine.ok("virsh destroy foreign")
    assert host.at_home(boards.RTX3090)


def parse_ppm(data: bytes) -> tuple[int, int, bytes]:
    """Width, height and pixels of a binary PPM."""
    kind, size, depth, pixels = data.split(b"\n", 3)
    assert (kind, depth) == (b"P6", b"255")
    width, height = size.split()
    return int(width), int(height), pixels
