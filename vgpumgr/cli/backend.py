"""Where a command's answers come from: a service in this process, or the running service over its socket.

Both give the same JSON objects, so a command never knows which one it talks to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol

from vgpumgr.cli.slices import SliceBackend
from vgpumgr.errors import PermissionDeniedError, UnavailableError, UsageError

if TYPE_CHECKING:
    from vgpumgr.cli.client import Client
    from vgpumgr.cli.invocation import Invocation

JsonObject = dict[str, Any]


class Offers(NamedTuple):
    """Profiles with how many more of each fit; ``reasons``: why cards that can be sliced list none now."""

    profiles: list[JsonObject]
    reasons: list[JsonObject]


class Needs(Enum):
    """What a command needs of the host it works on."""

    READING = "reading"
    """Answers from the kernel alone will do."""
    BINDING = "binding"
    """Changes the host; works without the service (early boot), then as root under the host lock."""
    BOOT = "boot"
    """As BINDING, before libvirt runs: it must not be asked, for asking would start it."""
    SERVICE = "service"
    """Allocations and VMs: the running service's, never a second one's."""


class Backend(SliceBackend, Protocol):
    """The use-cases of :class:`vgpumgr.service.Service`, in JSON."""

    def inventory(self) -> JsonObject:
        """The object of DESIGN §6."""
        ...

    def gpus(self) -> list[JsonObject]:
        """Every GPU."""
        ...

    def gpu(self, address: str) -> JsonObject:
        """One GPU."""
        ...

    def groups(self) -> list[JsonObject]:
        """Every IOMMU group."""
        ...

    def group(self, group_id: int) -> JsonObject:
        """One IOMMU group."""
        ...

    def doctor(self) -> JsonObject:
        """What stands between each GPU and a VM."""
        ...

    def profiles(self, gpu: str | None) -> Offers:
        """Profiles with how many more of each fit."""
        ...

    def candidates(self, request: JsonObject) -> JsonObject:
        """Candidates and refusals."""
        ...

    def check_domain(self, xml: bytes) -> JsonObject:
        """Devices and problems of a domain XML."""
        ...

    def snapshot(self, out: IO[bytes]) -> None:
        """Write the host's tar."""
        ...

    def plan_bind(self, address: str, options: JsonObject) -> JsonObject:
        """The plan of :meth:`bind`."""
        ...

    def plan_release(self, address: str, options: JsonObject) -> JsonObject:
        """The plan of :meth:`release`."""
        ...

    def bind(self, address: str, options: JsonObject) -> JsonObject:
        """The operation that binds."""
        ...

    def release(self, address: str, options: JsonObject) -> JsonObject:
        """The operation that gives back."""
        ...

    def restore_bindings(self) -> list[JsonObject]:
        """The operations that bound again, all of them final."""
        ...

    def plan_allocation(self, request: JsonObject) -> JsonObject:
        """The plan of :meth:`allocate`."""
        ...

    def plan_allocation_release(self, allocation_id: str) -> JsonObject:
        """The plan of :meth:`release_allocation`."""
        ...

    def allocate(self, request: JsonObject) -> JsonObject:
        """The new allocation."""
        ...

    def allocations(self, filters: Mapping[str, str]) -> list[JsonObject]:
        """Allocations, newest first."""
        ...

    def allocation(self, allocation_id: str) -> JsonObject:
        """One allocation."""
        ...

    def release_allocation(self, allocation_id: str) -> JsonObject:
        """The allocation, being released."""
        ...

    def allocation_xml(self, allocation_id: str, template: str, shape: JsonObject) -> str:
        """Its domain XML."""
        ...

    def vms(self) -> list[JsonObject]:
        """Every domain."""
        ...

    def vm(self, name: str) -> JsonObject:
        """One domain."""
        ...

    def plan_define_vm(self, allocation_id: str, template: str, shape: JsonObject) -> JsonObject:
        """The plan of :meth:`define_vm`."""
        ...

    def define_vm(self, allocation_id: str, template: str, shape: JsonObject) -> JsonObject:
        """The operation that defines."""
        ...

    def plan_start_vm(self, name: str) -> JsonObject:
        """The plan of :meth:`start_vm`."""
        ...

    def start_vm(self, name: str) -> JsonObject:
        """The operation that starts."""
        ...

    def plan_stop_vm(self, name: str, force: bool) -> JsonObject:
        """The plan of :meth:`stop_vm`."""
        ...

    def stop_vm(self, name: str, force: bool) -> JsonObject:
        """The operation that stops."""
        ...

    def plan_undefine_vm(self, name: str) -> JsonObject:
        """The plan of :meth:`undefine_vm`."""
        ...

    def undefine_vm(self, name: str) -> JsonObject:
        """The operation that removes the domain's definition."""
        ...

    def operations(self, filters: Mapping[str, str]) -> list[JsonObject]:
        """Operations, newest first."""
        ...

    def operation(self, operation_id: str) -> JsonObject:
        """One operation with its steps."""
        ...

    def events(self, filters: Mapping[str, str], after: int, limit: int) -> list[JsonObject]:
        """At most ``limit`` events with an id above ``after``, newest first."""
        ...

    def follow(
        self, filters: Mapping[str, str], after: int | None, note: Callable[[str], None]
    ) -> Iterator[JsonObject]:
        """Events after one, or from now on, as they happen and without end. ``note`` is told of interruptions."""
        ...

    def wait(self, operation_id: str, seconds: float) -> JsonObject:
        """The operation once it is final, or as it is after ``seconds``."""
        ...


def open_backend(invocation: Invocation, needs: Needs) -> AbstractContextManager[Backend]:
    """The backend for a command; close it by leaving the context.

    A source chosen on the command line (``--sysfs-root``, ``--simulate``) is always served in this process.
    Otherwise the service answers if it runs, also one that its settings put on a simulated host; without it,
    reading and binding go on in this process. Raises UnavailableError where only the service will do.
    """
    config = invocation.config()
    chosen_here = invocation.sysfs_root is not None or invocation.simulate is not None
    if not chosen_here:
        client = _running_service(config.socket, needs, must_answer=invocation.socket is not None)
        if client is not None:
            from vgpumgr.cli.remote import RemoteBackend

            return RemoteBackend(client)
        if needs is Needs.SERVICE:
            raise _not_running(config.socket)
    if needs is Needs.SERVICE and config.sysfs_root:
        raise UsageError(
            "a recorded host has no allocations, VMs and operations",
            hint=f"play them through on a simulation of it: --simulate {config.sysfs_root}",
        )
    from vgpumgr.cli.local import open_local

    return open_local(config, needs)


def _running_service(socket: Path, needs: Needs, *, must_answer: bool) -> Client | None:
    """A client of the service, or ``None`` when nobody listens. A socket named by the user must answer."""
    if not must_answer and not _present(socket):
        return None
    from vgpumgr.cli.client import Client

    client = Client(socket)
    try:
        client.connect()
    except PermissionError as error:
        if needs is Needs.READING and not must_answer:
            return None
        raise PermissionDeniedError(
            f"cannot open the service's socket {socket}: {error.strerror}",
            hint="run as root, or join the group that owns the socket",
        ) from error
    except OSError as error:
        if must_answer:
            raise _not_running(socket, error.strerror) from error
        return None
    return client


def _present(socket: Path) -> bool:
    """Whether the socket may be there; one in a folder that may not be entered counts as there."""
    try:
        return socket.exists()
    except PermissionError:
        return True


def _not_running(socket: Path, why: str | None = None) -> UnavailableError:
    detail = f": {why}" if why else ""
    return UnavailableError(
        f"the vgpumgr service does not answer on {socket}{detail}",
        hint="start it: systemctl start vgpumgr",
        code="service-unavailable",
    )


def only(values: Mapping[str, str | None]) -> dict[str, str]:
    """The filters that were given."""
    return {key: value for key, value in values.items() if value is not None}


def reasons_of(value: Sequence[JsonObject]) -> str:
    """Reasons as one text."""
    return "; ".join(str(reason["message"]) for reason in value)
