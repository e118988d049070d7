"""Steps that define, start, stop and undefine libvirt domains of ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vgpumgr.domain.document import parse_domain
from vgpumgr.domain.parser import host_devices
from vgpumgr.errors import NotFoundError
from vgpumgr.hypervisor.port import Hypervisor
from vgpumgr.model.domain import DomainInfo
from vgpumgr.plans.step import Step, StepContext


def find_domain(hypervisor: Hypervisor, name: str) -> DomainInfo | None:
    """The domain of that name, or ``None``."""
    try:
        return hypervisor.domain(name)
    except NotFoundError:
        return None


@dataclass(frozen=True)
class DefineDomain(Step):
    """Define a domain in libvirt. ``prior`` is the XML of an earlier definition of ours, empty for none."""

    kind: ClassVar[str] = "define-domain"
    name: str
    allocation: str
    xml: str
    prior: str = ""

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"define the VM {self.name} in libvirt"

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`. libvirt adds to what it is given, so an old definition is never taken for this one."""
        return False

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.port(Hypervisor).define(self.xml)

    def verify(self, context: StepContext) -> None:
        """libvirt has the domain, ours by its metadata, with exactly these devices."""
        found = find_domain(context.port(Hypervisor), self.name)
        wanted = host_devices(parse_domain(self.xml.encode()))
        if found is None or found.allocation != self.allocation or set(found.devices) != set(wanted):
            super().verify(context)

    def undo(self, context: StepContext) -> None:
        """Bring the earlier definition back, or remove this one; anybody else's domain is left alone."""
        hypervisor = context.port(Hypervisor)
        found = find_domain(hypervisor, self.name)
        if found is None or found.allocation != self.allocation:
            return
        if self.prior:
            hypervisor.define(self.prior)
        else:
            hypervisor.undefine(self.name)


@dataclass(frozen=True)
class StartDomain(Step):
    """Start a domain that is defined."""

    kind: ClassVar[str] = "start-domain"
    name: str

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"start the VM {self.name}"

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        found = find_domain(context.port(Hypervisor), self.name)
        return found is not None and found.state.holds_devices

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.port(Hypervisor).start(self.name)

    def undo(self, context: StepContext) -> None:
        """A start that libvirt reported as failed has left nothing running; one that runs is a user's by now."""


@dataclass(frozen=True)
class StopDomain(Step):
    """Stop a domain: ask the guest, or pull the plug with ``force``."""

    kind: ClassVar[str] = "stop-domain"
    name: str
    force: bool = False

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"pull the plug of the VM {self.name}" if self.force else f"ask the VM {self.name} to shut down"

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        found = find_domain(context.port(Hypervisor), self.name)
        return found is None or not found.state.holds_devices

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        if self.force:
            context.port(Hypervisor).destroy(self.name)
        else:
            context.port(Hypervisor).shutdown(self.name)

    def verify(self, context: StepContext) -> None:
        """A guest that was asked takes its time; a plug that was pulled is out."""
        if self.force:
            super().verify(context)

    def undo(self, context: StepContext) -> None:
        """What went off stays off: a guest is not started behind its user's back."""


@dataclass(frozen=True)
class UndefineDomain(Step):
    """Remove the definition of a domain of ours that is off. ``prior`` is its XML, for the way back."""

    kind: ClassVar[str] = "undefine-domain"
    name: str
    prior: str

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"remove the VM {self.name} from libvirt; its disks stay"

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return find_domain(context.port(Hypervisor), self.name) is None

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.port(Hypervisor).undefine(self.name)

    def undo(self, context: StepContext) -> None:
        """See :class:`Step`."""
        if self.is_done(context):
            context.port(Hypervisor).define(self.prior)
