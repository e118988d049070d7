"""Plans that give GPUs to VFIO and back, on simulated hosts: what is written, what is refused, what is undone."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from vgpumgr.binding import plan_bind, plan_release
from vgpumgr.errors import DeadlineError, FailedError, RefusedError, UsageError
from vgpumgr.inventory import take_inventory
from vgpumgr.kernel.simulated.build import build
from vgpumgr.kernel.simulated.faults import Mishap
from vgpumgr.kernel.simulated.machine import SimulatedKernel
from vgpumgr.kernel.tree import File
from vgpumgr.model.host import Gpu, HostInventory
from vgpumgr.plans.checks import CheckGroup
from vgpumgr.plans.executor import execute
from vgpumgr.plans.journal import MemoryJournal
from vgpumgr.plans.plan import Plan
from vgpumgr.plans.step import StepContext

CARD = "0000:17:00.0"
AUDIO = "0000:17:00.1"
TWIN = "0000:65:00.0"


def card(bus: str, **extra: Any) -> list[dict[str, Any]]:
    return [
        {"address": f"0000:{bus}:00.0", "id": "10de:1ff2", "class": "030000", "driver": "nvidia", **extra},
        {"address": f"0000:{bus}:00.1", "id": "10de:10fa", "class": "040300", "driver": "snd_hda_intel"},
    ]


def host(*functions: dict[str, Any], **keys: Any) -> SimulatedKernel:
    return build("test", {"functions": list(functions), **keys})


def two_cards() -> SimulatedKernel:
    return host(*card("17"), *card("65"))


def look(kernel: SimulatedKernel, address: str = CARD) -> tuple[HostInventory, Gpu]:
    inventory = take_inventory(kernel)
    return inventory, next(gpu for gpu in inventory.gpus if gpu.address == address)


def bind_plan(kernel: SimulatedKernel, address: str = CARD, **options: Any) -> Plan:
    inventory, gpu = look(kernel, address)
    return plan_bind(kernel, inventory, gpu, **options)


def release_plan(kernel: SimulatedKernel, address: str = CARD, **options: Any) -> Plan:
    inventory, gpu = look(kernel, address)
    return plan_release(kernel, inventory, gpu, **options)


def run(kernel: SimulatedKernel, plan: Plan) -> MemoryJournal:
    journal = MemoryJournal()
    execute("op", plan, StepContext(kernel), journal)
    return journal


def snapshot(kernel: SimulatedKernel) -> dict[str, tuple[str | None, bytes]]:
    return {
        name: (kernel.driver(name), kernel.read(f"/sys/bus/pci/devices/{name}/driver_override"))
        for name in kernel.list("/sys/bus/pci/devices")
    }


def test_binding_takes_the_card_with_its_companion_and_leaves_its_twin_alone() -> None:
    kernel = two_cards()
    plan = bind_plan(kernel)
    overrides = {step.subject: step.target_value for step in plan.steps if step.kind == "set-driver-override"}
    assert overrides == {CARD: "vfio-pci", AUDIO: "vfio-pci"}
    assert not any("new_id" in (step.target_path or "") for step in plan.steps)
    run(kernel, plan)
    assert [kernel.driver(name) for name in (CARD, AUDIO)] == ["vfio-pci", "vfio-pci"]
    assert [kernel.driver(name) for name in (TWIN, "0000:65:00.1")] == ["nvidia", "snd_hda_intel"]
    assert look(kernel)[1].passthrough.state == "ready"


def test_binding_again_has_nothing_to_do() -> None:
    kernel = two_cards()
    run(kernel, bind_plan(kernel))
    assert bind_plan(kernel).steps == ()


def test_release_restores_drivers_and_clears_overrides() -> None:
    kernel = two_cards()
    before = snapshot(kernel)
    run(kernel, bind_plan(kernel))
    run(kernel, release_plan(kernel, originals={CARD: "nvidia", AUDIO: "snd_hda_intel"}))
    assert snapshot(kernel) == before


def test_release_without_a_record_lets_the_kernel_choose() -> None:
    kernel = two_cards()
    before = snapshot(kernel)
    run(kernel, bind_plan(kernel))
    run(kernel, release_plan(kernel))
    assert snapshot(kernel) == before


def test_release_prefers_the_recorded_driver_over_another_that_waits() -> None:
    first, audio = card("17", native=["nouveau", "nvidia"])
    kernel = host(
        {"address": "0000:01:00.0", "id": "10de:0001", "class": "030000", "driver": "nouveau"}, first, audio
    )
    assert kernel.driver(CARD) == "nvidia"
    run(kernel, bind_plan(kernel))
    run(kernel, release_plan(kernel, originals={CARD: "nvidia", AUDIO: "snd_hda_intel"}))
    assert kernel.driver(CARD) == "nvidia"


def test_release_of_a_card_on_its_host_driver_has_nothing_to_do() -> None:
    assert release_plan(two_cards()).steps == ()


def refused_boot_display() -> SimulatedKernel:
    return host(*card("17", boot_vga=True))


def refused_shared_group() -> SimulatedKernel:
    disk = {"address": "0000:18:00.0", "id": "144d:a808", "class": "010802", "driver": "nvme", "group": 5}
    first, audio = card("17", group=5)
    return host(first, audio | {"group": 5}, disk)


def refused_no_iommu() -> SimulatedKernel:
    return host(*card("17"), iommu=False)


def refused_process() -> SimulatedKernel:
    kernel = host(*card("17", drm="card1"))
    kernel.hold(CARD, 4242, "Xorg")
    return kernel


def refused_vfs() -> SimulatedKernel:
    kernel = host(*card("17", sriov={"total": 4, "vf_driver": "nvidia"}))
    kernel.write(f"/sys/bus/pci/devices/{CARD}/sriov_numvfs", "2")
    return kernel


@pytest.mark.parametrize(
    ("make", "code", "forcible"),
    [
        (refused_boot_display, "boot-display", True),
        (refused_shared_group, "group-shared", False),
        (refused_no_iommu, "iommu-inactive", False),
        (refused_process, "in-use-by-host", True),
        (refused_vfs, "vfs-enabled", False),
    ],
)
def test_what_the_host_uses_is_refused_before_any_write(
    make: Callable[[], SimulatedKernel], code: str, forcible: bool
) -> None:
    kernel = make()
    plan = bind_plan(kernel)
    assert plan.steps == ()
    assert plan.refusal is not None
    assert plan.refusal.code == code
    assert plan.refusal.hint
    assert all(reason.addresses for reason in plan.refusal.reasons)
    assert (bind_plan(kernel, force=True).refusal is None) == forcible


def test_group_members_go_along_only_when_each_is_named() -> None:
    kernel = refused_shared_group()
    refusal = bind_plan(kernel).refusal
    assert refusal is not None
    assert "--also 0000:18:00.0" in refusal.hint
    run(kernel, bind_plan(kernel, also=["0000:18:00.0"]))
    assert kernel.driver("0000:18:00.0") == "vfio-pci"


def test_a_shared_boot_display_says_all_it_takes_to_have_it() -> None:
    card_on_console = card("17", boot_vga=True, group=7)
    neighbour = {"address": "0000:18:00.0", "id": "8086:1572", "class": "020000", "driver": "i40e", "group": 7}
    kernel = host(*[{**item, "group": 7} for item in card_on_console], neighbour)
    refusal = bind_plan(kernel).refusal
    assert refusal is not None
    assert refusal.hint.endswith(": --also 0000:18:00.0 --force")
    assert bind_plan(kernel, also=["0000:18:00.0"]).refusal is not None
    assert bind_plan(kernel, also=["0000:18:00.0"], force=True).refusal is None


def test_what_is_taken_along_by_force_is_said_with_its_use() -> None:
    disk = {"address": "0000:18:00.0", "id": "144d:a808", "class": "010802", "driver": "nvme", "group": 7}
    functions = [*({**item, "group": 7} for item in card("17")), {**disk, "disk": "nvme0n1 259:0"}]
    kernel = host(*functions, mounts={"/": "259:0 /dev/nvme0n1"})
    refusal = bind_plan(kernel).refusal
    assert refusal is not None
    assert refusal.hint.endswith(": --also 0000:18:00.0 --force")
    refused = bind_plan(kernel, also=["0000:18:00.0"]).refusal
    assert refused is not None
    assert refused.code == "in-use-by-host"
    plan = bind_plan(kernel, also=["0000:18:00.0"], force=True)
    assert plan.refusal is None
    assert [(reason.code, reason.addresses) for reason in plan.warnings] == [("in-use-by-host", ("0000:18:00.0",))]
    assert "mount /" in plan.warnings[0].message


def test_a_refusal_sends_to_the_doctor_for_the_gpu_that_was_named() -> None:
    refusal = bind_plan(refused_vfs()).refusal
    assert refusal is not None
    assert refusal.hint == f"'vgpumgr host doctor' says what to change for {CARD}"


@pytest.mark.parametrize("name", ["0000:99:00.0", TWIN])
def test_functions_that_do_not_belong_to_the_group_cannot_be_named(name: str) -> None:
    refusal = bind_plan(two_cards(), also=[name]).refusal
    assert refusal is not None
    assert refusal.code in ("address-unknown", "other-group")


def test_release_clears_an_override_left_on_a_function_of_the_host() -> None:
    kernel = two_cards()
    kernel.write(f"/sys/bus/pci/devices/{AUDIO}/driver_override", "vfio-pci")
    inventory = take_inventory(kernel)
    plan = plan_release(kernel, inventory, next(gpu for gpu in inventory.gpus if gpu.address == CARD))
    assert [(step.kind, step.subject, step.target_value) for step in plan.steps] == [
        ("set-driver-override", AUDIO, "\n")
    ]
    run(kernel, plan)
    assert kernel.read(f"/sys/bus/pci/devices/{AUDIO}/driver_override") == b"(null)\n"
    assert kernel.driver(AUDIO) == "snd_hda_intel"


WRITES = [r"17:00\.0/driver_override", "nvidia/unbind", "snd_hda_intel/unbind", r"drivers_probe 0000:17:00\.1"]


@pytest.mark.parametrize("pattern", WRITES)
@pytest.mark.parametrize("mishap", [Mishap.FAIL, Mishap.IGNORE])
def test_a_write_that_fails_or_does_nothing_leaves_the_host_as_it_was(pattern: str, mishap: Mishap) -> None:
    kernel = two_cards()
    before = snapshot(kernel)
    kernel.faults.add(pattern, mishap, errno=errno.EIO, times=1)
    with pytest.raises(FailedError):
        run(kernel, bind_plan(kernel))
    assert snapshot(kernel) == before


def test_a_device_that_gets_busy_after_the_plan_is_refused_at_the_last_moment() -> None:
    kernel = two_cards()
    before = snapshot(kernel)
    plan = bind_plan(kernel)
    kernel.hold(CARD, 77, "python3")
    with pytest.raises(FailedError) as caught:
        run(kernel, plan)
    assert caught.value.code == "in-use-by-host"
    assert "python3" in caught.value.reasons[0].message
    assert snapshot(kernel) == before


def test_an_unbind_that_hangs_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = two_cards()
    plain = kernel.write
    monkeypatch.setattr(kernel, "write", lambda path, text, **_: plain(path, text, deadline=0.05))
    kernel.faults.add("nvidia/unbind", Mishap.HANG, times=1)
    with pytest.raises(DeadlineError) as caught:
        run(kernel, bind_plan(kernel))
    assert caught.value.code == "deadline-exceeded"
    assert CARD in caught.value.reasons[0].addresses


def test_a_running_vm_keeps_its_gpu() -> None:
    kernel = two_cards()
    run(kernel, bind_plan(kernel))
    kernel.hold(CARD, 99, "qemu-system-x86")
    for force in (False, True):
        refusal = release_plan(kernel, force=force).refusal
        assert refusal is not None
        assert refusal.code == "in-use"


def test_a_variant_driver_is_chosen_where_the_host_announces_one() -> None:
    hopper = {"address": "0009:01:00.0", "id": "10de:2342", "class": "030200", "driver": "nvidia"}
    kernel = host(hopper)
    run(kernel, bind_plan(kernel, "0009:01:00.0"))
    assert kernel.driver("0009:01:00.0") == "nvgrace_gpu_vfio_pci"


def test_the_caller_may_insist_on_the_generic_driver() -> None:
    hopper = {"address": "0009:01:00.0", "id": "10de:2342", "class": "030200", "driver": "nvidia"}
    kernel = host(hopper)
    run(kernel, bind_plan(kernel, "0009:01:00.0", driver="vfio-pci"))
    assert kernel.driver("0009:01:00.0") == "vfio-pci"


def test_a_member_that_the_host_uses_needs_force_as_well_as_its_name() -> None:
    disk = {
        "address": "0000:18:00.0",
        "id": "144d:a808",
        "class": "010802",
        "driver": "nvme",
        "group": 5,
        "disk": "nvme0n1 259:0",
    }
    first, audio = card("17", group=5)
    kernel = host(first, audio | {"group": 5}, disk, mounts={"/": "259:0 /dev/nvme0n1"})
    refusal = bind_plan(kernel, also=["0000:18:00.0"]).refusal
    assert refusal is not None
    assert refusal.code == "in-use-by-host"
    assert "mount" in refusal.message
    assert bind_plan(kernel, also=["0000:18:00.0"], force=True).refusal is None


def test_a_dead_gpu_is_neither_bound_nor_given_back() -> None:
    kernel = two_cards()
    run(kernel, bind_plan(kernel))
    kernel.machine.tree.put(f"{kernel.machine.functions[CARD].path}/config", File(b"\xff" * 64))
    for plan in (bind_plan(kernel), release_plan(kernel)):
        assert plan.refusal is not None
        assert plan.refusal.code == "failed"
        assert "power" in plan.refusal.message


def bound_beside(**stranger: Any) -> SimulatedKernel:
    first, audio = ({**function, "group": 5, "driver": "vfio-pci"} for function in card("17"))
    return host(first, audio, {"address": "0000:18:00.0", "group": 5, **stranger})


def bound_without_iommu() -> SimulatedKernel:
    return host(*({**function, "driver": "vfio-pci"} for function in card("17")), iommu=False)


@pytest.mark.parametrize(
    ("kernel", "code"),
    [
        (bound_beside(id="144d:a808", **{"class": "010802"}, driver="nvme"), "group-shared"),
        (bound_without_iommu(), "iommu-inactive"),
    ],
)
def test_a_gpu_on_vfio_that_no_vm_can_have_is_not_called_done(kernel: SimulatedKernel, code: str) -> None:
    plan = bind_plan(kernel)
    assert plan.refusal is not None
    assert plan.refusal.code == code
    assert plan.steps == ()


def test_a_boot_display_that_is_on_vfio_already_stays_there() -> None:
    kernel = host(*({**function, "driver": "vfio-pci"} for function in card("17", boot_vga=True)))
    assert bind_plan(kernel) == Plan("bind", CARD)


def test_a_fabric_switch_on_its_driver_keeps_a_group_from_vms() -> None:
    kernel = bound_beside(id="10de:22a3", **{"class": "068000"}, driver="nvidia-nvswitch")
    with pytest.raises(RefusedError, match="not viable"):
        CheckGroup(CARD, 5).apply(StepContext(kernel))
    assert not CheckGroup(CARD, 5).is_done(StepContext(kernel))


@pytest.mark.parametrize("driver", ["nvidia", "", "vfio", "vfio-pci-x"])
def test_only_vfio_drivers_are_bound_to(driver: str) -> None:
    kernel = two_cards()
    with pytest.raises(UsageError) as caught:
        bind_plan(kernel, CARD, driver=driver)
    assert caught.value.code == "driver-invalid"
