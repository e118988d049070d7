"""The scheduler as a parameter of the driver: what is written, what is kept, what counts now and what later."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from tests.unit.vgpu_hosts import CARD, gvt, h100, host, look, nvidia, run, set_modes, state, t4
from vgpumgr.errors import FailedError
from vgpumgr.kernel.modprobe import OWN_FILE, module_options
from vgpumgr.kernel.options import OptionsFile, options_file, replace_file
from vgpumgr.kernel.real import RealKernel
from vgpumgr.kernel.recorded import RecordedTree
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.kernel.simulated.faults import Mishap
from vgpumgr.kernel.tree import Tree
from vgpumgr.plans.plan import Plan
from vgpumgr.telemetry.nvml import open_nvml
from vgpumgr.vgpu.driver_scheduler import edited, own_value, policy_of, read_driver_scheduler
from vgpumgr.vgpu.modes import Modes, plan_modes
from vgpumgr.vgpu.nvml_port import NvmlPort, Scheduler
from vgpumgr.vgpu.scheduler_plans import SetDriverOption

OTHER = "0000:af:00.0"
LATER = Modes(scheduler=Scheduler.FIXED_SHARE, at_load=True)


def plan(kernel: SimulatedKernel, wanted: Modes, nvml: NvmlPort | None = None) -> Plan:
    nvml = nvml or NvmlPort()
    return plan_modes(nvml, look(kernel, nvml)[1], wanted, kernel)


def text(kernel: SimulatedKernel) -> str:
    return kernel.read(OWN_FILE).decode()


def tell(kernel: SimulatedKernel, path: str, content: str) -> None:
    kernel.machine.tree.write_text(path, content)


def modes(kernel: SimulatedKernel, nvml: NvmlPort | None = None) -> tuple[str | None, str | None]:
    """The policy that runs, and the one that is configured."""
    found = state(kernel, nvml or NvmlPort()).modes
    assert found is not None
    return found.scheduler, found.scheduler_configured


def test_without_nvml_the_driver_gets_a_parameter_for_its_next_load() -> None:
    kernel = host(nvidia("mdev-vf"))
    planned = plan(kernel, Modes(scheduler=Scheduler.EQUAL_SHARE))
    (step,) = planned.to_json()["steps"]
    assert (step["path"], step["value"]) == (OWN_FILE, f"pci={CARD};RmPVMRL=0x01")
    assert "loaded again, or after a reboot" in step["describe"]
    assert [warning.code for warning in planned.warnings] == ["at-next-load"]
    run(kernel, planned)
    assert f'options nvidia NVreg_RegistryDwordsPerDevice="pci={CARD};RmPVMRL=0x01"' in text(kernel).splitlines()
    assert modes(kernel) == ("best-effort", "equal-share")
    kernel.reload_module("nvidia")
    assert modes(kernel) == ("equal-share", "equal-share")
    again = plan(kernel, Modes(scheduler=Scheduler.EQUAL_SHARE))
    assert (again.steps, again.warnings) == ((), ())


def test_nvml_is_used_where_it_can_and_left_where_the_next_load_is_meant() -> None:
    kernel = host(h100())
    nvml = open_nvml(kernel)
    assert [step.kind for step in plan(kernel, Modes(scheduler=Scheduler.FIXED_SHARE), nvml).steps] == [
        "set-scheduler"
    ]
    planned = plan(kernel, LATER, nvml)
    assert [step.kind for step in planned.steps] == ["set-driver-option"]
    run(kernel, planned, {NvmlPort: nvml})
    assert modes(kernel, nvml) == ("best-effort", "fixed-share")


def test_a_reload_takes_what_nvml_had_set() -> None:
    kernel = host(h100())
    nvml = open_nvml(kernel)
    set_modes(kernel, nvml, Modes(scheduler=Scheduler.FIXED_SHARE))
    kernel.reload_module("nvidia")
    assert modes(kernel, nvml) == ("best-effort", None)


def test_other_modes_go_along_and_a_refusal_of_either_refuses_both() -> None:
    kernel = host(h100())
    nvml = open_nvml(kernel)
    both = Modes(ecc=False, scheduler=Scheduler.EQUAL_SHARE, at_load=True)
    assert [step.kind for step in plan(kernel, both, nvml).steps] == ["set-ecc", "set-driver-option"]
    refused = plan(kernel, Modes(ecc=False, scheduler=Scheduler.EQUAL_SHARE)).refusal
    assert refused is not None
    assert refused.code == "nvml-absent"


def test_cards_have_their_own_entries_and_undo_leaves_the_others() -> None:
    kernel = host(nvidia("mdev-vf"), nvidia("mdev-vf") | {"address": OTHER})
    for address, policy in ((CARD, Scheduler.FIXED_SHARE), (OTHER, Scheduler.EQUAL_SHARE)):
        gpu = next(gpu for gpu in look(kernel)[0].gpus if gpu.address == address)
        run(kernel, plan_modes(NvmlPort(), gpu, Modes(scheduler=policy), kernel))
    assert f'"pci={CARD};RmPVMRL=0x11;pci={OTHER};RmPVMRL=0x01"' in text(kernel)
    step = SetDriverOption(CARD, "best-effort", "0x00", "0x11")
    context = _context(kernel)
    step.apply(context)
    step.verify(context)
    assert own_value(text(kernel), CARD) == "0x00"
    step.undo(context)
    step.undo(context)
    assert (own_value(text(kernel), CARD), own_value(text(kernel), OTHER)) == ("0x11", "0x01")


def _context(kernel: SimulatedKernel) -> Any:
    from vgpumgr.plans.step import StepContext

    return StepContext(kernel, {OptionsFile: options_file(kernel)})


def test_a_plan_that_fails_removes_the_file_it_made() -> None:
    kernel = host(h100())
    nvml = open_nvml(kernel)
    first = plan(kernel, LATER, nvml)
    bad = plan(kernel, Modes(ecc=False), nvml)
    kernel.machine.cards[CARD].ecc = kernel.machine.cards[CARD].ecc_pending = None
    with pytest.raises(FailedError):
        run(kernel, Plan("mode", CARD, (*first.steps, *bad.steps)), {NvmlPort: nvml})
    assert not kernel.exists(OWN_FILE)


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_a_file_that_cannot_be_written_is_told_and_nothing_is_left(code: int) -> None:
    kernel = host(nvidia("mdev-vf"))
    kernel.faults.add(OWN_FILE, Mishap.FAIL, errno=code)
    with pytest.raises(FailedError) as caught:
        run(kernel, plan(kernel, Modes(scheduler=Scheduler.EQUAL_SHARE)))
    assert OWN_FILE in caught.value.message
    assert not kernel.exists(OWN_FILE)


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (gvt(), "scheduler-unsupported"),
        (nvidia("mdev-vf") | {"driver": "vfio-pci", "native": ["nvidia"]}, "host-driver-absent"),
        ({"address": CARD, "id": "10de:1db6", "class": "030200", "driver": "nvidia"}, "scheduler-unsupported"),
        (t4() | {"id": "10de:13f2"}, "scheduler-unsupported"),
    ],
)
def test_cards_and_drivers_without_it_are_refused_with_the_reason(entry: dict[str, Any], code: str) -> None:
    refusal = plan(host(entry), Modes(scheduler=Scheduler.EQUAL_SHARE)).refusal
    assert refusal is not None
    assert refusal.code == code
    assert CARD in refusal.message


def test_an_old_driver_without_the_parameter_is_refused() -> None:
    kernel = host(t4())
    tell(kernel, "/proc/driver/nvidia/params", "EnableMSI: 1")
    refusal = plan(kernel, Modes(scheduler=Scheduler.EQUAL_SHARE)).refusal
    assert refusal is not None
    assert refusal.code == "driver-option-unknown"


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("/etc/modprobe.d/nvidia.conf", 'options nvidia NVreg_RegistryDwordsPerDevice="pci=3b:00;Foo=1"'),
        (
            "/usr/lib/modprobe.d/zz.conf",
            'options nvidia A=1 \\\n "NVreg_RegistryDwordsPerDevice=pci=1:0;A=1"',
        ),
        ("/proc/cmdline", "quiet nvidia.NVreg_RegistryDwordsPerDevice=pci=0000:3b:00.0;RmPVMRL=0x01"),
    ],
)
def test_what_others_configured_is_never_overridden(path: str, line: str) -> None:
    kernel = host(nvidia("mdev-vf"))
    tell(kernel, path, line)
    refusal = plan(kernel, Modes(scheduler=Scheduler.FIXED_SHARE)).refusal
    assert refusal is not None
    assert refusal.code == "driver-option-foreign"
    assert path in refusal.message


def test_what_is_set_for_all_cards_is_shown_and_a_cards_own_entry_counts_before_it() -> None:
    kernel = host(nvidia("mdev-vf"))
    tell(kernel, "/etc/modprobe.d/nvidia.conf", 'options nvidia NVreg_RegistryDwords="Foo=1;RmPVMRL=0x11"')
    assert modes(kernel) == ("best-effort", "fixed-share")
    run(kernel, plan(kernel, Modes(scheduler=Scheduler.BEST_EFFORT)))
    assert modes(kernel) == ("best-effort", "best-effort")
    kernel.reload_module("nvidia")
    assert modes(kernel) == ("best-effort", "best-effort")


def test_other_lines_and_keys_of_the_file_stay() -> None:
    before = (
        "# mine\n"
        'options nvidia NVreg_EnableMSI=1 NVreg_RegistryDwordsPerDevice="Odd=1;pci=3b:00;F=2;RmPVMRL=0x00030001"\n'
        "options kvm ignore_msrs=1\n"
    )
    after = edited(before, CARD, "0x11")
    assert [line for line in after.splitlines() if not line.startswith("#")] == [
        'options nvidia NVreg_EnableMSI="1"',
        "options kvm ignore_msrs=1",
        f'options nvidia NVreg_RegistryDwordsPerDevice="Odd=1;pci={CARD};F=2;RmPVMRL=0x11"',
    ]
    assert "# mine" in after.splitlines()
    assert edited(after, CARD, "0x11") == after
    gone = edited(after, CARD, None)
    assert "RmPVMRL" not in gone
    assert "F=2" in gone
    assert edited(edited("", CARD, "0x01"), CARD, None) == ""


@pytest.mark.parametrize(
    ("value", "policy"),
    [
        ("0x00", Scheduler.BEST_EFFORT),
        ("0x01", Scheduler.EQUAL_SHARE),
        ("0x00030001", Scheduler.EQUAL_SHARE),
        ("0x11", Scheduler.FIXED_SHARE),
        ("17", Scheduler.FIXED_SHARE),
        ("0x00180011", Scheduler.FIXED_SHARE),
        ("0x21", None),
        ("nonsense", None),
        ("", None),
    ],
)
def test_values_are_read_as_the_driver_does(value: str, policy: Scheduler | None) -> None:
    assert policy_of(value) is policy


def test_files_hide_those_of_their_name_and_the_last_of_two_counts() -> None:
    tree = Tree()
    tree.write_text("/usr/lib/modprobe.d/a.conf", "options nvidia One=hidden")
    tree.write_text("/etc/modprobe.d/a.conf", "# options nvidia One=0\noptions nvidia One=1\noptions nouveau One=9")
    tree.write_text("/run/modprobe.d/b.conf", 'options nvidia One=2 Two="x y"')
    tree.write_text("/etc/modprobe.d/c.conf.new", "options nvidia One=3")
    options = module_options(RecordedTree("test", tree), "nvidia")
    assert [(item.name, item.value) for item in options] == [("One", "1"), ("One", "2"), ("Two", "x y")]
    assert read_driver_scheduler(RecordedTree("test", tree), CARD) == (None, None, None, None)


def test_a_file_of_this_machine_is_replaced_whole(tmp_path: Path) -> None:
    kernel = RealKernel(str(tmp_path))
    options_file(kernel).replace("one\n")
    path = tmp_path / OWN_FILE.lstrip("/")
    assert path.stat().st_mode & 0o777 == 0o644
    options_file(kernel).replace("two\n")
    assert path.read_text() == "two\n"
    assert [item.name for item in path.parent.iterdir()] == ["vgpumgr.conf"]
    options_file(kernel).replace("")
    assert list(path.parent.iterdir()) == []
    options_file(kernel).replace("")


def test_a_link_in_the_way_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("keep")
    path = tmp_path / "vgpumgr.conf"
    (tmp_path / "vgpumgr.conf.new").symlink_to(target)
    with pytest.raises(OSError, match=r"vgpumgr\.conf\.new"):
        replace_file(str(path), "text\n")
    assert (target.read_text(), path.exists()) == ("keep", False)


def test_a_recording_has_no_such_file_to_write() -> None:
    with pytest.raises(OSError, match="Read-only"):
        options_file(RecordedTree("test", Tree())).replace("x\n")
