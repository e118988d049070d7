"""What was bound, cut and made is there again after the lab's host was rebooted."""

from __future__ import annotations

from tests.lab import boards
from tests.lab.host import DEVICES, Host


def test_bindings_and_vgpus_come_back_before_the_service_says_that_it_is_ready(host: Host) -> None:
    host.vgpumgr("gpu", "bind", boards.GPU_WITH_AUDIO, "--yes").done()
    host.vgpumgr("gpu", "slice", boards.A40, "--vfs", "2", "--yes").done()
    host.vgpumgr("vgpu", "create", "--profile", "NVIDIA A40-24Q", "--gpu", boards.A40).done()
    allocation = host.allocate("survivor", "--gpu", boards.T4, "--profile", "GRID T4-16Q")
    boot = host.read("/proc/sys/kernel/random/boot_id")

    host.machine.reboot()
    assert host.read("/proc/sys/kernel/random/boot_id") != boot
    host.wait_ready()

    both = (boards.GPU_WITH_AUDIO, boards.GPU_AUDIO)
    assert [host.driver(address) for address in both] == ["vfio-pci", "vfio-pci"]
    order = host.machine.ok(
        "systemctl show -P ExecMainExitTimestampMonotonic vgpumgr-bind.service;"
        " systemctl show -P ActiveEnterTimestampMonotonic libvirtd.service vgpumgr.service"
    ).split()
    assert sorted(order, key=int) == order, "GPUs are bound before libvirt starts, and then the service"
    assert host.read(f"{DEVICES}/{boards.A40}/sriov_numvfs") == "2"
    assert [item["profile"] for item in host.gpu(boards.A40)["vgpu"]["instances"]] == ["NVIDIA A40-24Q"]
    again = host.get(f"/v1/allocations/{allocation['id']}")
    assert again["state"] == "ready"
    instances = host.gpu(boards.T4)["vgpu"]["instances"]
    assert [item["id"] for item in instances] == [again["devices"][0]["handle"]]
