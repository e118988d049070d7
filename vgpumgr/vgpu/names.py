"""Profile names, read from the right: ``[GRID|NVIDIA] MODEL[-SLICES]-GB[SERIES][SUFFIX]``.

A name that does not fit (lower case, an unknown suffix) is no error: it is kept as it is and tells nothing.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_VENDORS = ("GRID ", "NVIDIA ")
_SIZED = re.compile(
    r"(?P<model>.+?)(?:-(?P<slices>[1-9]))?-(?P<gb>0|[1-9][0-9]{0,3})"
    r"(?P<series>[ABCQ])(?P<heads>4)?(?P<suffix>ME|NOME|MEALL|GFX)?"
)
_GAMING = re.compile(r"(?P<model>[A-Z].*?)-(?P<gb>[1-9][0-9]{0,3})")
"""``A10-24``. A type's id that stands for its missing name (``nvidia-63``, ``mtty-1``) is none."""
_HALF_GIB = 512


class ProfileName(NamedTuple):
    """What a profile's name tells. ``slices`` is set for MIG-backed profiles; ``series`` is ``None`` for gaming."""

    model: str
    gb: int
    series: str | None = None
    slices: int | None = None
    suffix: str = ""
    four_heads: bool = False

    @property
    def framebuffer_mib(self) -> int:
        """The size the name stands for; ``0`` GB is half of one. A few cards round it up (see the catalogue)."""
        return self.gb * 1024 or _HALF_GIB

    @property
    def size_key(self) -> str:
        """``8``, or ``4-20`` for a MIG-backed profile: how the catalogue calls the size."""
        return f"{self.slices}-{self.gb}" if self.slices else str(self.gb)

    @property
    def mig_shape(self) -> str | None:
        """The GPU instance a MIG-backed profile lives in (``1g.10gb``, ``1g.5gb+me``); ``None`` for time slices."""
        if self.slices is None:
            return None
        suffix = {"ME": "+me", "NOME": "-me", "MEALL": "+me.all", "GFX": "+gfx"}.get(self.suffix, "")
        return f"{self.slices}g.{self.gb}gb{suffix}"


def parse_name(name: str) -> ProfileName | None:
    """Take a name apart; ``None`` when it is not of NVIDIA's form."""
    bare = _without_vendor(name)
    match = _SIZED.fullmatch(bare)
    if match is not None:
        slices = match["slices"]
        return ProfileName(
            model=match["model"],
            gb=int(match["gb"]),
            series=match["series"],
            slices=int(slices) if slices else None,
            suffix=match["suffix"] or "",
            four_heads=match["heads"] is not None,
        )
    match = _GAMING.fullmatch(bare)
    return ProfileName(match["model"], int(match["gb"])) if match else None


def _without_vendor(name: str) -> str:
    for vendor in _VENDORS:
        if name.startswith(vendor):
            return name.removeprefix(vendor).strip()
    return name.strip()


def same_profile(wanted: str, profile_id: str, name: str | None) -> bool:
    """True when a person who wrote ``wanted`` means this profile: its id, or its name with or without vendor.

    Exact: ``11`` is not ``1145``, and ``A40-8q`` is not ``A40-8Q``.
    """
    if wanted == profile_id:
        return True
    return name is not None and wanted in (name, _without_vendor(name))


def type_number(profile_id: str) -> int | None:
    """The number in ``nvidia-558`` or ``558``: the same space in both interfaces. ``None`` for other drivers."""
    digits = profile_id.removeprefix("nvidia-")
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else None
