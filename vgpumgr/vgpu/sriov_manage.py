"""NVIDIA's own tool for virtual functions, which its host driver brings along."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path
from time import sleep

from vgpumgr.errors import FailedError, UnavailableError
from vgpumgr.kernel.port import Kernel
from vgpumgr.vgpu.sriov_steps import SriovTool

TOOL = Path("/usr/lib/nvidia/sriov-manage")
_TRIES = 5
_DEADLINE = 60.0


def sriov_tool(kernel: Kernel) -> SriovTool:
    """The tool for the host a kernel belongs to: a simulated host's does what the real one does."""
    if kernel.label.startswith("simulated:"):
        from vgpumgr.kernel.simulated import SimulatedKernel

        if isinstance(kernel, SimulatedKernel):
            return SriovTool(partial(kernel.vendor_vfs, enabled=True), partial(kernel.vendor_vfs, enabled=False))
    manage = SriovManage()
    return SriovTool(manage.enable, manage.disable)


class SriovManage:
    """Runs ``sriov-manage``. It rebinds the driver: MIG instances and mixed-size mode do not survive it.

    ``wait`` is the pause in seconds before asking again a driver that was busy.
    """

    def __init__(self, tool: Path = TOOL, wait: float = 1.0) -> None:
        self._tool = tool
        self._wait = wait

    def enable(self, address: str) -> None:
        """Enable all VFs of a card."""
        self._run("-e", address)

    def disable(self, address: str) -> None:
        """Disable all VFs of a card."""
        self._run("-d", address)

    def _run(self, option: str, address: str) -> None:
        if not self._tool.is_file():
            raise UnavailableError(
                f"the driver refuses to change the VFs of {address} itself and there is no {self._tool}",
                hint="install NVIDIA's vGPU host driver, which brings it",
                code="sriov-tool-missing",
            )
        said = ""
        for attempt in range(_TRIES):
            if attempt:
                sleep(self._wait)
            try:
                done = subprocess.run(
                    [str(self._tool), option, address],
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=_DEADLINE,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise FailedError(
                    f"{self._tool} {option} {address} did not finish in {_DEADLINE:.0f} s",
                    hint="something holds the card; 'vgpumgr gpu show' names the holders",
                    code="deadline-exceeded",
                ) from error
            if done.returncode == 0:
                return
            said = " ".join((done.stderr or done.stdout).split())
        raise FailedError(f"{self._tool} {option} {address} failed: {said}", code="sriov-tool-failed")
