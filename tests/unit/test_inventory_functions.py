"""Functions: addresses of any width, whatever is missing, and nothing taken for what it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosttree import HostTree
from vgpumgr.inventory import take_inventory
from vgpumgr.inventory.names import NoNames
from vgpumgr.model.host import HostInventory
from vgpumgr.model.pci import PciFunction


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)


def look(tree: HostTree, *denied: str) -> HostInventory:
    return take_inventory(tree.kernel(*denied), names=NoNames())


def only(inventory: HostInventory) -> PciFunction:
    assert len(inventory.functions) == 1
    return inventory.functions[0]


@pytest.mark.parametrize("address", ["0000:3b:00.0", "0001:d6:00.0", "10000:e1:00.0", "fffffffe:ff:1f.7"])
def test_a_domain_may_have_four_to_eight_digits(tree: HostTree, address: str) -> None:
    tree.function(address, "030200", "10de:2235", "nvidia", 7)
    inventory = look(tree)
    assert [gpu.address for gpu in inventory.gpus] == [address]
    assert inventory.groups[0].members == (address,)


def test_functions_come_in_bus_order_and_a_wider_domain_comes_last(tree: HostTree) -> None:
    for address in ("10000:01:00.0", "ffff:00:00.0", "0000:0a:00.0", "0000:02:00.0"):
        tree.function(address, "088000", "8086:09a2")
    order = [function.address for function in look(tree).functions]
    assert order == ["0000:02:00.0", "0000:0a:00.0", "ffff:00:00.0", "10000:01:00.0"]


def test_the_path_is_known_from_the_link_alone(tree: HostTree) -> None:
    tree.function("0000:00:01.0", "060400", "8086:347a", "pcieport")
    tree.function("0000:01:00.0", "060400", "10b5:8747", "pcieport", parent="0000:00:01.0")
    tree.function("0000:02:08.0", "060400", "10b5:8747", "pcieport", parent="0000:01:00.0")
    tree.function("0000:03:00.0", "030200", "10de:2330", "nvidia", parent="0000:02:08.0")
    gpu = look(tree).gpus[0]
    assert gpu.function.bridges == ("0000:00:01.0", "0000:01:00.0", "0000:02:08.0")
    assert gpu.topology.root_port == "0000:00:01.0"
    assert gpu.topology.switches == ("0000:01:00.0", "0000:02:08.0")


def test_a_host_bridge_inside_the_path_starts_a_new_hierarchy(tree: HostTree) -> None:
    home = "/sys/devices/pci0000:00/0000:00:0e.0/pci10000:00/10000:00:02.0/10000:01:00.0"
    tree.file(f"{home}/class", "0x010802\n")
    tree.link("/sys/bus/pci/devices/10000:01:00.0", home)
    assert only(look(tree)).bridges == ("10000:00:02.0",)


def test_without_uevent_the_single_attributes_tell(tree: HostTree) -> None:
    home = "/sys/bus/pci/devices/0000:08:00.0"
    tree.files({f"{home}/class": "0x030200\n", f"{home}/vendor": "0x10de\n", f"{home}/device": "0x1eb8\n"})
    inventory = look(tree)
    gpu = inventory.gpus[0]
    assert (gpu.function.vendor_id, gpu.function.device_id, gpu.function.class_id) == ("10de", "1eb8", "030200")
    assert gpu.name == "10de:1eb8"
    assert {notice.code for notice in inventory.warnings} == {"holders-unknown"}


def test_missing_attributes_are_no_error(tree: HostTree) -> None:
    tree.file("/sys/bus/pci/devices/0000:08:00.0/class", "0x030000\n")
    gpu = look(tree).gpus[0]
    assert gpu.function.vendor_id is None
    assert gpu.function.driver is None
    assert gpu.function.numa_node is None
    assert gpu.reset_methods is None
    assert gpu.bars == ()
    assert gpu.name == "unknown:unknown"


@pytest.mark.parametrize(("text", "node"), [("-1", None), ("0", 0), ("3", 3)])
def test_numa_node_minus_one_is_unknown(tree: HostTree, text: str, node: int | None) -> None:
    tree.function("0000:08:00.0", "030200", "10de:2235", numa_node=text)
    inventory = look(tree)
    assert only(inventory).numa_node == node
    assert inventory.gpus[0].to_json()["numa_node"] == node


@pytest.mark.parametrize("text", ["99999999999999999999", "4096", "one", "", "-", "0x0", "١"])
def test_a_node_that_makes_no_sense_is_unknown_and_told(tree: HostTree, text: str) -> None:
    tree.function("0000:08:00.0", "088000", "10de:2235", numa_node=text)
    inventory = look(tree)
    assert only(inventory).numa_node is None
    assert [(notice.code, notice.subject) for notice in inventory.warnings] == [
        ("attribute-malformed", "0000:08:00.0")
    ]


def test_an_unreadable_attribute_is_unknown_and_told(tree: HostTree) -> None:
    home = tree.function("0000:08:00.0", "088000", "10de:2235")
    inventory = look(tree, f"{home}/numa_node")
    assert only(inventory).numa_node is None
    assert [notice.code for notice in inventory.warnings] == ["attribute-unreadable"]


def test_a_function_without_class_is_told_not_guessed(tree: HostTree) -> None:
    tree.file("/sys/bus/pci/devices/0000:26:00.4/nvidia/current_vgpu_type", "0\n")
    inventory = look(tree)
    assert inventory.gpus == ()
    assert [(notice.code, notice.subject) for notice in inventory.warnings] == [("class-unknown", "0000:26:00.4")]


@pytest.mark.parametrize("name", ["0000:08:00", "0000:08:00.8", "0000:08:20.0", "garbage", "0000:3B:00.0"])
def test_a_name_that_is_no_address_is_told_and_left_alone(tree: HostTree, name: str) -> None:
    tree.file(f"/sys/bus/pci/devices/{name}/class", "0x030000\n")
    inventory = look(tree)
    assert inventory.functions == ()
    assert [(notice.code, notice.subject) for notice in inventory.warnings] == [("not-an-address", name)]


@pytest.mark.parametrize("text", ["(null)", "", "\n"])
def test_an_unset_override_is_none(tree: HostTree, text: str) -> None:
    tree.function("0000:08:00.0", "030200", "10de:2235", driver_override=text)
    assert look(tree).gpus[0].driver_override is None


def test_a_set_override_is_shown(tree: HostTree) -> None:
    tree.function("0000:08:00.0", "030200", "10de:2235", driver_override="vfio-pci")
    assert look(tree).gpus[0].driver_override == "vfio-pci"


def test_bars_come_with_size_and_kind_and_stop_before_those_of_vfs(tree: HostTree) -> None:
    lines = [
        "0x0000000093000000 0x0000000093ffffff 0x0000000000040200",
        "0x0000039000000000 0x00000393ffffffff 0x000000000014220c",
        *["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 4,
        "0x0000000094000000 0x000000009407ffff 0x0000000000046200",
        "0x0000039400000000 0x0000039bffffffff 0x000000000014220c",
    ]
    tree.function("0000:08:00.0", "030200", "10de:25b6", resource="\n".join(lines))
    bars = look(tree).gpus[0].bars
    assert [(bar.number, bar.size, bar.prefetchable, bar.bits64) for bar in bars] == [
        (0, 16 << 20, False, False),
        (1, 16 << 30, True, True),
        (6, 512 << 10, True, False),
    ]


def test_a_bar_without_an_address_degrades_the_card_and_names_the_firmware_setting(tree: HostTree) -> None:
    line = "0x0000000000000000 0x0000001fffffffff 0x000000002014220c"
    tree.function("0000:08:00.0", "030200", "10de:2330", resource=line)
    gpu = look(tree).gpus[0]
    assert not gpu.bars[0].assigned
    assert gpu.health.status == "degraded"
    assert "Above 4G" in gpu.health.reasons[0].message


@pytest.mark.parametrize(
    ("speed", "width", "expected"),
    [
        ("16.0 GT/s PCIe", "16", (16.0, 16)),
        ("8 GT/s", "8", (8.0, 8)),
        ("Unknown", "0", (None, None)),
        ("Unknown speed", "255", (None, None)),
        ("-5 GT/s", "x", (None, None)),
    ],
)
def test_link_speed_and_width(tree: HostTree, speed: str, width: str, expected: tuple[object, object]) -> None:
    tree.function("0000:08:00.0", "030200", "10de:2330", current_link_speed=speed, current_link_width=width)
    link = look(tree).gpus[0].link
    assert (link.speed, link.width) == expected


def test_reset_methods_in_the_kernels_order(tree: HostTree) -> None:
    tree.function("0000:08:00.0", "030200", "10de:2330", reset_method="flr bus")
    tree.function("0000:09:00.0", "030200", "10de:2330", remove="")
    tree.function("0000:0a:00.0", "030200", "10de:2330", remove="", reset="")
    assert [gpu.reset_methods for gpu in look(tree).gpus] == [("flr", "bus"), (), None]


def test_a_recording_without_files_that_cannot_be_read_does_not_say_there_is_no_reset(tree: HostTree) -> None:
    tree.function("0000:08:00.0", "120000", "1bcf:001c")
    assert look(tree).gpus[0].reset_methods is None


def test_host_name_and_kernel(tree: HostTree) -> None:
    tree.files({"/proc/sys/kernel/hostname": "kvm7\n", "/proc/sys/kernel/osrelease": "6.12.1-amd64\n"})
    inventory = look(tree)
    assert (inventory.hostname, inventory.kernel) == ("kvm7", "6.12.1-amd64")


def test_the_kernel_release_is_found_in_the_version_too(tree: HostTree) -> None:
    tree.file("/proc/version", "Linux version 3.10.0-1160.el7.x86_64 (build@host) #1 SMP\n")
    assert look(tree).kernel == "3.10.0-1160.el7.x86_64"


def test_an_empty_root_has_nothing_and_says_nothing_false(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    tree = HostTree(tmp_path / "other")
    tree.root = tmp_path
    inventory = look(tree)
    assert (inventory.functions, inventory.gpus, inventory.groups) == ((), (), ())
    assert not inventory.iommu.active


def test_a_tree_without_pci_functions_says_so(tmp_path: Path) -> None:
    from vgpumgr.kernel.recorded import open_recording

    (tmp_path / "sys").mkdir()
    inventory = take_inventory(open_recording(str(tmp_path)))
    assert inventory.gpus == ()
    assert "no-pci-functions" in {warning.code for warning in inventory.warnings}
