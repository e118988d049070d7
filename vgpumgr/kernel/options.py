"""Writing the one file under ``/etc/modprobe.d`` that is ours: whole, or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

from vgpumgr.kernel.modprobe import OWN_FILE
from vgpumgr.kernel.port import Kernel


@dataclass(frozen=True, slots=True)
class OptionsFile:
    """Replaces the text of :data:`OWN_FILE`; an empty text removes it. Raises OSError, and then nothing changed."""

    replace: Callable[[str], None]


def options_file(kernel: Kernel) -> OptionsFile:
    """The file on the host that a kernel belongs to: on this machine, in a simulation; a recording has none."""
    from vgpumgr.kernel.real import RealKernel

    if isinstance(kernel, RealKernel):
        root = kernel.root.rstrip("/")
        return OptionsFile(lambda text: replace_file(root + OWN_FILE, text))
    if kernel.label.startswith("simulated:"):
        from vgpumgr.kernel.simulated import SimulatedKernel

        if isinstance(kernel, SimulatedKernel):
            return OptionsFile(kernel.replace_options)
    return OptionsFile(_read_only)


def _read_only(text: str) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), OWN_FILE)


def replace_file(path: str, text: str) -> None:
    """Put a file in the place of another in one step, on disk when this returns: a crash leaves the old or the new.

    modprobe runs as root and reads world-readable files; the name beside it does not end as modprobe wants it.
    """
    folder = os.path.dirname(path)
    if text:
        os.makedirs(folder, exist_ok=True)
        beside = f"{path}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(beside, flags, 0o644), "w", encoding="utf-8", errors="surrogateescape") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except OSError:
            if os.path.isfile(beside) and not os.path.islink(beside):
                os.unlink(beside)
            raise
    elif os.path.lexists(path):
        os.unlink(path)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
