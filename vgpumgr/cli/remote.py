"""The backend over the service's socket; the paths are those of docs/reference/rest-api.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import IO, Any
from urllib.parse import quote

from vgpumgr.cli.backend import Offers
from vgpumgr.cli.client import Client
from vgpumgr.cli.follow import follow
from vgpumgr.cli.slices import RemoteSlices

JsonObject = dict[str, Any]
_ASYNC = {"Prefer": "respond-async"}
_PAGE = 500
"""The longest page that the service gives."""


class RemoteBackend(RemoteSlices):
    """See :class:`vgpumgr.cli.backend.Backend`; so for every method here."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __enter__(self) -> RemoteBackend:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def inventory(self) -> JsonObject:
        """The object of DESIGN §6."""
        return self._get("/v1/host/inventory")

    def gpus(self) -> list[JsonObject]:
        """Every GPU."""
        return list(self._client.pages("/v1/gpus"))

    def gpu(self, address: str) -> JsonObject:
        """One GPU."""
        return self._get(f"/v1/gpus/{quote(address, safe=':')}")

    def groups(self) -> list[JsonObject]:
        """Every IOMMU group."""
        return list(self._client.pages("/v1/iommu-groups"))

    def group(self, group_id: int) -> JsonObject:
        """One IOMMU group."""
        return self._get(f"/v1/iommu-groups/{group_id}")

    def doctor(self) -> JsonObject:
        """What stands between each GPU and a VM."""
        return self._get("/v1/host/doctor")

    def profiles(self, gpu: str | None) -> Offers:
        """Profiles with how many more of each fit."""
        first = self._client.get("/v1/profiles", {"gpu": gpu})
        items = [*first["items"]]
        if first["next_cursor"]:
            items += self._client.pages("/v1/profiles", {"gpu": gpu, "cursor": first["next_cursor"]})
        return Offers(items, first.get("reasons", []))

    def candidates(self, request: JsonObject) -> JsonObject:
        """Candidates and refusals."""
        return self._post("/v1/candidates", request)

    def check_domain(self, xml: bytes) -> JsonObject:
        """Devices and problems of a domain XML."""
        return self._post("/v1/domain-checks", {"xml": xml.decode("utf-8", "replace")})

    def snapshot(self, out: IO[bytes]) -> None:
        """Write the host's tar."""
        content, _ = self._client.raw("GET", "/v1/host/snapshot")
        out.write(content)

    def plan_bind(self, address: str, options: JsonObject) -> JsonObject:
        """The plan of :meth:`bind`."""
        return self._post(f"/v1/gpus/{quote(address, safe=':')}/bind", options, dry_run=True)

    def plan_release(self, address: str, options: JsonObject) -> JsonObject:
        """The plan of :meth:`release`."""
        return self._post(f"/v1/gpus/{quote(address, safe=':')}/release", options, dry_run=True)

    def bind(self, address: str, options: JsonObject) -> JsonObject:
        """The operation that binds."""
        return self._post(f"/v1/gpus/{quote(address, safe=':')}/bind", options)

    def release(self, address: str, options: JsonObject) -> JsonObject:
        """The operation that gives back."""
        return self._post(f"/v1/gpus/{quote(address, safe=':')}/release", options)

    def restore_bindings(self) -> list[JsonObject]:
        """The running service restores bindings when it starts: nothing is left to do."""
        return []

    def plan_allocation(self, request: JsonObject) -> JsonObject:
        """The plan of :meth:`allocate`."""
        return self._post("/v1/allocations", request, dry_run=True)

    def plan_allocation_release(self, allocation_id: str) -> JsonObject:
        """The plan of :meth:`release_allocation`."""
        path = f"/v1/allocations/{quote(allocation_id, safe='')}"
        result: JsonObject = self._client.delete(path, {"dry_run": True})
        return result

    def allocate(self, request: JsonObject) -> JsonObject:
        """The new allocation."""
        return self._post("/v1/allocations", request)

    def allocations(self, filters: Mapping[str, str]) -> list[JsonObject]:
        """Allocations, newest first."""
        return list(self._client.pages("/v1/allocations", filters))

    def allocation(self, allocation_id: str) -> JsonObject:
        """One allocation."""
        return self._get(f"/v1/allocations/{quote(allocation_id, safe='')}")

    def release_allocation(self, allocation_id: str) -> JsonObject:
        """The allocation, being released."""
        result: JsonObject = self._client.delete(f"/v1/allocations/{quote(allocation_id, safe='')}")
        return result

    def allocation_xml(self, allocation_id: str, template: str, shape: JsonObject) -> str:
        """Its domain XML."""
        path = f"/v1/allocations/{quote(allocation_id, safe='')}/xml"
        content, _ = self._client.raw(
            "GET", path, {"template": template, **shape}, headers={"Accept": "application/xml"}
        )
        return content.decode()

    def vms(self) -> list[JsonObject]:
        """Every domain."""
        return list(self._client.pages("/v1/vms"))

    def vm(self, name: str) -> JsonObject:
        """One domain."""
        return self._get(f"/v1/vms/{quote(name, safe='')}")

    def plan_define_vm(self, allocation_id: str, template: str, shape: JsonObject) -> JsonObject:
        """The plan of :meth:`define_vm`."""
        return self._post("/v1/vms", {"allocation_id": allocation_id, "template": template, **shape}, dry_run=True)

    def define_vm(self, allocation_id: str, template: str, shape: JsonObject) -> JsonObject:
        """The operation that defines."""
        return self._begin("/v1/vms", {"allocation_id": allocation_id, "template": template, **shape})

    def plan_start_vm(self, name: str) -> JsonObject:
        """The plan of :meth:`start_vm`."""
        return self._post(f"/v1/vms/{quote(name, safe='')}/start", {}, dry_run=True)

    def start_vm(self, name: str) -> JsonObject:
        """The operation that starts."""
        return self._begin(f"/v1/vms/{quote(name, safe='')}/start", {})

    def plan_stop_vm(self, name: str, force: bool) -> JsonObject:
        """The plan of :meth:`stop_vm`."""
        return self._post(f"/v1/vms/{quote(name, safe='')}/stop", {"force": force}, dry_run=True)

    def stop_vm(self, name: str, force: bool) -> JsonObject:
        """The operation that stops."""
        return self._begin(f"/v1/vms/{quote(name, safe='')}/stop", {"force": force})

    def plan_undefine_vm(self, name: str) -> JsonObject:
        """The plan of :meth:`undefine_vm`."""
        result: JsonObject = self._client.delete(f"/v1/vms/{quote(name, safe='')}", {"dry_run": True})
        return result

    def undefine_vm(self, name: str) -> JsonObject:
        """The operation that removes the domain's definition."""
        result: JsonObject = self._client.delete(f"/v1/vms/{quote(name, safe='')}", headers=_ASYNC)
        return result

    def operations(self, filters: Mapping[str, str]) -> list[JsonObject]:
        """Operations, newest first."""
        return list(self._client.pages("/v1/operations", filters))

    def operation(self, operation_id: str) -> JsonObject:
        """One operation with its steps."""
        return self._get(f"/v1/operations/{quote(operation_id, safe='')}")

    def events(self, filters: Mapping[str, str], after: int, limit: int) -> list[JsonObject]:
        """Events, newest first."""
        query = {**filters, "after": after, "limit": min(limit, _PAGE)}
        return list(islice(self._client.pages("/v1/events", query), limit))

    def follow(
        self, filters: Mapping[str, str], after: int | None, note: Callable[[str], None]
    ) -> Iterator[JsonObject]:
        """Events as they happen."""
        return follow(self._client.path, filters, after, note)

    def wait(self, operation_id: str, seconds: float) -> JsonObject:
        """The operation once it is final, or as it is after ``seconds``."""
        return self._get(f"/v1/operations/{quote(operation_id, safe='')}", {"wait": seconds})

    def _get(self, path: str, query: Mapping[str, Any] | None = None) -> JsonObject:
        result: JsonObject = self._client.get(path, query)
        return result

    def _begin(self, path: str, body: JsonObject) -> JsonObject:
        """The operation of a change that the service would otherwise wait for: here it is followed step by step."""
        result: JsonObject = self._client.post(path, body, headers=_ASYNC)
        return result

    def _post(self, path: str, body: JsonObject, *, dry_run: bool = False) -> JsonObject:
        result: JsonObject = self._client.post(path, body, {"dry_run": True} if dry_run else None)
        return result
