"""Health, console, framebuffers, isolation, and what others add to the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosttree import DEAD_CONFIG, PLAIN_CONFIG, VF_CONFIG, HostTree
from vgpumgr.binding import plan_bind
from vgpumgr.inventory import take_inventory, with_occupancy
from vgpumgr.inventory.names import NoNames
from vgpumgr.model.host import Gpu, Holder, HostInventory

GPU = "0000:c3:00.0"
PORT = "0000:00:01.0"


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    tree = HostTree(tmp_path)
    tree.iommu()
    tree.process(1, "init")
    return tree


def look(tree: HostTree) -> HostInventory:
    return take_inventory(tree.kernel(), names=NoNames())


def gpu(tree: HostTree) -> Gpu:
    (found,) = look(tree).gpus
    return found


def codes(found: Gpu) -> list[str]:
    return [reason.code for reason in found.passthrough.reasons]


@pytest.mark.parametrize("config", [DEAD_CONFIG, b"\xff" * 256, b"\xff" * 4096])
def test_a_card_that_reads_all_ones_has_failed_and_takes_a_power_cycle(tree: HostTree, config: bytes) -> None:
    tree.function(GPU, "120000", "1002:75a3", "vfio-pci", 44, config=config, power_state="unknown")
    found = gpu(tree)
    assert found.health.status == "failed"
    assert "config space unreadable (ff)" in found.health.reasons[0].message
    assert "power-cycle" in found.health.reasons[0].message
    assert (found.passthrough.state, found.passthrough.assignable) == ("failed", False)


def test_a_companion_that_reads_all_ones_fails_the_card(tree: HostTree) -> None:
    tree.function(GPU, "030000", "1002:73bf", "amdgpu", 44)
    tree.function("0000:c3:00.1", "040300", "1002:ab28", "snd_hda_intel", 44, config=DEAD_CONFIG)
    assert gpu(tree).health.status == "failed"


@pytest.mark.parametrize("config", [VF_CONFIG, PLAIN_CONFIG, b"\xff" * 63 + b"\x00"])
def test_some_ones_are_no_failure(tree: HostTree, config: bytes) -> None:
    tree.function(GPU, "120000", "1002:75a3", "vfio-pci", 44, config=config)
    assert gpu(tree).health.status == "ok"


@pytest.mark.parametrize("config", [None, b"", b"\xff"])
def test_without_config_space_health_is_unknown_and_nothing_is_refused(
    tree: HostTree, config: bytes | None
) -> None:
    tree.function(GPU, "120000", "1002:75a3", "amdgpu", 44, config=config)
    found = gpu(tree)
    assert found.health.status == "unknown"
    assert found.passthrough.assignable


def test_an_idle_link_is_no_fault(tree: HostTree) -> None:
    link = {"current_link_speed": "2.5 GT/s PCIe", "max_link_speed": "16.0 GT/s PCIe"}
    tree.function(GPU, "030200", "10de:25b6", "nvidia", 44, current_link_width="8", max_link_width="16", **link)
    assert gpu(tree).health.status == "ok"


def test_a_link_with_a_quarter_of_its_lanes_is_degraded(tree: HostTree) -> None:
    tree.function(GPU, "030200", "10de:2235", "nvidia", 44, current_link_width="4", max_link_width="16")
    assert [reason.code for reason in gpu(tree).health.reasons] == ["link-narrow"]


def test_a_short_slot_is_no_fault(tree: HostTree) -> None:
    tree.function(PORT, "060400", "8086:347a", "pcieport", 1, max_link_width="4")
    tree.function(
        GPU, "030200", "10de:2235", "nvidia", 44, parent=PORT, current_link_width="4", max_link_width="16"
    )
    assert gpu(tree).health.status == "ok"


def test_fatal_errors_degrade_and_harmless_ones_do_not(tree: HostTree) -> None:
    quiet = "DLP 0\nUnsupported Request 12\nTOTAL_ERR_NONFATAL 12"
    loud = "Data Link Protocol 3\nTLP 0\nTOTAL_ERR_FATAL 3"
    tree.function(GPU, "030200", "10de:2235", "nvidia", 44, aer_dev_nonfatal=quiet, aer_dev_fatal=loud)
    (reason,) = gpu(tree).health.reasons
    assert reason.code == "aer-fatal"
    assert "Data Link Protocol 3" in reason.message


def test_the_boot_display_stays_with_the_host(tree: HostTree) -> None:
    tree.function(GPU, "030000", "1002:1586", "amdgpu", 22, boot_vga="1")
    found = gpu(tree)
    assert found.boot_display
    assert codes(found) == ["boot-display"]
    assert not found.passthrough.assignable


def test_a_second_display_is_not_the_boot_display(tree: HostTree) -> None:
    tree.function(GPU, "030000", "1002:1586", "amdgpu", 22, boot_vga="0")
    assert gpu(tree).passthrough.assignable


BAR = "0x0000002800000000 0x0000002fffffffff 0x000000000014220c"
NESTED = """\
00000000-00000fff : Reserved
2000000000-2fffffffff : PCI Bus 0000:c3
  2800000000-2fffffffff : 0000:c3:00.0
    2800000000-2801fa3fff : BOOTFB
      2800000000-2801fa3fff : simpledrm
"""


def test_a_boot_framebuffer_on_the_bar_is_told(tree: HostTree) -> None:
    tree.function(GPU, "030000", "1002:1586", "vfio-pci", 22, boot_vga="1", resource=BAR)
    tree.file("/proc/iomem", NESTED)
    inventory = look(tree)
    (notice,) = (each for each in inventory.warnings if each.subject == GPU)
    assert notice.message == "boot framebuffer (simpledrm) owns part of BAR 0"
    assert "framebuffer-held" in codes(inventory.gpus[0])
    assert [(holder.kind, holder.name) for holder in inventory.gpus[0].holders] == [("framebuffer", "simpledrm")]


def test_zeroed_addresses_still_tell_whose_bar_it_is(tree: HostTree) -> None:
    tree.function(GPU, "030000", "1002:1586", "vfio-pci", 22, resource=BAR)
    tree.file(
        "/proc/iomem",
        "00000000-00000000 : PCI Bus\n  00000000-00000000 : 0000:c3:00.0\n    00000000-00000000 : efifb\n",
    )
    assert "framebuffer-held" in codes(gpu(tree))


def test_a_framebuffer_beside_the_functions_line_is_found_by_its_address(tree: HostTree) -> None:
    tree.function(GPU, "030000", "1002:1586", None, 22, resource=BAR)
    tree.file("/proc/iomem", "2800000000-2800ffffff : BOOTFB\n2801000000-2fffffffff : 0000:c3:00.0\n")
    assert [holder.detail for holder in gpu(tree).holders] == ["BAR 0"]


def test_a_framebuffer_on_another_card_is_not_ours(tree: HostTree) -> None:
    tree.function(GPU, "030000", "1002:1586", None, 22, resource=BAR)
    tree.file("/proc/iomem", "90000000-9fffffff : 0000:03:00.0\n  90000000-90ffffff : efifb\n")
    assert gpu(tree).holders == ()


def test_the_drivers_own_claim_on_the_bar_is_no_framebuffer(tree: HostTree) -> None:
    tree.function(GPU, "030000", "1002:1586", "amdgpu", 22, resource=BAR)
    tree.file("/proc/iomem", "2800000000-2fffffffff : 0000:c3:00.0\n  2800000000-2fffffffff : amdgpu\n")
    assert gpu(tree).holders == ()


RESERVED = f"vfio-pci {GPU}: BAR 0: can't reserve [mem 0x2800000000-0x2fffffffff 64bit pref]"


@pytest.mark.parametrize(
    ("driver", "line", "held"),
    [
        ("vfio-pci", f"[   12.5] {RESERVED}", ["BAR 0"]),
        ("vfio-pci", f"4,1203,12500000,-;{RESERVED}", ["BAR 0"]),
        (
            "vfio-pci",
            f"Dec  7 host kernel: vfio-pci {GPU}: BAR 2 [mem 0x1-0x2 64bit pref]: can't reserve",
            ["BAR 2"],
        ),
        ("vfio-pci", RESERVED.replace(GPU, "0000:c4:00.0"), []),
        ("amdgpu", RESERVED, []),
        ("vfio-pci", f"vfio-pci {GPU}: BAR 0: can't assign; no space", []),
        ("vfio-pci", "2800000000-2fffffffff : 0000:c3:00.0\n  2800000000-2801fa3fff : efifb", ["BAR 0"]),
    ],
)
def test_where_no_map_of_memory_tells_the_log_does(tree: HostTree, driver: str, line: str, held: list[str]) -> None:
    tree.function(GPU, "030000", "1002:1586", driver, 22, resource=BAR)
    tree.file("/dev/kmsg", f"[    1.0] Linux version 6.1.0\n{line}\n")
    assert [holder.detail for holder in gpu(tree).holders if holder.kind == "framebuffer"] == held


def test_bound_already_and_of_no_use_to_a_guest_is_said(tree: HostTree) -> None:
    tree.function(GPU, "030000", "1002:1586", "vfio-pci", 22, resource=BAR)
    tree.file("/dev/kmsg", RESERVED)
    kernel = tree.kernel()
    for force, code in ((False, "framebuffer-held"), (True, None)):
        plan = plan_bind(kernel, look(tree), gpu(tree), force=force)
        assert (plan.refusal and plan.refusal.code) == code


def test_a_map_of_memory_with_addresses_is_newer_than_the_log(tree: HostTree) -> None:
    tree.function(GPU, "030000", "1002:1586", "vfio-pci", 22, resource=BAR)
    tree.file("/dev/kmsg", RESERVED)
    tree.file("/proc/iomem", "2800000000-2fffffffff : 0000:c3:00.0\n  2800000000-2fffffffff : vfio-pci\n")
    assert gpu(tree).holders == ()


def port_config(acs: int | None, kind: int = 4) -> bytes:
    """4 KiB of a PCIe port; ``acs`` is its ACS control word, ``None`` for no ACS capability."""
    config = bytearray(4096)
    config[0x34] = 0x40
    config[0x40] = 0x10
    config[0x42] = kind << 4
    config[0x100:0x104] = (0x0003 | 1 << 16 | 0x140 << 20).to_bytes(4, "little")
    if acs is not None:
        config[0x140:0x144] = (0x000D | 1 << 16).to_bytes(4, "little")
        config[0x146:0x148] = acs.to_bytes(2, "little")
    return bytes(config)


@pytest.mark.parametrize(
    ("config", "isolates"),
    [
        (port_config(0x1D), True),
        (port_config(0x5F), True),
        (port_config(0x0D), False),
        (port_config(0), False),
        (port_config(None), False),
        (port_config(0x1D, kind=6), True),
        (port_config(0x1D)[:64], None),
        (port_config(0x1D)[:256], None),
        (b"", None),
        (DEAD_CONFIG, None),
    ],
)
def test_isolation_of_the_port_above(tree: HostTree, config: bytes, isolates: bool | None) -> None:
    tree.function(PORT, "060400", "8086:347a", "pcieport", 1, config=config)
    tree.function(GPU, "030200", "10de:2235", "nvidia", 44, parent=PORT)
    assert gpu(tree).topology.acs is isolates


def test_one_port_that_does_not_isolate_spoils_the_path_and_upstream_ports_do_not_count(tree: HostTree) -> None:
    tree.function(PORT, "060400", "8086:347a", "pcieport", 1, config=port_config(0x1D))
    tree.function(
        "0000:01:00.0", "060400", "10b5:8747", "pcieport", 2, parent=PORT, config=port_config(None, kind=5)
    )
    tree.function(
        "0000:02:08.0",
        "060400",
        "10b5:8747",
        "pcieport",
        3,
        parent="0000:01:00.0",
        config=port_config(0x1D, kind=6),
    )
    tree.function(GPU, "030200", "10de:2235", "nvidia", 44, parent="0000:02:08.0")
    assert gpu(tree).topology.acs is True
    tree.file(f"/sys/devices/pci0000:00/{PORT}/config", port_config(0))
    assert gpu(tree).topology.acs is False


@pytest.mark.parametrize(
    ("driver", "state", "assignable"),
    [("nvidia", "host", True), (None, "parked", True), ("pci-stub", "parked", True), ("vfio-pci", "ready", True)],
)
def test_states_of_a_lone_gpu(tree: HostTree, driver: str | None, state: str, assignable: bool) -> None:
    tree.function(GPU, "030200", "10de:2235", driver, 44)
    found = gpu(tree)
    assert (found.passthrough.state, found.passthrough.assignable) == (state, assignable)


def test_vms_found_elsewhere_make_a_gpu_in_use(tree: HostTree) -> None:
    tree.function(GPU, "030200", "10de:2235", "vfio-pci", 44)
    owner = Holder("vm", "desktop-7", GPU)
    found = with_occupancy(gpu(tree), owners=[owner])
    assert (found.passthrough.state, found.passthrough.assignable) == ("in-use", False)
    assert "desktop-7" in found.passthrough.reasons[0].message
    assert found.holders == (owner,)


def test_a_known_owner_settles_an_unknown_one(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.iommu()
    tree.function(GPU, "030200", "10de:2235", "vfio-pci", 44)
    before = gpu(tree)
    assert codes(before) == ["owner-unknown"]
    after = with_occupancy(before, owners=[Holder("vm", "desktop-7", GPU)])
    assert (after.passthrough.state, codes(after)) == ("in-use", ["in-use"])


def test_live_vgpus_keep_the_card_from_going_whole(tree: HostTree) -> None:
    tree.function(GPU, "030200", "10de:1eb8", "nvidia", 44)
    found = with_occupancy(gpu(tree), live_vgpus=["f715f63c-0d00-4007-9c5a-b07b0c6c05de"])
    assert (found.passthrough.state, codes(found)) == ("host", ["vgpu-live"])
    assert not found.passthrough.assignable


def test_a_reservation_shows_and_a_vm_outranks_it(tree: HostTree) -> None:
    tree.function(GPU, "030200", "10de:1eb8", "vfio-pci", 44)
    reserved = with_occupancy(gpu(tree), reserved_for="allocation a1")
    assert (reserved.passthrough.state, codes(reserved)) == ("reserved", ["reserved"])
    both = with_occupancy(gpu(tree), reserved_for="allocation a1", owners=[Holder("vm", "x", GPU)])
    assert both.passthrough.state == "in-use"


def test_a_quarantine_outranks_everything(tree: HostTree) -> None:
    tree.function(GPU, "030200", "10de:1eb8", "vfio-pci", 44)
    found = with_occupancy(
        gpu(tree), failed="reset failed twice", reserved_for="a1", owners=[Holder("vm", "x", GPU)]
    )
    assert found.passthrough.state == "failed"
    assert not found.passthrough.assignable


def test_nothing_to_add_changes_nothing(tree: HostTree) -> None:
    tree.function(GPU, "030200", "10de:1eb8", "vfio-pci", 44)
    assert with_occupancy(gpu(tree)) == gpu(tree)
