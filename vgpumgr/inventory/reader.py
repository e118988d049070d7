"""Reading that never raises: what is absent is ``None``, what is broken is ``None`` and a warning.

An absent attribute is ordinary (old kernels, sparse recordings); one that exists and cannot be read, or
holds nonsense, is worth telling.
"""

from __future__ import annotations

import errno

from vgpumgr.kernel.port import Kernel
from vgpumgr.model.host import Notice

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.ENODATA})
_HEX = frozenset("0123456789abcdef")
_SHOWN = 60


def clean(text: str) -> str:
    """Text that is safe to print and to encode: control characters and lone surrogates become escapes."""
    if text.isascii() and text.isprintable():
        return text
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return "".join(shown).encode("utf-8", "backslashreplace").decode("utf-8")


def hex_id(text: str, digits: int) -> str | None:
    """``0x10DE`` or ``10de`` as ``10de``, padded to ``digits``; ``None`` when it is no such number."""
    bare = text.strip().lower().removeprefix("0x")
    if 0 < len(bare) <= digits and _HEX.issuperset(bare):
        return bare.rjust(digits, "0")
    return None


def whole(text: str) -> int | None:
    """A decimal number of at most 18 digits with an optional minus sign, else ``None``."""
    text = text.strip()
    digits = text.removeprefix("-")
    return int(text) if 0 < len(digits) <= 18 and digits.isascii() and digits.isdecimal() else None


class Reader:
    """A kernel as the inventory sees it, collecting warnings on the way."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._notices: dict[tuple[str, str, str], Notice] = {}

    @property
    def notices(self) -> tuple[Notice, ...]:
        """The warnings so far, each once, in the order they came up."""
        return tuple(self._notices.values())

    def warn(self, code: str, message: str, subject: str) -> None:
        """Add a warning about ``subject`` (an address, a group, ``host``)."""
        notice = Notice(code, clean(message), clean(subject))
        self._notices.setdefault((notice.code, notice.message, notice.subject), notice)

    def raw(self, path: str, subject: str) -> bytes | None:
        """An attribute's bytes; ``None`` when absent, ``None`` and a warning when it cannot be read."""
        try:
            return self.kernel.read(path)
        except OSError as error:
            self.unreadable(error, path, subject)
            return None

    def text(self, path: str, subject: str) -> str | None:
        """An attribute as stripped text, by the rules of :meth:`raw`."""
        data = self.raw(path, subject)
        return None if data is None else data.decode("utf-8", "replace").strip()

    def integer(self, path: str, subject: str) -> int | None:
        """A decimal attribute; nonsense is ``None`` and a warning."""
        text = self.text(path, subject)
        if text is None:
            return None
        value = whole(text)
        if value is None:
            self.malformed(path, text, subject)
        return value

    def hex(self, path: str, digits: int, subject: str) -> str | None:
        """A hexadecimal attribute such as ``0x10de``, as ``digits`` lower-case digits."""
        text = self.text(path, subject)
        if text is None:
            return None
        value = hex_id(text, digits)
        if value is None:
            self.malformed(path, text, subject)
        return value

    def names(self, path: str, subject: str) -> list[str]:
        """The names in a directory; empty when there is none."""
        try:
            return self.kernel.list(path)
        except OSError as error:
            self.unreadable(error, path, subject)
            return []

    def link(self, path: str) -> str | None:
        """A link's text, or ``None``. A plain file in a link's place counts as no link."""
        try:
            return self.kernel.readlink(path)
        except OSError:
            return None

    def link_name(self, path: str) -> str | None:
        """The last part of a link's text: the name of a driver, a group, a function."""
        target = self.link(path)
        return target.rstrip("/").rpartition("/")[2] or None if target is not None else None

    def malformed(self, path: str, text: str, subject: str) -> None:
        """Warn that ``path`` holds something the kernel would not print."""
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
        self.warn("attribute-malformed", f"{path} reads {shown!r}, which makes no sense", subject)

    def unreadable(self, error: OSError, path: str, subject: str) -> None:
        """Warn that ``path`` exists and could not be read; that it is absent is ordinary."""
        if error.errno not in _ABSENT:
            self.warn("attribute-unreadable", f"{path}: {error.strerror or type(error).__name__}", subject)
