"""vGPU types of a described card: written out one by one, or as series with their sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vgpumgr.kernel.simulated.card import SimType

_SERIES = {
    "Q": (4, "7680x4320", 60),
    "C": (1, "4096x2160", 60),
    "B": (4, "5120x2880", 45),
    "A": (1, "1280x1024", 60),
}
"""Heads, largest resolution and frame-rate limit of each NVIDIA series."""
_MOST = 32
"""No NVIDIA card runs more vGPUs than it has VFs, which is 32 on those described here."""


def expand_types(types: Any, scheme: str, total: int) -> tuple[SimType, ...]:
    """``{"prefix": "NVIDIA A40", "Q": {"first": 557, "gib": [1, 2]}}``, or a list of written-out types."""
    if isinstance(types, list):
        return tuple(_written(entry, total) for entry in types)
    found = []
    for series in (key for key in types if key in _SERIES):
        found += _series(types["prefix"], series, types[series]["first"], types[series]["gib"], scheme, total)
    if "MIG" in types:
        found += _mig_backed(types["prefix"], types["MIG"]["first"], types["MIG"]["of"], scheme, total)
    return tuple(found)


def _mig_backed(prefix: str, first: int, names: Sequence[str], scheme: str, total: int) -> list[SimType]:
    """``["1-10C", "7-80C"]``: compute slices, GiB and series of each type that lives in a GPU instance."""
    found = []
    for index, name in enumerate(map(str, names)):
        slices, _, rest = name.partition("-")
        gib, series = int(rest[:-1]), rest[-1]
        heads, resolution, frames = _SERIES[series]
        most = min(7 // int(slices), total // (gib << 10))
        description = (
            f"num_heads={heads}, frl_config={frames}, framebuffer={gib << 10}M, "
            f"max_resolution={resolution}, max_instance={most}"
        )
        type_id = str(first + index) if scheme == "vendor-vfio" else f"nvidia-{first + index}"
        found.append(SimType(type_id, f"{prefix}-{name}", gib << 10, most, description, int(slices), gib))
    return found


def _series(prefix: str, series: str, first: int, sizes: Sequence[int], scheme: str, total: int) -> list[SimType]:
    heads, resolution, frames = _SERIES[series]
    found = []
    for index, gib in enumerate(sizes):
        most = min(total // (gib << 10), _MOST)
        number = first + index
        description = (
            f"num_heads={heads}, frl_config={frames}, framebuffer={gib << 10}M, "
            f"max_resolution={resolution}, max_instance={most}"
        )
        type_id = str(number) if scheme == "vendor-vfio" else f"nvidia-{number}"
        found.append(SimType(type_id, f"{prefix}-{gib}{series}", gib << 10, most, description))
    return found


def _written(entry: Mapping[str, Any], total: int) -> SimType:
    size = int(entry["size_mib"])
    description = str(entry.get("description", "")).rstrip("\n")
    return SimType(
        str(entry["id"]),
        str(entry.get("name", entry["id"])),
        size,
        int(entry.get("most", total // size)),
        description,
    )
