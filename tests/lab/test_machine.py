"""The lab itself is what the tests take it for: checked with nothing but sysfs, virsh and lspci."""

from __future__ import annotations

import pytest

from tests.lab import boards
from tests.lab.host import DEVICES, HOME_DRIVERS, Host


def group_of(host: Host, address: str) -> set[str]:
    return set(host.machine.ok(f"ls {DEVICES}/{address}/iommu_group/devices").split())


@pytest.mark.parametrize(
    ("address", "members"),
    [
        (boards.RTX3090, {boards.RTX3090}),
        (boards.GPU_WITH_AUDIO, {boards.GPU_WITH_AUDIO, boards.GPU_AUDIO}),
        (boards.BEHIND_BRIDGE[0], {"0000:04:00.0", *boards.BEHIND_BRIDGE}),
        (boards.GPU_WITH_DISK, {boards.GPU_WITH_DISK, boards.DISK_BESIDE_GPU}),
    ],
    ids=["alone", "two functions", "behind a bridge", "with a disk"],
)
def test_groups_are_as_the_slots_make_them(host: Host, address: str, members: set[str]) -> None:
    assert group_of(host, address) == members


def test_every_board_is_on_its_driver(host: Host) -> None:
    assert {address: host.driver(address) for address in HOME_DRIVERS} == HOME_DRIVERS


def test_a_board_stands_on_the_second_numa_node(host: Host) -> None:
    assert host.read(f"{DEVICES}/{boards.A100}/numa_node") == "1"


def test_the_played_board_resets_by_flr(host: Host) -> None:
    assert "flr" in host.read(f"{DEVICES}/{boards.RTX3090}/reset_method").split()


def test_mediated_devices_of_one_card_share_its_memory(host: Host) -> None:
    host.machine.ok(f"echo 3 >{DEVICES}/{boards.A40}/sriov_numvfs")
    vfs = [host.machine.ok(f"basename $(readlink {DEVICES}/{boards.A40}/virtfn{index})") for index in range(3)]
    types = [f"{DEVICES}/{vf}/mdev_supported_types" for vf in vfs]
    assert [host.read(f"{base}/nvidia-565/available_instances") for base in types] == ["1", "1", "1"]
    for base in types[:2]:
        host.machine.ok(f"cat /proc/sys/kernel/random/uuid >{base}/nvidia-565/create")
    assert host.read(f"{types[2]}/nvidia-565/available_instances") == "0"
    assert host.read(f"{types[2]}/nvidia-560/available_instances") == "0"
    refused = host.machine.run(f"cat /proc/sys/kernel/random/uuid >{types[2]}/nvidia-565/create")
    assert "Input/output error" in refused.err


def test_typed_functions_of_one_card_share_its_memory(host: Host) -> None:
    plain = host.machine.run(f"echo 2 >{DEVICES}/{boards.L40S}/sriov_numvfs")
    assert "not permitted" in plain.err
    host.machine.ok(f"/usr/lib/nvidia/sriov-manage -e {boards.L40S}")
    vfs = [host.machine.ok(f"basename $(readlink {DEVICES}/{boards.L40S}/virtfn{index})") for index in range(3)]
    first, second, third = (f"{DEVICES}/{vf}/nvidia" for vf in vfs)
    assert "1155  : NVIDIA L40S-24Q" in host.read(f"{first}/creatable_vgpu_types")
    host.machine.ok(f"echo 1155 >{first}/current_vgpu_type")
    assert host.read(f"{first}/current_vgpu_type") == "1155"
    assert "L40S-48Q" not in host.read(f"{second}/creatable_vgpu_types")
    host.machine.ok(f"echo 1155 >{second}/current_vgpu_type")
    assert host.read(f"{third}/creatable_vgpu_types").splitlines() == ["ID    : vGPU Name"]
    assert "Input/output error" in host.machine.run(f"echo 1155 >{third}/current_vgpu_type").err
    for vf in (first, second):
        host.machine.ok(f"echo 0 >{vf}/current_vgpu_type")
    host.machine.ok(f"/usr/lib/nvidia/sriov-manage -d {boards.L40S}")


def test_libvirt_knows_the_mediated_device_parents(host: Host) -> None:
    parent = "pci_" + boards.T4.replace(":", "_").replace(".", "_")
    assert parent in host.machine.ok("virsh nodedev-list --cap mdev_types").split()
