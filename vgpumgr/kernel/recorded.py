"""A recorded host: a directory or a tar that holds ``sys/``, perhaps ``proc/`` and a kernel log. Read-only.

A recording is somebody else's file. Links are resolved inside it and never lead out of it; what is no
regular file is not opened.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Semaphore

from vgpumgr.errors import SourceError
from vgpumgr.kernel.port import KERNEL_LOG, KernelEvent, Watch
from vgpumgr.kernel.real import read_file
from vgpumgr.kernel.recorded_log import is_log, join_logs
from vgpumgr.kernel.tree import Dir, File, Node, Tree

_MAX_DEPTH = 150
"""Path parts and links followed on the way to one file, nested; links that lead in circles end here."""


class _Quiet:
    """Nothing ever happens on a recording."""

    def __init__(self) -> None:
        self._bell = Semaphore(0)

    def poll(self, timeout: float | None) -> KernelEvent | None:
        """See :class:`vgpumgr.kernel.port.Watch`."""
        self._bell.acquire(timeout=timeout)
        return None

    def wake(self) -> None:
        """See :class:`vgpumgr.kernel.port.Watch`."""
        self._bell.release()


class _ReadOnly:
    """What all recordings share: nothing can be changed and nothing happens."""

    def __init__(self, source: str) -> None:
        self._source = source

    @property
    def label(self) -> str:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        return f"recorded:{self._source}"

    @property
    def writable(self) -> bool:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        return False

    def write(self, path: str, text: str, *, deadline: float | None = None) -> None:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    def load_module(self, name: str) -> None:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)

    @contextmanager
    def watch(self) -> Iterator[Watch]:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        yield _Quiet()


class RecordedTree(_ReadOnly):
    """A recording held in memory."""

    def __init__(self, source: str, tree: Tree) -> None:
        super().__init__(source)
        self.tree = tree
        self.read = tree.read
        self.list = tree.list
        self.readlink = tree.readlink
        self.exists = tree.exists


class RecordedDirectory(_ReadOnly):
    """A recording in a directory.

    Each parent directory is resolved inside the root once and remembered, so that reading an attribute
    costs one ``open``; only a link in the last place is resolved anew.
    """

    def __init__(self, source: str, root: Path) -> None:
        super().__init__(source)
        self.root = str(root.resolve())
        self._directories = {"": self.root}
        """Where directories lie on this machine, links followed, by their paths in the recording."""

    def read(self, path: str) -> bytes:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        parent, _, name = path.rpartition("/")
        if path == KERNEL_LOG and not self.exists(path):
            return join_logs(os.listdir(self.root), lambda log: self.read(f"/{log}"))
        place = self._directories.get(parent) or self._enter(parent)
        try:
            return read_file(f"{place}/{name}", os.O_NOFOLLOW)
        except OSError as error:
            if error.errno == errno.ELOOP:
                return read_file(self._enter(path), os.O_NOFOLLOW)
            raise

    def list(self, path: str) -> list[str]:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        names = os.listdir(self._directories.get(path) or self._enter(path))
        names.sort()
        return names

    def readlink(self, path: str) -> str:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        parent, _, name = path.rpartition("/")
        return os.readlink(f"{self._directories.get(parent) or self._enter(parent)}/{name}")

    def exists(self, path: str) -> bool:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        try:
            self._enter(path)
        except OSError:
            return False
        return True

    def _enter(self, path: str, depth: int = 0) -> str:
        """Where a path lies on this machine, links followed: one look at its last part, its parents remembered.

        Raises OSError: ENOENT, ENOTDIR, ELOOP, EACCES.
        """
        found = self._directories.get(path)
        if found is not None:
            return found
        if depth > _MAX_DEPTH:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        parent, _, name = path.rpartition("/")
        above = self._directories.get(parent) or self._enter(parent, depth + 1)
        if name in ("", ".", ".."):
            return above.rpartition("/")[0] if name == ".." and above != self.root else above
        place = f"{above}/{name}"
        mode = os.lstat(place).st_mode
        if stat.S_ISDIR(mode):
            self._directories[path] = place
        elif stat.S_ISLNK(mode):
            place = self._follow(above[len(self.root) :], os.readlink(place), depth + 1)
            if place[len(self.root) :] in self._directories:
                self._directories[path] = place
        return place

    def _follow(self, above: str, target: str, depth: int) -> str:
        """Where a link in the directory ``above`` (a path without links) leads; never above the root."""
        if target.startswith("/"):
            above = ""
        while target.startswith("../"):
            above, target = above.rpartition("/")[0], target[3:]
        return self._enter(f"{above}/{target.strip('/')}", depth)


RecordedKernel = RecordedTree | RecordedDirectory


def open_recording(source: str) -> RecordedKernel:
    """The recording at a path. Raises :class:`SourceError` when there is none, or it holds no ``sys/``."""
    path = Path(source)
    try:
        if path.is_dir():
            return RecordedDirectory(source, _top(path))
        if path.is_file():
            from vgpumgr.kernel.archive import read_tar

            return RecordedTree(source, with_log(_root_of(read_tar(path), source)))
    except OSError as error:
        raise SourceError(
            f"{source} cannot be read as a recording: {error.strerror or error}",
            hint="give a directory or a tar that holds sys/; 'vgpumgr host snapshot' writes one",
        ) from error
    what = f"{source} is neither a directory nor a file" if path.exists() else f"there is no {source}"
    raise SourceError(what, hint="give a directory or a tar that holds sys/")


def _top(path: Path) -> Path:
    """The folder that holds ``sys/``: this one, or the only one inside that does."""
    if (path / "sys").is_dir():
        return path
    inside = [child for child in path.iterdir() if (child / "sys").is_dir()]
    if len(inside) > 1:
        raise _several(str(path), [child.name for child in inside])
    if not inside:
        raise _no_sysfs(str(path))
    return inside[0]


def _several(source: str, names: list[str]) -> SourceError:
    return SourceError(
        f"{source} holds {len(names)} recorded hosts", hint=f"name one of them, such as {source}/{min(names)}"
    )


def _no_sysfs(source: str) -> SourceError:
    return SourceError(
        f"{source} is no recorded host: there is no sys/ in it",
        hint="give the folder (or tar) that holds sys/, not sys/ itself",
    )


def _root_of(tree: Tree, source: str) -> Tree:
    """The tree itself when it holds ``sys``, else the one top folder that does."""
    if not _holds_sys(tree.root):
        inside = [name for name, node in tree.root.entries.items() if _holds_sys(node)]
        if len(inside) > 1:
            raise _several(source, inside)
        if not inside:
            raise _no_sysfs(source)
        top = tree.root.entries[inside[0]]
        assert isinstance(top, Dir)
        tree.root = top
    return tree


def with_log(tree: Tree) -> Tree:
    """The same with the logs at its top, if any, where a kernel has its log."""
    if not tree.exists(KERNEL_LOG) and any(is_log(name) for name in tree.root.entries):
        tree.put(KERNEL_LOG, File(join_logs(tree.root.entries, lambda name: tree.read(f"/{name}"))))
    return tree


def _holds_sys(node: Node) -> bool:
    return isinstance(node, Dir) and isinstance(node.entries.get("sys"), Dir)
