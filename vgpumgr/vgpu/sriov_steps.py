"""Steps that enable and disable virtual functions."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from vgpumgr.errors import FailedError, Reason, VgpumgrError, counted
from vgpumgr.inventory.reader import whole
from vgpumgr.kernel.port import PCI_DEVICES, Kernel, link_name, read_text
from vgpumgr.plans.step import Step, StepContext


@dataclass(frozen=True, slots=True)
class SriovTool:
    """A vendor's own tool that changes the VFs of a card, where the driver refuses the plain write.

    Both take the card's address and raise :class:`VgpumgrError`; ``enable`` enables all VFs the driver has.
    """

    enable: Callable[[str], None]
    disable: Callable[[str], None]


_REFUSED_BY_DRIVER = frozenset({errno.ENOENT, errno.EPERM, errno.EINVAL, errno.EIO, errno.EOPNOTSUPP, errno.ENOSYS})


def vf_count(kernel: Kernel, address: str) -> int | None:
    """How many VFs are enabled, ``None`` when the function has no such file."""
    return whole(read_text(kernel, f"{PCI_DEVICES}/{address}/sriov_numvfs") or "")


@dataclass(frozen=True)
class SetAutoprobe(Step):
    """Say whether the kernel looks for drivers for new VFs. Off around enabling, host drivers stay away."""

    kind: ClassVar[str] = "set-vf-autoprobe"
    address: str
    value: str
    prior: str

    def describe(self) -> str:
        """See :class:`Step`."""
        verb = "let" if self.value == "1" else "do not let"
        return f"{verb} host drivers take new virtual functions of {self.address}"

    @property
    def target_path(self) -> str:
        """``…/sriov_drivers_autoprobe``."""
        return f"{PCI_DEVICES}/{self.address}/sriov_drivers_autoprobe"

    @property
    def target_value(self) -> str:
        """``0`` or ``1``."""
        return self.value

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return read_text(context.kernel, self.target_path) == self.value

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.kernel.write(self.target_path, self.value)

    def undo(self, context: StepContext) -> None:
        """Write back what stood there."""
        if read_text(context.kernel, self.target_path) != self.prior:
            context.kernel.write(self.target_path, self.prior)


@dataclass(frozen=True)
class SetVfCount(Step):
    """Enable ``count`` VFs, or none. From one number to another the kernel wants a step through 0.

    Where the driver refuses the plain write (NVIDIA's does), the vendor's tool does it; it enables all VFs, so
    ``at_least`` is set and more than ``count`` will do.
    """

    kind: ClassVar[str] = "set-vf-count"
    address: str
    count: int
    prior: int
    at_least: bool = False

    def describe(self) -> str:
        """See :class:`Step`."""
        if not self.count:
            return f"disable the virtual functions of {self.address}"
        return f"enable {counted(self.count, 'virtual function', 'virtual functions')} of {self.address}"

    @property
    def target_path(self) -> str:
        """``…/sriov_numvfs``."""
        return f"{PCI_DEVICES}/{self.address}/sriov_numvfs"

    @property
    def target_value(self) -> str:
        """The number."""
        return str(self.count)

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        found = vf_count(context.kernel, self.address)
        if self.at_least and self.count and found is not None:
            return found >= self.count
        return found == self.count

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`. Raises :class:`FailedError` that says what the kernel's errno means."""
        self._set(context, self.count)

    def undo(self, context: StepContext) -> None:
        """Go back to the number there was. VFs that were there before come back without what was on them."""
        found = vf_count(context.kernel, self.address)
        if found == self.prior:
            return
        if found and self.prior:
            self._set(context, 0)
        self._set(context, self.prior)

    def _set(self, context: StepContext, count: int) -> None:
        try:
            context.kernel.write(self.target_path, str(count))
        except TimeoutError:
            raise
        except OSError as error:
            if error.errno not in _REFUSED_BY_DRIVER or not self._has_tool(context):
                raise self._meaning(error) from error
            tool = context.port(SriovTool)
            if count:
                tool.enable(self.address)
            else:
                tool.disable(self.address)

    def _has_tool(self, context: StepContext) -> bool:
        driver = link_name(context.kernel, f"{PCI_DEVICES}/{self.address}/driver")
        return driver == "nvidia" and SriovTool in context.ports

    def _meaning(self, error: OSError) -> VgpumgrError:
        answers = {
            errno.ENOENT: ("driver-cannot-enable", "its driver cannot enable virtual functions"),
            errno.ERANGE: ("vfs-above-limit", f"{self.count} are more than its driver allows"),
            errno.EBUSY: ("vfs-exist", "virtual functions exist and must be disabled first"),
        }
        code, why = answers.get(error.errno or 0, ("kernel-refused", f"the kernel answered {error.strerror}"))
        reason = Reason(code, f"{self.address}: {why} (errno {error.errno})", (self.address,))
        return FailedError(f"{self.describe()}: {why}", reasons=[reason], code=code)


@dataclass(frozen=True)
class SetVfQuota(Step):
    """Give one VF its share before the VFs are enabled (Intel: time slice, preemption, local memory)."""

    kind: ClassVar[str] = "set-vf-quota"
    address: str
    path: str
    value: str
    prior: str

    def describe(self) -> str:
        """See :class:`Step`."""
        folders = self.path.split("/")
        vf = next((name for name in folders if name.startswith("vf")), "all virtual functions")
        return f"set {folders[-1]} of {vf} on {self.address} to {self.value}"

    @property
    def target_path(self) -> str:
        """The attribute."""
        return self.path

    @property
    def target_value(self) -> str:
        """The value."""
        return self.value

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return read_text(context.kernel, self.path) == self.value

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.kernel.write(self.path, self.value)

    def undo(self, context: StepContext) -> None:
        """Write back what stood there."""
        if self.prior and read_text(context.kernel, self.path) != self.prior:
            context.kernel.write(self.path, self.prior)
