"""What neither the kernel nor NVML tells about vGPU profiles. Facts only; what the host says always wins.

Sources:

* [C] NVIDIA AI Enterprise documentation, "Virtual GPU Types for Supported GPUs" (C-series, R550 to R570)
* [V] type table of NVIDIA vGPU software 14.0 (host driver 510.47.03)
* [G] NVIDIA virtual GPU software user guide, "Virtual GPU types"
* [N] OpenStack Nova documentation, "Attaching virtual GPU devices to guests" (A40-2Q: 24 per card)
* [H] creatable_vgpu_types and the mdev types of hosts in the field (L40S, A2, H200X, RTX Pro 6000)
* [M] NVIDIA Multi-Instance GPU user guide, supported profiles
* [D] names of profiles in NVIDIA's open kernel modules (595.45.04), which tell the sizes that a board is cut into
* [B] NVIDIA AI Enterprise documentation, release 8, "Blackwell Architecture vGPU Types"

Where only the sizes of a board are known, how many of one size fit is the rule of [C]: what the largest profile's
framebuffer holds, and 32 at most. How many fit among other sizes follows no rule, so it is left out then.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

Sizes = Mapping[str, int]
"""By size: the GB in a profile's name (``"8"``), for MIG-backed ones with the slices before it (``"4-20"``). Where
one series differs, it has an entry of its own (``"4C"``)."""

_NONE: Sizes = MappingProxyType({})


class Series(NamedTuple):
    """What the letter at the end of a profile's name stands for."""

    heads: int
    frame_rate_limit: int
    licence: str
    max_resolution: str
    small_resolution: str
    """Of profiles of 1 GB."""


class Family(NamedTuple):
    """Boards that are cut alike. The tables say how many fit on one GPU."""

    models: tuple[str, ...]
    equal: Sizes
    """All of one size."""
    mixed: Sizes = _NONE
    """Among other sizes; empty: the family has no such mode."""
    mig: Sizes = _NONE
    framebuffer_mib: Sizes = _NONE
    """Where it is not the name's GB."""


class TypeIds(NamedTuple):
    """Type ids that follow one another, from ``first``, with the sizes in order. One space for both interfaces."""

    model: str
    first: int
    series: str
    sizes: tuple[int, ...]


SERIES = {
    # [V] [C]
    "Q": Series(4, 60, "NVIDIA RTX Virtual Workstation", "7680x4320", "5120x2880"),
    # [V] [C]
    "C": Series(1, 60, "NVIDIA AI Enterprise", "4096x2160", "4096x2160"),
    # [V]
    "B": Series(4, 45, "NVIDIA Virtual PC", "5120x2880", "5120x2880"),
    # [V]
    "A": Series(1, 60, "NVIDIA Virtual Applications", "1280x1024", "1280x1024"),
}

# [V]: half a GB, whatever the series
HALF_GB_HEADS = 2
HALF_GB_RESOLUTION = "2560x1600"


def _sevenths(seventh: str, quarter: str, half: str, whole: str) -> Sizes:
    """How often each GPU instance fits on a board of seven compute slices and eight of memory [M]."""
    return {
        f"1-{seventh}": 7,
        f"1-{quarter}": 4,
        f"2-{quarter}": 3,
        f"3-{half}": 2,
        f"4-{half}": 1,
        f"7-{whole}": 1,
    }


FAMILIES = (
    # [G]: 8 GB to each GPU of the board
    Family(
        models=("M60", "M10", "P4"),
        equal={"8": 1, "4": 2, "2": 4, "1": 8, "0": 16},
    ),
    # [G] [V] [H]
    Family(
        models=("T4", "A2", "A16", "V100", "V100X", "P100X", "P100"),
        equal={"16": 1, "8": 2, "4": 4, "2": 8, "1": 16},
    ),
    # [V]
    Family(
        models=("P40", "RTX6000", "RTX6000P"),
        equal={"24": 1, "12": 2, "8": 3, "6": 4, "4": 6, "3": 8, "2": 12, "1": 24},
    ),
    # [C] [V]
    Family(
        models=("V100D", "V100DX", "V100S", "V100L"),
        equal={"32": 1, "16": 2, "8": 4, "4": 8, "2": 16, "1": 32},
    ),
    # [C] [V]
    Family(
        models=("RTX8000", "RTX8000P"),
        equal={"48": 1, "24": 2, "16": 3, "12": 4, "8": 6, "6": 8, "4": 12, "4C": 8, "3": 16, "2": 24, "1": 32},
    ),
    # [C] [V]
    Family(
        models=("A10", "L4", "L2", "RTXA5000", "RTXA5500"),
        equal={"24": 1, "12": 2, "8": 3, "6": 4, "4": 6, "3": 8, "2": 12, "1": 24},
        mixed={"24": 1, "12": 2, "8": 2, "6": 4, "4": 4},
    ),
    # [C] [V] [N] [H]
    Family(
        models=("A40", "L40", "L40S", "L20", "RTXA6000", "RTX6000-Ada"),
        equal={"48": 1, "24": 2, "16": 3, "12": 4, "8": 6, "6": 8, "4": 12, "3": 16, "2": 24, "1": 32},
        mixed={"48": 1, "24": 2, "16": 2, "12": 4, "8": 4, "6": 8, "4": 8},
    ),
    # [C] [V] [M]
    Family(
        models=("A30",),
        equal={"24": 1, "12": 2, "8": 3, "6": 4, "4": 6},
        mixed={"24": 1, "12": 2, "8": 2, "6": 4, "4": 4},
        mig={"4-24": 1, "2-12": 2, "1-6": 4},
    ),
    # [C] [V] [M]
    Family(
        models=("A100", "A100X", "A800"),
        equal={"40": 1, "20": 2, "10": 4, "8": 5, "5": 8, "4": 10},
        mixed={"40": 1, "20": 2, "10": 4, "8": 4, "5": 8, "4": 8},
        mig={"7-40": 1, "4-20": 1, "3-20": 2, "2-10": 3, "1-10": 4, "1-5": 7},
    ),
    # [C] [V] [M]
    Family(
        models=("A100D", "A100DX", "A800D", "A800DX"),
        equal={"80": 1, "40": 2, "20": 4, "16": 5, "10": 8, "8": 10, "4": 20},
        mixed={"80": 1, "40": 2, "20": 4, "16": 4, "10": 8, "8": 8, "4": 16},
        mig={"7-80": 1, "4-40": 1, "3-40": 2, "2-20": 3, "1-20": 4, "1-10": 7},
    ),
    # [C] [M]; 16C: the page says 6, five times 16 GB is what fits
    Family(
        models=("H100", "H100XM", "H800", "H800XM"),
        equal={"80": 1, "40": 2, "20": 4, "16": 5, "10": 8, "8": 10, "5": 16, "4": 20},
        mixed={"80": 1, "40": 2, "20": 4, "16": 4, "10": 8, "8": 8, "5": 16, "4": 16},
        mig={"7-80": 1, "4-40": 1, "3-40": 2, "2-20": 3, "1-20": 4, "1-10": 7},
    ),
    # [C] [M]
    Family(
        models=("H100L", "H100XL", "H800L"),
        equal={"94": 1, "47": 2, "23": 4, "15": 6, "11": 8, "6": 15, "4": 23},
        mixed={"94": 1, "47": 2, "23": 4, "15": 4, "11": 8, "6": 8, "4": 16},
        mig={"7-94": 1, "4-47": 1, "3-47": 2, "2-24": 3, "1-24": 4, "1-12": 7},
        framebuffer_mib={"94": 96246, "47": 48128, "2-24": 24672},
    ),
    # [C]
    Family(
        models=("H100XS",),
        equal={"64": 1, "32": 2, "16": 4, "8": 8, "4": 16},
        mig={"7-64": 1, "4-32": 1, "3-32": 2, "2-16": 3, "1-16": 4, "1-8": 7},
    ),
    # [C] [M]
    Family(
        models=("H200", "H200X", "H20X"),
        equal={"141": 1, "70": 2, "35": 4, "28": 5, "17": 8, "14": 10, "8": 16, "7": 20, "4": 32},
        mixed={"141": 1, "70": 2, "35": 4, "28": 5, "17": 8, "14": 10, "8": 16, "7": 20, "4": 32},
        mig={"7-141": 1, "4-71": 1, "3-71": 2, "2-35": 3, "1-35": 4, "1-18": 7},
        framebuffer_mib={"141": 144384, "70": 71680},
    ),
    # [C]
    Family(
        models=("H20",),
        equal={"96": 1, "48": 2, "24": 4, "16": 6, "12": 8, "6": 16, "4": 24},
        mixed={"96": 1, "48": 2, "24": 2, "16": 4, "12": 4, "6": 8, "4": 8},
        mig=_sevenths("12", "24", "48", "96"),
    ),
    # [C] [M]: boards that share their time only as a whole
    Family(models=("B200X",), equal={"180": 1}, mig=_sevenths("23", "45", "90", "180")),
    Family(models=("B300X",), equal={"269": 1}, mig=_sevenths("34", "67", "135", "269")),
    Family(models=("GB200",), equal={"189": 1}, mig=_sevenths("24", "47", "95", "189")),
    Family(models=("GH200",), equal={"96": 1}, mig=_sevenths("12", "24", "48", "96")),
    Family(models=("GH200L",), equal={"144": 1}, mig=_sevenths("18", "36", "72", "144")),
    # [D] for the sizes
    Family(
        models=("A10G", "L40G"),
        equal={"24": 1, "12": 2, "8": 3, "6": 4, "4": 6, "3": 8, "2": 12, "1": 24},
    ),
    Family(
        models=("A10M",),
        equal={"20": 1, "10": 2, "5": 4, "4": 5, "3": 6, "2": 10, "1": 20},
    ),
    Family(
        models=("RTX5000-Ada",),
        equal={"32": 1, "16": 2, "8": 4, "4": 8, "3": 10, "2": 16, "1": 32},
    ),
    Family(
        models=("RTX5880-Ada",),
        equal={"48": 1, "24": 2, "16": 3, "12": 4, "8": 6, "6": 8, "4": 12, "3": 16, "2": 24, "1": 32},
    ),
    Family(
        models=("RTX 6000D",),
        equal={"84": 1},
    ),
    # [H] [D] for the sizes. A GPU instance is shared by as many as its framebuffer holds [B] [H], and there are
    # four, two or one of them [M].
    Family(
        models=("RTX Pro 6000 Blackwell DC",),
        equal={"96": 1, "48": 2, "32": 3, "24": 4, "16": 6, "12": 8, "8": 12, "6": 16, "4": 24, "3": 32, "2": 32},
        mig={
            "1-24": 4,
            "1-12": 8,
            "1-8": 12,
            "1-6": 16,
            "1-4": 24,
            "1-3": 32,
            "1-2": 48,
            "2-48": 2,
            "2-24": 4,
            "2-16": 6,
            "2-12": 8,
            "4-96": 1,
            "4-48": 2,
            "4-32": 3,
            "4-24": 4,
        },
    ),
)


def _with_mig(
    model: str, first: int, sizes: tuple[int, ...], first_mig: int, shapes: tuple[str, ...]
) -> tuple[TypeIds, ...]:
    """C-series ids of a board with MIG: those of its time slices, then one for each GPU instance (``1-5``)."""
    backed = []
    for index, shape in enumerate(shapes):
        slices, _, size = shape.partition("-")
        backed.append(TypeIds(f"{model}-{slices}", first_mig + index, "C", (int(size),)))
    return TypeIds(model, first, "C", sizes), *backed


# Names of type ids, for a type that lives on a card that offers no list any more. [V], and [H] for the L40S, the
# H200X and the RTX Pro 6000.
TYPE_IDS = (
    TypeIds("NVIDIA A40", 555, "B", (1, 2)),
    TypeIds("NVIDIA A40", 557, "Q", (1, 2, 3, 4, 6, 8, 12, 16, 24, 48)),
    TypeIds("NVIDIA A40", 567, "A", (1, 2, 3, 4, 6, 8, 12, 16, 24, 48)),
    TypeIds("NVIDIA A40", 581, "C", (4, 6, 8, 12, 16, 24, 48)),
    TypeIds("NVIDIA A10", 588, "B", (1, 2)),
    TypeIds("NVIDIA A10", 590, "Q", (1, 2, 3, 4, 6, 8, 12, 24)),
    TypeIds("NVIDIA A10", 598, "A", (1, 2, 3, 4, 6, 8, 12, 24)),
    TypeIds("NVIDIA A10", 610, "C", (4, 6, 8, 12, 24)),
    TypeIds("NVIDIA A16", 709, "B", (1, 2)),
    TypeIds("NVIDIA A16", 711, "Q", (1, 2, 4, 8, 16)),
    TypeIds("NVIDIA A16", 716, "A", (1, 2, 4, 8, 16)),
    TypeIds("NVIDIA A16", 721, "C", (4, 8, 16)),
    TypeIds("NVIDIA A2", 742, "B", (1, 2)),
    TypeIds("NVIDIA A2", 744, "Q", (1, 2, 4, 8, 16)),
    TypeIds("NVIDIA A2", 749, "A", (1, 2, 4, 8, 16)),
    TypeIds("NVIDIA A2", 754, "C", (4, 8, 16)),
    TypeIds("NVIDIA L40S", 1145, "B", (1, 2)),
    TypeIds("NVIDIA L40S", 1147, "Q", (1, 2, 3, 4, 6, 8, 12, 16, 24, 48)),
    TypeIds("NVIDIA L40S", 1157, "A", (1, 2, 3, 4, 6, 8, 12, 16, 24, 48)),
    TypeIds("NVIDIA L40S", 2164, "B", (3,)),
    TypeIds("GRID T4", 222, "B", (1, 2)),
    TypeIds("GRID T4", 224, "B4", (2,)),
    TypeIds("GRID T4", 252, "B4", (1,)),
    TypeIds("GRID T4", 225, "A", (1, 2, 4, 8, 16)),
    TypeIds("GRID T4", 230, "Q", (1, 2, 4, 8, 16)),
    TypeIds("GRID T4", 319, "C", (4, 8, 16)),
    TypeIds("GRID P40", 46, "Q", (1, 2, 3, 4, 6, 8, 12, 24)),
    TypeIds("GRID P40", 54, "A", (1, 2, 3, 4, 6, 8, 12, 24)),
    TypeIds("GRID P40", 62, "B", (1,)),
    TypeIds("GRID P40", 156, "B", (2,)),
    TypeIds("GRID P40", 283, "C", (4, 6, 8, 12, 24)),
    *_with_mig("GRID A100", 468, (4, 5, 8, 10, 20, 40), 474, ("1-5", "2-10", "3-20", "4-20", "7-40")),
    TypeIds("GRID A100-1", 706, "CME", (5,)),
    *_with_mig("GRID A100X", 457, (4, 5, 8, 10, 20, 40), 463, ("1-5", "2-10", "3-20", "4-20", "7-40")),
    TypeIds("GRID A100X-1", 704, "CME", (5,)),
    *_with_mig("GRID A100D", 692, (4, 8, 10, 16, 20, 40, 80), 699, ("1-10", "2-20", "3-40", "4-40", "7-80")),
    TypeIds("GRID A100D-1", 707, "CME", (10,)),
    *_with_mig("GRID A100DX", 615, (4, 8, 10, 16, 20, 40, 80), 622, ("1-10", "2-20", "3-40", "4-40", "7-80")),
    TypeIds("GRID A100DX-1", 705, "CME", (10,)),
    *_with_mig("NVIDIA A30", 684, (4, 6, 8, 12, 24), 689, ("1-6", "2-12", "4-24")),
    TypeIds("NVIDIA A30-1", 708, "CME", (6,)),
    TypeIds("NVIDIA H200X", 1428, "C", (141,)),
    TypeIds("NVIDIA H200X-1", 1414, "C", (18,)),
    TypeIds("NVIDIA RTX Pro 6000 Blackwell DC", 1519, "Q", (3,)),
    TypeIds("NVIDIA RTX Pro 6000 Blackwell DC-1", 1561, "Q", (24,)),
)
