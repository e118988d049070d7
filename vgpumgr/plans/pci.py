"""Steps that move one PCI function between drivers. Always per address, never by vendor and device.

The order that gives nobody else a chance at the function: override, unbind, probe. Going back, the override
is cleared first, so that no later probe finds a driver's name left in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vgpumgr.errors import FailedError
from vgpumgr.kernel.port import PCI_DEVICES, PCI_DRIVERS, Kernel, link_name, read_text
from vgpumgr.plans.step import Step, StepContext

UNSET_OVERRIDE = ("", "(null)")
"""How an unset driver_override reads: the kernel prints a NULL name."""


def driver_of(kernel: Kernel, address: str) -> str | None:
    """The driver a function is bound to, read from the host now; ``None`` when unbound."""
    return link_name(kernel, f"{PCI_DEVICES}/{address}/driver")


def override_of(kernel: Kernel, address: str) -> str:
    """The function's driver_override, empty when unset."""
    value = read_text(kernel, f"{PCI_DEVICES}/{address}/driver_override") or ""
    return "" if value in UNSET_OVERRIDE else value


@dataclass(frozen=True)
class LoadModule(Step):
    """Make sure a driver is there before anything is taken from the one that works. Never unloaded again."""

    kind: ClassVar[str] = "load-module"
    module: str
    driver: str

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"load the driver {self.driver}"

    @property
    def target_value(self) -> str:
        """The module's name, or a modalias that modprobe resolves."""
        return self.module

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return context.kernel.exists(f"{PCI_DRIVERS}/{self.driver}")

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.kernel.load_module(self.module)

    def undo(self, context: StepContext) -> None:
        """A loaded driver that nothing is bound to is harmless; somebody else may use it by now."""


@dataclass(frozen=True)
class SetOverride(Step):
    """Say which driver may have a function; an empty ``driver`` clears the override."""

    kind: ClassVar[str] = "set-driver-override"
    address: str
    driver: str
    prior: str = ""

    def describe(self) -> str:
        """See :class:`Step`."""
        if not self.driver:
            return f"clear the driver override of {self.address}"
        return f"reserve {self.address} for the driver {self.driver}"

    @property
    def target_path(self) -> str:
        """``…/driver_override``."""
        return f"{PCI_DEVICES}/{self.address}/driver_override"

    @property
    def target_value(self) -> str:
        """The driver's name; a line feed clears."""
        return self.driver or "\n"

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return override_of(context.kernel, self.address) == self.driver

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.kernel.write(self.target_path, self.target_value)

    def undo(self, context: StepContext) -> None:
        """Write back what stood there before, where it differs."""
        if override_of(context.kernel, self.address) != self.prior:
            context.kernel.write(self.target_path, self.prior or "\n")


@dataclass(frozen=True)
class Unbind(Step):
    """Take a function from a driver. Can hang in the kernel while a process holds the device."""

    kind: ClassVar[str] = "unbind"
    address: str
    driver: str
    prior_override: str = ""

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"unbind {self.address} from {self.driver}"

    @property
    def target_path(self) -> str:
        """``…/drivers/NAME/unbind``."""
        return f"{PCI_DRIVERS}/{self.driver}/unbind"

    @property
    def target_value(self) -> str:
        """The function's address."""
        return self.address

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return driver_of(context.kernel, self.address) != self.driver

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.kernel.write(self.target_path, self.address)

    def undo(self, context: StepContext) -> None:
        """Give the function back to the driver it had. The override must allow that driver first."""
        if driver_of(context.kernel, self.address) is not None:
            return
        if override_of(context.kernel, self.address) != self.prior_override:
            override = f"{PCI_DEVICES}/{self.address}/driver_override"
            context.kernel.write(override, self.prior_override or "\n")
        context.kernel.write(f"{PCI_DRIVERS}/{self.driver}/bind", self.address)


@dataclass(frozen=True)
class Probe(Step):
    """Let the kernel find a driver for a function: the override's, or, with ``driver`` empty, any that matches.

    With ``driver`` empty, ``avoid`` is the driver that the function must not be on afterwards.
    """

    kind: ClassVar[str] = "probe"
    address: str
    driver: str = ""
    avoid: str = ""

    def describe(self) -> str:
        """See :class:`Step`."""
        if self.driver:
            return f"bind {self.address} to {self.driver}"
        return f"let the kernel choose a driver for {self.address}"

    @property
    def target_path(self) -> str:
        """``/sys/bus/pci/drivers_probe``."""
        return "/sys/bus/pci/drivers_probe"

    @property
    def target_value(self) -> str:
        """The function's address."""
        return self.address

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`. Without a wanted driver, never known before the kernel was asked."""
        return bool(self.driver) and driver_of(context.kernel, self.address) == self.driver

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.kernel.write(self.target_path, self.address)

    def verify(self, context: StepContext) -> None:
        """The driver link names the wanted driver; with none wanted, anything but ``avoid`` will do."""
        if self.driver:
            super().verify(context)
        elif driver_of(context.kernel, self.address) == self.avoid:
            raise FailedError(
                f"read-back failed: the kernel gave {self.address} to {self.avoid} again",
                hint=f"is it named in an 'ids=' of {self.avoid} (kernel command line, /etc/modprobe.d), or is the"
                " module of its own driver not loaded?",
                code="verify-failed",
            )

    def undo(self, context: StepContext) -> None:
        """Take the function from the driver it was given."""
        current = driver_of(context.kernel, self.address)
        if current is not None and current != self.avoid and self.driver in ("", current):
            context.kernel.write(f"{PCI_DRIVERS}/{current}/unbind", self.address)


@dataclass(frozen=True)
class BindTo(Step):
    """Bind a function to one named driver, whatever other drivers would match it too."""

    kind: ClassVar[str] = "bind-driver"
    address: str
    driver: str

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"bind {self.address} to {self.driver}"

    @property
    def target_path(self) -> str:
        """``…/drivers/NAME/bind``."""
        return f"{PCI_DRIVERS}/{self.driver}/bind"

    @property
    def target_value(self) -> str:
        """The function's address."""
        return self.address

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return driver_of(context.kernel, self.address) == self.driver

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`. A driver that took the function by itself first is taken off it."""
        current = driver_of(context.kernel, self.address)
        if current is not None:
            context.kernel.write(f"{PCI_DRIVERS}/{current}/unbind", self.address)
        context.kernel.write(self.target_path, self.address)

    def undo(self, context: StepContext) -> None:
        """Take the function from that driver."""
        if driver_of(context.kernel, self.address) == self.driver:
            context.kernel.write(f"{PCI_DRIVERS}/{self.driver}/unbind", self.address)
