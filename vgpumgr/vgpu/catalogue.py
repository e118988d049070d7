"""The shipped facts about profiles (``facts.toml``), for what neither the kernel nor NVML tells."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from vgpumgr.vgpu.names import ProfileName, parse_name, type_number

_FILE = Path(__file__).with_name("facts.toml")
_SMALL_GB = 1


@dataclass(frozen=True, slots=True)
class Facts:
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


def facts_for(name: str) -> Facts:
    """What is known of a profile by its name. A name that cannot be taken apart tells nothing."""
    parsed = parse_name(name)
    if parsed is None:
        return Facts()
    series = _data()["series"].get(parsed.series or "", {})
    small = parsed.gb <= _SMALL_GB
    family = _families().get(parsed.model, {})
    return Facts(
        framebuffer_mib=family.get("framebuffer_mib", {}).get(parsed.size_key, parsed.framebuffer_mib),
        max_instances=_max_instances(parsed, family),
        max_mixed=family.get("mixed", {}).get(parsed.size_key),
        series=parsed.series,
        heads=4 if parsed.four_heads else series.get("heads"),
        frame_rate_limit=series.get("frame_rate_limit"),
        max_resolution=series.get("small_resolution" if small else "max_resolution"),
        licence=series.get("licence"),
        mig_shape=parsed.mig_shape,
    )


def card_framebuffer_mib(name: str) -> int | None:
    """What all vGPUs of the card share, told by the name of any of its profiles; ``None`` when not known."""
    parsed = parse_name(name)
    family = _families().get(parsed.model, {}) if parsed is not None else {}
    whole = [key for key, most in family.get("equal", {}).items() if most == 1]
    if not whole:
        return None
    return int(family.get("framebuffer_mib", {}).get(whole[0], int(whole[0]) * 1024))


def name_of_type(profile_id: str) -> str | None:
    """The name of a type id that no list on the host names; ``None`` when the catalogue does not know it."""
    number = type_number(profile_id)
    return _ids().get(number) if number is not None else None


def _max_instances(parsed: ProfileName, family: dict[str, Any]) -> int | None:
    if parsed.slices is None:
        found = family.get("equal", {}).get(parsed.size_key)
    elif parsed.suffix in ("ME", "MEALL"):
        # Only one GPU instance of a card has the media engines.
        found = 1
    else:
        found = family.get("mig", {}).get(parsed.size_key)
    return int(found) if found is not None else None


@cache
def _data() -> dict[str, Any]:
    import tomllib

    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


@cache
def _families() -> dict[str, dict[str, Any]]:
    return {model: family for family in _data()["family"] for model in family["models"]}


@cache
def _ids() -> dict[int, str]:
    return {
        part["first"] + offset: f"{block['model']}-{size}{part['series']}"
        for block in _data()["ids"]
        for part in block["ranges"]
        for offset, size in enumerate(part["sizes"])
    }
