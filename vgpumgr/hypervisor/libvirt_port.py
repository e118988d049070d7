"""libvirt behind the hypervisor port, for ``qemu:///system`` and for libvirt's in-process ``test:///default``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import ModuleType
from typing import Any, TypeVar

from vgpumgr.domain.document import allocation_of, name_of, parse_domain
from vgpumgr.domain.parser import host_devices
from vgpumgr.errors import FailedError, NotFoundError, RefusedError, UnavailableError, UsageError
from vgpumgr.hypervisor.capabilities import read_capabilities
from vgpumgr.hypervisor.connection import CALL_DEADLINE, OPEN_DEADLINE, Connection
from vgpumgr.hypervisor.library import load
from vgpumgr.model.domain import DomainInfo, DomainState, HypervisorCapabilities

T = TypeVar("T")

START_DEADLINE = 600.0
"""Seconds a start may take: pinning and clearing a guest's memory takes its time."""
_STATES = {
    1: DomainState.RUNNING,
    2: DomainState.RUNNING,
    3: DomainState.PAUSED,
    4: DomainState.SHUTTING_DOWN,
    5: DomainState.SHUT_OFF,
    6: DomainState.CRASHED,
    7: DomainState.PAUSED,
}
"""virDomainState; 2 is "blocked on a resource", 7 "suspended by the guest's power management"."""


class LibvirtHypervisor:
    """See :class:`vgpumgr.hypervisor.port.Hypervisor`. Nothing is loaded or opened before the first question."""

    def __init__(
        self,
        uri: str,
        *,
        deadline: float = OPEN_DEADLINE,
        call_deadline: float = CALL_DEADLINE,
        library: Callable[[], ModuleType] = load,
    ) -> None:
        self.uri = uri
        self._library = library
        self._connection = Connection(
            uri, lambda: self._libvirt, open_deadline=deadline, call_deadline=call_deadline
        )

    @cached_property
    def _libvirt(self) -> ModuleType:
        return self._library()

    # -- errors ---------------------------------------------------------------------------------------
    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """libvirt's errors that mean the same everywhere, as ours."""
        try:
            yield
        except self._libvirt.libvirtError as error:
            code = error.get_error_code()
            if code == self._libvirt.VIR_ERR_NO_DOMAIN:
                raise NotFoundError(
                    f"libvirt has no domain {name!r}", hint="'vgpumgr vm list' shows them", code="vm-unknown"
                ) from error
            if code in (self._libvirt.VIR_ERR_NO_CONNECT, self._libvirt.VIR_ERR_RPC):
                raise self._connection.unavailable(str(error)) from error
            raise FailedError(f"libvirt: {error}", code="libvirt-failed") from error

    def _ask(self, action: Callable[[Any], T]) -> T:
        with self._errors(self.uri):
            return self._connection.call(action)

    def _with_domain(self, name: str, action: Callable[[Any], T], *, deadline: float | None = None) -> T:
        """Do something with the domain of that name."""
        with self._errors(name):
            return self._connection.call(lambda conn: action(conn.lookupByName(name)), deadline=deadline)

    def close(self) -> None:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        self._connection.close()

    # -- reading --------------------------------------------------------------------------------------
    def version(self) -> str:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        return self.capabilities().libvirt

    def capabilities(self) -> HypervisorCapabilities:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        return self._ask(read_capabilities)

    def domains(self) -> Sequence[DomainInfo]:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        found = self._ask(lambda conn: [self._info_or_none(domain) for domain in conn.listAllDomains(0)])
        return sorted((info for info in found if info is not None), key=lambda info: info.name)

    def _info_or_none(self, domain: Any) -> DomainInfo | None:
        """A domain may go away between the listing and the look; then it is simply not there any more."""
        try:
            return self._info(domain)
        except self._libvirt.libvirtError as error:
            if error.get_error_code() == self._libvirt.VIR_ERR_NO_DOMAIN:
                return None
            raise

    def _info(self, domain: Any) -> DomainInfo:
        state, _ = domain.state()
        name, uuid, persistent = domain.name(), domain.UUIDString(), bool(domain.isPersistent())
        known = _STATES.get(state, DomainState.UNKNOWN)
        try:
            document = parse_domain(domain.XMLDesc(0).encode())
        except UsageError:
            return DomainInfo(name, uuid, known, persistent, devices_known=False)
        return DomainInfo(name, uuid, known, persistent, host_devices(document), allocation_of(document))

    def domain(self, name: str) -> DomainInfo:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        return self._with_domain(name, self._info)

    def xml(self, name: str) -> str:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        return str(self._with_domain(name, lambda domain: domain.XMLDesc(0)))

    def owners(self) -> Mapping[str, str]:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        holding = [info for info in self.domains() if info.state.holds_devices]
        unread = [info.name for info in holding if not info.devices_known]
        if unread:
            raise UnavailableError(
                f"the XML of {', '.join(unread)} cannot be read: any device on a VFIO driver may be theirs",
                hint=f"look at it: virsh dumpxml {unread[0]}",
                code="owners-unknown",
            )
        return {device.key: info.name for info in holding for device in info.devices}

    # -- changing -------------------------------------------------------------------------------------
    def define(self, xml: str, *, foreign: bool = False) -> DomainInfo:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        name = name_of(parse_domain(xml.encode()))

        def define(conn: Any) -> DomainInfo:
            if not foreign:
                self._refuse_foreign_name(conn, name)
            return self._info(conn.defineXMLFlags(xml, self._libvirt.VIR_DOMAIN_DEFINE_VALIDATE))

        with self._errors("the new domain"):
            try:
                return self._connection.call(define)
            except self._libvirt.libvirtError as error:
                if error.get_error_code() in self._invalid_codes():
                    raise RefusedError(
                        f"libvirt does not take the domain: {error}", code="domain-invalid"
                    ) from error
                raise

    def _refuse_foreign_name(self, conn: Any, name: str) -> None:
        """Defining over a domain of that name would change somebody else's machine."""
        for domain in conn.listAllDomains(0):
            if domain.name() == name:
                self._refuse_foreign(domain)

    def _refuse_foreign(self, domain: Any) -> None:
        if self._info(domain).allocation is None:
            raise RefusedError(
                f"the domain {domain.name()} is not one of vgpumgr's",
                hint="use virsh, or its own manager",
                code="vm-foreign",
            )

    def _change(
        self, name: str, action: Callable[[Any], object], foreign: bool, deadline: float | None = None
    ) -> None:
        def change(domain: Any) -> None:
            if not foreign:
                self._refuse_foreign(domain)
            action(domain)

        self._with_domain(name, change, deadline=deadline)

    def _invalid_codes(self) -> tuple[int, ...]:
        library = self._libvirt
        return (
            library.VIR_ERR_XML_ERROR,
            library.VIR_ERR_XML_DETAIL,
            library.VIR_ERR_XML_INVALID_SCHEMA,
            library.VIR_ERR_CONFIG_UNSUPPORTED,
            library.VIR_ERR_OPERATION_FAILED,
        )

    def start(self, name: str, *, foreign: bool = False) -> None:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""

        def start(domain: Any) -> None:
            if not domain.isActive():
                domain.create()

        try:
            self._change(name, start, foreign, START_DEADLINE)
        except FailedError as error:
            raise FailedError(f"{name} did not start: {error.message}", code="vm-start-failed") from error

    def shutdown(self, name: str, *, foreign: bool = False) -> None:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        self._change(name, lambda domain: domain.shutdown() if domain.isActive() else None, foreign)

    def destroy(self, name: str, *, foreign: bool = False) -> None:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        self._change(name, lambda domain: domain.destroy() if domain.isActive() else None, foreign)

    def undefine(self, name: str, *, foreign: bool = False) -> None:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        flags = self._undefine_flags(self._ask(lambda conn: str(conn.getType())))
        try:
            self._change(name, lambda domain: domain.undefineFlags(flags), foreign)
        except NotFoundError:
            return  # Gone already: what was wanted.

    def _undefine_flags(self, driver: str) -> int:
        """All that a definition leaves behind. Other drivers than QEMU's refuse flags that they do not know."""
        library = self._libvirt
        flags = library.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | library.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
        if driver == "QEMU":
            flags |= library.VIR_DOMAIN_UNDEFINE_NVRAM | library.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
        return int(flags)
