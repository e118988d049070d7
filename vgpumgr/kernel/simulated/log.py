"""The kernel log of a simulated host: what its drivers say when they refuse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from vgpumgr.kernel.log import MOST_LINES, KernelLog, Said
from vgpumgr.kernel.port import Kernel
from vgpumgr.kernel.simulated.machine import SimulatedKernel


class SimulatedLog(KernelLog):
    """The messages of a simulated machine."""

    def __init__(self, kernel: Kernel) -> None:
        self._messages: list[str] = kernel.machine.messages if isinstance(kernel, SimulatedKernel) else []

    @contextmanager
    def follow(self) -> Iterator[Said]:
        """See :class:`KernelLog`."""
        start = len(self._messages)

        def said() -> Sequence[str]:
            return self._messages[start:][-MOST_LINES:]

        yield said
