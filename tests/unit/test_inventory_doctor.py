"""The doctor names the exact remedy: setting, parameter, module, member, holder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosttree import DEAD_CONFIG, HostTree
from vgpumgr.binding import plan_bind
from vgpumgr.inventory import take_inventory, with_occupancy
from vgpumgr.inventory.doctor import diagnose
from vgpumgr.inventory.names import NoNames
from vgpumgr.kernel.open import open_kernel
from vgpumgr.kernel.simulated.build import build
from vgpumgr.kernel.simulated.hosts import shipped_hosts
from vgpumgr.model.allocation import AllocationRequest
from vgpumgr.model.doctor import Diagnosis, Finding
from vgpumgr.placement.place import place

GPU = "0000:17:00.0"


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    tree = HostTree(tmp_path)
    tree.process(1, "init")
    return tree


def doctor(tree: HostTree) -> Diagnosis:
    kernel = tree.kernel()
    return diagnose(kernel, take_inventory(kernel, names=NoNames()))


def finding(tree: HostTree, code: str) -> Finding:
    (gpu,) = doctor(tree).gpus
    (found,) = (each for each in gpu.findings if each.code == code)
    return found


def remedies(tree: HostTree) -> list[tuple[str, str]]:
    """Kinds and values of what switches the IOMMU on."""
    (found,) = (each for each in doctor(tree).host if each.code == "iommu-inactive")
    return [(str(remedy.kind), remedy.value) for remedy in found.remedies]


INTEL = "vendor_id\t: GenuineIntel\n"
AMD = "vendor_id\t: AuthenticAMD\n"


@pytest.mark.parametrize(
    ("cpu", "tables", "command_line", "expected"),
    [
        (INTEL, ["APIC", "DMAR"], "quiet", [("kernel-parameter", "intel_iommu=on")]),
        (INTEL, ["APIC"], "quiet intel_iommu=on", [("firmware-setting", "VT-d")]),
        (INTEL, ["APIC", "DMAR"], "intel_iommu=on", [("firmware-setting", "VT-d")]),
        (INTEL, ["APIC", "DMAR"], "intel_iommu=off", [("kernel-parameter", "intel_iommu=off")]),
        (AMD, ["APIC"], "quiet", [("firmware-setting", "AMD-Vi")]),
        (AMD, ["IVRS"], "amd_iommu=off", [("kernel-parameter", "amd_iommu=off")]),
        (INTEL, [], "quiet", [("firmware-setting", "VT-d"), ("kernel-parameter", "intel_iommu=on")]),
        ("CPU implementer\t: 0x41\n", ["APIC"], "quiet", [("firmware-setting", "SMMU")]),
    ],
)
def test_what_switches_the_iommu_on(
    tree: HostTree, cpu: str, tables: list[str], command_line: str, expected: list[tuple[str, str]]
) -> None:
    tree.function(GPU, "030200", "10de:2235", "nvidia")
    tree.files({"/proc/cpuinfo": cpu, "/proc/cmdline": command_line})
    for table in tables:
        tree.file(f"/sys/firmware/acpi/tables/{table}", "")
    assert remedies(tree) == expected
    assert [(str(each.kind), each.value) for each in finding(tree, "iommu-inactive").remedies] == expected
    assert doctor(tree).blocked


def test_a_parameter_to_remove_says_so(tree: HostTree) -> None:
    tree.function(GPU, "030200", "10de:2235", "nvidia")
    tree.files({"/proc/cpuinfo": INTEL, "/proc/cmdline": "intel_iommu=off"})
    remedy = finding(tree, "iommu-inactive").remedy
    assert remedy is not None
    assert remedy.undo
    assert "remove intel_iommu=off" in remedy.text


def test_a_free_gpu_has_only_a_next_step(tree: HostTree) -> None:
    tree.iommu()
    tree.function(GPU, "030200", "10de:2235", "nvidia", 4, reset_method="flr")
    (gpu,) = doctor(tree).gpus
    assert gpu.assignable
    (step,) = gpu.findings
    assert step.severity == "info"
    assert step.remedy is not None
    assert step.remedy.value == f"vgpumgr gpu bind {GPU}"


def test_a_ready_gpu_needs_nothing(tree: HostTree) -> None:
    tree.iommu()
    tree.function(GPU, "030200", "10de:2235", "vfio-pci", 4, reset_method="flr")
    (gpu,) = doctor(tree).gpus
    assert [(each.code, each.remedies) for each in gpu.findings] == [("ready", ())]


def test_the_holder_and_how_it_lets_go(tree: HostTree) -> None:
    tree.iommu()
    home = tree.function(GPU, "030000", "1002:73bf", "amdgpu", 4)
    tree.folder(f"{home}/drm/renderD128")
    tree.process(77, "blender", "/dev/dri/renderD128")
    (remedy,) = finding(tree, "in-use-by-host").remedies
    assert (str(remedy.kind), remedy.value) == ("holder", "kill 77")
    assert "blender (pid 77)" in remedy.text


def test_the_persistence_daemon_is_stopped_as_a_service(tree: HostTree) -> None:
    tree.iommu()
    tree.function(GPU, "030200", "10de:2235", "nvidia", 4)
    tree.file(f"/proc/driver/nvidia/gpus/{GPU}/information", "Device Minor: \t 0\n")
    tree.process(77, "nvidia-persiste", "/dev/nvidia0")
    (remedy,) = finding(tree, "in-use-by-host").remedies
    assert remedy.value == "systemctl stop nvidia-persistenced"


def test_each_member_of_the_group_is_named(tree: HostTree) -> None:
    tree.iommu()
    tree.function("0000:00:01.0", "060400", "8086:347a", "pcieport", 4)
    tree.function(GPU, "030000", "10de:2204", "nvidia", 4, parent="0000:00:01.0")
    tree.function("0000:18:00.0", "010802", "144d:a808", "nvme", 4, parent="0000:00:01.0")
    found = finding(tree, "group-shared")
    assert ("hardware", "another slot") in [(str(each.kind), each.value) for each in found.remedies]
    assert [each.value for each in found.remedies if each.kind == "group-member"] == ["0000:18:00.0"]


def test_a_dead_card_takes_a_power_cycle_and_no_command(tree: HostTree) -> None:
    tree.iommu()
    tree.function(GPU, "120000", "1002:75a3", "vfio-pci", 4, config=DEAD_CONFIG, reset_method="bus")
    (gpu,) = doctor(tree).gpus
    (found,) = gpu.findings
    assert [(str(each.kind), each.value) for each in found.remedies] == [("hardware", "power cycle")]


def test_a_console_has_no_remedy(tree: HostTree) -> None:
    tree.iommu()
    tree.function(GPU, "030000", "1a03:2000", "ast", 4, boot_vga="1", reset_method="pm")
    (gpu,) = doctor(tree).gpus
    assert [(each.code, str(each.severity), each.remedies) for each in gpu.findings] == [
        ("kind-not-offered", "info", ())
    ]


@pytest.mark.parametrize("device", ["030000 1a03:2000 ast", "068000 10de:22a3 nvidia-nvswitch"])
def test_what_no_vm_gets_is_still_told_to_be_dead(tree: HostTree, device: str) -> None:
    tree.iommu()
    tree.function(GPU, *device.split(), 4, config=DEAD_CONFIG)
    (gpu,) = doctor(tree).gpus
    assert [each.code for each in gpu.findings] == ["kind-not-offered", "failed"]
    assert [each.value for each in gpu.findings[1].remedies] == ["power cycle"]


def test_enabled_vfs_are_disabled_by_what_would_cut_the_card_again_after_a_reboot(tree: HostTree) -> None:
    tree.iommu()
    tree.function(GPU, "030200", "10de:2235", "nvidia", 4, sriov_totalvfs="32", sriov_numvfs="0")
    tree.function("0000:17:00.4", "030200", "10de:2235", "nvidia", 5, physfn=GPU)
    (remedy,) = finding(tree, "vfs-enabled").remedies
    assert remedy.value == f"vgpumgr gpu slice {GPU} --vfs 0"


@pytest.mark.parametrize("name", shipped_hosts())
def test_what_is_to_be_done_is_in_the_text_that_people_read(name: str) -> None:
    """Programs read ``value``; who reads the table has the text alone."""
    kernel = open_kernel(simulate=name)
    report = diagnose(kernel, take_inventory(kernel, names=NoNames()))
    for found in (*report.host, *(each for gpu in report.gpus for each in gpu.findings)):
        for remedy in found.remedies:
            if remedy.kind in ("command", "kernel-parameter", "module", "holder"):
                assert remedy.value in remedy.text


def test_the_parameter_against_the_boot_framebuffer_is_in_the_text(tree: HostTree) -> None:
    tree.iommu()
    tree.function(GPU, "030000", "1002:1586", "vfio-pci", 4, resource="0x2800000000 0x2fffffffff 0x14220c")
    tree.file("/proc/iomem", f"2800000000-2fffffffff : {GPU}\n  2800000000-2801fa3fff : simpledrm\n")
    (remedy,) = finding(tree, "framebuffer-held").remedies
    assert remedy.value in remedy.text


def test_all_members_are_taken_along_by_one_command() -> None:
    """Named one by one, each would leave the group blocked by the others."""
    card = {"class": "030000", "id": "10de:2204", "driver": "nvidia", "group": 8}
    sound = {"class": "040300", "id": "10de:1aef", "driver": "snd_hda_intel", "group": 8}
    slots = {"0000:17:00": {"0": card, "1": sound}, "0000:18:00": {"0": card, "1": sound}}
    functions = [
        {"address": f"{slot}.{number}", **each} for slot, parts in slots.items() for number, each in parts.items()
    ]
    kernel = build("pair", {"functions": functions})
    report = diagnose(kernel, take_inventory(kernel, names=NoNames()))
    (found,) = (each for each in report.gpus[0].findings if each.code == "group-shared")
    assert [each.value for each in found.remedies if each.kind == "command"] == [
        f"vgpumgr gpu bind {GPU} --also 0000:18:00.0 --also 0000:18:00.1",
        "vgpumgr alloc create --vm NAME --count 2",
    ]
    request = AllocationRequest("pair", count=2)
    assert place(take_inventory(kernel, names=NoNames()), request).candidates
    inventory = take_inventory(kernel, names=NoNames())
    plan = plan_bind(kernel, inventory, inventory.gpus[0], also=["0000:18:00.0", "0000:18:00.1"])
    assert plan.refusal is None


@pytest.mark.parametrize("stranger", ["nic", "boot display"])
def test_gpus_that_more_than_each_other_keeps_from_a_vm_are_not_had_together(stranger: str) -> None:
    cards = [
        {"address": f"0000:{bus}:00.0", "class": "030000", "id": "10de:2204", "driver": "nvidia", "group": 8}
        for bus in ("17", "18")
    ]
    nic = {"address": "0000:19:00.0", "class": "020000", "id": "15b3:1021", "driver": "mlx5_core", "group": 8}
    functions = [*cards, nic] if stranger == "nic" else [cards[0], {**cards[1], "boot_vga": True}]
    kernel = build("pair", {"functions": functions})
    findings = diagnose(kernel, take_inventory(kernel, names=NoNames())).gpus[0].findings
    (found,) = (each for each in findings if each.code == "group-shared")
    assert not any("alloc create" in each.value for each in found.remedies)


def test_vgpus_that_live_on_a_card_are_looked_up_before_they_go(tree: HostTree) -> None:
    tree.iommu()
    tree.function(GPU, "030200", "10de:2235", "nvidia", 4)
    kernel = tree.kernel()
    inventory = take_inventory(kernel, names=NoNames())
    (gpu,) = inventory.gpus
    taken = inventory._replace(gpus=(with_occupancy(gpu, live_vgpus=("f715f63c",)),))
    (found,) = (each for each in diagnose(kernel, taken).gpus[0].findings if each.code == "vgpu-live")
    assert [each.value for each in found.remedies] == ["vgpumgr vgpu list"]


def test_in_a_recording_nobody_is_told_to_be_root(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.iommu()
    tree.function(GPU, "030200", "10de:2235", "vfio-pci", 4)
    kernel = open_kernel(sysfs_root=str(tmp_path))
    report = diagnose(kernel, take_inventory(kernel, names=NoNames()))
    found = [each for each in (*report.host, *report.gpus[0].findings) if "unknown" in each.code]
    assert [each.code for each in found] == ["holders-unknown", "owner-unknown"]
    assert {each.remedies[0].value for each in found} == {"vgpumgr host snapshot FILE"}


def test_a_module_is_loaded_at_boot_by_a_file_not_by_modprobe(tree: HostTree) -> None:
    tree.iommu()
    (found,) = (each for each in doctor(tree).host if each.code == "vfio-not-loaded")
    assert found.remedy is not None
    assert "/etc/modules-load.d/" in found.remedy.text


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("pcie_acs_override=downstream", "acs-override"),
        ("vfio-pci.ids=10de:2204,10de:1aef", "vfio-ids"),
        ("intremap=off", "no-interrupt-remapping"),
    ],
)
def test_parameters_that_do_harm_are_named(tree: HostTree, word: str, code: str) -> None:
    tree.iommu()
    tree.file("/proc/cmdline", f"quiet {word}\n")
    (found,) = (each for each in doctor(tree).host if each.code == code)
    assert found.remedy is not None
    assert (found.remedy.value, found.remedy.undo) == (word, True)


def test_a_missing_module_is_named(tree: HostTree) -> None:
    tree.iommu()
    (found,) = (each for each in doctor(tree).host if each.code == "vfio-not-loaded")
    assert found.remedy is not None
    assert (str(found.remedy.kind), found.remedy.value) == ("module", "vfio-pci")


def test_the_report_is_data(tree: HostTree) -> None:
    tree.function(GPU, "030200", "10de:2235", "nvidia")
    report = doctor(tree).to_json()
    (gpu,) = report["gpus"]
    assert {"address", "name", "assignable", "state", "findings"} == set(gpu)
    assert set(gpu["findings"][0]) == {"code", "severity", "message", "addresses", "remedy", "remedies"}
    assert set(gpu["findings"][0]["remedy"]) == {"kind", "text", "value", "undo"}
