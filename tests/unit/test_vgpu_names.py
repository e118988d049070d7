"""Profile names and type lists in all the forms that drivers print."""

from __future__ import annotations

import pytest

from tests.shared import shared_dir
from vgpumgr.vgpu.catalogue import card_framebuffer_mib, facts_for, name_of_type
from vgpumgr.vgpu.descriptions import parse_creatable, parse_description
from vgpumgr.vgpu.names import ProfileName, parse_name, same_profile


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA A40-8Q", ProfileName("A40", 8, "Q")),
        ("GRID T4-1B", ProfileName("T4", 1, "B")),
        ("GRID P40-2B4", ProfileName("P40", 2, "B", four_heads=True)),
        ("GRID A100-4-20C", ProfileName("A100", 20, "C", slices=4)),
        ("GRID A100-1-5CME", ProfileName("A100", 5, "C", slices=1, suffix="ME")),
        ("NVIDIA RTX Pro 6000 Blackwell DC-1-24Q", ProfileName("RTX Pro 6000 Blackwell DC", 24, "Q", slices=1)),
        ("NVIDIA RTX6000-Ada-48Q", ProfileName("RTX6000-Ada", 48, "Q")),
        ("NVIDIA A10-24", ProfileName("A10", 24)),
        ("NVIDIA A40-8q", None),
        ("nvidia-63", None),
        ("mtty-1", None),
        ("NVIDIA A40-8Z", None),
        ("i915-GVTg_V5_4", None),
        ("", None),
    ],
)
def test_names_are_read_from_the_right(name: str, expected: ProfileName | None) -> None:
    assert parse_name(name) == expected


def test_zero_gigabytes_means_half_of_one() -> None:
    parsed = parse_name("GRID M10-0Q")
    assert parsed is not None
    assert parsed.framebuffer_mib == 512


def test_mig_backed_names_tell_their_gpu_instance() -> None:
    assert facts_for("NVIDIA H100-1-10C").mig_shape == "1g.10gb"
    assert facts_for("GRID A100-1-5CME").mig_shape == "1g.5gb+me"
    assert facts_for("NVIDIA H100-10C").mig_shape is None


@pytest.mark.parametrize("wanted", ["11", "114", "L40S-1", "nvidia-1145", "l40s-1b", "NVIDIA L40S-1"])
def test_nothing_but_the_exact_profile_matches(wanted: str) -> None:
    assert not same_profile(wanted, "1145", "NVIDIA L40S-1B")


@pytest.mark.parametrize("wanted", ["1145", "NVIDIA L40S-1B", "L40S-1B"])
def test_a_profile_answers_to_its_id_and_its_name(wanted: str) -> None:
    assert same_profile(wanted, "1145", "NVIDIA L40S-1B")


def test_the_one_line_description() -> None:
    text = "num_heads=4, frl_config=60, framebuffer=2048M, max_resolution=7680x4320, max_instance=4"
    found = parse_description(text)
    assert (found.heads, found.frame_rate_limit, found.framebuffer_mib) == (4, 60, 2048)
    assert (found.max_resolution, found.max_instances) == ("7680x4320", 4)


def test_the_many_line_description() -> None:
    found = parse_description(
        "low_gm_size: 128MB\nhigh_gm_size: 512MB\nfence: 4\nresolution: 1920x1200\nweight: 4\n"
    )
    assert (found.framebuffer_mib, found.max_resolution, found.max_instances) == (128, "1920x1200", None)


@pytest.mark.parametrize("text", ["", "nonsense", "framebuffer=lots, max_instance=-1", "=,=,:", "\x00:\x00=\n"])
def test_odd_descriptions_tell_nothing_and_do_not_raise(text: str) -> None:
    found = parse_description(text)
    assert (found.framebuffer_mib, found.max_instances) == (None, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ID    : vGPU Name\n1145  : NVIDIA L40S-1B\n", [("1145", "NVIDIA L40S-1B")]),
        ("1428 : NVIDIA H200X-141C\n1414 : B-1", [("1428", "NVIDIA H200X-141C"), ("1414", "B-1")]),
        ("vGPU Name : ID\nNVIDIA A10-4Q : 593\n", [("593", "NVIDIA A10-4Q")]),
        ("1145\t:\tNVIDIA L40S-1B\r\n", [("1145", "NVIDIA L40S-1B")]),
        ("01145 : NVIDIA L40S-1B\n", [("1145", "NVIDIA L40S-1B")]),
        ("ID    : vGPU Name\n", []),
        ("", []),
        ("\n\n  garbage\n", []),
    ],
)  # fmt: skip
def test_creatable_types_with_header_without_and_name_first(text: str, expected: list[tuple[str, str]]) -> None:
    assert list(parse_creatable(text)) == expected


def test_a_type_that_no_list_names_is_named_by_the_catalogue() -> None:
    assert name_of_type("1148") == "NVIDIA L40S-2Q"
    assert name_of_type("nvidia-558") == "NVIDIA A40-2Q"
    assert name_of_type("nvidia-224") == "GRID T4-2B4"
    assert name_of_type("1414") == "NVIDIA H200X-1-18C"
    assert name_of_type("999999") is None
    assert name_of_type("i915-GVTg_V5_4") is None


def test_the_catalogue_rounds_where_the_board_does() -> None:
    assert facts_for("NVIDIA H200X-141C").framebuffer_mib == 144384
    assert card_framebuffer_mib("NVIDIA H200X-4C") == 144384
    assert card_framebuffer_mib("NVIDIA A40-1B") == 49152


def test_an_unknown_card_has_its_name_and_no_limits() -> None:
    facts = facts_for("NVIDIA Z900-16Q")
    assert (facts.framebuffer_mib, facts.series, facts.max_instances) == (16384, "Q", None)


@pytest.mark.parametrize(
    ("first", "names"),
    [
        (463, ["GRID A100X-1-5C", "GRID A100X-2-10C", "GRID A100X-3-20C", "GRID A100X-4-20C", "GRID A100X-7-40C"]),
        (472, ["GRID A100-20C", "GRID A100-40C", "GRID A100-1-5C", "GRID A100-2-10C", "GRID A100-3-20C"]),
        (622, ["GRID A100DX-1-10C", "GRID A100DX-2-20C", "GRID A100DX-3-40C", "GRID A100DX-4-40C"]),
        (688, ["NVIDIA A30-24C", "NVIDIA A30-1-6C", "NVIDIA A30-2-12C", "NVIDIA A30-4-24C"]),
        (704, ["GRID A100X-1-5CME", "GRID A100DX-1-10CME", "GRID A100-1-5CME", "GRID A100D-1-10CME"]),
    ],
)  # fmt: skip
def test_ids_of_mig_backed_types_are_known(first: int, names: list[str]) -> None:
    assert [name_of_type(str(first + index)) for index in range(len(names))] == names


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("GRID RTX8000P-4C", 8),
        ("GRID RTX8000P-4Q", 12),
        ("NVIDIA A40-4C", 12),
        ("NVIDIA A30-2-12C", 2),
        ("NVIDIA A30-2-12CME", 1),
        ("NVIDIA A30-1-6CME", 1),
        ("NVIDIA H100-1-10CME", 1),
        ("NVIDIA H800L-3-47C", 2),
        ("NVIDIA H20X-35C", 4),
        ("NVIDIA H20-1-24C", 4),
        ("NVIDIA B200X-180C", 1),
        ("NVIDIA B200X-1-23C", 7),
        ("NVIDIA B200X-1-23CME", 1),
        ("NVIDIA B300X-2-67C", 3),
        ("NVIDIA GB200-3-95C", 2),
        ("NVIDIA GH200-1-12C", 7),
        ("NVIDIA GH200L-144C", 1),
        ("GRID M10-0B", 16),
        ("NVIDIA RTX Pro 6000 Blackwell DC-6Q", 16),
        ("NVIDIA RTX Pro 6000 Blackwell DC-3B", 32),
    ],
)
def test_how_many_fit_where_a_series_differs(name: str, most: int) -> None:
    assert facts_for(name).max_instances == most


@pytest.mark.parametrize("name", ["GRID M60-0Q", "GRID M10-0B"])
def test_half_a_gigabyte_shows_less(name: str) -> None:
    facts = facts_for(name)
    assert (facts.framebuffer_mib, facts.heads, facts.max_resolution) == (512, 2, "2560x1600")


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("NVIDIA A10G-8Q", 3),
        ("NVIDIA A10G-24", 1),
        ("NVIDIA A10M-4C", 5),
        ("NVIDIA L40G-3B", 8),
        ("NVIDIA RTX5000-Ada-1Q", 32),
        ("NVIDIA RTX5880-Ada-1Q", 32),
        ("NVIDIA RTX 6000D-84C", 1),
        ("NVIDIA RTX Pro 6000 Blackwell DC-1-24Q", 4),
        ("NVIDIA RTX Pro 6000 Blackwell DC-1-2B", 48),
        ("NVIDIA RTX Pro 6000 Blackwell DC-2-12A", 8),
        ("NVIDIA RTX Pro 6000 Blackwell DC-4-96C", 1),
        ("NVIDIA RTX 6000D-1-42Q", None),
    ],
)
def test_boards_of_which_only_the_sizes_are_published(name: str, most: int | None) -> None:
    facts = facts_for(name)
    assert (facts.max_instances, facts.max_mixed) == (most, None)


def test_every_named_profile_of_these_boards_has_its_most() -> None:
    """NVIDIA's own list of names, where it is at hand."""
    shared = shared_dir()
    if shared is None:
        pytest.skip("no list of names beside this checkout (set VGPUMGR_SHARED)")
    boards = ("A10G", "A10M", "L40G", "RTX5000-Ada", "RTX5880-Ada", "RTX Pro 6000 Blackwell DC")
    lines = (line.split(maxsplit=2) for line in (shared / "vgpu_guest_ids.txt").read_text().splitlines())
    names = [fields[2] for fields in lines if len(fields) == 3]
    mine = [name for name in names if (found := parse_name(name)) is not None and found.model in boards]
    assert len(mine) > 200
    assert [name for name in mine if facts_for(name).max_instances is None] == []
