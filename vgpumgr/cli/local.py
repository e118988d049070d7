"""The backend in this process: a :class:`Service` on a real, recorded or simulated kernel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from vgpumgr.cli.backend import Needs, Offers
from vgpumgr.cli.slices import LocalSlices
from vgpumgr.errors import PermissionDeniedError, RefusedError, UsageError

if TYPE_CHECKING:
    from vgpumgr.cli.backend import JsonObject
    from vgpumgr.config import Config
    from vgpumgr.model.allocation import AllocationRequest
    from vgpumgr.model.domain import GuestShape
    from vgpumgr.service import Service


TEST_LIBVIRT = "test:///default"
"""libvirt's driver inside the process: what a simulated host has for a libvirt."""


@contextmanager
def open_local(config: Config, needs: Needs) -> Iterator[LocalBackend]:
    """A backend with no more behind it than the command needs: reading opens no database and no libvirt."""
    if needs is not Needs.READING:
        _may_change(config)
    with _settings(config, needs) as settings:
        service = _open_service(settings, needs)
        try:
            yield LocalBackend(service)
        finally:
            service.close()


def _may_change(config: Config) -> None:
    """Say at once, and in one line, what would otherwise fail somewhere on the way."""
    if config.sysfs_root:
        raise RefusedError(
            f"{config.sysfs_root} is a recording: nothing can be changed there",
            hint="add --plan to see what would be done",
            code="read-only",
        )
    if not config.simulate and os.geteuid() != 0:
        raise PermissionDeniedError(
            "changing a GPU's driver needs root", hint="use sudo, or start the service: systemctl start vgpumgr"
        )


@contextmanager
def _settings(config: Config, needs: Needs) -> Iterator[Config]:
    """The settings; a simulated host that is to be changed lives, with its store, as long as the command."""
    if not config.simulate or needs is Needs.READING:
        yield config
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="vgpumgr-") as folder:
        place = Path(folder)
        yield config._replace(state_dir=place, runtime_dir=place, database="", libvirt_uri=TEST_LIBVIRT)


def _open_service(config: Config, needs: Needs) -> Service:
    from vgpumgr.assembly import open_reader, open_service

    if needs is Needs.READING:
        return open_reader(config)
    early = needs is Needs.BOOT
    service = open_service(config, libvirt=not early, nvml=not early)
    if needs is Needs.SERVICE:
        service.start()
    return service


class LocalBackend(LocalSlices):
    """The use-cases, answered as the REST API answers them."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def inventory(self) -> JsonObject:
        """See :class:`vgpumgr.cli.backend.Backend`; so for every method here."""
        return self._service.inventory().to_json()

    def gpus(self) -> list[JsonObject]:
        """Every GPU."""
        return [gpu.to_json() for gpu in self._service.inventory().gpus]

    def gpu(self, address: str) -> JsonObject:
        """One GPU."""
        return self._service.gpu(address).to_json()

    def groups(self) -> list[JsonObject]:
        """Every IOMMU group."""
        return [group.to_json() for group in self._service.inventory().groups]

    def group(self, group_id: int) -> JsonObject:
        """One IOMMU group."""
        return self._service.group(group_id).to_json()

    def doctor(self) -> JsonObject:
        """What stands between each GPU and a VM."""
        return self._service.doctor().to_json()

    def profiles(self, gpu: str | None) -> Offers:
        """Profiles with how many more of each fit."""
        offers, reasons = self._service.offers(gpu)
        return Offers([offer.to_json() for offer in offers], [reason.to_json() for reason in reasons])

    def candidates(self, request: JsonObject) -> JsonObject:
        """Candidates and refusals."""
        return self._service.candidates(_request(request)).to_json()

    def check_domain(self, xml: bytes) -> JsonObject:
        """Devices and problems of a domain XML."""
        return self._service.check_domain(xml).to_json()

    def snapshot(self, out: IO[bytes]) -> None:
        """Write the host's tar."""
        self._service.snapshot(out)

    def plan_bind(self, address: str, options: JsonObject) -> JsonObject:
        """The plan of :meth:`bind`."""
        return self._service.plan_bind(address, **options).to_json()

    def plan_release(self, address: str, options: JsonObject) -> JsonObject:
        """The plan of :meth:`release`."""
        return self._service.plan_release(address, **options).to_json()

    def bind(self, address: str, options: JsonObject) -> JsonObject:
        """The operation that binds."""
        return self._service.bind(address, **options).to_json()

    def release(self, address: str, options: JsonObject) -> JsonObject:
        """The operation that gives back."""
        return self._service.release(address, **options).to_json()

    def restore_bindings(self) -> list[JsonObject]:
        """The operations that bound again."""
        return [operation.to_json() for operation in self._service.restore_bindings()]

    def plan_allocation(self, request: JsonObject) -> JsonObject:
        """The plan of :meth:`allocate`."""
        return self._service.plan_allocation(_request(request)).to_json()

    def plan_allocation_release(self, allocation_id: str) -> JsonObject:
        """The plan of :meth:`release_allocation`."""
        return self._service.plan_release_allocation(allocation_id).to_json()

    def allocate(self, request: JsonObject) -> JsonObject:
        """The new allocation."""
        return self._service.allocate(_request(request)).to_json()

    def allocations(self, filters: Mapping[str, str]) -> list[JsonObject]:
        """Allocations, newest first."""
        return list(_pages(self._service.allocations, filters))

    def allocation(self, allocation_id: str) -> JsonObject:
        """One allocation."""
        return self._service.allocation(allocation_id).to_json()

    def release_allocation(self, allocation_id: str) -> JsonObject:
        """The allocation, being released."""
        return self._service.release_allocation(allocation_id).to_json()

    def allocation_xml(self, allocation_id: str, template: str, shape: JsonObject) -> str:
        """Its domain XML."""
        return self._service.allocation_xml(allocation_id, template=template, shape=_shape(shape))

    def vms(self) -> list[JsonObject]:
        """Every domain."""
        return [vm.to_json() for vm in self._service.vms()]

    def vm(self, name: str) -> JsonObject:
        """One domain."""
        return self._service.vm(name).to_json()

    def plan_define_vm(self, allocation_id: str, template: str, shape: JsonObject) -> JsonObject:
        """The plan of :meth:`define_vm`."""
        return self._service.plan_define_vm(allocation_id, template=template, shape=_shape(shape)).to_json()

    def define_vm(self, allocation_id: str, template: str, shape: JsonObject) -> JsonObject:
        """The operation that defines."""
        return self._service.define_vm(allocation_id, template=template, shape=_shape(shape)).to_json()

    def plan_start_vm(self, name: str) -> JsonObject:
        """The plan of :meth:`start_vm`."""
        return self._service.plan_start_vm(name).to_json()

    def start_vm(self, name: str) -> JsonObject:
        """The operation that starts."""
        return self._service.start_vm(name).to_json()

    def plan_stop_vm(self, name: str, force: bool) -> JsonObject:
        """The plan of :meth:`stop_vm`."""
        return self._service.plan_stop_vm(name, force=force).to_json()

    def stop_vm(self, name: str, force: bool) -> JsonObject:
        """The operation that stops."""
        return self._service.stop_vm(name, force=force).to_json()

    def plan_undefine_vm(self, name: str) -> JsonObject:
        """The plan of :meth:`undefine_vm`."""
        return self._service.plan_undefine_vm(name).to_json()

    def undefine_vm(self, name: str) -> JsonObject:
        """The operation that removes the domain's definition."""
        return self._service.undefine_vm(name).to_json()

    def operations(self, filters: Mapping[str, str]) -> list[JsonObject]:
        """Operations, newest first."""
        return list(_pages(self._service.operations, filters))

    def operation(self, operation_id: str) -> JsonObject:
        """One operation with its steps."""
        return self._service.operation(operation_id).to_json()

    def events(self, filters: Mapping[str, str], after: int, limit: int) -> list[JsonObject]:
        """Events, newest first."""
        from vgpumgr.model.event import Wanted

        pages = _pages(partial(self._service.events.list, Wanted(**filters), after=after, limit=limit), {})
        return list(islice(pages, limit))

    def follow(
        self, filters: Mapping[str, str], after: int | None, note: Callable[[str], None]
    ) -> Iterator[JsonObject]:
        """Nothing happens to a host that this process has for itself."""
        raise UsageError(
            "events are followed at a running service", hint="leave out --simulate, or name the service: --socket"
        )

    def wait(self, operation_id: str, seconds: float) -> JsonObject:
        """The operation once it is final, or as it is after ``seconds``."""
        return self._service.wait(operation_id, seconds).to_json()


def _pages(list_page: Any, filters: Mapping[str, str]) -> Iterator[JsonObject]:
    cursor = None
    while True:
        page = list_page(**filters, cursor=cursor)
        yield from (item.to_json() for item in page.items)
        cursor = page.next_cursor
        if cursor is None:
            return


def _request(values: JsonObject) -> AllocationRequest:
    from vgpumgr.model.allocation import AllocationRequest

    return AllocationRequest(**values)


def _shape(values: JsonObject) -> GuestShape | None:
    if not values:
        return None
    from vgpumgr.model.domain import GuestShape

    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }
    return GuestShape(**given)
