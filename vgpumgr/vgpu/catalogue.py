"""Asks the shipped facts about profiles (``facts.py``) for what neither the kernel nor NVML tells."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import NamedTuple

from vgpumgr.vgpu.facts import FAMILIES, HALF_GB_HEADS, HALF_GB_RESOLUTION, SERIES, TYPE_IDS, Family
from vgpumgr.vgpu.names import ProfileName, parse_name, type_number

_SMALL_GB = 1
_UNKNOWN = Family(models=(), equal={})


class Facts(NamedTuple):
    """What the catalogue knows of a profile; ``None`` is not known. Counts are per GPU."""

    framebuffer_mib: int | None = None
    max_instances: int | None = None
    max_mixed: int | None = None
    """How many fit among other sizes; ``None`` also where the card has no mixed-size mode."""
    series: str | None = None
    heads: int | None = None
    frame_rate_limit: int | None = None
    max_resolution: str | None = None
    licence: str | None = None
    mig_shape: str | None = None


@lru_cache(maxsize=1024)
def facts_for(name: str) -> Facts:
    """What is known of a profile by its name. A name that cannot be taken apart tells nothing."""
    parsed = parse_name(name)
    if parsed is None:
        return Facts()
    series = SERIES.get(parsed.series or "")
    family = _families().get(parsed.model, _UNKNOWN)
    facts = Facts(
        framebuffer_mib=family.framebuffer_mib.get(parsed.size_key, parsed.framebuffer_mib),
        max_instances=_max_instances(parsed, family),
        max_mixed=family.mixed.get(parsed.size_key),
        series=parsed.series,
        heads=4 if parsed.four_heads else None,
        mig_shape=parsed.mig_shape,
    )
    if series is None:
        return facts
    facts = facts._replace(frame_rate_limit=series.frame_rate_limit, licence=series.licence)
    if parsed.gb == 0:
        return facts._replace(heads=HALF_GB_HEADS, max_resolution=HALF_GB_RESOLUTION)
    small = parsed.gb <= _SMALL_GB
    return facts._replace(
        heads=facts.heads or series.heads,
        max_resolution=series.small_resolution if small else series.max_resolution,
    )


def card_framebuffer_mib(name: str) -> int | None:
    """What all vGPUs of the card share, told by the name of any of its profiles; ``None`` when not known."""
    parsed = parse_name(name)
    family = _families().get(parsed.model, _UNKNOWN) if parsed is not None else _UNKNOWN
    whole = next((size for size, most in family.equal.items() if most == 1), None)
    return family.framebuffer_mib.get(whole, int(whole) * 1024) if whole is not None else None


def name_of_type(profile_id: str) -> str | None:
    """The name of a type id that no list on the host names; ``None`` when the catalogue does not know it."""
    number = type_number(profile_id)
    return _ids().get(number) if number is not None else None


def _max_instances(parsed: ProfileName, family: Family) -> int | None:
    table = family.equal if parsed.slices is None else family.mig
    own = f"{parsed.size_key}{parsed.series or ''}{parsed.suffix}"
    if own in table:
        return table[own]
    # Only one GPU instance of a card has the media engines, unless its family says otherwise.
    return 1 if parsed.suffix in ("ME", "MEALL") else table.get(parsed.size_key)


@cache
def _families() -> Mapping[str, Family]:
    return {model: family for family in FAMILIES for model in family.models}


@cache
def _ids() -> Mapping[int, str]:
    return {
        ids.first + offset: f"{ids.model}-{size}{ids.series}"
        for ids in TYPE_IDS
        for offset, size in enumerate(ids.sizes)
    }
