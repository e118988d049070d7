"""Giving GPUs to VFIO and back on a real kernel, and the refusals that protect the host."""

from __future__ import annotations

from typing import Any

from tests.lab import boards
from tests.lab.host import Host


def codes(refusal: dict[str, Any]) -> set[str]:
    return {reason["code"] for reason in refusal["reasons"]}


def refused(host: Host, address: str) -> dict[str, Any]:
    """The refusal of a bind, which must be refused in truth as in the plan, and must change nothing."""
    before = host.driver(address)
    planned = host.vgpumgr("gpu", "bind", address, "--plan")
    assert planned.status == 3
    refusal: dict[str, Any] = planned.data["refusal"]
    assert host.vgpumgr("gpu", "bind", address, "--yes").status == 3
    assert host.driver(address) == before
    return refusal


def test_a_gpu_goes_to_vfio_with_its_companion_and_both_come_back(host: Host) -> None:
    both = (boards.GPU_WITH_AUDIO, boards.GPU_AUDIO)
    host.vgpumgr("gpu", "bind", boards.GPU_WITH_AUDIO, "--yes").done()
    assert [host.driver(address) for address in both] == ["vfio-pci", "vfio-pci"]
    group = host.gpu(boards.GPU_WITH_AUDIO)["iommu_group"]
    host.machine.ok(f"test -c /dev/vfio/{group}")
    assert host.gpu(boards.GPU_WITH_AUDIO)["passthrough"]["state"] == "ready"
    host.vgpumgr("gpu", "release", boards.GPU_WITH_AUDIO, "--yes").done()
    assert host.at_home(*both)


def test_a_plan_shows_and_changes_nothing(host: Host) -> None:
    planned = host.vgpumgr("gpu", "bind", boards.RTX3090, "--plan").done()
    assert planned["refusal"] is None
    assert {step["address"] for step in planned["steps"] if step["address"]} == {boards.RTX3090}
    assert host.at_home(boards.RTX3090)


def test_binding_what_is_bound_is_done_already(host: Host) -> None:
    host.vgpumgr("gpu", "bind", boards.A100, "--yes").done()
    host.vgpumgr("gpu", "bind", boards.A100, "--yes").done()
    assert host.driver(boards.A100) == "vfio-pci"
    host.vgpumgr("gpu", "release", boards.A100, "--yes").done()
    host.vgpumgr("gpu", "release", boards.A100, "--yes").done()
    assert host.at_home(boards.A100)


def test_the_boot_display_is_refused(host: Host) -> None:
    assert "boot-display" in codes(refused(host, boards.BOOT_DISPLAY))


def test_a_gpu_whose_group_holds_a_mounted_disk_is_refused(host: Host) -> None:
    disk = host.machine.ok(
        f"ls /sys/bus/pci/devices/{boards.DISK_BESIDE_GPU}/nvme/*/ | grep -m1 -o '^nvme[0-9]*n[0-9]*'"
    )
    host.machine.ok(f"mkdir -p /mnt/beside && mount /dev/{disk} /mnt/beside")
    try:
        refusal = refused(host, boards.GPU_WITH_DISK)
        assert any(boards.DISK_BESIDE_GPU in reason["addresses"] for reason in refusal["reasons"])
        assert "/mnt/beside" in str(refusal) or disk in str(refusal)
    finally:
        host.machine.ok("umount /mnt/beside")


def test_a_gpu_with_an_open_handle_is_refused(host: Host) -> None:
    card = host.machine.ok(f"ls /sys/bus/pci/devices/{boards.GPU_WITH_AUDIO}/drm | grep -m1 card")
    host.machine.ok(f"nohup sleep 600 </dev/dri/{card} >/dev/null 2>&1 & echo $! >/run/lab/holder")
    try:
        refusal = refused(host, boards.GPU_WITH_AUDIO)
        holder = host.read("/run/lab/holder")
        assert holder in str(refusal), "the refusal names the process"
    finally:
        host.machine.ok("kill $(cat /run/lab/holder)")


def test_a_group_with_another_gpu_in_use_is_refused_and_goes_when_it_is_named(host: Host) -> None:
    first, second = boards.BEHIND_BRIDGE
    assert any(second in reason["addresses"] for reason in refused(host, first)["reasons"])
    host.vgpumgr("gpu", "bind", first, "--with", second, "--yes").done()
    assert [host.driver(address) for address in (first, second)] == ["vfio-pci", "vfio-pci"]
    host.vgpumgr("gpu", "release", first, "--yes").done()
    assert [host.driver(address) for address in (first, second)] == ["bochs-drm", "bochs-drm"]


def test_a_gpu_that_vfio_cannot_take_is_given_back_and_not_called_bound(host: Host) -> None:
    """Every write succeeds and yet no driver has the GPU: only reading back shows it."""
    stubborn = "/sys/module/lab_pci_ids/parameters/stubborn"
    host.machine.ok(f"printf {boards.A100} >{stubborn}")
    try:
        assert host.vgpumgr("gpu", "bind", boards.A100, "--yes").status == 4
        assert host.at_home(boards.A100)
    finally:
        host.machine.ok(f"printf '' >{stubborn}; echo >{stubborn}")
