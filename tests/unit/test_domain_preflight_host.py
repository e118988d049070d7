"""The preflight against a host: drivers, groups, vGPUs, owners, and everything the host still uses."""

from __future__ import annotations

import pytest

from tests.unit.guests import (
    MDEV,
    OTHER_MDEV,
    OWN,
    checked,
    codes,
    domain,
    function,
    gpu,
    hostdev,
    inventory,
    mdev,
    vendor_card,
)
from vgpumgr.errors import Reason
from vgpumgr.model.host import Gpu, Health, HealthStatus, Holder, HostInventory
from vgpumgr.model.pci import PciFunction
from vgpumgr.model.vgpu import Vgpu, VgpuState

VGA, AUDIO = "0000:86:00.0", "0000:86:00.1"


def card(audio: str | None = "snd_hda_intel", vga: str | None = "vfio-pci") -> HostInventory:
    """A display with its audio function, in one group."""
    primary, sound = function(VGA, vga), function(AUDIO, audio, class_id="040300")
    return inventory(primary, sound, gpus=(gpu(primary, sound),))


def with_gpu(host: HostInventory, **changes: object) -> HostInventory:
    """The same host with its (one) GPU changed."""
    (only,) = host.gpus
    changed: Gpu = only._replace(**changes)
    return host._replace(gpus=(changed,))


BOTH, ONE = hostdev(VGA) + hostdev(AUDIO), hostdev(VGA)
MANAGED = hostdev(VGA, "yes") + hostdev(AUDIO, "yes")


@pytest.mark.parametrize(
    ("devices", "host", "expected"),
    [
        (BOTH, card("vfio-pci"), []),
        (ONE, card("vfio-pci"), []),
        (ONE, card(None), []),
        (ONE, card("pci-stub"), []),
        (ONE, card(), ["group-not-viable"]),
        (BOTH, card(), ["group-not-viable", "device-not-detached"]),
        (MANAGED, card(), []),
        (MANAGED, card(vga="nvidia"), []),
        (hostdev(VGA, "yes"), card(vga="nvidia"), ["group-not-viable"]),
        (BOTH, card("vfio-pci", vga="nvidia"), ["device-not-detached", "group-not-viable"]),
        (BOTH, card("vfio-pci", vga=None), ["device-not-detached"]),
        (BOTH, card("vfio-pci", vga="pci-stub"), ["device-not-detached"]),
        (BOTH, card("vfio-pci", vga="nvgrace_gpu_vfio_pci"), []),
    ],
)
def test_drivers_and_groups(devices: str, host: HostInventory, expected: list[str]) -> None:
    assert codes(checked(domain(devices), host, {})) == expected


def test_the_blockers_of_a_group_are_named() -> None:
    (problem,) = (item for item in checked(ONE, card(), {}).problems if item.code == "group-not-viable")
    assert problem.addresses == (AUDIO,)
    assert "0000:86:00.1 (snd_hda_intel)" in problem.message


def test_a_companion_left_out_is_a_warning() -> None:
    result = checked(ONE, card("vfio-pci"), {})
    assert codes(result, "warning") == ["companion-missing"]
    assert not result.fatal


def test_bridges_never_block_and_are_never_passed() -> None:
    port = function("0000:00:01.0", "pcieport", 1, "060400")
    display = function("0000:01:00.0", "vfio-pci", 1)
    host = inventory(port, display, gpus=(gpu(display),))
    assert codes(checked(hostdev(display.address), host, {})) == []
    result = checked(hostdev(display.address) + hostdev(port.address), host, {})
    assert [(item.code, item.addresses) for item in result.problems] == [("bridge", (port.address,))]


def test_a_device_that_is_not_there_is_an_error() -> None:
    assert codes(checked(hostdev("0000:99:00.0"), card(), {})) == ["device-unknown"]


def test_an_impossible_address_is_said_once() -> None:
    xml = "<hostdev type='pci'><source><address domain='0x0001' slot='0xd6'/></source></hostdev>"
    assert codes(checked(xml, card(), {})) == ["address-invalid"]


def test_without_an_iommu_nothing_can_go() -> None:
    host = inventory(function("0000:08:00.0", "nvidia", None))
    assert codes(checked(hostdev("0000:08:00.0", "yes"), host, {})) == ["iommu-inactive"]


def test_a_function_in_no_group_cannot_go_though_the_iommu_works() -> None:
    host = inventory(function("0000:08:00.0", "vfio-pci", None), function(VGA))
    assert codes(checked(hostdev("0000:08:00.0"), host, {})) == ["no-iommu-group"]


# -- virtual functions ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (hostdev("26:00.5"), []),
        (hostdev("26:00.5", "yes"), ["managed-vgpu"]),
        (hostdev("26:00.4"), ["vf-without-type"]),
        (hostdev("26:00.4", "yes"), ["vf-without-type"]),
        (hostdev("26:00.0"), ["device-not-detached", "vfs-enabled"]),
        (hostdev("26:00.0", "yes"), ["vfs-enabled"]),
    ],
)
def test_a_vf_with_a_vgpu_stays_on_its_vendors_driver(device: str, expected: list[str]) -> None:
    assert codes(checked(device, vendor_card(), {})) == expected


def test_a_vf_on_a_host_driver_that_makes_no_vgpus_must_be_detached() -> None:
    parent = function("0000:c3:00.0", "nvidia", 90, "030200")
    vf = function("0000:c3:1b.1", "nvidia", 101, "030200", physfn=parent.address)
    xml = hostdev("c3:1b.1")
    assert codes(checked(xml, inventory(parent, vf, gpus=(gpu(parent),)), {})) == ["device-not-detached"]
    detached = vf._replace(driver="vfio-pci", vfio=True)
    assert codes(checked(xml, inventory(parent, detached, gpus=(gpu(parent),)), {})) == []


def test_a_vf_of_a_card_on_vfio_needs_a_token() -> None:
    parent = function("0000:c3:00.0", "vfio-pci", 90)
    vf = function("0000:c3:00.4", "vfio-pci", 91, physfn=parent.address)
    result = checked(hostdev("c3:00.4"), inventory(parent, vf), {})
    assert (codes(result), codes(result, "warning")) == ([], ["vf-token"])


# -- mediated devices -----------------------------------------------------------------------------------
def mdev_host(owner: str | None = None) -> HostInventory:
    parent = function("0000:3b:00.0", "nvidia", 40)
    vgpu = VgpuState(capable=True, instances=(Vgpu(MDEV, "nvidia-63", "GRID T4-1Q", parent.address, owner),))
    return inventory(parent, gpus=(gpu(parent)._replace(vgpu=vgpu),), others={41: OTHER_MDEV.upper()})


def test_mediated_devices_must_exist() -> None:
    assert codes(checked(mdev(), mdev_host(), {})) == []
    assert codes(checked(mdev(OTHER_MDEV), mdev_host(), {})) == []
    assert codes(checked(mdev("00000000-0000-0000-0000-00000000000f"), mdev_host(), {})) == ["mdev-unknown"]


@pytest.mark.parametrize("managed", ["yes", "no"])
def test_a_vf_that_carries_a_mediated_device_is_not_passed_itself(managed: str) -> None:
    parent = function("0000:3b:00.0", "nvidia", 40)
    carrier = function("0000:3b:00.4", "nvidia", 41, physfn=parent.address)
    vgpu = VgpuState(capable=True, instances=(Vgpu(MDEV, "nvidia-590", "NVIDIA A10-4Q", carrier.address),))
    host = inventory(parent, carrier, gpus=(gpu(parent)._replace(vgpu=vgpu),))
    both = domain(mdev() + hostdev(carrier.address, managed))
    (problem,) = (item for item in checked(both, host, {}).problems if item.severity == "error")
    assert (problem.code, problem.addresses) == ("vgpu-live", (carrier.address,))
    assert MDEV in problem.message


def test_an_owner_that_only_the_driver_knows_counts() -> None:
    result = checked(domain(mdev()), mdev_host("desk-9"), {})
    assert (codes(result), result.devices[0].owner) == (["device-in-use"], "desk-9")
    assert codes(checked(domain(mdev()), mdev_host(OWN), {})) == []


# -- owners ---------------------------------------------------------------------------------------------
def test_another_vms_device_is_an_error_and_ones_own_is_not() -> None:
    other = checked(domain(BOTH), card("vfio-pci"), {VGA: "other", AUDIO: OWN})
    assert [(item.code, item.addresses) for item in other.problems] == [("device-in-use", (VGA,))]
    assert [device.owner for device in other.devices] == ["other", OWN]


def test_a_group_goes_to_one_vm_at_a_time() -> None:
    result = checked(domain(ONE), card("vfio-pci"), {AUDIO: "other"})
    assert [(item.code, item.addresses) for item in result.problems if item.severity == "error"] == [
        ("group-in-use", (AUDIO,))
    ]
    assert codes(checked(domain(ONE), card("vfio-pci"), {AUDIO: OWN})) == []


def test_unknown_owners_are_said_and_never_free() -> None:
    asked, unasked = (checked(domain(BOTH), card("vfio-pci"), owners) for owners in ({}, None))
    assert codes(asked, "warning") == []
    assert codes(unasked, "warning") == ["owner-unknown", "owner-unknown"]
    assert not unasked.fatal


def test_a_device_on_its_host_driver_is_no_vms() -> None:
    assert "owner-unknown" not in codes(checked(domain(MANAGED), card(vga="nvidia"), None), "warning")


def test_a_process_that_holds_the_device_through_vfio_has_it() -> None:
    held = with_gpu(card("vfio-pci"), holders=(Holder("process", "qemu-system-x86", VGA, 4242),))
    result = checked(domain(BOTH), held, {})
    assert codes(result) == ["device-in-use"]
    assert "qemu-system-x86 (pid 4242)" in result.problems[0].message
    assert codes(checked(domain(BOTH), held, {VGA: OWN})) == []


# -- the host's own ---------------------------------------------------------------------------------------
def test_a_failed_gpu_does_not_start() -> None:
    reasons = (Reason("failed", "config space unreadable (ff)", (VGA,)),)
    host = card("vfio-pci")
    (only,) = host.gpus
    failed = with_gpu(host, passthrough=only.passthrough._replace(reasons=reasons))
    assert codes(checked(BOTH, failed, {})) == ["device-failed"]


def test_a_degraded_gpu_is_a_warning() -> None:
    health = Health(HealthStatus.DEGRADED, (Reason("link-narrow", "x8 instead of x16"),))
    assert codes(checked(BOTH, with_gpu(card("vfio-pci"), health=health), {}), "warning") == ["device-degraded"]


def test_the_boot_display_is_not_taken_by_libvirt_but_may_be_given_on_purpose() -> None:
    on_host = with_gpu(card(vga="amdgpu"), boot_display=True)
    assert codes(checked(MANAGED, on_host, {})) == ["boot-display"]
    on_purpose = with_gpu(card("vfio-pci"), boot_display=True)
    result = checked(BOTH, on_purpose, {})
    assert (codes(result), codes(result, "warning")) == ([], ["boot-display"])


@pytest.mark.parametrize("kind", ["process", "mount", "network", "display"])
def test_what_the_host_uses_is_not_taken_by_libvirt(kind: str) -> None:
    held = with_gpu(card(vga="nvidia"), holders=(Holder(kind, "something", VGA, None),))
    assert codes(checked(MANAGED, held, {})) == ["in-use-by-host"]
    unmanaged = checked(BOTH, held, {})
    assert "in-use-by-host" not in codes(unmanaged)


def test_virtual_functions_keep_the_card_from_going_whole() -> None:
    parent: PciFunction = function("0000:42:00.0", "vfio-pci", 70)
    vf = function("0000:42:00.2", "vfio-pci", 71, physfn=parent.address)
    (problem,) = checked(hostdev("42:00.0"), inventory(parent, vf), {}).problems
    assert (problem.code, problem.severity) == ("vfs-enabled", "error")
    assert problem.message.startswith("1 virtual function of 0000:42:00.0 is enabled")


def test_errors_come_before_warnings_and_nothing_is_said_twice() -> None:
    result = checked(domain(ONE + ONE), card(), None)
    severities = [problem.severity for problem in result.problems]
    assert severities == sorted(severities)
    assert len(set(result.problems)) == len(result.problems)
