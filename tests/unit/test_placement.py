"""Placement: who fits best, who does not fit and why; pure functions on made-up inventories."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpumgr.errors import Reason
from vgpumgr.model.allocation import AllocationRequest, Placement
from vgpumgr.model.host import (
    Gpu,
    GpuKind,
    Health,
    HealthStatus,
    HostInventory,
    IommuState,
    Passthrough,
    PassthroughState,
    Topology,
)
from vgpumgr.model.pci import PciFunction
from vgpumgr.model.vgpu import Backend, Profile, Vgpu, VgpuState
from vgpumgr.placement import place

State = PassthroughState


def gpu(
    bus: int,
    state: State = State.HOST,
    *,
    node: int | None = 0,
    switch: str | None = None,
    kind: GpuKind = GpuKind.GPU,
    vgpu: VgpuState | None = None,
    health: HealthStatus = HealthStatus.OK,
    name: str = "NVIDIA A40",
) -> Gpu:
    address = f"0000:{bus:02x}:00.0"
    assignable = state in (State.HOST, State.READY, State.PARKED)
    reasons = () if assignable else (Reason(str(state), f"it is {state}", (address,)),)
    return Gpu(
        function=PciFunction(address, "030200", "10de", "2235", "nvidia", bus, node),
        kind=kind,
        name=name,
        boot_display=False,
        companions=(),
        passthrough=Passthrough(assignable, state, reasons),
        health=Health(health),
        topology=Topology(None, (switch,) if switch else ()),
        vgpu=vgpu or VgpuState(),
    )


def sliced(creatable: int, *, instances: int = 0, name: str = "NVIDIA A40-4Q", most: int = 12) -> VgpuState:
    profile = Profile("nvidia-560", name, creatable, 4096, most)
    live = tuple(Vgpu(f"v{number}", "nvidia-560", name, "p") for number in range(instances))
    return VgpuState(True, Backend.MDEV, (profile,), live)


def host(*gpus: Gpu) -> HostInventory:
    return HostInventory("h", "6", IommuState(True), (), (), gpus)


def ask(*gpus: Gpu, **wanted: Any) -> Placement:
    return place(host(*gpus), AllocationRequest("vm", **wanted))


def chosen(placement: Placement) -> list[list[int]]:
    return [[int(device.gpu[5:7], 16) for device in item.devices] for item in placement.candidates]


def codes(placement: Placement) -> dict[int, list[str]]:
    return {int(item.gpu[5:7], 16): [reason.code for reason in item.reasons] for item in placement.refusals}


def test_a_gpu_that_is_ready_comes_before_one_to_be_taken_and_ties_go_in_bus_order() -> None:
    assert chosen(ask(gpu(4), gpu(3), gpu(2, State.READY), gpu(1, State.PARKED))) == [[2], [1], [3], [4]]


@pytest.mark.parametrize("state", [State.IN_USE, State.RESERVED, State.UNKNOWN, State.FAILED])
def test_what_is_not_known_to_be_free_is_never_offered(state: State) -> None:
    placement = ask(gpu(1, state))
    assert placement.candidates == ()
    assert codes(placement) == {1: [str(state)]}


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"gpu": "0000:09:00.0"}, "other-gpu"),
        ({"vendor_id": "1002"}, "other-vendor"),
        ({"device_id": "20b5"}, "other-device"),
        ({"model": "h100"}, "other-model"),
        ({"numa_node": 1}, "other-numa-node"),
    ],
)
def test_what_was_not_asked_for_is_passed_over_with_its_reason(wanted: dict[str, Any], code: str) -> None:
    placement = ask(gpu(1), **wanted)
    assert placement.candidates == ()
    assert codes(placement) == {1: [code]}


def test_a_request_is_met_in_any_spelling() -> None:
    wanted = {"gpu": "01:00.0", "vendor_id": "10DE", "model": "a40", "numa_node": 0}
    assert chosen(ask(gpu(1), **wanted)) == [[1]]


@pytest.mark.parametrize("kind", [GpuKind.BMC_VGA, GpuKind.NVSWITCH])
def test_consoles_and_switches_are_never_offered(kind: GpuKind) -> None:
    assert codes(ask(gpu(1, kind=kind))) == {1: ["kind-not-offered"]}


def test_several_gpus_come_from_one_switch_or_node_where_they_can() -> None:
    gpus = [
        gpu(1, node=0, switch="s1"),
        gpu(2, node=0, switch="s2"),
        gpu(3, node=1, switch="s3"),
        gpu(4, node=1, switch="s3"),
    ]
    best = ask(*gpus, count=2)
    assert chosen(best)[0] == [3, 4]
    assert "all behind switch s3" in best.candidates[0].notes


def test_too_few_are_too_few() -> None:
    placement = ask(gpu(1), gpu(2, State.IN_USE), count=2)
    assert placement.candidates == ()
    assert codes(placement) == {1: ["too-few"], 2: ["in-use"]}


def mate(bus: int, in_host_use: list[int], state: State = State.HOST, group: int = 70) -> Gpu:
    """A GPU of a shared IOMMU group that other members on host drivers keep from it."""
    alone = gpu(bus, state)
    addresses = tuple(f"0000:{number:02x}:00.0" for number in in_host_use)
    reasons = (Reason("group-shared", "the group is shared", addresses),) if addresses else ()
    function = alone.function._replace(iommu_group=group)
    return alone._replace(function=function, passthrough=Passthrough(not reasons, state, reasons))


@pytest.mark.parametrize(
    ("gpus", "count", "sets"),
    [
        ([mate(1, [2]), mate(2, [1])], 1, []),
        ([mate(1, [2]), mate(2, [1])], 2, [[1, 2]]),
        ([mate(1, [2]), mate(2, [1]), gpu(9)], 3, [[1, 2, 9]]),
        ([mate(1, [2]), mate(2, [1])], 3, []),
        ([mate(1, [2, 5]), mate(2, [1, 5])], 2, []),
        ([mate(1, [2, 3]), mate(2, [1, 3]), mate(3, [1, 2])], 2, []),
        ([mate(1, [2, 3]), mate(2, [1, 3]), mate(3, [1, 2])], 3, [[1, 2, 3]]),
        ([mate(1, [2]), mate(2, [1]), mate(3, [1, 2], State.PARKED)], 2, [[1, 2]]),
        ([mate(1, [2]), mate(2, [1]), mate(3, [1, 2], State.PARKED)], 3, [[1, 2, 3]]),
        ([mate(1, [2], State.PARKED), mate(2, [])], 2, [[1, 2]]),
        ([mate(1, [2]), mate(2, [1]), mate(3, [4], group=71), mate(4, [3], group=71)], 2, [[1, 2], [3, 4]]),
        ([mate(1, [2]), mate(2, [1], State.IN_USE)], 2, []),
    ],
)
def test_gpus_in_each_others_way_alone_go_to_one_vm(gpus: list[Gpu], count: int, sets: list[list[int]]) -> None:
    placement = ask(*gpus, count=count)
    assert chosen(placement) == sets
    offered = {number for each in sets for number in each}
    assert offered.isdisjoint(codes(placement))


def test_a_degraded_gpu_comes_last_and_says_so() -> None:
    placement = ask(gpu(1, health=HealthStatus.DEGRADED), gpu(2))
    assert chosen(placement) == [[2], [1]]
    assert any("degraded" in note for note in placement.candidates[1].notes)


@pytest.mark.parametrize("profile", ["nvidia-560", "NVIDIA A40-4Q", "A40-4Q"])
def test_a_profile_goes_by_id_name_or_name_without_the_maker(profile: str) -> None:
    assert chosen(ask(gpu(1, vgpu=sliced(3)), profile=profile)) == [[1]]


@pytest.mark.parametrize("profile", ["nvidia-56", "A40-4", "a40-4q", "40-4Q", "NVIDIA A40-4Q "])
def test_a_profile_is_never_matched_in_part(profile: str) -> None:
    assert codes(ask(gpu(1, vgpu=sliced(3)), profile=profile)) == {1: ["profile-unknown"]}


def test_cards_that_are_cut_already_are_filled_first() -> None:
    gpus = [gpu(1, vgpu=sliced(12)), gpu(2, vgpu=sliced(2, instances=10)), gpu(3, vgpu=sliced(8, instances=4))]
    assert chosen(ask(*gpus, profile="A40-4Q")) == [[2], [3], [1]]


def test_several_slices_stay_on_one_card_and_spread_only_when_they_must() -> None:
    gpus = [gpu(1, vgpu=sliced(2, instances=10)), gpu(2, vgpu=sliced(3, instances=9))]
    assert chosen(ask(*gpus, profile="A40-4Q", count=3)) == [[2, 2, 2]]
    assert sorted(chosen(ask(*gpus, profile="A40-4Q", count=5))[0]) == [1, 1, 2, 2, 2]
    assert codes(ask(*gpus, profile="A40-4Q", count=6)) == {1: ["too-few"], 2: ["too-few"]}


def test_a_full_card_says_why() -> None:
    full = sliced(0)
    limited = full._replace(profiles=(full.profiles[0]._replace(limit=Reason("card-full", "no framebuffer left")),))
    assert codes(ask(gpu(1, vgpu=limited), profile="A40-4Q")) == {1: ["card-full"]}


@given(
    states=st.lists(st.sampled_from(list(State)), max_size=12),
    count=st.integers(1, 14),
    nodes=st.lists(st.sampled_from([0, 1, None]), min_size=12, max_size=12),
)
def test_candidates_are_free_distinct_and_complete(
    states: list[State], count: int, nodes: list[int | None]
) -> None:
    gpus = [gpu(bus + 1, state, node=node) for bus, (state, node) in enumerate(zip(states, nodes, strict=False))]
    placement = ask(*gpus, count=count)
    free = {item.address for item in gpus if item.passthrough.assignable}
    for candidate in placement.candidates:
        addresses = [device.gpu for device in candidate.devices]
        assert len(addresses) == len(set(addresses)) == count
        assert set(addresses) <= free
    assert bool(placement.candidates) == (len(free) >= count)
    passed_over = {refusal.gpu for refusal in placement.refusals}
    assert all(refusal.reasons for refusal in placement.refusals)
    assert {item.address for item in gpus} - free <= passed_over


def test_a_thousand_gpus_are_placed_without_counting_every_set() -> None:
    gpus = [gpu(bus % 250 + 1, node=bus % 8) for bus in range(1000)]
    assert len(ask(*gpus, count=16).candidates) <= 9
