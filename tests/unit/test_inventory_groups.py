"""IOMMU groups: who blocks, who does not, and whether there is an IOMMU at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosttree import HostTree
from vgpumgr.inventory import take_inventory
from vgpumgr.inventory.names import NoNames
from vgpumgr.model.host import HostInventory, IommuGroup

GPU = "0000:01:00.0"
OTHER = "0000:01:00.1"


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)


def look(tree: HostTree) -> HostInventory:
    return take_inventory(tree.kernel(), names=NoNames())


def group(tree: HostTree) -> IommuGroup:
    (found,) = look(tree).groups
    return found


@pytest.mark.parametrize(
    "driver",
    [
        "snd_hda_intel",
        "xhci_hcd",
        "nvidia",
        "nouveau",
        "amdgpu",
        "i915",
        "xe",
        "nvme",
        "ahci",
        "nvidia-vgpu-vfio",
        "vfio",
    ],
)
def test_a_host_driver_blocks(tree: HostTree, driver: str) -> None:
    tree.function(GPU, "030000", "10de:2204", "vfio-pci", 6)
    tree.function(OTHER, "040300", "10de:1aef", driver, 6)
    found = group(tree)
    assert not found.viable
    assert [(blocker.address, blocker.driver) for blocker in found.blockers] == [(OTHER, driver)]
    assert driver in found.blockers[0].reason


@pytest.mark.parametrize(
    "driver",
    [
        None,
        "vfio-pci",
        "pci-stub",
        "mlx5_vfio_pci",
        "hisi_acc_vfio_pci",
        "virtio_vfio_pci",
        "pds_vfio_pci",
        "qat_vfio_pci",
        "nvgrace_gpu_vfio_pci",
        "xe-vfio-pci",
    ],
)
def test_unbound_stubbed_and_vfio_members_do_not_block(tree: HostTree, driver: str | None) -> None:
    tree.function(GPU, "030000", "10de:2204", "vfio-pci", 6)
    tree.function(OTHER, "040300", "10de:1aef", driver, 6)
    assert group(tree).viable


def test_a_variant_driver_of_any_name_is_known_by_its_vfio_device(tree: HostTree) -> None:
    tree.function(GPU, "030000", "10de:2204", "vfio-pci", 6)
    home = tree.function(OTHER, "040300", "10de:1aef", "some_vendor_driver", 6)
    tree.folder(f"{home}/vfio-dev/vfio3")
    assert group(tree).viable


@pytest.mark.parametrize("class_id", ["060000", "060100", "060400", "060401"])
@pytest.mark.parametrize("driver", [None, "pcieport", "lpc_ich", "shpchp"])
def test_bridges_never_block(tree: HostTree, class_id: str, driver: str | None) -> None:
    tree.function("0000:00:01.0", class_id, "8086:0c01", driver, 1)
    tree.function(GPU, "030000", "10de:1187", "vfio-pci", 1)
    assert group(tree).viable


def test_another_bridge_of_class_0680_is_an_endpoint(tree: HostTree) -> None:
    tree.function("0000:07:00.0", "068000", "10de:22a3", "nvidia-nvswitch", 1)
    assert not group(tree).viable


def test_groups_are_known_from_the_link_text_when_their_directories_are_missing(tree: HostTree) -> None:
    for name, number in (("0000:00:02.0", 0), ("0000:00:04.0", 12), ("0000:00:05.0", 12)):
        home = tree.function(name, "038000", "8086:46a6", "i915")
        tree.link(f"{home}/iommu_group", f"../../../kernel/iommu_groups/{number}")
    inventory = look(tree)
    assert [(each.id, each.members) for each in inventory.groups] == [
        (0, ("0000:00:02.0",)),
        (12, ("0000:00:04.0", "0000:00:05.0")),
    ]
    assert inventory.iommu.active


def test_group_zero_is_a_group(tree: HostTree) -> None:
    tree.function(GPU, "030000", "8086:591b", "i915", 0)
    gpu = look(tree).gpus[0]
    assert gpu.function.iommu_group == 0
    assert "no-iommu-group" not in {reason.code for reason in gpu.passthrough.reasons}


def test_a_group_number_that_is_none_is_told(tree: HostTree) -> None:
    home = tree.function(GPU, "030000", "10de:2204")
    tree.link(f"{home}/iommu_group", "../../../kernel/iommu_groups/none")
    inventory = look(tree)
    assert inventory.functions[0].iommu_group is None
    assert "attribute-malformed" in {notice.code for notice in inventory.warnings}


def test_a_member_that_is_not_there_is_no_free_member(tree: HostTree) -> None:
    tree.function(GPU, "030000", "10de:2204", "vfio-pci", 6)
    tree.link("/sys/kernel/iommu_groups/6/devices/0000:01:00.1", "../../../../devices/gone")
    found = group(tree)
    assert found.members == (GPU, OTHER)
    assert [(blocker.address, blocker.driver) for blocker in found.blockers] == [(OTHER, None)]


def test_members_that_are_no_pci_functions_stand_apart(tree: HostTree) -> None:
    tree.function(GPU, "030000", "10de:2204", "vfio-pci", 6)
    tree.folder("/sys/devices/platform/INTC1055:00")
    tree.member(6, "INTC1055:00", "/sys/devices/platform/INTC1055:00")
    found = group(tree)
    assert found.members == (GPU,)
    assert found.other_members == ("INTC1055:00",)
    assert found.viable


def test_a_platform_device_on_a_host_driver_blocks(tree: HostTree) -> None:
    tree.function(GPU, "030000", "10de:2204", "vfio-pci", 6)
    tree.link("/sys/devices/platform/smmu-dev/driver", "../../../bus/platform/drivers/arm-dev")
    tree.member(6, "smmu-dev", "/sys/devices/platform/smmu-dev")
    gpu = look(tree).gpus[0]
    assert [blocker.address for blocker in group(tree).blockers] == ["smmu-dev"]
    assert not gpu.passthrough.assignable


def test_mediated_devices_never_block(tree: HostTree) -> None:
    uuid = "f715f63c-0d00-4007-9c5a-b07b0c6c05de"
    tree.link(f"/sys/devices/virtual/{uuid}/driver", "../../../bus/mdev/drivers/nvidia-vgpu-vfio")
    tree.member(106, uuid, f"/sys/devices/virtual/{uuid}")
    found = group(tree)
    assert found.viable
    assert found.other_members == (uuid,)


def test_the_domain_type_is_read_for_groups_with_gpus(tree: HostTree) -> None:
    tree.function(GPU, "030000", "10de:2204", "nvidia", 6)
    tree.file("/sys/kernel/iommu_groups/6/type", "DMA-FQ\n")
    assert group(tree).type == "DMA-FQ"


def test_the_iommu_is_judged_by_its_units(tree: HostTree) -> None:
    assert not look(tree).iommu.active
    tree.iommu("ivhd0")
    assert look(tree).iommu.active


@pytest.mark.parametrize("word", ["intel_iommu=on", "iommu=pt", "amd_iommu=on"])
def test_the_command_line_is_a_hint_and_no_proof(tree: HostTree, word: str) -> None:
    tree.file("/proc/cmdline", f"BOOT_IMAGE=/vmlinuz root=/dev/sda1 {word} quiet\n")
    state = look(tree).iommu
    assert not state.active
    assert any(word in hint for hint in state.hints)
    assert not any("root=" in hint for hint in state.hints)


def test_vfios_no_iommu_groups_are_no_iommu(tree: HostTree) -> None:
    tree.function(GPU, "030000", "10de:2204", "vfio-pci", 0)
    tree.file("/sys/kernel/iommu_groups/0/name", "vfio-noiommu\n")
    inventory = look(tree)
    assert not inventory.iommu.active
    assert "vfio-noiommu" in {notice.code for notice in inventory.warnings}
    assert not inventory.gpus[0].passthrough.assignable


def test_without_an_iommu_every_gpu_says_so(tree: HostTree) -> None:
    tree.function("0000:08:00.0", "030000", "10de:1b80", "nvidia", numa_node="-1")
    tree.function("0000:08:00.1", "040300", "10de:10f0", "snd_hda_intel")
    (gpu,) = look(tree).gpus
    assert gpu.function.iommu_group is None
    assert not gpu.passthrough.assignable
    (reason,) = gpu.passthrough.reasons
    assert reason.code == "iommu-inactive"
    assert "IOMMU not active" in reason.message


def test_a_gpu_outside_all_groups_of_a_working_iommu_has_its_own_reason(tree: HostTree) -> None:
    tree.iommu()
    tree.function(GPU, "030000", "8086:591b", "i915")
    (reason,) = look(tree).gpus[0].passthrough.reasons
    assert reason.code == "no-iommu-group"
