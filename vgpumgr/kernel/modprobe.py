"""What modprobe tells a driver when it is loaded: the options in its files, and on the kernel's command line.

The files are read as any other through the kernel port, so that recordings and simulations can hold them too.
Writing is another matter: see :mod:`vgpumgr.kernel.options`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from vgpumgr.kernel.port import Kernel, list_or_empty, read_text

OWN_FILE = "/etc/modprobe.d/vgpumgr.conf"
"""The one file that this project writes."""
COMMAND_LINE = "/proc/cmdline"
_DIRECTORIES = (
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
)
"""As modprobe searches them: a file hides those of its name in the directories after it."""


class ModuleOption(NamedTuple):
    """An option of a module. ``source`` is the file, or the command line, that sets it; quotes are taken off."""

    source: str
    name: str
    value: str


def module_options(kernel: Kernel, module: str) -> list[ModuleOption]:
    """All options of a module in the order they are given to it: of two with one name, the later one counts."""
    found = []
    for path in _files(kernel):
        for line in logical_lines(read_text(kernel, path) or ""):
            words = line.split(None, 2)
            if len(words) == 3 and words[0] == "options" and _same(words[1], module):
                found += [ModuleOption(path, *pair) for pair in pairs(words[2])]
    for name, value in pairs(read_text(kernel, COMMAND_LINE) or ""):
        prefix, dot, option = name.partition(".")
        if dot and _same(prefix, module):
            found.append(ModuleOption(COMMAND_LINE, option, value))
    return found


def _files(kernel: Kernel) -> list[str]:
    """The files that modprobe reads, sorted by their names, as it does."""
    found: dict[str, str] = {}
    for directory in _DIRECTORIES:
        for name in list_or_empty(kernel, directory):
            if name.endswith(".conf"):
                found.setdefault(name, f"{directory}/{name}")
    return [found[name] for name in sorted(found)]


def _same(one: str, other: str) -> bool:
    """In module names ``-`` and ``_`` are one."""
    return one.replace("-", "_") == other.replace("-", "_")


def logical_lines(text: str) -> Iterator[str]:
    """Lines that a backslash joins are one; comments are left out."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line.strip()


def pairs(text: str) -> list[tuple[str, str]]:
    """``a=1 b="x y"`` as names and values; a word without ``=`` has an empty value."""
    found = []
    for word in _words(text):
        name, _, value = word.partition("=")
        found.append((name.strip('"'), value.strip('"')))
    return found


def _words(text: str) -> Iterator[str]:
    """Split at white space that is not inside double quotes, as the kernel does."""
    word, quoted = "", False
    for char in text:
        if char == '"':
            quoted = not quoted
        if char.isspace() and not quoted:
            if word:
                yield word
            word = ""
        else:
            word += char
    if word:
        yield word
