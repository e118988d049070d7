"""Every recorded host comes out as its description says."""

from __future__ import annotations

import io

import pytest

from tests.recorded.hosts import archive, gpu_of, host_of, listing, recording
from vgpumgr.allocations.look import look as whole_look
from vgpumgr.inventory import take_inventory
from vgpumgr.inventory.doctor import diagnose
from vgpumgr.inventory.names import NoNames
from vgpumgr.inventory.snapshot import write_snapshot
from vgpumgr.kernel.recorded import open_recording

ALL = ["vgpu-node-a2", "host-noiommu", "node-t4", "laptop-i7-1270p", "accelerator-1200", "nec-8ve", "vgpu-sysfs"]

A2 = "0000:08:00.0"
A2_VFS = (
    *(f"0000:08:00.{function}" for function in (4, 5, 6, 7)),
    *(f"0000:08:01.{function}" for function in range(8)),
    *(f"0000:08:02.{function}" for function in range(4)),
)


@pytest.mark.parametrize("name", ALL)
def test_a_tar_and_its_folder_give_the_same_inventory(name: str) -> None:
    from_tar = take_inventory(recording(name, unpacked=False), names=NoNames())
    assert from_tar.to_json() == host_of(name).to_json()
    assert from_tar.functions == host_of(name).functions


@pytest.mark.parametrize("name", ALL)
def test_nothing_in_a_recording_is_called_broken(name: str) -> None:
    codes = {notice.code for notice in host_of(name).warnings}
    assert codes <= {"holders-unknown", "class-unknown"}
    assert all(gpu.health.status in ("ok", "unknown") for gpu in host_of(name).gpus)


@pytest.mark.parametrize("name", ALL)
def test_a_snapshot_of_a_recording_gives_the_same_inventory(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("snapshot") / "host.tar.gz"
    with path.open("wb") as file:
        write_snapshot(recording(name), file)
    again = take_inventory(open_recording(str(path)), names=NoNames())
    assert again.to_json() == host_of(name).to_json()
    assert again.functions == host_of(name).functions


@pytest.mark.parametrize("name", ALL)
def test_the_doctor_reads_every_recording(name: str) -> None:
    report = diagnose(recording(name), host_of(name))
    assert [gpu.address for gpu in report.gpus] == [gpu.address for gpu in host_of(name).gpus]
    assert report.blocked is not host_of(name).iommu.active


def test_the_a2_node_has_one_gpu_with_sixteen_vfs() -> None:
    host = host_of("vgpu-node-a2")
    assert len(host.functions) == 226
    assert len(host.groups) == 109
    assert host.iommu.active
    assert [gpu.address for gpu in host.gpus if gpu.offered] == [A2]
    gpu = gpu_of(host, A2)
    function = gpu.function
    assert (function.vendor_id, function.device_id, function.class_id) == ("10de", "25b6", "030200")
    assert (function.driver, function.iommu_group, function.numa_node) == ("nvidia", 38, 0)
    assert gpu.sriov is not None
    assert (gpu.sriov.total_vfs, gpu.sriov.num_vfs, gpu.sriov.vfs) == (16, 16, A2_VFS)
    assert gpu.health.status == "ok"
    assert gpu.driver_override is None
    assert gpu.subsystem_id == "10de:157e"
    assert gpu.reset_methods == ("flr", "bus")
    assert [(bar.number, bar.size) for bar in gpu.bars] == [(0, 16 << 20), (1, 16 << 30), (3, 32 << 20)]
    assert (gpu.link.speed, gpu.link.width, gpu.link.max_speed, gpu.link.max_width) == (2.5, 8, 16.0, 16)
    assert not gpu.passthrough.assignable


def test_the_a2_nodes_vfs_stand_alone_in_their_groups() -> None:
    host = host_of("vgpu-node-a2")
    groups = {function.address: function.iommu_group for function in host.functions}
    assert [groups[vf] for vf in A2_VFS] == list(range(90, 106))
    by_id = {group.id: group for group in host.groups}
    assert all(by_id[number].members == (vf,) for number, vf in zip(range(90, 106), A2_VFS, strict=True))
    assert [(len(by_id[number].members), len(by_id[number].other_members)) for number in (106, 107, 108)] == [
        (0, 1)
    ] * 3


def test_the_a2_nodes_console_is_a_management_display_among_others() -> None:
    gpu = gpu_of(host_of("vgpu-node-a2"), "0000:01:00.1")
    assert gpu.kind == "bmc-vga"
    assert gpu.companions == ()
    assert not gpu.passthrough.assignable
    (group,) = (group for group in host_of("vgpu-node-a2").groups if group.id == 33)
    assert group.members == ("0000:01:00.0", "0000:01:00.1", "0000:01:00.2", "0000:01:00.4")


def test_a_host_without_iommu_has_no_groups_a_reason_and_no_exception() -> None:
    host = host_of("host-noiommu")
    assert len(host.functions) == 208
    assert (host.groups, host.iommu.active) == ((), False)
    (gpu,) = host.gpus
    assert (gpu.kind, gpu.function.iommu_group, gpu.passthrough.assignable) == ("bmc-vga", None, False)
    assert "iommu-inactive" in {reason.code for reason in gpu.passthrough.reasons}


def test_the_t4_node_needs_no_config_space() -> None:
    host = host_of("node-t4")
    assert len(host.functions) == 225
    (gpu,) = (gpu for gpu in host.gpus if gpu.offered)
    assert (gpu.function.vendor_id, gpu.function.device_id, gpu.function.driver) == ("10de", "1eb8", "nvidia")
    assert gpu.health.status == "unknown"
    assert gpu.sriov is None


def test_the_laptops_groups_are_known_from_links_that_dangle() -> None:
    host = host_of("laptop-i7-1270p")
    assert len(host.functions) == 23
    assert len(host.groups) == 15
    assert host.iommu.active
    (gpu,) = host.gpus
    assert (gpu.address, gpu.function.iommu_group, gpu.function.numa_node) == ("0000:00:02.0", 0, None)
    assert {function.iommu_group is not None for function in host.functions} == {True}


def test_a_processing_accelerator_is_one() -> None:
    (gpu,) = (gpu for gpu in host_of("accelerator-1200").gpus if gpu.kind == "accelerator")
    assert (gpu.address, gpu.function.class_id) == ("0000:00:04.0", "120000")


def test_eight_vector_engines_under_an_extra_folder() -> None:
    host = host_of("nec-8ve")
    engines = [gpu for gpu in host.gpus if gpu.kind == "accelerator"]
    assert [gpu.address.split(":")[1] for gpu in engines] == ["1b", "1c", "1d", "1e", "3d", "3f", "40", "41"]
    assert {gpu.function.driver for gpu in engines} == {"ve_drv"}
    assert engines[0].topology.root_port == "0000:17:00.0"
    assert engines[0].topology.nearby_nics == ("0000:1a:00.0",)
    assert engines[0].bars[0].size == 64 << 30


def test_fragments_show_their_vgpu_types_with_their_framebuffer() -> None:
    host = whole_look(recording("vgpu-sysfs"))
    types = {gpu.address: gpu.vgpu for gpu in host.gpus}
    assert {address: (str(state.backend), len(state.profiles)) for address, state in types.items()} == {
        "0000:08:01.7": ("mdev", 15),
        "0000:26:00.4": ("vendor-vfio", 23),
    }
    assert all(profile.framebuffer_mib for state in types.values() for profile in state.profiles)
    assert not any(gpu.passthrough.assignable for gpu in host.gpus)
    assert {notice.code for notice in host.warnings} >= {"class-unknown"}


def test_two_gpus_on_one_board_group_by_group() -> None:
    host = take_inventory(listing("x570-two-gpus"), names=NoNames())
    assert len(host.functions) == 48
    assert len(host.groups) == 32
    assert [gpu.address for gpu in host.gpus] == ["0000:24:00.0", "0000:2d:00.0"]
    assert [[companion.address for companion in gpu.companions] for gpu in host.gpus] == [
        ["0000:24:00.1"],
        ["0000:2d:00.1"],
    ]
    assert [gpu.function.iommu_group for gpu in host.gpus] == [23, 27]
    members = {group.id: group.members for group in host.groups}
    assert members[27] == ("0000:2d:00.0", "0000:2d:00.1")
    assert members[20] == ("0000:21:08.0", "0000:2a:00.0", "0000:2a:00.1", "0000:2a:00.3")
    assert all(group.viable for group in host.groups)


def test_a_snapshot_of_a_recording_is_no_larger_than_it() -> None:
    file = io.BytesIO()
    write_snapshot(recording("vgpu-node-a2"), file)
    assert len(file.getvalue()) < archive("vgpu-node-a2").stat().st_size
