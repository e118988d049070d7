"""Cutting cards and making vGPUs on a real kernel, by mdev and by vendor VFIO, up to the last that fits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab import boards
from tests.lab.host import DEVICES, Host

WAYS = [
    pytest.param(boards.A40, "NVIDIA A40-24Q", "mdev", id="mdev"),
    pytest.param(boards.L40S, "NVIDIA L40S-24Q", "vendor-vfio", id="vendor-vfio"),
]


def profiles(host: Host, card: str) -> dict[str, int]:
    return {item["name"]: item["creatable"] for item in host.get(f"/v1/profiles?gpu={card}")}


def vgpus(host: Host, card: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = host.get(f"/v1/vgpus?gpu={card}")
    return found


def create(host: Host, profile: str, card: str, *words: str) -> None:
    host.vgpumgr("vgpu", "create", "--profile", profile, "--gpu", card, *words).done()


@pytest.mark.parametrize(("card", "profile", "backend"), WAYS)
def test_a_card_is_cut_filled_and_made_whole(host: Host, card: str, profile: str, backend: str) -> None:
    assert [reason["code"] for reason in host.gpu(card)["vgpu"]["reasons"]] == ["vfs-off"]
    host.vgpumgr("gpu", "slice", card).done()
    assert host.gpu(card)["vgpu"]["backend"] == backend
    assert profiles(host, card)[profile] == 2
    create(host, profile, card, "--count", "2")
    refused = host.vgpumgr("vgpu", "create", "--profile", profile, "--gpu", card)
    assert refused.status == 3
    made = vgpus(host, card)
    assert [(item["profile"], item["ours"], item["live"]) for item in made] == [(profile, True, True)] * 2
    assert {host.driver(item["parent"]) for item in made} == {"nvidia"}
    assert host.vgpumgr("gpu", "slice", card, "--vfs", "0", "--yes").status == 3
    for item in made:
        host.vgpumgr("vgpu", "delete", item["id"], "--yes").done()
    assert profiles(host, card)[profile] == 2
    host.vgpumgr("gpu", "slice", card, "--vfs", "0", "--yes").done()
    assert host.read(f"{DEVICES}/{card}/sriov_numvfs") == "0"


def test_a_card_without_virtual_functions_is_filled_on_itself(host: Host) -> None:
    create(host, "GRID T4-4Q", boards.T4, "--count", "3")
    assert profiles(host, boards.T4)["GRID T4-4Q"] == 1
    assert profiles(host, boards.T4)["GRID T4-8Q"] == 0
    assert not host.gpu(boards.T4)["passthrough"]["assignable"]
    for item in vgpus(host, boards.T4):
        host.vgpumgr("vgpu", "delete", item["id"], "--yes").done()
    assert profiles(host, boards.T4)["GRID T4-8Q"] == 2


@pytest.mark.parametrize(("card", "profile", "backend"), WAYS)
def test_what_a_reboot_takes_comes_back_with_the_service(host: Host, card: str, profile: str, backend: str) -> None:
    host.vgpumgr("gpu", "slice", card).done()
    create(host, profile, card)
    (before,) = vgpus(host, card)
    host.machine.ok("systemctl stop vgpumgr.service vgpumgr.socket")
    if backend == "mdev":
        host.machine.ok(f"echo 1 >/sys/bus/mdev/devices/{before['id']}/remove")
        host.machine.ok(f"echo 0 >{DEVICES}/{card}/sriov_numvfs")
    else:
        host.machine.ok(f"echo 0 >{DEVICES}/{before['id']}/nvidia/current_vgpu_type")
        host.machine.ok(f"/usr/lib/nvidia/sriov-manage -d {card}")
    host.machine.ok("systemctl start vgpumgr.socket vgpumgr.service", deadline=120)
    (after,) = vgpus(host, card)
    assert (after["id"], after["profile"], after["live"]) == (before["id"], profile, True)


def test_a_vgpu_of_somebody_else_is_counted_and_left_alone(host: Host) -> None:
    types = f"{DEVICES}/{boards.T4}/mdev_supported_types"
    host.machine.ok(f"cat /proc/sys/kernel/random/uuid >{types}/nvidia-233/create")
    (foreign,) = vgpus(host, boards.T4)
    assert foreign["ours"] is False
    assert profiles(host, boards.T4)["GRID T4-8Q"] == 1
    assert host.vgpumgr("vgpu", "delete", foreign["id"], "--yes").status == 3
    assert host.machine.ok("ls /sys/bus/mdev/devices") == foreign["id"]


SAMPLES = [
    pytest.param("mdpy", "mdpy-xga", 4, id="mdpy"),
    pytest.param("mbochs", "mbochs-large", 4, id="mbochs"),
]


@pytest.mark.parametrize(("card", "profile", "most"), SAMPLES)
def test_the_samples_of_the_kernel_are_filled_and_emptied(host: Host, card: str, profile: str, most: int) -> None:
    """Linux's own vGPU drivers: they count, and refuse, by themselves."""
    host.machine.ok(f"modprobe {card}")
    available = f"/sys/class/mdev_bus/{card}/mdev_supported_types/{profile}/available_instances"
    assert profiles(host, card)[profile] == int(host.read(available)) == most
    create(host, profile, card, "--count", str(most - 1))
    allocation = host.allocate("sampled", "--gpu", card, "--profile", profile)
    assert (allocation["state"], allocation["warnings"]) == ("ready", [])
    assert profiles(host, card)[profile] == int(host.read(available)) == 0
    assert host.vgpumgr("vgpu", "create", "--profile", profile, "--gpu", card).status == 3
    assert len(host.machine.ok("ls /sys/bus/mdev/devices").split()) == most
    host.vgpumgr("alloc", "release", allocation["id"], "--yes").done()
    for item in vgpus(host, card):
        host.vgpumgr("vgpu", "delete", item["id"], "--yes").done()
    assert profiles(host, card)[profile] == int(host.read(available)) == most
