"""The kernel log of a recorded host: ``dmesg`` or ``*.log`` beside its ``sys/``, read as ``/dev/kmsg``."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable

from vgpumgr.kernel.port import KERNEL_LOG


def is_log(name: str) -> bool:
    """Whether a file of this name, beside ``sys/``, is a kernel log: ``dmesg``, ``dmesg.txt``, ``kernel.log``."""
    return name.partition(".")[0] == "dmesg" or name.endswith(".log")


def join_logs(names: Iterable[str], read: Callable[[str], bytes]) -> bytes:
    """The logs among ``names``, one after the other. Raises OSError: ENOENT when there is none."""
    logs = [read(name) for name in sorted(names) if is_log(name)]
    if not logs:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), KERNEL_LOG)
    return b"\n".join(logs)
