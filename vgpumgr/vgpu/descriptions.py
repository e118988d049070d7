"""What drivers print about their vGPU types, in all the forms seen. Nothing here raises: odd text tells less."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from vgpumgr.inventory.reader import clean

_NAME_LATER = re.compile(r"\s*([0-9]{1,9})\s*:\s*(\S.{0,120}?)\s*")
_NAME_FIRST = re.compile(r"\s*(\S.{0,120}?)\s*:\s*([0-9]{1,9})\s*")
_SIZE = re.compile(r"([0-9]{1,9})\s*(M|MB|MiB|G|GB|GiB)?")
_DISPLAY = re.compile(r"virtual display, (?:([0-9]{1,6}x[0-9]{1,6}) framebuffer|([0-9]{1,9} MB) video memory)")
"""What the kernel's samples mdpy and mbochs print."""
_RESOLUTION = re.compile(r"[0-9]{1,6}x[0-9]{1,6}")


class Description(NamedTuple):
    """The figures of an mdev ``description``. ``framebuffer_mib`` in MiB; for GVT-g its mappable part."""

    framebuffer_mib: int | None = None
    max_instances: int | None = None
    heads: int | None = None
    frame_rate_limit: int | None = None
    max_resolution: str | None = None


def parse_description(text: str) -> Description:
    """Read ``num_heads=4, framebuffer=2048M, ...`` (one line) or ``low_gm_size: 128MB`` (a line each), and what the
    kernel's sample displays say of themselves.
    """
    display = _DISPLAY.fullmatch(text.strip())
    if display is not None:
        return Description(framebuffer_mib=_mib(display[2]), max_resolution=display[1])
    values: dict[str, str] = {}
    for line in text.splitlines():
        if "=" in line:
            pairs = [part.partition("=") for part in line.split(",")]
        else:
            pairs = [line.partition(":")]
        values.update((key.strip(), value.strip()) for key, separator, value in pairs if separator)
    return Description(
        framebuffer_mib=_mib(values.get("framebuffer") or values.get("low_gm_size")),
        max_instances=_count(values.get("max_instance")),
        heads=_count(values.get("num_heads")),
        frame_rate_limit=_count(values.get("frl_config")),
        max_resolution=_resolution(values.get("max_resolution") or values.get("resolution")),
    )


# All free VFs of a card show the same list.
@lru_cache(maxsize=64)
def parse_creatable(text: str) -> tuple[tuple[str, str], ...]:
    """``(id, name)`` per line of ``creatable_vgpu_types``: header or none, id first or name first.

    A list that holds its header only is an empty list: nothing more fits through that VF.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _NAME_LATER.fullmatch(line)
        if match is not None:
            found.setdefault(_plain(match[1]), clean(match[2]))
            continue
        match = _NAME_FIRST.fullmatch(line)
        if match is not None:
            found.setdefault(_plain(match[2]), clean(match[1]))
    return tuple(found.items())


def _plain(digits: str) -> str:
    """As ``current_vgpu_type`` prints the same number."""
    return str(int(digits))


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else None


def _resolution(text: str | None) -> str | None:
    return text if text and _RESOLUTION.fullmatch(text) else None


def _mib(text: str | None) -> int | None:
    match = _SIZE.fullmatch(text or "")
    if match is None:
        return None
    return int(match[1]) * (1024 if (match[2] or "M").startswith("G") else 1)
