"""What vgpumgr sees is what lspci, libvirt and mdevctl see."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from tests.lab import boards
from tests.lab.host import DEVICES, Host


@pytest.fixture
def inventory(host: Host) -> dict[str, Any]:
    data: dict[str, Any] = host.vgpumgr("inventory").done()
    return data


def lspci(host: Host) -> dict[str, dict[str, str]]:
    """Address → what lspci says about it."""
    found: dict[str, dict[str, str]] = {}
    for block in host.machine.ok("lspci -Dvmmnk").split("\n\n"):
        fields = dict(line.split(":\t", 1) for line in block.splitlines() if ":\t" in line)
        found[fields["Slot"]] = fields
    return found


def test_every_display_device_of_lspci_is_a_gpu_with_the_same_ids_and_driver(
    host: Host, inventory: dict[str, Any]
) -> None:
    seen = {
        address: (fields["Vendor"], fields["Device"], fields["Class"], fields.get("Driver"), fields.get("NUMANode"))
        for address, fields in lspci(host).items()
        if fields["Class"].startswith("03")
    }
    ours = {
        gpu["address"]: (
            gpu["vendor_id"],
            gpu["device_id"],
            gpu["class_id"][:4],
            gpu["driver"],
            None if gpu["numa_node"] is None else str(gpu["numa_node"]),
        )
        for gpu in inventory["gpus"]
    }
    assert ours == seen


def test_groups_are_those_of_the_kernel_and_of_libvirt(host: Host, inventory: dict[str, Any]) -> None:
    kernel = host.machine.ok("cd /sys/kernel/iommu_groups && for d in */devices/*; do echo $d; done").splitlines()
    groups: dict[int, set[str]] = {}
    for line in kernel:
        number, _, address = line.split("/")
        groups.setdefault(int(number), set()).add(address)
    assert {group["id"]: set(group["members"]) for group in inventory["iommu_groups"]} == groups
    for address in (boards.RTX3090, boards.BEHIND_BRIDGE[0]):
        name = "pci_" + address.replace(":", "_").replace(".", "_")
        node = ElementTree.fromstring(host.machine.ok(f"virsh nodedev-dumpxml {name}"))
        shown = node.find("capability/iommuGroup")
        gpu = next(item for item in inventory["gpus"] if item["address"] == address)
        assert shown is not None
        assert int(shown.get("number", "-1")) == gpu["iommu_group"]


def test_the_boot_display_is_the_one_that_the_kernel_names(host: Host, inventory: dict[str, Any]) -> None:
    named = host.machine.ok(f"grep -l 1 {DEVICES}/*/boot_vga | xargs -n1 dirname | xargs -n1 basename").split()
    assert [gpu["address"] for gpu in inventory["gpus"] if gpu["boot_display"]] == named == [boards.BOOT_DISPLAY]


def test_profiles_are_the_types_of_mdevctl(host: Host, inventory: dict[str, Any]) -> None:
    listed = json.loads(host.machine.ok("mdevctl types --dumpjson"))
    types = {name: body for entry in listed for item in entry[boards.T4] for name, body in item.items()}
    card = next(gpu for gpu in inventory["gpus"] if gpu["address"] == boards.T4)
    assert card["vgpu"]["backend"] == "mdev"
    assert {item["id"]: (item["name"], item["creatable"]) for item in card["vgpu"]["profiles"]} == {
        name: (body["name"], body["available_instances"]) for name, body in types.items()
    }


def test_virtual_functions_stand_under_their_card(host: Host) -> None:
    host.machine.ok(f"echo 2 >{DEVICES}/{boards.A40}/sriov_numvfs")
    inventory = host.vgpumgr("inventory").done()
    card = next(gpu for gpu in inventory["gpus"] if gpu["address"] == boards.A40)
    links = host.machine.ok(f"for l in {DEVICES}/{boards.A40}/virtfn*; do basename $(readlink $l); done").split()
    assert card["sriov"] == {**card["sriov"], "num_vfs": 2, "vfs": links}
    assert not {gpu["address"] for gpu in inventory["gpus"]} & set(links)
