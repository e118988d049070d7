"""What the kernel shows of vGPUs, on built trees: backend, profiles, how many more, and why not more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.vgpu_trees import HostTree, creatable, limit, profile
from vgpumgr.inventory import take_inventory
from vgpumgr.model.vgpu import Backend
from vgpumgr.vgpu.observe import observe_vgpus
from vgpumgr.vgpu.offers import offers

PF = "0000:26:00.0"
VFS = ["0000:26:00.4", "0000:26:00.5", "0000:26:00.6", "0000:26:00.7"]
UUID = "0a53bba5-9d16-4e0f-9e7a-31d4b1a0d0a1"
A2 = [(742, "A2-1B", 1024, 16), (746, "A2-4Q", 4096, 4), (751, "A2-4A", 4096, 4), (747, "A2-8Q", 8192, 2)]


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)


def a2_types(tree: HostTree, parent: str, available: dict[int, int]) -> None:
    for number, name, size, most in A2:
        description = (
            f"num_heads=4, frl_config=60, framebuffer={size}M, max_resolution=7680x4320, max_instance={most}"
        )
        tree.mdev_type(parent, f"nvidia-{number}", available.get(number, 0), f"NVIDIA {name}", description)


def test_capacity_is_the_cards_not_the_sum_over_its_vfs(tree: HostTree) -> None:
    tree.card_with_vfs(PF, VFS, ids="10de:25b6")
    for vf in VFS:
        a2_types(tree, vf, {746: 1, 751: 1} if vf != VFS[0] else {})
    tree.mdev(UUID, VFS[0], "nvidia-746")
    state = tree.state()
    assert state.backend is Backend.MDEV
    assert creatable(state) == {"nvidia-742": 0, "nvidia-746": 3, "nvidia-747": 0, "nvidia-751": 3}
    assert limit(state, "nvidia-742") == "size-class"


def test_free_vfs_do_not_add_up_beyond_the_most_the_card_takes(tree: HostTree) -> None:
    vfs = [f"0000:26:{slot:02x}.{function}" for slot in (1, 2) for function in range(8)]
    tree.card_with_vfs(PF, vfs, ids="10de:25b6")
    for vf in vfs:
        a2_types(tree, vf, {742: 1, 746: 1, 751: 1, 747: 1} if vf not in vfs[:3] else {})
    for number, uuid in enumerate(("a", "b", "c")):
        tree.mdev(f"0a53bba5-9d16-4e0f-9e7a-31d4b1a0d0{uuid}0", vfs[number], "nvidia-746")
    state = tree.state()
    assert creatable(state)["nvidia-746"] == 1
    assert creatable(state)["nvidia-751"] == 1
    assert limit(state, "nvidia-746") == "max-instances"


def test_a_dangling_type_link_still_names_the_type(tree: HostTree) -> None:
    tree.card_with_vfs(PF, VFS[:2])
    tree.mdev(UUID, VFS[0], "nvidia-558", group=77, vm_name="desk-17")
    a2_types(tree, VFS[1], {})
    (vgpu,) = tree.state().instances
    assert (vgpu.id, vgpu.profile_id, vgpu.profile) == (UUID, "nvidia-558", "NVIDIA A40-2Q")
    assert (vgpu.parent, vgpu.owner, vgpu.iommu_group) == (VFS[0], "desk-17", 77)


def test_the_card_itself_as_parent_counts_for_itself(tree: HostTree) -> None:
    tree.function("0000:02:00.0", "10de:1b38")
    for number, size, most in ((156, 2048, 12), (283, 4096, 6)):
        tree.mdev_type(
            "0000:02:00.0", f"nvidia-{number}", most, f"GRID P40-{size // 1024}B", f"framebuffer={size}M"
        )
    tree.mdev(UUID, "0000:02:00.0", "nvidia-156")
    state = tree.state()
    # The driver goes on offering the other size; the VM would not start with it.
    assert creatable(state) == {"nvidia-156": 11, "nvidia-283": 0}
    assert limit(state, "nvidia-283") == "size-class"


def test_what_is_promised_is_not_offered_again(tree: HostTree) -> None:
    tree.card_with_vfs(PF, VFS, ids="10de:25b6")
    for vf in VFS:
        a2_types(tree, vf, {742: 1, 746: 1, 751: 1, 747: 1})
    kernel = tree.kernel()
    inventory = observe_vgpus(kernel, take_inventory(kernel), {PF: {"nvidia-746": 2}})
    state = inventory.gpus[0].vgpu
    assert creatable(state) == {"nvidia-742": 0, "nvidia-746": 2, "nvidia-747": 0, "nvidia-751": 2}
    assert limit(state, "nvidia-746") in ("reserved", "vfs-taken")
    assert limit(state, "nvidia-747") == "size-class"


def test_offers_add_up_over_the_host(tree: HostTree) -> None:
    for address in ("0000:02:00.0", "0000:03:00.0"):
        tree.function(address, "10de:1b38")
    tree.mdev_type("0000:02:00.0", "nvidia-156", 12, "GRID P40-2B")
    tree.mdev_type("0000:03:00.0", "nvidia-156", 7, "GRID P40-2B")
    (offer,) = offers(tree.observe().gpus)
    assert (offer.creatable, offer.gpus) == (19, (("0000:02:00.0", 12), ("0000:03:00.0", 7)))


def test_types_without_name_file_or_description(tree: HostTree) -> None:
    tree.function("0000:00:02.0", "8086:591b", driver="i915", class_id="030000")
    text = "low_gm_size: 128MB\nhigh_gm_size: 512MB\nfence: 4\nresolution: 1920x1200\nweight: 4"
    tree.mdev_type("0000:00:02.0", "i915-GVTg_V5_4", 1, description=text)
    tree.mdev_type("0000:00:02.0", "i915-GVTg_V5_8", 2)
    state = tree.state()
    assert state.backend is Backend.MDEV
    assert [(item.id, item.name, item.framebuffer_mib, item.creatable) for item in state.profiles] == [
        ("i915-GVTg_V5_4", "i915-GVTg_V5_4", 128, 1),
        ("i915-GVTg_V5_8", "i915-GVTg_V5_8", None, 2),
    ]
    assert profile(state, "i915-GVTg_V5_4").max_resolution == "1920x1200"


def test_one_creation_that_empties_every_type(tree: HostTree) -> None:
    tree.function("0000:00:02.0", "8086:591b", driver="i915", class_id="030000")
    for type_id in ("i915-GVTg_V5_4", "i915-GVTg_V5_8"):
        tree.mdev_type("0000:00:02.0", type_id, 0)
    tree.mdev(UUID, "0000:00:02.0", "i915-GVTg_V5_4")
    assert set(creatable(tree.state()).values()) == {0}


def vendor_card(tree: HostTree, free: str, current: str = "1148") -> None:
    tree.card_with_vfs(PF, VFS[:2], ids="10de:26b9")
    tree.typed_vf(VFS[0], free)
    tree.typed_vf(VFS[1], "ID    : vGPU Name\n", current)


LISTED = "ID    : vGPU Name\n1147  : NVIDIA L40S-1Q\n1148  : NVIDIA L40S-2Q\n2164  : NVIDIA L40S-3B\n"


def test_vendor_vfio_needs_no_mdev_bus(tree: HostTree) -> None:
    vendor_card(tree, LISTED)
    state = tree.state()
    assert (state.capable, state.backend) == (True, Backend.VENDOR_VFIO)
    assert [item.name for item in state.profiles] == ["NVIDIA L40S-1Q", "NVIDIA L40S-2Q", "NVIDIA L40S-3B"]
    assert set(creatable(state).values()) == {1}
    (vgpu,) = state.instances
    assert (vgpu.id, vgpu.profile_id, vgpu.profile, vgpu.parent) == (VFS[1], "1148", "NVIDIA L40S-2Q", VFS[1])


def test_a_full_vendor_card_lists_headers_only_and_still_names_what_it_holds(tree: HostTree) -> None:
    tree.card_with_vfs(PF, VFS[:1], ids="10de:26b9")
    tree.typed_vf(VFS[0], "ID    : vGPU Name\n", "1156")
    state = tree.state()
    assert creatable(state) == {"1156": 0}
    assert state.instances[0].profile == "NVIDIA L40S-48Q"
    assert [reason.code for reason in state.reasons] == ["vfs-taken"]


def test_a_vf_whose_type_cannot_be_read_is_not_free(tree: HostTree) -> None:
    tree.card_with_vfs(PF, VFS[:1], ids="10de:26b9")
    tree.write(VFS[0], "nvidia/creatable_vgpu_types", LISTED)
    assert set(creatable(tree.state()).values()) == {0}


def test_a_vf_whose_type_cannot_be_read_counts_as_a_vgpu(tree: HostTree) -> None:
    tree.card_with_vfs(PF, VFS[:3], ids="10de:26b9")
    tree.typed_vf(VFS[0], "ID    : vGPU Name\n", "nonsense")
    for vf in VFS[1:3]:
        tree.typed_vf(vf, "1155 : NVIDIA L40S-24Q\n")
    state = tree.state()
    assert [(vgpu.id, vgpu.profile_id) for vgpu in state.instances] == [(VFS[0], "unknown")]
    assert creatable(state)["1155"] == 1


def test_an_unknown_card_is_told_one_at_a_time(tree: HostTree) -> None:
    tree.card_with_vfs(PF, VFS, ids="10de:ffff")
    for vf in VFS:
        tree.typed_vf(vf, "7001 : NVIDIA Z900-16Q\n")
    state = tree.state()
    assert creatable(state) == {"7001": 1}
    assert limit(state, "7001") == "max-instances-unknown"


def test_before_vfs_exist_the_two_nvidia_ways_look_alike(tree: HostTree) -> None:
    tree.function(PF, total_vfs=32)
    state = tree.state()
    assert (state.capable, state.backend, [reason.code for reason in state.reasons]) == (True, None, ["vfs-off"])


def test_vfs_without_any_vgpu_interface(tree: HostTree) -> None:
    tree.card_with_vfs("0000:42:00.0", ["0000:42:00.2", "0000:42:00.3"], total=48, ids="10de:2bb5")
    gpu = tree.gpu()
    assert (gpu.vgpu.capable, gpu.vgpu.backend) == (True, None)
    assert [reason.code for reason in gpu.vgpu.reasons] == ["no-vgpu-interface"]
    assert not gpu.passthrough.assignable


def test_a_card_on_vfio_pci_cannot_be_sliced(tree: HostTree) -> None:
    tree.function(PF, total_vfs=32, driver="vfio-pci")
    assert [reason.code for reason in tree.state().reasons] == ["host-driver-absent"]


def test_a_card_that_shows_nothing_is_not_capable(tree: HostTree) -> None:
    tree.function(PF)
    state = tree.state()
    assert (state.capable, state.backend, [reason.code for reason in state.reasons]) == (
        False,
        None,
        ["not-capable"],
    )


def test_virtual_functions_are_the_slices_where_the_driver_needs_no_more(tree: HostTree) -> None:
    tree.function("0000:00:02.0", "8086:46a6", driver="i915", class_id="030000", total_vfs=7)
    state = tree.state()
    assert (state.capable, state.backend) == (True, Backend.SRIOV)
    assert creatable(state) == {"vf-8086-46a6": 7}


def test_amdgpu_cannot_enable_virtual_functions(tree: HostTree) -> None:
    tree.function("0000:23:00.0", "1002:740f", driver="amdgpu", class_id="038000", total_vfs=1)
    state = tree.state()
    assert creatable(state) == {"vf-1002-740f": 0}
    assert limit(state, "vf-1002-740f") == "driver-cannot-enable"


def test_a_vf_on_vfio_was_given_to_somebody(tree: HostTree) -> None:
    tree.function("0000:4b:00.0", "8086:56c0", driver="i915", class_id="038000", total_vfs=31, num_vfs=1)
    tree.function("0000:4b:00.1", "8086:56c0", driver="vfio-pci", class_id="038000", physfn="0000:4b:00.0", group=2)
    state = tree.state()
    assert [item.id for item in state.instances] == ["0000:4b:00.1"]
    assert creatable(state) == {"vf-8086-56c0": 0}
    assert limit(state, "vf-8086-56c0") == "vfs-fixed"


def test_odd_files_become_warnings(tree: HostTree) -> None:
    tree.function(PF)
    tree.mdev_type(PF, "nvidia-156", 3, "GRID P40-2B")
    tree.write(PF, "mdev_supported_types/nvidia-156/available_instances", "many\n")
    inventory = tree.observe()
    assert [warning.code for warning in inventory.warnings if warning.subject == PF] == ["attribute-malformed"]
    assert creatable(inventory.gpus[0].vgpu) == {"nvidia-156": 0}


def test_a_vgpu_whose_type_cannot_be_read_does_not_free_the_card(tree: HostTree) -> None:
    tree.card_with_vfs(PF, VFS)
    for vf in VFS:
        tree.mdev_type(vf, "nvidia-586", 1, "NVIDIA A40-24C", "framebuffer=24576M, max_instance=2")
    tree.mdev(UUID, VFS[0], "nvidia-586")
    (tree.path(VFS[0]) / UUID / "mdev_type").unlink()
    state = tree.state()
    assert creatable(state)["nvidia-586"] == 1
    assert limit(state, "nvidia-586") == "max-instances"


def test_a_type_without_a_name_has_the_facts_of_its_id(tree: HostTree) -> None:
    tree.function("0000:02:00.0", "10de:1eb8")
    tree.mdev_type("0000:02:00.0", "nvidia-232", 4)
    tree.mdev_type("0000:02:00.0", "nvidia-63", 8)
    found = profile(tree.state(), "nvidia-232")
    assert (found.name, found.framebuffer_mib, found.series, found.max_instances) == ("nvidia-232", 4096, "Q", 4)
    assert profile(tree.state(), "nvidia-63").framebuffer_mib is None


def test_what_an_empty_card_does_not_offer_is_not_blamed_on_its_memory(tree: HostTree) -> None:
    tree.function("0000:00:02.0", "8086:1912", driver="i915", class_id="030000")
    tree.mdev_type("0000:00:02.0", "i915-GVTg_V5_8", 3, description="low_gm_size: 64MB\nresolution: 1024x768")
    tree.mdev_type("0000:00:02.0", "i915-GVTg_V5_1", 0, description="low_gm_size: 512MB\nresolution: 1920x1200")
    assert creatable(tree.state()) == {"i915-GVTg_V5_1": 0, "i915-GVTg_V5_8": 3}
    assert limit(tree.state(), "i915-GVTg_V5_1") == "not-offered"
