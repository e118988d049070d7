"""What may stand in a host description: every key and value is checked before anything is built from it."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vgpumgr.address import is_address
from vgpumgr.errors import SourceError

HINT = "see docs/reference/host-descriptions.md"

_Check = Callable[[str, object], None]
"""Takes where a value stands and the value; raises :class:`SourceError` when it cannot be."""


def wrong(where: str, what: str) -> SourceError:
    """The error of a mistake at a place."""
    return SourceError(f"host description: {where}: {what}", hint=HINT)


def checked(description: Mapping[str, Any]) -> Mapping[str, Any]:
    """The description without keys that have no value. :class:`SourceError` names the first entry that is wrong."""
    _HOST("the host", description)
    said: Mapping[str, Any] = _said(description)
    return said


def _said(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _said(each) for key, each in value.items() if each is not None}
    return [_said(each) for each in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class _Fields:
    """A mapping of known keys; one without a value is as good as absent. ``named``: the key that names an entry."""

    keys: Mapping[str, _Check]
    required: tuple[str, ...] = ()
    named: str | None = None

    def __call__(self, where: str, value: object) -> None:
        if not isinstance(value, Mapping):
            raise wrong(where, "must be a mapping")
        where = str(value.get(self.named, where)) if self.named else where
        unknown = sorted(set(map(str, value)) - set(self.keys))
        if unknown:
            raise wrong(where, f"unknown key {unknown[0]!r}; known: {', '.join(sorted(self.keys))}")
        for key in self.required:
            if value.get(key) is None:
                raise wrong(where, f"{key} is missing")
        for key, each in self.keys.items():
            if value.get(key) is not None:
                each(key if where == "the host" else f"{where}: {key}", value[key])


def _that(what: str, fits: Callable[[Any], object]) -> _Check:
    """A value that ``fits``; ``what`` it must be says the error."""

    def look(where: str, value: object) -> None:
        if not fits(value):
            raise wrong(where, f"must be {what}")

    return look


def _pattern(pattern: str, what: str) -> _Check:
    compiled = re.compile(pattern)
    return _that(what, lambda value: isinstance(value, str) and compiled.fullmatch(value))


def _number(low: int, high: int) -> _Check:
    return _that(f"a number from {low} to {high}", lambda value: type(value) is int and low <= value <= high)


def _list_of(item: _Check) -> _Check:
    def look(where: str, value: object) -> None:
        if not isinstance(value, list):
            raise wrong(where, "must be a list")
        for each in value:
            item(where, each)

    return look


def _values(item: _Check) -> _Check:
    """A mapping with keys of one's own."""

    def look(where: str, value: object) -> None:
        if not isinstance(value, Mapping):
            raise wrong(where, "must be a mapping")
        for key, each in value.items():
            item(f"{where}: {key}", each)

    return look


def _types(where: str, value: object) -> None:
    """Written out one by one, or as series."""
    (_SERIES if isinstance(value, Mapping) else _list_of(_TYPE))(where, value)


def _one_or_more(item: _Check) -> _Check:
    return lambda where, value: (_list_of(item) if isinstance(value, list) else item)(where, value)


_TEXT = _that("text", lambda value: isinstance(value, str | int | float) and not isinstance(value, bool))
_FLAG = _that("true or false", lambda value: isinstance(value, bool))
_DRIVER = _pattern(r"[A-Za-z0-9][A-Za-z0-9_-]*", "a driver's name")
_MIB = _number(1, 1 << 24)
_MOST = (1 << 31) - 1

_TYPE = _Fields(
    {"id": _TEXT, "name": _TEXT, "size_mib": _MIB, "most": _number(0, 1 << 16), "description": _TEXT},
    required=("id", "size_mib"),
)
_ONE_SERIES = _Fields({"first": _number(0, _MOST), "gib": _list_of(_number(1, 1 << 14))}, required=("first", "gib"))
_SERIES = _Fields(
    {
        "prefix": _TEXT,
        **dict.fromkeys("QCBA", _ONE_SERIES),
        "MIG": _Fields(
            {"first": _number(0, _MOST), "of": _list_of(_pattern(r"[1-7]-[1-9]\d{0,3}[QCBA]", "like '1-10C'"))},
            required=("first", "of"),
        ),
    },
    required=("prefix",),
)
_SRIOV = _Fields(
    {
        "total": _number(0, 0xFFFF),
        "enabled": _number(0, 0xFFFF),
        "offset": _number(0, 0xFFFF),
        "stride": _number(1, 0xFFFF),
        "vf_device": _pattern("[0-9a-f]{4}", "four hexadecimal digits in quotes"),
        "vf_class": _pattern("[0-9a-f]{6}", "six hexadecimal digits in quotes"),
        "vf_driver": _DRIVER,
        "refuses": _that("an errno such as ENOENT", lambda value: value in errno.errorcode.values()),
    },
    required=("total",),
)
_VGPU = _Fields(
    {
        "scheme": _pattern("mdev|mdev-vf|vendor-vfio|gvt", "mdev, mdev-vf, vendor-vfio or gvt"),
        "driver": _DRIVER,
        "framebuffer_mib": _MIB,
        "types": _types,
        "equal": _FLAG,
        "header": _FLAG,
        "bad_vfs": _list_of(_TEXT),
        "mixed": _FLAG,
        "mig": _Fields(
            {"slices": _that("4 or 7", lambda value: value in (4, 7)), "time_sliced": _FLAG}, ("slices",)
        ),
        "ecc": _FLAG,
    },
    required=("scheme", "framebuffer_mib", "types"),
)
_FUNCTION = _Fields(
    {
        "address": _that("a PCI address like 0000:3b:00.0", lambda value: is_address(str(value))),
        "id": _pattern("[0-9a-f]{4}:[0-9a-f]{4}", "like '10de:2235' (lower case, in quotes)"),
        "class": _pattern("[0-9a-f]{6}", "like '030200' (lower case, in quotes)"),
        "driver": _DRIVER,
        "native": _one_or_more(_DRIVER),
        "behind": _TEXT,
        "group": _number(0, _MOST),
        "numa": _number(-1, 0xFFFF),
        "boot_vga": _FLAG,
        "subsystem": _pattern("[0-9a-f]{4}:[0-9a-f]{4}", "like '10de:145a' (lower case, in quotes)"),
        "bars": _list_of(_pattern(r"[1-9]\d{0,5}[KMG]", "a size such as 16M or 64G")),
        "reset": _TEXT,
        "link": _pattern(r"\d+(\.\d+)? x\d+", "like '16.0 x16'"),
        "sriov": _SRIOV,
        "vgpu": _VGPU,
        "net": _pattern(r"[\w.-]+( up| down)?", "like 'eno1 up'"),
        "disk": _pattern(r"\w+ \d+:\d+", "like 'nvme0n1 259:0'"),
        "drm": _pattern(r"card\d+( [\w.-]+)?", "like 'card0 VGA-1'"),
        "power": _TEXT,
    },
    required=("address", "id", "class"),
    named="address",
)
_HOST = _Fields(
    {
        "hostname": _TEXT,
        "kernel": _TEXT,
        "cmdline": _TEXT,
        "iommu": _that("intel, amd or false", lambda value: value in ("intel", "amd", True, False)),
        "modules": _values(_list_of(_DRIVER)),
        "mounts": _values(_pattern(r"\d+:\d+ \S+", "like '259:0 /dev/nvme0n1'")),
        "functions": _list_of(lambda where, value: _FUNCTION("a function", value)),
        "virtual": _list_of(
            _Fields(
                {"name": _pattern("[a-z][a-z0-9_]*", "a device's name"), "framebuffer_mib": _MIB, "types": _types},
                required=("name", "types"),
            )
        ),
    }
)
