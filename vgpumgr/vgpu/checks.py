"""Steps that only look: nobody uses a vGPU that is to go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vgpumgr.address import is_address
from vgpumgr.errors import RefusedError
from vgpumgr.inventory.handles import find_handles
from vgpumgr.inventory.holders import Holders, find_holders
from vgpumgr.inventory.reader import Reader, whole
from vgpumgr.inventory.watched import Watched
from vgpumgr.kernel.port import MDEV_DEVICES, Kernel
from vgpumgr.plans.checks import holder_reason
from vgpumgr.plans.step import Step, StepContext


def vgpu_holders(kernel: Kernel, vgpu: str) -> Holders:
    """Who has a vGPU (UUID or VF address) open now, and whether every process could be looked at."""
    if is_address(vgpu):
        return find_holders(kernel, (vgpu,))
    reader = Reader(kernel)
    group = whole(reader.link_name(f"{MDEV_DEVICES}/{vgpu}/iommu_group") or "")
    handles, known = find_handles(reader, {vgpu: Watched(vgpu, frozenset(), None, group)})
    return Holders(tuple(handles), known)


@dataclass(frozen=True)
class CheckVgpuIdle(Step):
    """Look again, just before a vGPU goes, that no guest has it. Unknown is not idle."""

    kind: ClassVar[str] = "check-vgpu-idle"
    vgpu: str

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"check that nothing uses vGPU {self.vgpu}"

    @property
    def subject(self) -> str:
        """See :class:`Step`."""
        return self.vgpu

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`. A look from before is no look now."""
        return False

    def apply(self, context: StepContext) -> None:
        """Raises :class:`RefusedError`: ``vgpu-in-use`` names who has it, else ``holders-unknown``."""
        seen = vgpu_holders(context.kernel, self.vgpu)
        if seen.holders:
            raise RefusedError(
                f"vGPU {self.vgpu} is in use",
                hint="stop the VM that has it",
                reasons=[holder_reason(holder) for holder in seen.holders],
                code="vgpu-in-use",
            )
        if not seen.known:
            raise RefusedError(
                f"cannot see who uses vGPU {self.vgpu}: open files of other processes are not readable",
                hint="run as root, with /proc mounted",
                code="holders-unknown",
            )

    def verify(self, context: StepContext) -> None:
        """Looking changes nothing: nothing to read back."""

    def undo(self, context: StepContext) -> None:
        """Looking changes nothing: nothing to undo."""
