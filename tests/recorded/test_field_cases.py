"""The field cases that concern the inventory come out as their "Expected" says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.recorded.hosts import case, case_folder, gpu_of, host_of_case
from vgpumgr.inventory import take_inventory
from vgpumgr.inventory.doctor import diagnose
from vgpumgr.kernel.recorded import open_recording
from vgpumgr.model.host import HostInventory

CASES = [
    "C01",
    "C02",
    "C03",
    "C05",
    "C06",
    "C08",
    "C09",
    "C11",
    "C13",
    "C15",
    "C19",
    "C21",
    "C25",
    "C29",
    "C31",
    "C36",
]


def blockers(host: HostInventory, number: int) -> list[tuple[str, str | None]]:
    (group,) = (group for group in host.groups if group.id == number)
    return [(blocker.address, blocker.driver) for blocker in group.blockers]


def codes(host: HostInventory, address: str) -> set[str]:
    return {reason.code for reason in gpu_of(host, address).passthrough.reasons}


@pytest.mark.parametrize("number", CASES)
def test_no_case_is_an_exception(number: str) -> None:
    host = host_of_case(number)
    assert host.gpus
    assert diagnose(case(number), host).gpus


def test_c01_the_audio_function_blocks_and_is_a_companion() -> None:
    host = host_of_case("C01")
    assert blockers(host, 6) == [("0000:86:00.1", "snd_hda_intel")]
    gpu = gpu_of(host, "0000:86:00.0")
    assert [(companion.address, companion.required) for companion in gpu.companions] == [("0000:86:00.1", True)]
    assert gpu.passthrough.state == "parked"
    assert "0000:86:00.1 (snd_hda_intel)" in gpu.passthrough.reasons[0].message


def test_c02_the_root_port_is_no_blocker_and_no_companion() -> None:
    host = host_of_case("C02")
    assert blockers(host, 1) == [("0000:01:00.1", "snd_hda_intel")]
    gpu = gpu_of(host, "0000:01:00.0")
    assert [companion.address for companion in gpu.companions] == ["0000:01:00.1"]
    assert gpu.topology.root_port == "0000:00:01.0"


def test_c03_all_four_functions_go_together() -> None:
    host = host_of_case("C03")
    gpu = gpu_of(host, "0000:09:00.0")
    assert [companion.address for companion in gpu.companions] == ["0000:09:00.1", "0000:09:00.2", "0000:09:00.3"]
    assert all(companion.required for companion in gpu.companions)
    assert blockers(host, 15) == [("0000:09:00.2", "xhci_hcd"), ("0000:09:00.3", "nvidia-gpu")]


def test_c05_the_hosts_usb_and_console_are_listed() -> None:
    gpu = gpu_of(host_of_case("C05"), "0000:04:00.0")
    assert not gpu.passthrough.assignable
    reasons = {reason.code: reason for reason in gpu.passthrough.reasons}
    assert set(reasons) == {"boot-display", "group-shared"}
    assert reasons["group-shared"].addresses == tuple(f"0000:04:00.{function}" for function in (1, 2, 3, 5))
    assert "4 other endpoints in host use" in reasons["group-shared"].message


def test_c06_no_iommu_is_a_reason() -> None:
    host = host_of_case("C06")
    assert not host.iommu.active
    gpu = gpu_of(host, "0000:08:00.0")
    assert (gpu.function.iommu_group, gpu.function.numa_node, gpu.passthrough.assignable) == (None, None, False)
    assert "IOMMU not active" in gpu.passthrough.reasons[0].message


def test_c08_identical_cards_are_told_apart() -> None:
    host = host_of_case("C08")
    assert [gpu.address for gpu in host.gpus if gpu.offered] == ["0000:17:00.0", "0000:65:00.0"]
    assert gpu_of(host, "0000:03:00.0").kind == "bmc-vga"
    assert gpu_of(host, "0000:17:00.0").passthrough.assignable
    assert gpu_of(host, "0000:17:00.0").subsystem_id == "17aa:1613"


def test_c09_every_class_is_found() -> None:
    kinds = {gpu.address: str(gpu.kind) for gpu in host_of_case("C09").gpus}
    assert kinds == {
        "0000:03:00.0": "gpu",
        "0000:05:00.0": "accelerator",
        "0000:19:00.0": "accelerator",
        "0000:3b:00.0": "gpu",
        "0000:c1:00.0": "bmc-vga",
    }
    assert not gpu_of(host_of_case("C09"), "0000:c1:00.0").passthrough.assignable


def test_c11_domains_are_kept_apart() -> None:
    host = host_of_case("C11")
    assert [(gpu.address, gpu.function.iommu_group) for gpu in host.gpus] == [
        ("0000:ae:00.0", 35),
        ("0001:d6:00.0", 212),
    ]


def test_c13_one_card_three_vfs_not_four_cards() -> None:
    (gpu,) = host_of_case("C13").gpus
    assert gpu.sriov is not None
    assert gpu.sriov.vfs == ("0000:42:00.2", "0000:42:00.3", "0000:42:00.4")
    assert not gpu.passthrough.assignable
    assert codes(host_of_case("C13"), "0000:42:00.0") == {"vfs-enabled"}


def test_c15_a_dead_card_wants_a_power_cycle() -> None:
    (gpu,) = host_of_case("C15").gpus
    assert gpu.health.status == "failed"
    assert "config space unreadable (ff)" in gpu.health.reasons[0].message
    (diagnosis,) = diagnose(case("C15"), host_of_case("C15")).gpus
    assert [remedy.value for finding in diagnosis.findings for remedy in finding.remedies] == ["power cycle"]


def test_c25_seven_vfs_possible_none_enabled() -> None:
    (gpu,) = host_of_case("C25").gpus
    assert gpu.sriov is not None
    assert (gpu.sriov.total_vfs, gpu.sriov.num_vfs, gpu.sriov.driver_ready) == (7, 0, False)


def test_c31_the_boot_framebuffer_on_the_bar_is_a_warning(tmp_path: Path) -> None:
    """The log beside ``sys/`` tells, and so does the map of memory in its own place."""
    shutil.copytree(case_folder("C31"), tmp_path / "host", symlinks=True)
    (tmp_path / "host" / "proc").mkdir()
    (tmp_path / "host" / "input.log").rename(tmp_path / "host" / "proc" / "iomem")
    for kernel in (case("C31"), open_recording(str(tmp_path / "host"))):
        host = take_inventory(kernel)
        (gpu,) = host.gpus
        assert gpu.boot_display
        messages = {notice.message for notice in host.warnings if notice.subject == gpu.address}
        assert messages == {"boot framebuffer (simpledrm) owns part of BAR 0"}
        assert codes(host, gpu.address) >= {"boot-display", "framebuffer-held"}


def test_c36_a_host_driver_is_not_ready() -> None:
    (gpu,) = host_of_case("C36").gpus
    assert (gpu.function.driver, str(gpu.passthrough.state)) == ("amdgpu", "host")
