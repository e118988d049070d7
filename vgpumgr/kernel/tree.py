"""An in-memory tree of directories, files and symbolic links that answers as a Linux file system does.

Recordings in a tar and the simulated kernel are such trees. Paths are absolute texts; links are resolved
inside the tree, so nothing outside it can be reached.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn, TypeAlias

MAX_LINKS = 40
"""As many symbolic links as Linux follows in one path."""


class File(NamedTuple):
    """A file. ``content`` may be computed at each read; ``error`` is the errno that reading gives."""

    content: bytes | Callable[[], bytes] = b""
    error: int = 0


class Link(NamedTuple):
    """A symbolic link with its text."""

    target: str


class Dir:
    """A directory."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}


Node: TypeAlias = File | Link | Dir


def fail(code: int, path: str) -> NoReturn:
    """Raise OSError as the kernel would for ``path``."""
    raise OSError(code, os.strerror(code), path)


def text_file(text: str) -> File:
    """A file with this text and a line feed, as attributes read."""
    return File(text.encode() + b"\n")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


class Tree:
    """The tree: reading as a :class:`~vgpumgr.kernel.port.Kernel` reads, and building."""

    def __init__(self) -> None:
        self.root = Dir()

    # -- reading --------------------------------------------------------------------------------------
    def lookup(self, path: str, *, follow_last: bool = True) -> Node:
        """The node at a path. Raises OSError: ENOENT, ENOTDIR, ELOOP."""
        return self._walk(path, follow_last)[0]

    def resolve(self, path: str) -> str:
        """The path without links. Raises OSError as :meth:`lookup` does."""
        return "".join(f"/{part}" for part in self._walk(path, True)[1])

    def _walk(self, path: str, follow_last: bool) -> tuple[Node, list[str]]:
        directories: list[Dir] = [self.root]
        names: list[str] = []
        todo = _parts(path)
        todo.reverse()
        links = 0
        node: Node = self.root
        while todo:
            part = todo.pop()
            if not isinstance(node, Dir):
                fail(errno.ENOTDIR, path)
            if part == "..":
                del names[-1:]
                if len(directories) > 1:
                    directories.pop()
                node = directories[-1]
                continue
            found = node.entries.get(part)
            if found is None:
                fail(errno.ENOENT, path)
            if isinstance(found, Link) and (todo or follow_last):
                links += 1
                if links > MAX_LINKS:
                    fail(errno.ELOOP, path)
                if found.target.startswith("/"):
                    directories, names = [self.root], []
                node = directories[-1]
                todo.extend(reversed(_parts(found.target)))
                continue
            node = found
            names.append(part)
            if isinstance(node, Dir):
                directories.append(node)
        return node, names

    def read(self, path: str) -> bytes:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        node = self.lookup(path)
        if isinstance(node, Dir):
            fail(errno.EISDIR, path)
        if isinstance(node, Link):
            fail(errno.ELOOP, path)
        if node.error:
            fail(node.error, path)
        return node.content() if callable(node.content) else node.content

    def list(self, path: str) -> list[str]:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        node = self.lookup(path)
        if not isinstance(node, Dir):
            fail(errno.ENOTDIR, path)
        return sorted(node.entries)

    def readlink(self, path: str) -> str:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        node = self.lookup(path, follow_last=False)
        if not isinstance(node, Link):
            fail(errno.EINVAL, path)
        return node.target

    def exists(self, path: str) -> bool:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        try:
            self.lookup(path)
        except OSError:
            return False
        return True

    # -- building -------------------------------------------------------------------------------------
    def mkdir(self, path: str) -> Dir:
        """The directory at ``path``, made with its parents where missing. What is in the way is replaced."""
        node = self.root
        for part in _parts(path):
            child = node.entries.get(part)
            if not isinstance(child, Dir):
                child = node.entries[part] = Dir()
            node = child
        return node

    def put(self, path: str, node: Node) -> None:
        """Put a node at ``path``, parents made where missing."""
        parent, _, name = path.rstrip("/").rpartition("/")
        self.mkdir(parent).entries[name] = node

    def write_text(self, path: str, text: str) -> None:
        """Put a file with this text and a line feed at ``path``."""
        self.put(path, text_file(text))

    def link(self, path: str, target: str) -> None:
        """Put a symbolic link at ``path`` to the absolute ``target``, in sysfs' relative form."""
        self.put(path, Link(os.path.relpath(target, path.rpartition("/")[0])))

    def remove(self, path: str) -> None:
        """Remove whatever is at ``path``; nothing there is fine."""
        parent, _, name = path.rstrip("/").rpartition("/")
        try:
            node = self.lookup(parent or "/")
        except OSError:
            return
        if isinstance(node, Dir):
            node.entries.pop(name, None)

    def walk(self) -> Iterator[tuple[str, Node]]:
        """Every node but the root with its path."""
        stack: list[tuple[str, Dir]] = [("", self.root)]
        while stack:
            prefix, directory = stack.pop()
            for name, node in directory.entries.items():
                path = f"{prefix}/{name}"
                yield path, node
                if isinstance(node, Dir):
                    stack.append((path, node))
