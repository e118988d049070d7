"""Which kernel to use: the machine's own, a recording, or a simulation."""

from __future__ import annotations

from vgpumgr.errors import UsageError
from vgpumgr.kernel.port import WRITE_DEADLINE, Kernel


def open_kernel(
    sysfs_root: str | None = None, simulate: str | None = None, write_deadline: float = WRITE_DEADLINE
) -> Kernel:
    """The kernel to work on. ``sysfs_root``: a recorded directory or tar; ``simulate``: the name of a shipped
    host description, a file with one, or a recording to simulate on. Neither: this machine. ``write_deadline``: the
    seconds that a write may take.

    Raises :class:`~vgpumgr.errors.SourceError` when the source is not what it should be.
    """
    if sysfs_root and simulate:
        raise UsageError("--sysfs-root and --simulate exclude each other", hint="give one of them")
    if simulate:
        from vgpumgr.kernel.simulated import open_simulation

        simulation = open_simulation(simulate)
        simulation.write_deadline = write_deadline
        return simulation
    if sysfs_root:
        from vgpumgr.kernel.recorded import open_recording

        return open_recording(sysfs_root)
    from vgpumgr.kernel.real import RealKernel

    return RealKernel(write_deadline=write_deadline)
