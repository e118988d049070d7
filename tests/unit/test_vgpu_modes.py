"""Modes through a simulated NVML: MIG, mixed sizes, scheduler, ECC; and what they do to capacity."""

from __future__ import annotations

import pytest

from tests.unit.vgpu_hosts import (
    CARD,
    blackwell,
    create,
    fits,
    h100,
    host,
    look,
    nvidia,
    order,
    run,
    set_modes,
    sliced,
    state,
    t4,
)
from vgpumgr.errors import FailedError
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.telemetry.nvml import open_nvml
from vgpumgr.vgpu.modes import Modes, plan_modes
from vgpumgr.vgpu.nvml_port import NvmlPort, Scheduler
from vgpumgr.vgpu.port import Order


def opened(kernel: SimulatedKernel) -> tuple[SimulatedKernel, NvmlPort]:
    return kernel, open_nvml(kernel)


def refusal_code(kernel: SimulatedKernel, nvml: NvmlPort, wanted: Modes) -> str:
    refusal = plan_modes(nvml, look(kernel, nvml)[1], wanted).refusal
    assert refusal is not None
    return refusal.code


def limits(kernel: SimulatedKernel, nvml: NvmlPort) -> dict[str, str]:
    found = state(kernel, nvml).profiles
    return {item.name.split(" ")[-1]: item.limit.code if item.limit else "" for item in found}


def test_the_simulation_says_what_it_is() -> None:
    assert open_nvml(host(t4())).label == "simulated NVML"


def test_a_host_without_nvml_says_unknown_and_refuses() -> None:
    kernel, nvml = host(t4()), NvmlPort()
    assert nvml.card(CARD) is None
    assert refusal_code(kernel, nvml, Modes(mig=True)) == "nvml-absent"


@pytest.mark.parametrize("scheme", ["vendor-vfio", "mdev-vf"])
def test_mig_up_to_the_last_instance_and_not_one_more(scheme: str) -> None:
    kernel, nvml = opened(host(h100(scheme)))
    set_modes(kernel, nvml, Modes(mig=True))
    kernel.vendor_vfs(CARD, enabled=True)
    set_modes(kernel, nvml, Modes(layout=("3g.40gb", "2g.20gb", "1g.10gb")))
    assert {name: count for name, count in fits(kernel, nvml).items() if count} == {
        "H100XM-3-40C": 1,
        "H100XM-2-20C": 1,
        "H100XM-1-10C": 1,
    }
    for profile in ("H100XM-3-40C", "H100XM-2-20C", "H100XM-1-10C"):
        create(kernel, profile, nvml=nvml)
    refusal = order(kernel, Order("H100XM-1-10C"), nvml=nvml).plan.refusal
    assert refusal is not None
    assert [reason.code for reason in refusal.reasons] == ["mig-instances-taken"]
    assert limits(kernel, nvml)["H100XM-80C"] == "mig-on"
    assert limits(kernel, nvml)["H100XM-7-80C"] == "mig-no-instance"


def test_seven_of_the_smallest_instances() -> None:
    kernel, nvml = opened(host(h100()))
    set_modes(kernel, nvml, Modes(mig=True))
    set_modes(kernel, nvml, Modes(layout=("1g.10gb",) * 7))
    kernel.write(f"/sys/bus/pci/devices/{CARD}/sriov_numvfs", "32")
    assert fits(kernel, nvml)["H100XM-1-10C"] == 7


def test_mig_shared_by_time_holds_one_size_to_an_instance() -> None:
    kernel, nvml = opened(sliced(blackwell()))
    set_modes(kernel, nvml, Modes(mig=True))
    set_modes(kernel, nvml, Modes(layout=("1g.24gb", "1g.24gb")))
    assert fits(kernel, nvml)["DC-1-12Q"] == 4
    assert fits(kernel, nvml)["DC-1-24Q"] == 2
    create(kernel, "NVIDIA RTX Pro 6000 Blackwell DC-1-12Q", nvml=nvml)
    assert fits(kernel, nvml)["DC-1-12Q"] == 3
    assert fits(kernel, nvml)["DC-1-24Q"] == 1
    create(kernel, "NVIDIA RTX Pro 6000 Blackwell DC-1-12Q", 3, nvml=nvml)
    assert limits(kernel, nvml)["DC-1-12Q"] == "mig-instances-taken"
    assert fits(kernel, nvml)["DC-1-24Q"] == 0
    assert {vgpu.gpu_instance for vgpu in state(kernel, nvml).instances} == {1, 2}


def test_mixed_sizes_fill_aligned_places_to_the_last() -> None:
    kernel, nvml = opened(sliced(h100()))
    set_modes(kernel, nvml, Modes(mixed_size=True))
    assert fits(kernel, nvml)["H100XM-40C"] == 2
    create(kernel, "H100XM-40C", nvml=nvml)
    assert fits(kernel, nvml)["H100XM-20C"] == 2
    create(kernel, "H100XM-4C", nvml=nvml)
    assert fits(kernel, nvml)["H100XM-40C"] == 0
    assert fits(kernel, nvml)["H100XM-20C"] == 1
    create(kernel, "H100XM-20C", nvml=nvml)
    assert fits(kernel, nvml)["H100XM-4C"] == 3
    create(kernel, "H100XM-4C", 3, nvml=nvml)
    refusal = order(kernel, Order("H100XM-4C"), nvml=nvml).plan.refusal
    assert refusal is not None
    assert [reason.code for reason in refusal.reasons] == ["placement"]


def test_equal_sizes_are_the_rule_where_mixed_mode_is_off() -> None:
    kernel, nvml = opened(sliced(h100()))
    create(kernel, "H100XM-40C", nvml=nvml)
    assert fits(kernel, nvml)["H100XM-20C"] == 0
    assert limits(kernel, nvml)["H100XM-20C"] == "size-class"


def test_a_layout_is_placed_largest_first_and_kept_where_it_is() -> None:
    kernel, nvml = opened(host(h100()))
    set_modes(kernel, nvml, Modes(mig=True))
    set_modes(kernel, nvml, Modes(layout=("1g.10gb", "2g.20gb", "4g.40gb")))
    card = nvml.card(CARD)
    assert card is not None
    assert {(item.shape, item.start) for item in card.gpu_instances} == {
        ("4g.40gb", 0),
        ("2g.20gb", 4),
        ("1g.10gb", 6),
    }
    plan = set_modes(kernel, nvml, Modes(layout=("3g.40gb", "4g.40gb")))
    assert [step.kind for step in plan.steps] == [
        "destroy-gpu-instance",
        "destroy-gpu-instance",
        "create-gpu-instance",
    ]
    assert set_modes(kernel, nvml, Modes(layout=("3g.40gb", "4g.40gb"))).steps == ()


@pytest.mark.parametrize(
    "layout",
    [
        ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"),
        ("1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "3g.40gb"),
        ("1g.20gb", "3g.40gb", "2g.20gb"),
        ("2g.20gb", "2g.20gb", "2g.20gb", "1g.10gb"),
    ],
)
def test_a_layout_that_fits_is_found_whatever_place_comes_first(layout: tuple[str, ...]) -> None:
    kernel, nvml = opened(host(h100()))
    set_modes(kernel, nvml, Modes(mig=True))
    set_modes(kernel, nvml, Modes(layout=layout))
    card = nvml.card(CARD)
    assert card is not None
    assert sorted(item.shape for item in card.gpu_instances) == sorted(layout)


def test_what_stands_in_the_way_of_a_layout_is_moved() -> None:
    kernel, nvml = opened(host(h100()))
    set_modes(kernel, nvml, Modes(mig=True))
    set_modes(kernel, nvml, Modes(layout=("3g.40gb",)))
    plan = set_modes(kernel, nvml, Modes(layout=("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")))
    assert [step.target_value for step in plan.steps] == [
        "3g.40gb@0",
        "3g.40gb@4",
        "2g.20gb@0",
        "1g.10gb@2",
        "1g.10gb@3",
    ]


def test_a_layout_that_does_not_fit_is_refused_before_any_change() -> None:
    kernel, nvml = opened(host(h100()))
    set_modes(kernel, nvml, Modes(mig=True))
    assert refusal_code(kernel, nvml, Modes(layout=("4g.40gb", "3g.40gb", "1g.10gb"))) == "mig-no-place"
    assert refusal_code(kernel, nvml, Modes(layout=("5g.50gb",))) == "mig-shape-unknown"
    assert refusal_code(kernel, nvml, Modes(mig=False, layout=("1g.10gb",))) == "mig-off"


def test_mixed_sizes_in_mig_mode_are_refused_for_mig_and_go_with_turning_it_off() -> None:
    kernel, nvml = opened(host(h100()))
    set_modes(kernel, nvml, Modes(mig=True))
    assert refusal_code(kernel, nvml, Modes(mixed_size=True)) == "mig-on"
    set_modes(kernel, nvml, Modes(mig=False, mixed_size=True))
    card = nvml.card(CARD)
    assert card is not None
    assert (card.mig, card.mixed_size) == (False, True)


def test_turning_mig_off_takes_its_instances_first() -> None:
    kernel, nvml = opened(host(h100()))
    set_modes(kernel, nvml, Modes(mig=True))
    set_modes(kernel, nvml, Modes(layout=("3g.40gb",)))
    plan = set_modes(kernel, nvml, Modes(mig=False))
    assert [step.kind for step in plan.steps] == ["destroy-gpu-instance", "set-mig-mode"]


def test_modes_stay_while_vgpus_live() -> None:
    kernel, nvml = opened(sliced(h100()))
    create(kernel, "H100XM-40C", nvml=nvml)
    for wanted in (Modes(mig=True), Modes(mixed_size=True)):
        assert refusal_code(kernel, nvml, wanted) == "vgpu-live"


def test_mig_stays_on_while_vfs_are_enabled() -> None:
    kernel, nvml = opened(host(h100()))
    set_modes(kernel, nvml, Modes(mig=True))
    kernel.vendor_vfs(CARD, enabled=True)
    assert refusal_code(kernel, nvml, Modes(mig=False)) == "vfs-enabled"


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (Modes(mig=True), "mig-unsupported"),
        (Modes(mixed_size=True), "mixed-size-unsupported"),
        (Modes(ecc=False), "ecc-unsupported"),
    ],
)
def test_what_a_card_has_not_is_refused_with_its_name(wanted: Modes, code: str) -> None:
    kernel, nvml = opened(host(t4()))
    assert refusal_code(kernel, nvml, wanted) == code


def test_scheduler_and_ecc_are_set_and_read_back() -> None:
    kernel, nvml = opened(host(h100()))
    set_modes(kernel, nvml, Modes(scheduler=Scheduler.FIXED_SHARE, ecc=False))
    card = nvml.card(CARD)
    assert card is not None
    assert (card.scheduler, card.ecc, card.ecc_pending) == (Scheduler.FIXED_SHARE, True, False)
    assert set_modes(kernel, nvml, Modes(scheduler=Scheduler.FIXED_SHARE, ecc=False)).steps == ()


def test_a_plan_that_fails_halfway_goes_back() -> None:
    kernel, nvml = opened(host(h100()))
    set_modes(kernel, nvml, Modes(mig=True))
    plan = plan_modes(nvml, look(kernel, nvml)[1], Modes(layout=("3g.40gb", "4g.40gb")))
    card = kernel.machine.cards[CARD]
    assert card.mig is not None
    small = next(shape for shape in card.mig.shapes if shape.name == "1g.10gb")
    card.mig.create(small, 6)
    with pytest.raises(FailedError) as caught:
        run(kernel, plan, {NvmlPort: nvml})
    assert caught.value.code == "nvml-no-room"
    left = nvml.card(CARD)
    assert left is not None
    assert [item.shape for item in left.gpu_instances] == ["1g.10gb"]


def test_the_vendor_tool_wipes_instances_and_mixed_mode() -> None:
    kernel, nvml = opened(sliced(h100()))
    set_modes(kernel, nvml, Modes(mixed_size=True))
    kernel.vendor_vfs(CARD, enabled=True)
    card = nvml.card(CARD)
    assert card is not None
    assert card.mixed_size is False


def test_a_card_on_vfio_is_not_shown_by_nvml() -> None:
    entry = nvidia("mdev") | {"driver": "vfio-pci", "native": ["nvidia"]}
    assert open_nvml(host(entry)).card(CARD) is None


def test_profiles_know_more_with_nvml() -> None:
    kernel, nvml = opened(sliced(h100()))
    found = {item.name: item for item in state(kernel, nvml).profiles}
    assert found["NVIDIA H100XM-1-10C"].mig_shape == "1g.10gb"
    assert found["NVIDIA H100XM-1-10C"].creatable == 0
    assert found["NVIDIA H100XM-40C"].max_instances_per_vm == 1


def test_modes_stand_on_the_gpu() -> None:
    kernel, nvml = opened(host(h100()))
    modes = state(kernel, nvml).modes
    assert modes is not None
    assert (modes.source, modes.mig, modes.scheduler) == ("simulated NVML", False, "best-effort")
    assert state(kernel).modes is None
