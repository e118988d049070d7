"""Steps that only look: the guards before and after a function changes hands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vgpumgr.errors import Reason, RefusedError
from vgpumgr.inventory.holders import find_holders
from vgpumgr.kernel.port import IOMMU_GROUPS, PCI_DEVICES, Kernel, list_or_empty, read_text
from vgpumgr.model.host import Holder
from vgpumgr.model.pci import VFIO_STUB_DRIVERS, is_bridge_class
from vgpumgr.plans.pci import driver_of
from vgpumgr.plans.step import Step, StepContext


def holder_reason(holder: Holder) -> Reason:
    """A holder as a reason of a refusal."""
    who = f"{holder.name} (pid {holder.pid})" if holder.pid else holder.name
    what = f": {holder.detail}" if holder.detail else ""
    return Reason(
        f"holder-{holder.kind}", f"{holder.address} is used by {holder.kind} {who}{what}", (holder.address,)
    )


@dataclass(frozen=True)
class CheckIdle(Step):
    """Look again, just before anything is taken, that nobody uses the functions. Unknown is not idle."""

    kind: ClassVar[str] = "check-idle"
    address: str
    functions: tuple[str, ...]

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"check that nothing uses {', '.join(self.functions)}"

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`. A look from before is no look now."""
        return False

    def apply(self, context: StepContext) -> None:
        """Raises :class:`RefusedError`: ``in-use-by-host`` names who uses it, else ``holders-unknown``."""
        seen = find_holders(context.kernel, self.functions)
        if seen.holders:
            raise RefusedError(
                f"{self.address} is in use on this host",
                hint="stop what uses it, or name the address with --force",
                reasons=[holder_reason(holder) for holder in seen.holders],
                code="in-use-by-host",
            )
        if not seen.known:
            raise RefusedError(
                f"cannot see who uses {self.address}: open files of other processes are not readable",
                hint="run as root, with /proc mounted",
                code="holders-unknown",
            )

    def verify(self, context: StepContext) -> None:
        """Looking changes nothing: nothing to read back."""

    def undo(self, context: StepContext) -> None:
        """Looking changes nothing: nothing to undo."""


@dataclass(frozen=True)
class CheckGroup(Step):
    """The proof that a VM can have the group: every member but bridges unbound or on a VFIO driver."""

    kind: ClassVar[str] = "check-group"
    address: str
    group: int

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"check that IOMMU group {self.group} can go to a VM"

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return not self._blockers(context.kernel)

    def apply(self, context: StepContext) -> None:
        """Raises :class:`RefusedError` ``group-not-viable`` naming every blocker with its driver."""
        blockers = self._blockers(context.kernel)
        raise RefusedError(
            f"IOMMU group {self.group} is not viable",
            hint="every member but bridges must be on a VFIO driver or unbound",
            reasons=[Reason("group-blocker", f"{name} is bound to {driver}", (name,)) for name, driver in blockers],
            code="group-not-viable",
        )

    def undo(self, context: StepContext) -> None:
        """Looking changes nothing: nothing to undo."""

    def _blockers(self, kernel: Kernel) -> list[tuple[str, str]]:
        members = list_or_empty(kernel, f"{IOMMU_GROUPS}/{self.group}/devices")
        bound = [(name, driver_of(kernel, name)) for name in members]
        return [(name, driver) for name, driver in bound if driver and not _harmless(kernel, name, driver)]


def _harmless(kernel: Kernel, address: str, driver: str) -> bool:
    """True for a member whose driver leaves the group to VFIO: VFIO drivers, stubs, and bridges."""
    device = f"{PCI_DEVICES}/{address}"
    if driver in VFIO_STUB_DRIVERS or driver.endswith(("vfio-pci", "vfio_pci")):
        return True
    if kernel.exists(f"{device}/vfio-dev"):
        return True
    return is_bridge_class((read_text(kernel, f"{device}/class") or "").removeprefix("0x"))
