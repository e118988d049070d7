"""A tar as an in-memory tree: bounded in size before it is unpacked, and never written to the disk."""

from __future__ import annotations

import errno
import tarfile
from pathlib import Path

from vgpumgr.errors import SourceError
from vgpumgr.kernel.real import READ_LIMIT
from vgpumgr.kernel.tree import File, Link, Tree

TAR_LIMIT = 512 << 20
"""Bytes a tar may unpack to; a host's sysfs is some tens of MiB."""
TAR_MEMBERS = 2_000_000


def read_tar(path: Path) -> Tree:
    """The members of a tar as a tree. Raises SourceError above the limits, OSError for what is no tar."""
    try:
        return _unpack(path)
    except tarfile.TarError as error:
        raise OSError(errno.EINVAL, str(error), str(path)) from error


def _unpack(path: Path) -> Tree:
    tree = Tree()
    total = 0
    with tarfile.open(path, "r:*") as archive:
        for count, member in enumerate(archive):
            total += member.size if member.isreg() else 0
            if total > TAR_LIMIT or count > TAR_MEMBERS:
                raise SourceError(
                    f"{path} unpacks to more than {TAR_LIMIT >> 20} MiB", hint="record less of the host"
                )
            _add_member(tree, archive, member)
    return tree


def _add_member(tree: Tree, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        return
    name = "/" + "/".join(parts)
    if member.isdir():
        tree.mkdir(name)
    elif member.issym():
        tree.put(name, Link(member.linkname))
    elif member.isreg():
        content = archive.extractfile(member)
        tree.put(
            name, File(content.read(READ_LIMIT) if content else b"", 0 if member.mode & 0o444 else errno.EACCES)
        )
    elif member.islnk():
        tree.put(name, File(error=errno.ENOENT))
        _copy_hard_link(tree, name, member.linkname)


def _copy_hard_link(tree: Tree, name: str, target: str) -> None:
    try:
        node = tree.lookup("/" + target, follow_last=False)
    except OSError:
        return
    if isinstance(node, File):
        tree.put(name, node)
