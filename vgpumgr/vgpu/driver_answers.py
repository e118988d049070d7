"""What a vGPU driver's errno means, as an error that says so; and which answers are worth asking again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from time import sleep

from vgpumgr.errors import ConflictError, FailedError, NoCapacityError, NotFoundError, Reason, VgpumgrError
from vgpumgr.kernel.log import KernelLog
from vgpumgr.plans.step import StepContext

_FULL = frozenset({errno.ENOSPC, errno.EUSERS})
_GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.ENXIO})
BUSY = frozenset({errno.EAGAIN, errno.EBUSY})
"""The driver still cleans up after an earlier vGPU: it will answer otherwise in a moment."""


def as_error(error: OSError, what: str, address: str, said: Sequence[str] = ()) -> VgpumgrError:
    """The error for a refused creation, with the errno and what the kernel ``said`` meanwhile. Raises nothing."""
    name = error.strerror or os.strerror(error.errno or 0)
    reason = Reason("kernel-refused", f"the driver of {address} answered {name} (errno {error.errno})", (address,))
    found = _meaning(error, what, address, reason)
    found.reasons = (*found.reasons, *(Reason("kernel-log", line, (address,)) for line in said))
    return found


def _meaning(error: OSError, what: str, address: str, reason: Reason) -> VgpumgrError:
    name = os.strerror(error.errno or 0)
    if error.errno in _FULL:
        return NoCapacityError(
            f"{what}: no capacity left", hint="'vgpumgr profile list' shows what fits now", reasons=[reason]
        )
    if error.errno == errno.EEXIST:
        return ConflictError(f"{what}: it exists already", reasons=[reason], code="vgpu-exists")
    if error.errno in _GONE:
        return NotFoundError(
            f"{what}: {address} or the profile is gone",
            hint="the driver was reloaded or the device was removed; look at 'vgpumgr gpu show' and ask again",
            reasons=[reason],
            code="parent-gone",
        )
    if error.errno in BUSY:
        return FailedError(
            f"{what}: the driver stayed busy", hint="try again", reasons=[reason], code="driver-busy"
        )
    return FailedError(
        f"{what}: the driver refused ({name})",
        hint=f"the kernel log says why: look there for {address}",
        reasons=[reason],
        code="driver-refused",
    )


def patiently(write: Callable[[], None], tries: int, wait: float) -> None:
    """Write; ask again, ``tries`` times in all and ``wait`` seconds apart, while the driver is busy."""
    for left in range(tries - 1, -1, -1):
        try:
            write()
        except OSError as error:
            if error.errno not in BUSY or not left:
                raise
            sleep(wait)
        else:
            return


def log_of(context: StepContext) -> KernelLog:
    """The host's kernel log; a silent one where none was set up."""
    found = context.ports.get(KernelLog)
    return found if isinstance(found, KernelLog) else KernelLog()
