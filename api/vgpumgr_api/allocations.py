"""/v1/allocations: GPUs and vGPUs granted to VMs."""

from __future__ import annotations

from flask import Response

from vgpumgr.errors import ConflictError
from vgpumgr_api.answers import many, one, plain, prepared, preparing
from vgpumgr_api.context import ready_service, service
from vgpumgr_api.idempotency import idempotent
from vgpumgr_api.outcomes import problems
from vgpumgr_api.preconditions import PreconditionError, matched_generation
from vgpumgr_api.principals import principal
from vgpumgr_api.resource import Resource
from vgpumgr_api.responses import AllocationModel, AllocationOrPlan, AllocationPage, PlanModel
from vgpumgr_api.schemas import (
    AllocationListQuery,
    ChangeHeaders,
    ChangeQuery,
    CreateHeaders,
    IdPath,
    NoQuery,
    RequestBody,
    XmlQuery,
)

api = Resource("allocations", __name__, "GPUs and vGPUs granted to VMs")


@api.get("/v1/allocations", summary="Allocations", responses={200: AllocationPage, **problems()})
def list_allocations(query: AllocationListQuery) -> Response:
    """Newest first; of one's own tenant, or of all for an administrator."""
    tenant = principal().tenant or query.tenant
    page = service().allocations(
        state=query.state, vm=query.vm, tenant=tenant, limit=query.limit, cursor=query.cursor
    )
    return many(page.items, page.next_cursor)


@api.post(
    "/v1/allocations",
    summary="Allocate",
    responses={200: PlanModel, 201: AllocationModel, 202: AllocationModel, **problems(403, 404, 409, 413, 415)},
)
@idempotent(prepared)
def create_allocation(query: ChangeQuery, header: CreateHeaders, body: RequestBody) -> Response:
    """Claim devices for a VM and prepare them. `dry_run` answers the plan. Refusals name every GPU's reasons."""
    if query.dry_run:
        return plain(service().plan_allocation(body.to_request()))
    allocation = ready_service().allocate(body.to_request())
    return preparing(allocation, query.wait, made=True)


@api.get("/v1/allocations/<id>", summary="One allocation", responses={200: AllocationModel, **problems(404)})
def show_allocation(path: IdPath, query: NoQuery) -> Response:
    """An allocation with its devices; its generation is the entity tag."""
    return one(service().allocation(path.id))


@api.delete(
    "/v1/allocations/<id>",
    summary="Release",
    responses={200: AllocationOrPlan, 202: AllocationModel, **problems(403, 404, 409, 412)},
)
def release_allocation(path: IdPath, query: ChangeQuery, header: ChangeHeaders) -> Response:
    """Give everything back. Idempotent. Refused while the VM runs. `If-Match` guards against surprises."""
    generation = matched_generation(service().allocation(path.id))
    if query.dry_run:
        return plain(service().plan_release_allocation(path.id))
    try:
        allocation = ready_service().release_allocation(path.id, generation=generation)
    except ConflictError as error:
        if error.code == "generation-mismatch":
            raise PreconditionError(error.message, hint=error.hint) from error
        raise
    return preparing(allocation, query.wait)


@api.get("/v1/allocations/<id>/xml", summary="The libvirt domain XML", responses=problems(404, 409))
def show_xml(path: IdPath, query: XmlQuery) -> Response:
    """The domain XML of an allocation that is ready: the template plus exactly the allocated devices."""
    xml = service().allocation_xml(path.id, template=query.template, shape=query.shape())
    return Response(xml, content_type="application/xml")
