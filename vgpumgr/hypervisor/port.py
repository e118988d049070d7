"""The hypervisor port: what the project asks of libvirt, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from vgpumgr.model.domain import DomainInfo, HypervisorCapabilities


class Hypervisor(Protocol):
    """One host's libvirt. All methods raise :class:`~vgpumgr.errors.UnavailableError` when it does not answer.

    Domains that are not ours are shown and never touched: the methods that change one raise RefusedError
    ``vm-foreign`` for them, unless ``foreign`` says that this one is meant.
    """

    def version(self) -> str:
        """libvirt's version, such as ``11.3.0``."""
        ...

    def capabilities(self) -> HypervisorCapabilities:
        """What this libvirt is and can do."""
        ...

    def domains(self) -> Sequence[DomainInfo]:
        """Every domain of the host, ours and foreign, by name."""
        ...

    def domain(self, name: str) -> DomainInfo:
        """One domain. NotFoundError ``vm-unknown``."""
        ...

    def xml(self, name: str) -> str:
        """A domain's XML as libvirt keeps it. NotFoundError ``vm-unknown``."""
        ...

    def define(self, xml: str, *, foreign: bool = False) -> DomainInfo:
        """Define a persistent domain; libvirt validates the XML against its schema first.

        RefusedError ``domain-invalid`` with libvirt's own words when it does not take the XML.
        """
        ...

    def start(self, name: str, *, foreign: bool = False) -> None:
        """Start a defined domain. FailedError ``vm-start-failed`` with libvirt's own words."""
        ...

    def shutdown(self, name: str, *, foreign: bool = False) -> None:
        """Ask the guest to shut down; returns at once. The guest may take its time, or ignore it."""
        ...

    def destroy(self, name: str, *, foreign: bool = False) -> None:
        """Pull the plug. A domain that is off already is fine."""
        ...

    def undefine(self, name: str, *, foreign: bool = False) -> None:
        """Remove a stopped domain's definition with its firmware variables. A domain that is gone is fine."""
        ...

    def owners(self) -> Mapping[str, str]:
        """PCI addresses and mdev UUIDs in use, with the names of the domains that hold them.

        UnavailableError ``owners-unknown`` when a running domain cannot be read: no device is known to
        be free then.
        """
        ...

    def close(self) -> None:
        """Let the connection go."""
        ...
