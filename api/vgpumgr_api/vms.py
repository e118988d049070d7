"""/v1/vms: libvirt domains; ours can be defined, started and stopped, foreign ones are only shown."""

from __future__ import annotations

from collections.abc import Sequence

from flask import Response

from vgpumgr.model.domain import DomainInfo
from vgpumgr.model.operation import Operation
from vgpumgr_api.answers import finished, one, page_of, plain
from vgpumgr_api.context import ready_service, service
from vgpumgr_api.idempotency import idempotent
from vgpumgr_api.outcomes import problems
from vgpumgr_api.preconditions import require_match
from vgpumgr_api.resource import Resource
from vgpumgr_api.responses import OperationModel, PlanModel, VmModel, VmOrPlan, VmPage
from vgpumgr_api.schemas import (
    DefineBody,
    EmptyBody,
    NamePath,
    NoQuery,
    StopBody,
    VmChangeHeaders,
    VmCreateHeaders,
    VmListQuery,
    VmQuery,
)

api = Resource("vms", __name__, "Virtual machines in libvirt")
_CHANGES = {200: VmOrPlan, 202: OperationModel, **problems(403, 404, 409, 412, 413, 415)}


@api.get("/v1/vms", summary="Virtual machines", responses={200: VmPage, **problems()})
def list_vms(query: VmListQuery) -> Response:
    """Every domain of the host by name, ours and foreign."""

    def wanted(vm: DomainInfo) -> bool:
        ours = vm.allocation is not None
        return query.state in (None, str(vm.state)) and query.ours in (None, ours)

    return page_of([vm for vm in service().vms() if wanted(vm)], query.limit, query.cursor)


def _defined(operations: Sequence[Operation], wait: float) -> Response:
    return finished(operations[0], wait, _new)


def _new(name: str) -> Response:
    response = one(service().vm(name), 201)
    response.headers["Location"] = f"/v1/vms/{name}"
    return response


def _seen(name: str) -> Response:
    return one(service().vm(name))


def _gone(name: str) -> Response:
    return Response(status=204)


@api.post(
    "/v1/vms",
    summary="Define a VM",
    responses={200: PlanModel, 201: VmModel, 202: OperationModel, **problems(403, 404, 409, 413, 415)},
)
@idempotent(_defined)
def define_vm(query: VmQuery, header: VmCreateHeaders, body: DefineBody) -> Response:
    """Define the VM of an allocation that is ready, after a preflight. `dry_run` answers the plan."""
    if query.dry_run:
        return plain(service().plan_define_vm(body.allocation_id, template=body.template, shape=body.shape()))
    operation = ready_service().define_vm(body.allocation_id, template=body.template, shape=body.shape())
    return finished(operation, query.wait, _new)


@api.get("/v1/vms/<name>", summary="One VM", responses={200: VmModel, **problems(404)})
def show_vm(path: NamePath, query: NoQuery) -> Response:
    """A domain with its host devices."""
    return one(service().vm(path.name))


@api.post("/v1/vms/<name>/start", summary="Start", responses=_CHANGES)
def start_vm(path: NamePath, query: VmQuery, header: VmChangeHeaders, body: EmptyBody) -> Response:
    """Start a VM of ours, after a preflight. One that runs is fine. `dry_run` answers the plan."""
    require_match(lambda: service().vm(path.name))
    if query.dry_run:
        return plain(service().plan_start_vm(path.name))
    return finished(ready_service().start_vm(path.name), query.wait, _seen)


@api.post("/v1/vms/<name>/stop", summary="Stop", responses=_CHANGES)
def stop_vm(path: NamePath, query: VmQuery, header: VmChangeHeaders, body: StopBody) -> Response:
    """Ask the guest to shut down, or pull the plug with `force`. One that is off is fine."""
    require_match(lambda: service().vm(path.name))
    if query.dry_run:
        return plain(service().plan_stop_vm(path.name, force=body.force))
    return finished(ready_service().stop_vm(path.name, force=body.force), query.wait, _seen)


@api.delete(
    "/v1/vms/<name>",
    summary="Undefine",
    responses={200: PlanModel, 202: OperationModel, 204: None, **problems(403, 404, 409, 412)},
)
def undefine_vm(path: NamePath, query: VmQuery, header: VmChangeHeaders) -> Response:
    """Remove the definition of a VM of ours that is off. The allocation stays. `dry_run` answers the plan."""
    require_match(lambda: service().vm(path.name))
    if query.dry_run:
        return plain(service().plan_undefine_vm(path.name))
    return finished(ready_service().undefine_vm(path.name), query.wait, _gone)
