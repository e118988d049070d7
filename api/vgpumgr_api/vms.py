"""/v1/vms: libvirt domains; ours can be defined, started and stopped, foreign ones are only shown."""

from __future__ import annotations

from flask import Response
from flask_openapi3 import APIBlueprint, Tag

from vgpumgr.model.domain import DomainInfo
from vgpumgr_api.exchange import idempotent, one, page_of, ready_service, service
from vgpumgr_api.responses import VmModel, VmPage, problems
from vgpumgr_api.schemas import DefineBody, DryRunQuery, EmptyBody, NamePath, StopBody, VmListQuery

api = APIBlueprint("vms", __name__, abp_tags=[Tag(name="vms", description="Virtual machines in libvirt")])


@api.get("/v1/vms", summary="Virtual machines", responses={200: VmPage, **problems()})
def list_vms(query: VmListQuery) -> Response:
    """Every domain of the host by name, ours and foreign."""

    def wanted(vm: DomainInfo) -> bool:
        ours = vm.allocation is not None
        return query.state in (None, str(vm.state)) and query.ours in (None, ours)

    return page_of([vm for vm in service().vms() if wanted(vm)], query.limit, query.cursor)


@api.post("/v1/vms", summary="Define a VM", responses={201: VmModel, **problems(404, 409, 413, 415)})
@idempotent
def define_vm(query: DryRunQuery, body: DefineBody) -> Response:
    """Define the VM of an allocation that is ready, after a preflight. `dry_run` answers the plan."""
    if query.dry_run:
        return one(service().plan_define_vm(body.allocation_id, template=body.template, shape=body.shape()))
    vm = ready_service().define_vm(body.allocation_id, template=body.template, shape=body.shape())
    response = one(vm, 201)
    response.headers["Location"] = f"/v1/vms/{vm.name}"
    return response


@api.get("/v1/vms/<name>", summary="One VM", responses={200: VmModel, **problems(404)})
def show_vm(path: NamePath) -> Response:
    """A domain with its host devices."""
    return one(service().vm(path.name))


@api.post(
    "/v1/vms/<name>/start",
    summary="Start",
    responses={200: VmModel, **problems(404, 409, 413, 415)},
)
def start_vm(path: NamePath, query: DryRunQuery, body: EmptyBody) -> Response:
    """Start a VM of ours, after a preflight. One that runs is fine. `dry_run` answers the plan."""
    if query.dry_run:
        return one(service().plan_start_vm(path.name))
    return one(ready_service().start_vm(path.name))


@api.post("/v1/vms/<name>/stop", summary="Stop", responses={200: VmModel, **problems(404, 409, 413, 415)})
def stop_vm(path: NamePath, body: StopBody) -> Response:
    """Ask the guest to shut down, or pull the plug with `force`. One that is off is fine."""
    return one(ready_service().stop_vm(path.name, force=body.force))


@api.delete("/v1/vms/<name>", summary="Undefine", responses={204: None, **problems(404, 409)})
def undefine_vm(path: NamePath) -> Response:
    """Remove the definition of a VM of ours that is off. The allocation stays."""
    ready_service().undefine_vm(path.name)
    return Response(status=204)
