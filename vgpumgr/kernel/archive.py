"""A tar as an in-memory tree: bounded in size before it is unpacked, and never written to the disk."""

from __future__ import annotations

import errno
import lzma
import tarfile
import zlib
from pathlib import Path
from typing import Self

from vgpumgr.errors import SourceError
from vgpumgr.kernel.real import READ_LIMIT
from vgpumgr.kernel.tree import File, Link, Tree

TAR_LIMIT = 512 << 20
"""Bytes a tar may unpack to; a host's sysfs is some tens of MiB."""
TAR_MEMBERS = 2_000_000
_DAMAGE = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError, OverflowError)
"""What the standard library raises for bytes that are no tar any more; for some, OSError."""

_ZEROS: type[tarfile.HeaderError] = vars(tarfile)["EOFHeaderError"]
"""The block of zeros that ends a tar."""


def read_tar(path: Path) -> Tree:
    """The members of a tar as a tree. Raises SourceError above the limits, OSError for what is no whole tar."""
    with _opened(path) as archive:
        try:
            tree = _unpack(archive, path)
            _read_to_the_end(archive)
        except (*_DAMAGE, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise OSError(errno.EINVAL, "damaged, or cut short") from error
    return tree


def _opened(path: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(path, "r:*", tarinfo=_Member)
    except _DAMAGE as error:
        raise OSError(errno.EINVAL, "not a tar: plain, or compressed by gzip, bzip2 or xz") from error


class _Member(tarfile.TarInfo):
    """A header that must be whole: tarfile takes a damaged or missing one for the end, and what follows is lost."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> Self:
        """See :class:`tarfile.TarInfo`. Raises ReadError for a header that is not whole."""
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.HeaderError as error:
            if isinstance(error, _ZEROS):
                raise
            raise tarfile.ReadError(str(error)) from error


def _unpack(archive: tarfile.TarFile, path: Path) -> Tree:
    tree = Tree()
    total = 0
    for count, member in enumerate(archive):
        total += member.size if member.isreg() else 0
        if total > TAR_LIMIT or count > TAR_MEMBERS:
            raise SourceError(f"{path} unpacks to more than {TAR_LIMIT >> 20} MiB", hint="record less of the host")
        _add_member(tree, archive, member)
    return tree


def _read_to_the_end(archive: tarfile.TarFile) -> None:
    """The sum of a compressed file stands at its end, and is compared when that is read."""
    while archive.fileobj is not None and archive.fileobj.read(1 << 20):
        pass


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
