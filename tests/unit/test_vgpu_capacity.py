"""Tables of (state of the card, profile) → how many more, and what ends it. Pure: no host, no kernel."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from vgpumgr.vgpu.capacity import CardState, Resident, Shape, SizeMode, capacity
from vgpumgr.vgpu.catalogue import card_framebuffer_mib, facts_for
from vgpumgr.vgpu.mig import GpuInstance, MigState

CARD = "0000:3b:00.0"
MANY = 32
"""Free VFs, or instances the driver has: more than any limit here."""


def shape(name: str) -> Shape:
    facts = facts_for(name)
    return Shape(name, name, facts.framebuffer_mib, facts.max_instances, facts.max_mixed, facts.mig_shape)


def held(*names: str) -> tuple[Resident, ...]:
    return tuple(Resident(shape(name)) for name in names)


def promised(*names: str) -> tuple[Resident, ...]:
    return tuple(Resident(shape(name), reserved=True) for name in names)


def card(
    residents: Sequence[Resident] = (),
    mode: SizeMode = SizeMode.EQUAL,
    *,
    vfs: int | None = None,
    mig: MigState | None = None,
    of: str = "",
) -> CardState:
    return CardState(CARD, mode, tuple(residents), vfs, card_framebuffer_mib(of), mig)


EQUAL = [
    # GPU on the card itself (T4, M60), empty and part full.
    ("T4", (), "GRID T4-16Q", 1),
    ("T4", (), "GRID T4-8Q", 2),
    ("T4", (), "GRID T4-4C", 4),
    ("T4", (), "GRID T4-2B", 8),
    ("T4", (), "GRID T4-1A", 16),
    ("T4", ("GRID T4-4Q",), "GRID T4-4C", 3),
    ("T4", ("GRID T4-4Q",), "GRID T4-2B", 0),
    ("T4", ("GRID T4-1B",) * 16, "GRID T4-1Q", 0),
    ("M60", (), "GRID M60-8Q", 1),
    ("M60", (), "GRID M60-4Q", 2),
    ("M60", (), "GRID M60-0Q", 16),
    ("M60", ("GRID M60-2Q",) * 2, "GRID M60-2B", 2),
    ("M60", ("GRID M60-0B",), "GRID M60-1Q", 0),
    # One vGPU to a VF.
    ("A2", (), "NVIDIA A2-4Q", 4),
    ("A2", ("NVIDIA A2-4C", "NVIDIA A2-4A", "NVIDIA A2-4Q"), "NVIDIA A2-4Q", 1),
    ("A2", ("NVIDIA A2-4C", "NVIDIA A2-4A", "NVIDIA A2-4Q"), "NVIDIA A2-2Q", 0),
    ("A16", (), "NVIDIA A16-2Q", 8),
    ("A16", (), "NVIDIA A16-16C", 1),
    ("A16", ("NVIDIA A16-2B",) * 7, "NVIDIA A16-2Q", 1),
    ("A40", (), "NVIDIA A40-48Q", 1),
    ("A40", (), "NVIDIA A40-16C", 3),
    ("A40", (), "NVIDIA A40-4C", 12),
    ("A40", (), "NVIDIA A40-2Q", 24),
    ("A40", (), "NVIDIA A40-1B", 32),
    ("A40", ("NVIDIA A40-8Q",) * 5, "NVIDIA A40-8C", 1),
    ("A40", ("NVIDIA A40-8Q",) * 6, "NVIDIA A40-8C", 0),
    ("A100", (), "GRID A100-4C", 10),
    ("A100", (), "GRID A100-8C", 5),
    ("A100", (), "GRID A100-40C", 1),
    ("A100", ("GRID A100-20C",), "GRID A100-20C", 1),
    ("L40S", (), "NVIDIA L40S-3B", 16),
    ("L40S", (), "NVIDIA L40S-12Q", 4),
    ("L40S", ("NVIDIA L40S-24Q",), "NVIDIA L40S-24A", 1),
    ("H100", (), "NVIDIA H100-80C", 1),
    ("H100", (), "NVIDIA H100-16C", 5),
    ("H100", ("NVIDIA H100-10C",) * 3, "NVIDIA H100-10C", 5),
]


@pytest.mark.parametrize(("of", "residents", "profile", "expected"), EQUAL)
def test_cards_of_one_size(of: str, residents: tuple[str, ...], profile: str, expected: int) -> None:
    vfs = None if of in ("T4", "M60") else MANY - len(residents)
    found = capacity(card(held(*residents), vfs=vfs, of=profile), shape(profile), MANY)
    assert found.left == expected


MIXED = [
    ((), "NVIDIA L40S-24Q", 2),
    ((), "NVIDIA L40S-16Q", 2),
    ((), "NVIDIA L40S-8Q", 4),
    ((), "NVIDIA L40S-4C", 8),
    ((("NVIDIA L40S-24Q", 0),), "NVIDIA L40S-24Q", 1),
    ((("NVIDIA L40S-24Q", 0),), "NVIDIA L40S-12C", 2),
    ((("NVIDIA L40S-24Q", 0), ("NVIDIA L40S-12C", 24576)), "NVIDIA L40S-12C", 1),
    ((("NVIDIA L40S-4C", 0), ("NVIDIA L40S-4C", 24576)), "NVIDIA L40S-24Q", 0),
    ((("NVIDIA L40S-4C", 0), ("NVIDIA L40S-4C", 24576)), "NVIDIA L40S-12Q", 2),
    ((), "NVIDIA H100-40C", 2),
    ((("NVIDIA H100-40C", 0),), "NVIDIA H100-20C", 2),
    ((("NVIDIA H100-40C", 0), ("NVIDIA H100-4C", 40960)), "NVIDIA H100-20C", 1),
    ((("NVIDIA H100-40C", 0), ("NVIDIA H100-4C", 40960)), "NVIDIA H100-40C", 0),
    ((("NVIDIA H100-16C", 0),), "NVIDIA H100-80C", 0),
    ((("NVIDIA H100-16C", 0),), "NVIDIA H100-16C", 3),
]


@pytest.mark.parametrize(("placed", "profile", "expected"), MIXED)
def test_cards_of_mixed_sizes(placed: tuple[tuple[str, int], ...], profile: str, expected: int) -> None:
    residents = [Resident(shape(name), placement=start) for name, start in placed]
    found = capacity(card(residents, SizeMode.MIXED, vfs=MANY, of=profile), shape(profile), MANY)
    assert found.left == expected


def test_a_vgpu_whose_place_is_unknown_spoils_as_much_as_it_can() -> None:
    one_small = card(held("NVIDIA H100-4C"), SizeMode.MIXED, vfs=MANY, of="NVIDIA H100-4C")
    assert capacity(one_small, shape("NVIDIA H100-40C"), MANY).left == 1
    assert capacity(one_small, shape("NVIDIA H100-80C"), MANY).left == 0


def instances(*shapes: str) -> tuple[GpuInstance, ...]:
    return tuple(GpuInstance(number, 0, name, number, 1) for number, name in enumerate(shapes))


A100_MIG = [
    ((), (), "GRID A100-1-5C", 0, "mig-no-instance"),
    (("1g.5gb",) * 7, (), "GRID A100-1-5C", 7, "mig-instances-taken"),
    (("1g.5gb",) * 7, ("GRID A100-1-5C",) * 7, "GRID A100-1-5C", 0, "mig-instances-taken"),
    (("3g.20gb", "3g.20gb"), ("GRID A100-3-20C",), "GRID A100-3-20C", 1, "mig-instances-taken"),
    (("3g.20gb", "4g.20gb"), (), "GRID A100-4-20C", 1, "mig-instances-taken"),
    (("3g.20gb", "4g.20gb"), (), "GRID A100-2-10C", 0, "mig-no-instance"),
    (("7g.40gb",), (), "GRID A100-7-40C", 1, "mig-instances-taken"),
    (("7g.40gb",), (), "GRID A100-40C", 0, "mig-on"),
    (("1g.5gb+me",), (), "GRID A100-1-5CME", 1, "mig-instances-taken"),
]


@pytest.mark.parametrize(("cut", "residents", "profile", "expected", "limit"), A100_MIG)
def test_mig_one_vgpu_to_an_instance(
    cut: tuple[str, ...], residents: tuple[str, ...], profile: str, expected: int, limit: str
) -> None:
    state = card(held(*residents), vfs=MANY, mig=MigState(True, instances(*cut)), of=profile)
    found = capacity(state, shape(profile), MANY)
    assert (found.left, found.limit.code) == (expected, limit)


def test_mig_off_bars_mig_backed_profiles_only() -> None:
    state = card(vfs=MANY, mig=MigState(False), of="GRID A100-4C")
    assert capacity(state, shape("GRID A100-1-5C"), MANY).limit.code == "mig-off"
    assert capacity(state, shape("GRID A100-4C"), MANY).left == 10


SHARED = Shape("1562", "DC-1-12Q", 12288, 8, mig_shape="1g.24gb")
WHOLE = Shape("1563", "DC-1-24Q", 24576, 4, mig_shape="1g.24gb")
TIME_SLICED = [
    (2, (), SHARED, 4),
    (2, ((SHARED, 0),), SHARED, 3),
    (2, ((SHARED, 0),), WHOLE, 1),
    (2, ((WHOLE, 0), (SHARED, 1)), SHARED, 1),
    (2, ((WHOLE, 0), (SHARED, 1)), WHOLE, 0),
    (2, ((SHARED, None),), WHOLE, 1),
]


@pytest.mark.parametrize(("count", "residents", "profile", "expected"), TIME_SLICED)
def test_mig_shared_by_time(
    count: int, residents: tuple[tuple[Shape, int | None], ...], profile: Shape, expected: int
) -> None:
    per_instance = (("1g.24gb", 12288, 2), ("1g.24gb", 24576, 1))
    mig = MigState(True, instances(*["1g.24gb"] * count), True, per_instance)
    inside = [Resident(item, gpu_instance=where) for item, where in residents]
    assert capacity(card(inside, vfs=MANY, mig=mig), profile, MANY).left == expected


GVT4 = Shape("i915-GVTg_V5_4", "i915-GVTg_V5_4", 128)
GVT8 = Shape("i915-GVTg_V5_8", "i915-GVTg_V5_8", 64)


@pytest.mark.parametrize(
    ("residents", "left", "profile", "offered", "expected"),
    [
        ((), 128, GVT4, 1, 1),
        ((), 128, GVT8, 2, 2),
        ((Resident(GVT4),), 0, GVT8, 0, 0),
        ((Resident(GVT4, reserved=True),), 128, GVT8, 2, 0),
        ((Resident(GVT8, reserved=True),), 128, GVT8, 2, 1),
    ],
)
def test_gvt_g_goes_by_what_the_driver_says(
    residents: tuple[Resident, ...], left: int, profile: Shape, offered: int, expected: int
) -> None:
    made = sum(item.shape.framebuffer_mib or 0 for item in residents if not item.reserved)
    state = CardState(CARD, SizeMode.FREE, residents, framebuffer_mib=left + made)
    assert capacity(state, profile, offered).left == expected


def test_never_more_than_the_driver_offers() -> None:
    found = capacity(card(vfs=MANY, of="NVIDIA A40-8Q"), shape("NVIDIA A40-8Q"), 2)
    assert (found.left, found.limit.code) == (2, "driver-offer")


def test_never_more_than_free_vfs() -> None:
    found = capacity(card(vfs=3, of="NVIDIA A40-1Q"), shape("NVIDIA A40-1Q"), 3)
    assert (found.left, found.limit.code) == (3, "vfs-taken")


def test_promises_take_room_and_set_the_size() -> None:
    state = card(promised("NVIDIA A40-8Q", "NVIDIA A40-8Q"), vfs=MANY, of="NVIDIA A40-8Q")
    assert capacity(state, shape("NVIDIA A40-8C"), MANY).left == 4
    assert capacity(state, shape("NVIDIA A40-8C"), MANY).limit.code == "reserved"
    assert capacity(state, shape("NVIDIA A40-4C"), MANY).limit.code == "size-class"


@pytest.mark.parametrize(
    ("on_card", "profile", "offered", "vfs", "limit"),
    [
        (held("GRID T4-4Q"), "GRID T4-8Q", 0, None, "size-class"),
        (held("NVIDIA A40-8Q"), "NVIDIA A40-4Q", 0, MANY, "size-class"),
        (held(*["NVIDIA A40-8Q"] * 6), "NVIDIA A40-8Q", 0, 0, "max-instances"),
    ],
)
def test_a_promise_does_not_hide_why_a_card_takes_no_more(
    on_card: tuple[Resident, ...], profile: str, offered: int, vfs: int | None, limit: str
) -> None:
    state = card((*on_card, *promised(on_card[0].shape.name)), vfs=vfs, of=profile)
    found = capacity(state, shape(profile), offered)
    assert (found.left, found.limit.code) == (0, limit)


def test_the_last_one_that_is_promised_is_said_to_be_promised() -> None:
    sample = Shape("mtty-1", "mtty-1")
    state = CardState("mtty", SizeMode.FREE, (Resident(sample, reserved=True),))
    found = capacity(state, sample, 1)
    assert (found.left, found.limit.code) == (0, "reserved")
    assert found.limit.message == "the driver of mtty has 1 more of mtty-1, 1 of them promised"


def test_what_nobody_tells_is_none() -> None:
    unknown = Shape("9", "something")
    assert capacity(CardState(CARD, SizeMode.EQUAL), unknown, None).limit.code == "capacity-unknown"
    assert capacity(CardState(CARD, SizeMode.EQUAL), unknown, None).left == 0
