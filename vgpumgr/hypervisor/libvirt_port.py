"""libvirt behind the hypervisor port: the only file that imports ``libvirt``.

One connection is shared by all threads (libvirt's own are thread-safe) and opened again after libvirtd was
restarted. Opening runs aside with a deadline: a libvirtd that hangs must not hang its callers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

from vgpumgr.domain.document import allocation_of, parse_domain
from vgpumgr.domain.parser import host_devices
from vgpumgr.errors import FailedError, NotFoundError, RefusedError, UnavailableError
from vgpumgr.model.domain import DomainInfo, DomainState

T = TypeVar("T")

CONNECT_DEADLINE = 15.0
"""Seconds libvirtd has to answer a connection."""
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


def _load() -> ModuleType:
    try:
        import libvirt
    except ImportError as error:
        raise UnavailableError(
            f"the libvirt library cannot be used: {error}",
            hint="apt-get install libvirt0 libvirt-daemon-system, then run make setup",
            code="libvirt-missing",
        ) from error
    # libvirt prints its errors on stderr by itself; they reach the user through exceptions here.
    libvirt.registerErrorHandler(_silent, None)
    return libvirt  # type: ignore[no-any-return]


def _silent(_context: object, _error: object) -> None:
    """Take libvirt's own printing away."""


class LibvirtHypervisor:
    """A connection by URI: ``qemu:///system``, or ``test:///default`` for libvirt's in-process driver."""

    def __init__(self, uri: str, *, deadline: float = CONNECT_DEADLINE) -> None:
        self.uri = uri
        self._deadline = deadline
        self._libvirt = _load()
        self._connection: Any = None
        self._guard = threading.Lock()

    # -- connection -----------------------------------------------------------------------------------
    def _connected(self) -> Any:
        with self._guard:
            if self._connection is not None and not self._alive():
                self._connection = None
            if self._connection is None:
                self._connection = self._open()
            return self._connection

    def _alive(self) -> bool:
        try:
            return bool(self._connection.isAlive())
        except self._libvirt.libvirtError:
            return False

    def _open(self) -> Any:
        result: list[Any] = []

        def connect() -> None:
            try:
                result.append(self._libvirt.open(self.uri))
            except self._libvirt.libvirtError as error:
                result.append(error)

        thread = threading.Thread(target=connect, name="libvirt-open", daemon=True)
        thread.start()
        thread.join(self._deadline)
        if not result:
            raise self._unavailable(f"libvirtd did not answer within {self._deadline:g} s")
        if isinstance(result[0], self._libvirt.libvirtError):
            raise self._unavailable(str(result[0])) from result[0]
        return result[0]

    def _unavailable(self, why: str) -> UnavailableError:
        return UnavailableError(
            f"libvirt ({self.uri}) is not available: {why}",
            hint="systemctl status libvirtd virtqemud; 'libvirt_uri' in the configuration names the one to use",
            code="libvirt-unavailable",
        )

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
                raise self._unavailable(str(error)) from error
            raise FailedError(f"libvirt: {error}", code="libvirt-failed") from error

    def _call(self, name: str, action: Callable[[Any], T]) -> T:
        """Do something with the domain of that name."""
        connection = self._connected()
        with self._errors(name):
            return action(connection.lookupByName(name))

    def close(self) -> None:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        with self._guard:
            connection, self._connection = self._connection, None
        if connection is not None:
            with self._errors(self.uri):
                connection.close()

    # -- reading --------------------------------------------------------------------------------------
    def version(self) -> str:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        connection = self._connected()
        with self._errors(self.uri):
            number = connection.getLibVersion()
        return f"{number // 1000000}.{number // 1000 % 1000}.{number % 1000}"

    def domains(self) -> Sequence[DomainInfo]:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        connection = self._connected()
        with self._errors(self.uri):
            found = [self._info_or_none(domain) for domain in connection.listAllDomains(0)]
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
        document = parse_domain(domain.XMLDesc(0).encode())
        state, _ = domain.state()
        return DomainInfo(
            name=domain.name(),
            uuid=domain.UUIDString(),
            state=_STATES.get(state, DomainState.UNKNOWN),
            persistent=bool(domain.isPersistent()),
            devices=host_devices(document),
            allocation=allocation_of(document),
        )

    def domain(self, name: str) -> DomainInfo:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        return self._call(name, self._info)

    def xml(self, name: str) -> str:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        return str(self._call(name, lambda domain: domain.XMLDesc(0)))

    def owners(self) -> Mapping[str, str]:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        return {
            device.key: info.name
            for info in self.domains()
            if info.state.holds_devices
            for device in info.devices
            if device.key
        }

    # -- changing -------------------------------------------------------------------------------------
    def define(self, xml: str) -> DomainInfo:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        connection = self._connected()
        with self._errors("the new domain"):
            try:
                return self._info(connection.defineXMLFlags(xml, self._libvirt.VIR_DOMAIN_DEFINE_VALIDATE))
            except self._libvirt.libvirtError as error:
                if error.get_error_code() in self._invalid_codes():
                    raise RefusedError(
                        f"libvirt does not take the domain: {error}", code="domain-invalid"
                    ) from error
                raise

    def _invalid_codes(self) -> tuple[int, ...]:
        library = self._libvirt
        return (
            library.VIR_ERR_XML_ERROR,
            library.VIR_ERR_XML_DETAIL,
            library.VIR_ERR_XML_INVALID_SCHEMA,
            library.VIR_ERR_CONFIG_UNSUPPORTED,
            library.VIR_ERR_OPERATION_FAILED,
        )

    def start(self, name: str) -> None:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        try:
            self._call(name, lambda domain: None if domain.isActive() else domain.create())
        except FailedError as error:
            raise FailedError(f"{name} did not start: {error.message}", code="vm-start-failed") from error

    def shutdown(self, name: str) -> None:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        self._call(name, lambda domain: domain.shutdown() if domain.isActive() else None)

    def destroy(self, name: str) -> None:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        self._call(name, lambda domain: domain.destroy() if domain.isActive() else None)

    def undefine(self, name: str) -> None:
        """See :class:`vgpumgr.hypervisor.port.Hypervisor`."""
        flags = self._libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
        if self._connected().getType() == "QEMU":
            flags |= self._libvirt.VIR_DOMAIN_UNDEFINE_NVRAM  # Other drivers refuse a flag they do not know.
        try:
            self._call(name, lambda domain: domain.undefineFlags(flags))
        except NotFoundError:
            return  # Gone already: what was wanted.
