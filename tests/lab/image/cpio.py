"""Writes initial RAM disks: the "newc" archive of cpio, with the same bytes for the same content."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

_TRAILER = "TRAILER!!!"


class Archive:
    """An archive in the making: folders, files and links, owned by root, without times."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._folders: set[str] = set()
        self._next = 1

    def folder(self, path: str) -> None:
        """A folder and those above it."""
        for above in reversed([str(item) for item in Path(path).parents if str(item) != "."]):
            self._folder(above)
        self._folder(path)

    def file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """A file, with the folders above it."""
        self._above(path)
        self._entry(path, stat.S_IFREG | mode, content)

    def link(self, path: str, target: str) -> None:
        """A symbolic link, with the folders above it."""
        self._above(path)
        self._entry(path, stat.S_IFLNK | 0o777, target.encode())

    def packed(self) -> bytes:
        """The whole archive, gzipped without name and time, as every kernel and QEMU takes it."""
        self._entry(_TRAILER, 0, b"")
        whole = b"".join(self._parts)
        return subprocess.run(["gzip", "-1n"], input=whole, capture_output=True, check=True, timeout=60).stdout

    def _above(self, path: str) -> None:
        parent = str(Path(path).parent)
        if parent != ".":
            self.folder(parent)

    def _folder(self, path: str) -> None:
        if path not in self._folders:
            self._folders.add(path)
            self._entry(path, stat.S_IFDIR | 0o755, b"")

    def _entry(self, path: str, mode: int, content: bytes) -> None:
        name = path.encode() + b"\0"
        fields = (self._next, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields)
        self._next += 1
        self._parts += [_padded(head + name), _padded(content)]


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
