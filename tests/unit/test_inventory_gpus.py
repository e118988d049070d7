"""Which functions are GPUs, which are slices of one, and what belongs to a card."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosttree import PLAIN_CONFIG, VF_CONFIG, HostTree
from vgpumgr.inventory import take_inventory
from vgpumgr.inventory.names import NoNames
from vgpumgr.model.host import Gpu, HostInventory

PF = "0000:42:00.0"


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)


def look(tree: HostTree) -> HostInventory:
    return take_inventory(tree.kernel(), names=NoNames())


def gpu(tree: HostTree, address: str) -> Gpu:
    (found,) = (each for each in look(tree).gpus if each.address == address)
    return found


def companions(tree: HostTree, address: str) -> list[tuple[str, bool]]:
    return [(companion.address, companion.required) for companion in gpu(tree, address).companions]


@pytest.mark.parametrize(
    ("class_id", "ids", "kind"),
    [
        ("030000", "10de:2204", "gpu"),
        ("030200", "10de:20f1", "gpu"),
        ("038000", "1002:740f", "gpu"),
        ("120000", "1002:74a5", "accelerator"),
        ("120000", "1da3:1060", "accelerator"),
        ("120000", "19e5:d802", "accelerator"),
        ("0b4000", "1bcf:001c", "accelerator"),
        ("068000", "10de:22a3", "nvswitch"),
        ("030000", "1a03:2000", "bmc-vga"),
        ("030000", "102b:0538", "bmc-vga"),
        ("038000", "102b:0533", "bmc-vga"),
        ("030000", "19e5:1711", "bmc-vga"),
        ("030000", "126f:0750", "bmc-vga"),
        ("030000", "18ca:0020", "bmc-vga"),
        ("030000", "1002:515e", "bmc-vga"),
        ("030000", "19a2:0800", "bmc-vga"),
        ("030000", "1234:1111", "gpu"),
        ("038000", "1af4:1050", "gpu"),
        ("030000", "8086:46a6", "gpu"),
    ],
)
def test_kinds(tree: HostTree, class_id: str, ids: str, kind: str) -> None:
    tree.function(PF, class_id, ids)
    assert gpu(tree, PF).kind == kind


@pytest.mark.parametrize(
    ("class_id", "ids"),
    [
        ("040300", "10de:1aef"),
        ("068000", "8086:a123"),
        ("020000", "15b3:1017"),
        ("060400", "10de:0001"),
        ("120100", "8086:0b25"),
    ],
)
def test_other_classes_are_no_gpus(tree: HostTree, class_id: str, ids: str) -> None:
    tree.function(PF, class_id, ids)
    assert look(tree).gpus == ()


@pytest.mark.parametrize(("class_id", "ids"), [("030000", "1a03:2000"), ("068000", "10de:22a3")])
def test_consoles_and_fabric_switches_are_shown_and_not_offered(tree: HostTree, class_id: str, ids: str) -> None:
    tree.iommu()
    tree.function(PF, class_id, ids, None, 4)
    found = gpu(tree, PF)
    assert not found.offered
    assert not found.passthrough.assignable
    assert "kind-not-offered" in {reason.code for reason in found.passthrough.reasons}


def test_virtual_functions_stand_under_their_card_in_the_order_of_their_index(tree: HostTree) -> None:
    tree.function(PF, "030200", "10de:2bb5", "nvidia", 70, sriov_totalvfs="48", sriov_numvfs="3")
    for address, driver in (("0000:42:01.0", "vfio-pci"), ("0000:42:00.4", "nvidia"), ("0000:42:00.2", "nvidia")):
        tree.function(address, "030200", "10de:2bb5", driver, 71, physfn=PF, config=VF_CONFIG)
    (card,) = look(tree).gpus
    assert card.sriov is not None
    assert card.sriov.vfs == ("0000:42:01.0", "0000:42:00.4", "0000:42:00.2")
    assert (card.sriov.total_vfs, card.sriov.num_vfs) == (48, 3)
    assert card.health.status == "ok"
    assert not card.passthrough.assignable
    assert [reason.code for reason in card.passthrough.reasons] == ["vfs-enabled"]


def test_a_vf_is_no_gpu_even_when_its_physfn_dangles(tree: HostTree) -> None:
    tree.function("0000:42:00.2", "030200", "10de:2bb5", "vfio-pci", 71, physfn=PF, config=VF_CONFIG)
    inventory = look(tree)
    assert inventory.gpus == ()
    assert [(notice.code, notice.subject) for notice in inventory.warnings] == [("vf-orphan", "0000:42:00.2")]


def test_a_vf_is_known_from_its_card_alone(tree: HostTree) -> None:
    home = tree.function(PF, "030200", "10de:2bb5", "nvidia", 70, sriov_totalvfs="48", sriov_numvfs="1")
    tree.function("0000:42:00.2", "030200", "10de:2bb5", "nvidia", 71, config=VF_CONFIG)
    tree.link(f"{home}/virtfn0", "../0000:42:00.2")
    inventory = look(tree)
    assert [each.address for each in inventory.gpus] == [PF]
    assert {function.address: function.physfn for function in inventory.functions}["0000:42:00.2"] == PF


def test_a_card_that_lists_itself_as_its_vf_stays_a_card(tree: HostTree) -> None:
    home = tree.function(PF, "030200", "10de:2bb5", "nvidia", 70, sriov_totalvfs="48", sriov_numvfs="0")
    tree.link(f"{home}/virtfn0", f"../{PF}")
    tree.link(f"{home}/physfn", f"../{PF}")
    assert gpu(tree, PF).passthrough.assignable


def test_vfs_block_the_card_even_when_the_count_says_zero(tree: HostTree) -> None:
    tree.iommu()
    tree.function(PF, "030200", "10de:2bb5", "nvidia", 70, sriov_totalvfs="48", sriov_numvfs="0")
    tree.function("0000:42:00.2", "030200", "10de:2bb5", "nvidia", 71, physfn=PF, config=VF_CONFIG)
    inventory = look(tree)
    assert not inventory.gpus[0].passthrough.assignable
    assert "vf-count" in {notice.code for notice in inventory.warnings}


def test_a_card_with_vfs_not_enabled_can_go_whole(tree: HostTree) -> None:
    tree.function(PF, "030200", "10de:2235", "nvidia", 70, sriov_totalvfs="32", sriov_numvfs="0")
    assert gpu(tree, PF).passthrough.assignable


def test_no_sriov_file_is_no_sriov(tree: HostTree) -> None:
    tree.function(PF, "030200", "10de:1eb8", "nvidia")
    assert gpu(tree, PF).to_json()["sriov"] is None


def test_without_a_driver_no_vfs_can_be_enabled(tree: HostTree) -> None:
    tree.function(PF, "030000", "8086:46a6", None, sriov_totalvfs="7", sriov_numvfs="0")
    sriov = gpu(tree, PF).sriov
    assert sriov is not None
    assert sriov.driver_ready is False


@pytest.mark.parametrize(
    ("line", "ready"),
    [
        (f"[    4.0] i915 {PF}: driver does not support SR-IOV configuration via sysfs", False),
        (f"Dec  1 host kernel: i915 {PF}: driver does not support SR-IOV configuration via sysfs", False),
        (f"3,870,4000001,-;i915 {PF}: driver does not support SR-IOV configuration via sysfs", False),
        (f"[    4.0] xe {PF}: driver does not support SR-IOV configuration via sysfs", None),
        (f"Dec  1 host kernel: pci {PF}: no driver bound to device; cannot configure SR-IOV", None),
        ("[    4.0] i915 0000:00:02.0: driver does not support SR-IOV configuration via sysfs", None),
        (f"[    4.0] i915 {PF}: GuC firmware loaded", None),
    ],
)
def test_the_log_says_that_a_driver_cannot_enable_vfs(tree: HostTree, line: str, ready: bool | None) -> None:
    tree.function(PF, "030000", "8086:46a6", "i915", sriov_totalvfs="7", sriov_numvfs="0")
    tree.file("/dev/kmsg", f"[    1.0] Linux version 6.1.0\n{line}\n")
    sriov = gpu(tree, PF).sriov
    assert sriov is not None
    assert sriov.driver_ready is ready


def test_a_four_function_card_travels_as_a_whole(tree: HostTree) -> None:
    tree.function("0000:09:00.0", "030000", "10de:21c4", "vfio-pci", 15)
    tree.function("0000:09:00.1", "040300", "10de:1aeb", "vfio-pci", 15)
    tree.function("0000:09:00.2", "0c0330", "10de:1aec", "xhci_hcd", 15)
    tree.function("0000:09:00.3", "0c8000", "10de:1aed", "nvidia-gpu", 15)
    assert companions(tree, "0000:09:00.0") == [
        ("0000:09:00.1", True),
        ("0000:09:00.2", True),
        ("0000:09:00.3", True),
    ]
    found = gpu(tree, "0000:09:00.0")
    assert found.passthrough.state == "parked"
    assert found.passthrough.reasons[0].addresses == ("0000:09:00.2", "0000:09:00.3")


def test_an_apus_neighbours_are_strangers_and_bar_the_way(tree: HostTree) -> None:
    tree.iommu()
    tree.function("0000:04:00.0", "030000", "1002:1638", "amdgpu", 5, boot_vga="1")
    tree.function("0000:04:00.1", "040300", "1002:1637", "snd_hda_intel", 5)
    tree.function("0000:04:00.2", "108000", "1022:15df", "ccp", 5)
    tree.function("0000:04:00.3", "0c0330", "1022:1639", "xhci_hcd", 5)
    assert companions(tree, "0000:04:00.0") == [("0000:04:00.1", True)]
    reasons = {reason.code: reason for reason in gpu(tree, "0000:04:00.0").passthrough.reasons}
    assert set(reasons) == {"boot-display", "group-shared"}
    assert reasons["group-shared"].addresses == ("0000:04:00.1", "0000:04:00.2", "0000:04:00.3")
    assert "3 other endpoints" in reasons["group-shared"].message


def test_strangers_that_left_their_drivers_do_not_bar_the_way(tree: HostTree) -> None:
    tree.function("0000:04:00.0", "030000", "1002:1638", "amdgpu", 5)
    tree.function("0000:04:00.2", "108000", "1022:15df", None, 5)
    tree.function("0000:04:00.3", "0c0330", "1022:1639", "vfio-pci", 5)
    assert gpu(tree, "0000:04:00.0").passthrough.assignable


def test_two_cards_in_one_group_bar_each_other(tree: HostTree) -> None:
    for bus in ("0a", "0b"):
        tree.function(f"0000:{bus}:00.0", "030000", "10de:2204", "nvidia", 9)
        tree.function(f"0000:{bus}:00.1", "040300", "10de:1aef", "snd_hda_intel", 9)
    assert companions(tree, "0000:0a:00.0") == [("0000:0a:00.1", True)]
    (reason,) = gpu(tree, "0000:0a:00.0").passthrough.reasons
    assert reason.code == "group-shared"
    assert set(reason.addresses) == {"0000:0a:00.1", "0000:0b:00.0", "0000:0b:00.1"}


def test_audio_in_a_group_of_its_own_should_travel_and_need_not(tree: HostTree) -> None:
    tree.function("0000:0a:00.0", "030000", "10de:2204", "nvidia", 9)
    tree.function("0000:0a:00.1", "040300", "10de:1aef", "snd_hda_intel", 10)
    assert companions(tree, "0000:0a:00.0") == [("0000:0a:00.1", False)]


def test_audio_of_another_maker_in_the_same_slot_goes_with_the_display(tree: HostTree) -> None:
    tree.function("0000:01:00.0", "030000", "1002:5046", None, 9)
    tree.function("0000:01:00.1", "040300", "8086:293e", "snd_hda_intel", 9)
    assert companions(tree, "0000:01:00.0") == [("0000:01:00.1", True)]


@pytest.mark.parametrize(("vendor", "switch"), [("8086", "8086:4fa1"), ("1002", "1002:1478")])
def test_audio_behind_the_cards_own_switch_belongs_to_it(tree: HostTree, vendor: str, switch: str) -> None:
    tree.function("0000:00:01.0", "060400", "8086:460d", "pcieport", 1)
    tree.function("0000:01:00.0", "060400", switch, "pcieport", 2, parent="0000:00:01.0")
    tree.function("0000:02:01.0", "060400", switch, "pcieport", 3, parent="0000:01:00.0")
    tree.function("0000:02:04.0", "060400", switch, "pcieport", 4, parent="0000:01:00.0")
    tree.function("0000:03:00.0", "030000", f"{vendor}:56a0", "i915", 5, parent="0000:02:01.0")
    tree.function("0000:04:00.0", "040300", f"{vendor}:4f90", "snd_hda_intel", 6, parent="0000:02:04.0")
    assert companions(tree, "0000:03:00.0") == [("0000:04:00.0", False)]


def test_audio_behind_the_hosts_switch_does_not_belong_to_a_card(tree: HostTree) -> None:
    tree.function("0000:00:01.0", "060400", "8086:460d", "pcieport", 1)
    tree.function("0000:01:00.0", "060400", "10b5:8747", "pcieport", 2, parent="0000:00:01.0")
    tree.function("0000:02:01.0", "060400", "10b5:8747", "pcieport", 3, parent="0000:01:00.0")
    tree.function("0000:03:00.0", "030000", "10de:2204", "nvidia", 5, parent="0000:02:01.0")
    tree.function("0000:04:00.0", "040300", "10de:1aef", "snd_hda_intel", 6, parent="0000:02:01.0")
    assert companions(tree, "0000:03:00.0") == []


def test_a_device_link_makes_a_companion(tree: HostTree) -> None:
    home = tree.function("0000:0a:00.0", "030000", "10de:2204", "nvidia", 9)
    tree.folder(f"{home}/consumer:pci:0000:0b:00.3")
    tree.folder(f"{home}/supplier:platform:something")
    tree.folder(f"{home}/consumer:pci:nonsense")
    tree.function("0000:0b:00.3", "0c8000", "10de:1ad9", "ucsi_ccg", 10)
    (companion,) = gpu(tree, "0000:0a:00.0").companions
    assert (companion.address, companion.reason) == ("0000:0b:00.3", "device link")


def test_a_second_head_is_part_of_its_card(tree: HostTree) -> None:
    tree.function("0000:00:02.0", "030000", "8086:2a02", "i915", 0)
    tree.function("0000:00:02.1", "038000", "8086:2a03", None, 0)
    assert [each.address for each in look(tree).gpus] == ["0000:00:02.0"]


def test_virtual_functions_of_the_second_heads_class_do_not_travel_with_their_card(tree: HostTree) -> None:
    tree.function("0001:44:00.0", "038000", "8086:56c0", "i915", 90, sriov_totalvfs="31", sriov_numvfs="2")
    for number in (1, 2):
        tree.function(f"0001:44:00.{number}", "038000", "8086:56c0", "vfio-pci", 91, physfn="0001:44:00.0")
    assert companions(tree, "0001:44:00.0") == []


def test_displays_side_by_side_are_cards_of_their_own_and_not_companions(tree: HostTree) -> None:
    tree.function("0000:05:00.0", "038000", "1002:740f", "amdgpu", 1)
    tree.function("0000:05:00.1", "038000", "1002:740f", "amdgpu", 2)
    assert len(look(tree).gpus) == 2
    assert companions(tree, "0000:05:00.0") == []


def test_gpus_side_by_side_in_one_slot_are_cards_of_their_own(tree: HostTree) -> None:
    tree.function("0000:05:00.0", "030200", "10de:2330", "nvidia", 1)
    tree.function("0000:05:00.1", "030200", "10de:2330", "nvidia", 2)
    assert len(look(tree).gpus) == 2
    assert companions(tree, "0000:05:00.0") == []


def test_nics_on_the_same_switch_are_near(tree: HostTree) -> None:
    tree.function("0000:00:01.0", "060400", "8086:347a", "pcieport")
    tree.function("0000:01:00.0", "060400", "1000:c030", "pcieport", parent="0000:00:01.0")
    for number, bus in enumerate(("03", "04")):
        tree.function(f"0000:02:0{number}.0", "060400", "1000:c030", "pcieport", parent="0000:01:00.0")
        ids, class_id = (("10de:2330", "030200"), ("15b3:1021", "020700"))[number]
        tree.function(f"0000:{bus}:00.0", class_id, ids, "any", parent=f"0000:02:0{number}.0")
    tree.function("0000:04:00.1", "020700", "15b3:101e", "any", parent="0000:02:01.0", physfn="0000:04:00.0")
    tree.function("0000:80:00.0", "020000", "8086:1533", "igb")
    assert gpu(tree, "0000:03:00.0").topology.nearby_nics == ("0000:04:00.0",)


def test_the_subsystem_tells_boards_with_one_id_apart(tree: HostTree) -> None:
    tree.function(PF, "030200", "10de:25b6", "nvidia", subsystem_vendor="0x10de", subsystem_device="0x157e")
    assert gpu(tree, PF).subsystem_id == "10de:157e"


def test_a_plain_config_is_healthy(tree: HostTree) -> None:
    tree.function(PF, "030200", "10de:2235", config=PLAIN_CONFIG)
    assert gpu(tree, PF).to_json()["health"] == {"status": "ok", "reasons": []}


def test_a_driver_that_said_it_cannot_enable_vfs_is_shown_so() -> None:
    from vgpumgr.allocations.look import look as whole_look
    from vgpumgr.kernel.simulated import open_simulation

    kernel = open_simulation("amd-mi210")
    address = next(gpu.address for gpu in whole_look(kernel).gpus if gpu.sriov is not None)
    with pytest.raises(FileNotFoundError):
        kernel.write(f"/sys/bus/pci/devices/{address}/sriov_numvfs", "1")
    (gpu,) = (item for item in whole_look(kernel).gpus if item.address == address)
    assert gpu.sriov is not None
    assert gpu.sriov.driver_ready is False
