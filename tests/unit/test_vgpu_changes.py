"""Making vGPUs and making them go, on simulated hosts: what is made, refused and skipped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.vgpu_hosts import (
    create,
    delete,
    fits,
    flex,
    gvt,
    host,
    look,
    nvidia,
    order,
    run,
    sliced,
    state,
    t4,
    uuids,
)
from vgpumgr.allocations.slices import Slices
from vgpumgr.errors import FailedError
from vgpumgr.kernel.port import MDEV_DEVICES, PCI_DEVICES
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.model.allocation import DeviceKind
from vgpumgr.plans.step import step_from_record
from vgpumgr.vgpu.changes import made
from vgpumgr.vgpu.mdev_steps import same_params
from vgpumgr.vgpu.names import same_profile
from vgpumgr.vgpu.port import Order, Room

FIRST_VF = "0000:3b:00.4"
CASES = [
    pytest.param(nvidia("mdev-vf"), "NVIDIA A40-8Q", 6, id="mdev-on-vfs"),
    pytest.param(nvidia("vendor-vfio"), "NVIDIA A40-8Q", 6, id="vendor-vfio"),
    pytest.param(nvidia("vendor-vfio", header=False), "A40-48Q", 1, id="vendor-vfio-without-header"),
    pytest.param(t4(), "GRID T4-1Q", 16, id="mdev-on-card"),
    pytest.param(gvt(), "i915-GVTg_V5_4", 2, id="gvt-g"),
]


def machine(entry: dict[str, Any]) -> SimulatedKernel:
    return sliced(entry) if "sriov" in entry else host(entry)


@pytest.mark.parametrize(("entry", "profile", "most"), CASES)
def test_up_to_the_limit_and_not_one_more(entry: dict[str, Any], profile: str, most: int) -> None:
    kernel = machine(entry)
    for left in range(most, 0, -1):
        (offer,) = (item for item in state(kernel).profiles if same_profile(profile, item.id, item.name))
        assert offer.creatable == left
        create(kernel, profile)
    refusal = order(kernel, Order(profile)).plan.refusal
    assert refusal is not None
    # Where the driver's list went empty, the profile is on it only as far as the card holds it.
    assert refusal.code == "no-capacity"
    assert len(state(kernel).instances) == most


@pytest.mark.parametrize(("entry", "profile", "most"), CASES)
def test_what_was_made_goes_again_and_leaves_nothing(entry: dict[str, Any], profile: str, most: int) -> None:
    kernel = machine(entry)
    before = fits(kernel)
    devices = create(kernel, profile, most)
    assert {vgpu.id for vgpu in state(kernel).instances} == {device.handle for device in devices}
    delete(kernel, *(device.handle or "" for device in devices))
    assert fits(kernel) == before
    assert state(kernel).instances == ()


def test_deleting_what_is_gone_needs_nothing() -> None:
    assert delete(machine(t4()), "00000000-0000-4000-8000-000000000001").steps == ()


def test_uuids_and_types_are_what_was_asked() -> None:
    kernel = machine(t4())
    planned = order(kernel, Order("GRID T4-4Q", 2), room=Room(new_uuid=uuids()))
    run(kernel, planned.plan)
    assert [(vgpu.id, vgpu.profile_id) for vgpu in state(kernel).instances] == [
        ("00000000-0000-4000-8000-000000000001", "nvidia-232"),
        ("00000000-0000-4000-8000-000000000002", "nvidia-232"),
    ]


@pytest.mark.parametrize(
    ("entry", "base"), [(t4(), MDEV_DEVICES), (nvidia("vendor-vfio"), PCI_DEVICES)], ids=["mdev", "typed-vf"]
)
def test_parameters_are_written_and_read_back(entry: dict[str, Any], base: str) -> None:
    kernel = machine(entry)
    (device,) = create(kernel, state(kernel).profiles[0].id, params="frame_rate_limiter=0,disable_vnc=1")
    written = kernel.read(f"{base}/{device.handle}/nvidia/vgpu_params")
    assert written == b"frame_rate_limiter=0,disable_vnc=1\n"


def test_a_typed_vf_stays_on_its_driver() -> None:
    kernel = machine(nvidia("vendor-vfio"))
    (device,) = create(kernel, "NVIDIA A40-8Q")
    assert device.kind is DeviceKind.TYPED_VF
    assert kernel.driver(device.handle or "") == "nvidia"


def test_claimed_vfs_are_left_to_their_claimants() -> None:
    kernel = machine(nvidia("vendor-vfio"))
    planned = order(kernel, Order("NVIDIA A40-8Q"), room=Room(taken={FIRST_VF, "0000:3b:00.5"}))
    assert [device.handle for device in planned.devices] == ["0000:3b:00.6"]


@pytest.mark.parametrize("scheme", ["mdev-vf", "vendor-vfio"])
def test_one_bad_vf_is_skipped_and_reported(scheme: str) -> None:
    kernel = machine(nvidia(scheme, bad_vfs=[FIRST_VF]))
    planned = order(kernel, Order("NVIDIA A40-8Q", 2))
    run(kernel, planned.plan)
    devices, skipped = made(kernel, planned)
    assert {device.handle for device in devices} == {vgpu.id for vgpu in state(kernel).instances}
    assert len(devices) == 2
    assert [(reason.code, reason.addresses) for reason in skipped] == [("vf-skipped", (FIRST_VF,))]


@pytest.mark.parametrize("scheme", ["mdev-vf", "vendor-vfio"])
def test_the_journal_says_which_vf_was_skipped(scheme: str) -> None:
    kernel = machine(nvidia(scheme, bad_vfs=[FIRST_VF]))
    journal = run(kernel, order(kernel, Order("NVIDIA A40-8Q")).plan)
    (step,) = journal.entries["op"].steps
    (vgpu,) = state(kernel).instances
    assert step.error == f"{FIRST_VF} refused to become a NVIDIA A40-8Q; {vgpu.parent} took it"


def test_parameters_go_with_the_vgpu_past_a_bad_vf() -> None:
    kernel = machine(nvidia("vendor-vfio", bad_vfs=[FIRST_VF]))
    create(kernel, "NVIDIA A40-8Q", params="frame_rate_limiter=0")
    (vgpu,) = state(kernel).instances
    assert vgpu.id != FIRST_VF
    assert kernel.read(f"{PCI_DEVICES}/{vgpu.id}/nvidia/vgpu_params") == b"frame_rate_limiter=0\n"
    assert kernel.read(f"{PCI_DEVICES}/{FIRST_VF}/nvidia/vgpu_params") == b"\n"


def test_a_vgpu_does_not_inherit_the_parameters_of_the_one_before_it() -> None:
    kernel = machine(nvidia("vendor-vfio"))
    create(kernel, "NVIDIA A40-8Q", params="disable_vnc=1")
    delete(kernel, FIRST_VF)
    create(kernel, "NVIDIA A40-8Q")
    assert kernel.read(f"{PCI_DEVICES}/{FIRST_VF}/nvidia/vgpu_params") == b"\n"


@pytest.mark.parametrize("shown", ["disable_vnc=1 frame_rate_limiter=0", "disable_vnc=1,frame_rate_limiter=0"])
def test_parameters_are_read_back_whatever_stands_between_them(shown: str) -> None:
    assert same_params(shown, "disable_vnc=1, frame_rate_limiter=0")
    assert not same_params(shown, "disable_vnc=1")


def test_a_vf_that_somebody_else_typed_meanwhile_is_not_taken_for_ours() -> None:
    kernel = machine(nvidia("vendor-vfio"))
    planned = order(kernel, Order("NVIDIA A40-8Q"))
    kernel.write(f"{PCI_DEVICES}/{FIRST_VF}/nvidia/current_vgpu_type", planned.devices[0].profile_id or "")
    with pytest.raises(FailedError) as caught:
        run(kernel, planned.plan)
    assert caught.value.code == "vgpu-exists"
    assert [vgpu.id for vgpu in state(kernel).instances] == [FIRST_VF]


@pytest.mark.parametrize("scheme", ["mdev-vf", "vendor-vfio"])
def test_spares_of_one_order_are_not_taken_from_the_next(scheme: str) -> None:
    kernel = machine(nvidia(scheme) | {"sriov": {"total": 6, "vf_driver": "nvidia"}})
    planned = order(kernel, Order("NVIDIA A40-8Q", 3), Order("NVIDIA A40-8C", 3))
    run(kernel, planned.plan)
    assert len({vgpu.parent for vgpu in state(kernel).instances}) == 6


def test_vfs_that_are_claimed_are_no_capacity() -> None:
    kernel = machine(nvidia("vendor-vfio") | {"sriov": {"total": 2, "vf_driver": "nvidia"}})
    refusal = order(kernel, Order("NVIDIA A40-8Q", 2), room=Room(taken={FIRST_VF})).plan.refusal
    assert refusal is not None
    assert [reason.code for reason in refusal.reasons] == ["vfs-taken"]


def test_a_conflict_between_orders_is_found_before_the_first_write() -> None:
    kernel = machine(nvidia("vendor-vfio"))
    refusal = order(kernel, Order("NVIDIA A40-3Q"), Order("NVIDIA A40-3Q"), Order("NVIDIA A40-6Q")).plan.refusal
    assert refusal is not None
    assert [reason.code for reason in refusal.reasons] == ["size-class"]


def test_promises_of_others_count() -> None:
    kernel = machine(t4())
    refusal = order(kernel, Order("GRID T4-8Q"), pending={"nvidia-233": 2}).plan.refusal
    assert refusal is not None
    assert refusal.code == "no-capacity"


@pytest.mark.parametrize(
    ("profile", "code"),
    [("NVIDIA A40-8q", "profile-unknown"), ("11", "profile-unknown"), ("nvidia-56", "profile-unknown")],
)
def test_a_profile_that_is_not_there(profile: str, code: str) -> None:
    refusal = order(machine(nvidia("mdev-vf")), Order(profile)).plan.refusal
    assert refusal is not None
    assert refusal.code == code


def test_a_profile_of_another_card_names_that_card() -> None:
    other = nvidia("mdev", {"prefix": "GRID P40", "Q": {"first": 46, "gib": [1, 2]}}, 24576)
    kernel = host(t4(), other | {"address": "0000:5e:00.0", "id": "10de:1b38"})
    refusal = order(kernel, Order("GRID P40-2Q")).plan.refusal
    assert refusal is not None
    assert (refusal.code, refusal.reasons[0].addresses) == ("profile-other-card", ("0000:5e:00.0",))


def test_a_card_without_vfs_says_how_to_get_them() -> None:
    refusal = order(host(nvidia("mdev-vf")), Order("NVIDIA A40-8Q")).plan.refusal
    assert refusal is not None
    assert refusal.code == "vfs-off"
    assert "gpu slice" in refusal.hint


@pytest.mark.parametrize("entry", [nvidia("vendor-vfio"), nvidia("mdev-vf"), t4(), flex()])
def test_steps_survive_the_journal(entry: dict[str, Any]) -> None:
    kernel = machine(entry) if entry["id"] != "8086:56c0" else host(entry)
    plan = order(kernel, Order(state(kernel).profiles[0].id, 1, "")).plan
    assert plan.steps
    assert [step_from_record(step.to_record()) for step in plan.steps] == list(plan.steps)
    assert all(step.describe() and step.to_json()["kind"] for step in plan.steps)


def test_a_size_that_the_lists_lost_is_no_unknown_profile_of_the_host_either() -> None:
    kernel = sliced(nvidia("vendor-vfio"))
    create(kernel, "NVIDIA A40-8Q")
    slices = Slices(kernel, lambda but_for=None: look(kernel)[0], lambda inventory, address: look(kernel)[1])
    codes = {}
    for profile in ("A40-24Q", "A10-24Q"):
        refusal = slices.plan_create(profile).refusal
        assert refusal is not None
        codes[profile] = refusal.code
    assert codes == {"A40-24Q": "no-capacity", "A10-24Q": "profile-unknown"}


def test_a_size_that_the_list_lost_is_no_unknown_profile() -> None:
    kernel = machine(nvidia("vendor-vfio"))
    create(kernel, "NVIDIA A40-8Q")
    for wanted in ("A40-12Q", "NVIDIA A40-12Q"):
        refusal = order(kernel, Order(wanted)).plan.refusal
        assert refusal is not None
        assert (refusal.code, [reason.code for reason in refusal.reasons]) == ("no-capacity", ["not-offered"])
    refusal = order(kernel, Order("A40-12Z")).plan.refusal
    assert refusal is not None
    assert refusal.code == "profile-unknown"


def test_a_vgpu_and_a_vf_never_share_a_group_of_the_simulation() -> None:
    kernel = host(t4(), nvidia("vendor-vfio") | {"address": "0000:5e:00.0"})
    create(kernel, "GRID T4-8Q", 2)
    kernel.vendor_vfs("0000:5e:00.0", enabled=True)
    groups = kernel.list("/sys/kernel/iommu_groups")
    assert {len(kernel.list(f"/sys/kernel/iommu_groups/{group}/devices")) for group in groups} == {1}
