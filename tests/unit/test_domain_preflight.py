"""The preflight by the XML alone: what is wrong with a domain whatever the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.guests import MDEV, OTHER_MDEV, checked, codes, domain, hostdev, mdev
from vgpumgr.domain.memory import GIB, locked_memory
from vgpumgr.domain.problems import PROBLEMS


def guest_address(attributes: str, device: str = "<rng model='virtio'>") -> str:
    return f"{device}<address type='pci' {attributes}/></{device[1:].split()[0]}>"


@pytest.mark.parametrize(
    ("xml", "expected"),
    [
        (domain(hostdev("3b:00.0") + mdev()), []),
        (domain("<hostdev type='pci'><source><address slot='0xd6'/></source></hostdev>"), ["address-invalid"]),
        (domain("<hostdev type='pci'><source><address function='8'/></source></hostdev>"), ["address-invalid"]),
        (domain("<hostdev type='pci'><source><address bus='zz'/></source></hostdev>"), ["address-invalid"]),
        (domain("<hostdev type='pci'><source/></hostdev>"), ["source-missing"]),
        (domain(mdev("none")), ["uuid-invalid"]),
        (domain(mdev(attributes="")), ["model-missing"]),
        (domain(mdev(attributes="model='vfio-cpi'")), ["model-unknown"]),
        (domain(mdev("none", "")), ["uuid-invalid", "model-missing"]),
        (domain(hostdev("3b:00.0") + hostdev("0:3b:00.0", "yes")), ["device-twice"]),
        (domain(mdev() + mdev(MDEV.upper())), ["device-twice"]),
        (domain(mdev(attributes="model='vfio-pci' display='on'")), ["display-without-graphics"]),
        (domain(hostdev("3b:00.0", display="on")), ["display-without-graphics"]),
        (domain(mdev(attributes="model='vfio-pci' display='on'") + "<graphics type='vnc'/>"), []),
        (domain(mdev(attributes="model='vfio-pci' display='off'")), []),
        (
            domain(
                mdev(attributes="model='vfio-pci' display='on' ramfb='on'")
                + mdev(OTHER_MDEV, "model='vfio-pci' display='on' ramfb='on'")
                + "<graphics type='vnc'/>"
            ),
            ["ramfb-twice"],
        ),
        (domain(guest_address("slot='0xd6'")), ["guest-address-invalid"]),
        (domain(guest_address("bus='1'") * 2), ["guest-address-twice"]),
        (domain(guest_address("bus='1' multifunction='on'") + guest_address("bus='1' function='1'")), []),
        (domain(guest_address("bus='1'") + guest_address("bus='1' function='1'")), ["guest-multifunction"]),
        ("<domain type='kvm'/>", []),
    ],
)
def test_errors_that_the_xml_tells_by_itself(xml: str, expected: list[str]) -> None:
    result = checked(xml)
    assert codes(result) == expected
    assert result.fatal == bool(expected)


def test_a_bare_hostdev_is_checked_like_one_in_a_domain() -> None:
    bare = "<hostdev mode='subsystem' type='pci'><source><address domain='0x0001' slot='0xd6'/></source></hostdev>"
    results = [checked(text) for text in (bare, f"<devices>{bare}</devices>", domain(bare))]
    assert {tuple(codes(result)) for result in results} == {("address-invalid",)}
    assert {result.devices for result in results} == {results[0].devices}


def test_a_bare_vgpu_with_a_display_is_not_missing_its_graphics() -> None:
    assert codes(checked(mdev(attributes="model='vfio-pci' display='on'"))) == []


def test_every_device_is_listed_also_one_that_cannot_be_read() -> None:
    xml = domain(hostdev("3b:00.0") + "<hostdev type='pci'><source><address bus='zz'/></source></hostdev>" + mdev())
    assert [device.to_json() for device in checked(xml, owners={MDEV: "other"}).devices] == [
        {"type": "pci", "address": "0000:3b:00.0", "uuid": None, "owner": None},
        {"type": "pci", "address": None, "uuid": None, "owner": None},
        {"type": "mdev", "address": None, "uuid": MDEV, "owner": "other"},
    ]


def test_managed_on_a_vgpu_and_qemu_arguments_are_warned_of() -> None:
    arguments = (
        "<q:commandline xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'>"
        "<q:arg value='-device'/><q:arg value='vfio-pci,host=0000:5e:00.0'/></q:commandline>"
    )
    result = checked(domain(mdev(attributes="model='vfio-pci' managed='yes'"), arguments), owners={})
    assert codes(result, "warning") == ["managed-ignored", "commandline-device"]
    assert result.problems[1].addresses == ("0000:5e:00.0",)
    assert not result.fatal


def test_a_device_among_qemu_arguments_that_another_vm_has_is_an_error() -> None:
    arguments = (
        "<q:commandline xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'>"
        "<q:arg value='-device'/><q:arg value='vfio-pci,host=0000:5e:00.0'/></q:commandline>"
    )
    assert codes(checked(domain("", arguments), owners={"0000:5e:00.0": "other"})) == ["device-in-use"]


@pytest.mark.parametrize(
    ("device", "libvirt", "old"),
    [
        ("<driver iommufd='yes'/>", (11, 3, 0), True),
        ("<driver iommufd='yes'/>", (12, 1, 0), False),
        ("<driver model='nvgrace_gpu_vfio_pci'/>", (9, 0, 0), True),
        ("<driver model='nvgrace_gpu_vfio_pci'/>", (10, 0, 0), False),
        ("<driver name='vfio'/>", (9, 0, 0), False),
        ("<acpi nodeset='1-8'/>", (11, 3, 0), True),
        ("<acpi index='1'/>", (9, 0, 0), False),
    ],
)
def test_what_an_older_libvirt_does_not_know_is_said(device: str, libvirt: tuple[int, int, int], old: bool) -> None:
    xml = domain(hostdev("3b:00.0").replace("<source>", f"{device}<source>"))
    assert codes(checked(xml, owners={}, libvirt=libvirt), "warning") == (["libvirt-too-old"] if old else [])
    assert codes(checked(xml, owners={}), "warning") == []


def test_a_pci_display_needs_libvirt_10_3() -> None:
    xml = domain(hostdev("26:00.5", display="on") + "<graphics type='vnc'/>")
    assert codes(checked(xml, owners={}, libvirt=(9, 0, 0)), "warning") == ["libvirt-too-old"]
    assert codes(checked(xml, owners={}, libvirt=(10, 3, 0)), "warning") == []


# -- locked memory --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("devices", "viommu", "extra", "need"),
    [
        (2, True, 0, 18253611008),
        (2, False, 0, 9 * GIB),
        (1, True, 0, 9 * GIB),
        (8, True, 0, 65 * GIB),
        (0, True, 0, 0),
        (0, False, 1, 9 * GIB),
        (2, False, 1, 17 * GIB),
    ],
)
def test_locked_memory_of_a_guest_with_8_gib(devices: int, viommu: bool, extra: int, need: int) -> None:
    assert locked_memory(8 * GIB, devices, viommu=viommu, extra=extra) == need


TWO = hostdev("3b:00.0") + mdev()
VIOMMU = "<iommu model='intel'/>"
NVME = "<disk type='nvme' device='disk'><source type='pci'><address bus='1'/></source></disk>"


@pytest.mark.parametrize(
    ("before", "devices", "enough"),
    [
        ("", TWO, True),
        ("<memtune><hard_limit unit='bytes'>4194304</hard_limit></memtune>", TWO, False),
        ("<memtune><hard_limit>9437184</hard_limit></memtune>", TWO, True),
        ("<memtune><hard_limit>9437183</hard_limit></memtune>", TWO, False),
        ("<memtune><hard_limit unit='GiB'>9</hard_limit></memtune>", TWO + VIOMMU, False),
        ("<memtune><hard_limit unit='GiB'>17</hard_limit></memtune>", TWO + VIOMMU, True),
        ("<memtune><hard_limit unit='G'>9</hard_limit></memtune>", TWO + NVME, False),
        ("<memtune><hard_limit unit='MiB'>17408</hard_limit></memtune>", TWO + NVME, True),
        ("<memtune><hard_limit unit='GiB'>9</hard_limit></memtune>", TWO + "<interface type='vdpa'/>", False),
        ("<memoryBacking><locked/></memoryBacking>", TWO, True),
        # An explicit limit goes before <locked/>.
        ("<memtune><hard_limit>1</hard_limit></memtune><memoryBacking><locked/></memoryBacking>", TWO, False),
        ("<memtune><hard_limit>1</hard_limit></memtune>", "", True),
        ("<memtune><hard_limit unit='parsec'>1</hard_limit></memtune>", TWO, True),
    ],
)
def test_the_limit_must_hold_the_estimate(before: str, devices: str, enough: bool) -> None:
    assert codes(checked(domain(devices, before), owners={})) == ([] if enough else ["memory-limit"])


def test_the_message_gives_both_numbers_and_the_remedy() -> None:
    before = "<memtune><hard_limit unit='GiB'>8</hard_limit></memtune>"
    (problem,) = checked(domain(TWO + VIOMMU, before), owners={}).problems
    assert problem.message == (
        "memtune hard_limit is 8589934592 bytes, but 2 VFIO devices behind a vIOMMU need 18253611008 bytes of "
        "locked memory: raise it, or remove it and let libvirt compute the limit"
    )


def test_every_code_is_explained_in_the_guide() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "domains.md").read_text(encoding="utf-8")
    assert [code for code, meaning in PROBLEMS.items() if f"| `{code}` | {meaning} |" not in page] == []
