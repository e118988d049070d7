"""/v1/gpus: GPUs, and giving them to VFIO and back."""

from __future__ import annotations

from flask import Response

from vgpumgr.model.host import Gpu
from vgpumgr_api.answers import one, page_of, plain, working, working_one
from vgpumgr_api.context import ready_service, service
from vgpumgr_api.host_responses import GpuModel, GpuPage
from vgpumgr_api.idempotency import idempotent
from vgpumgr_api.outcomes import problems
from vgpumgr_api.preconditions import require_match
from vgpumgr_api.resource import Resource
from vgpumgr_api.responses import OperationModel, OperationOrPlan
from vgpumgr_api.schemas import (
    BindBody,
    ChangeQuery,
    CreateChangeHeaders,
    GpuListQuery,
    GpuPath,
    NoQuery,
    ReleaseBody,
)

api = Resource("gpus", __name__, "GPUs and their drivers")
_CHANGES = {200: OperationOrPlan, 202: OperationModel, **problems(403, 404, 409, 412, 413, 415)}


@api.get("/v1/gpus", summary="GPUs", responses={200: GpuPage, **problems()})
def list_gpus(query: GpuListQuery) -> Response:
    """All GPUs in bus order, filtered."""
    gpus = [gpu for gpu in service().inventory().gpus if _wanted(gpu, query)]
    return page_of(gpus, query.limit, query.cursor)


def _wanted(gpu: Gpu, query: GpuListQuery) -> bool:
    wanted = (
        (query.kind, str(gpu.kind)),
        (query.state, str(gpu.passthrough.state)),
        (query.driver, gpu.function.driver),
        (query.vendor_id and query.vendor_id.lower(), gpu.function.vendor_id),
        (query.assignable, gpu.passthrough.assignable),
    )
    return all(value is None or value == found for value, found in wanted)


@api.get("/v1/gpus/<address>", summary="One GPU", responses={200: GpuModel, **problems(404)})
def show_gpu(path: GpuPath, query: NoQuery) -> Response:
    """A GPU by its address, a companion's or a VF's."""
    return one(service().gpu(path.address))


@api.post("/v1/gpus/<address>/bind", summary="Give a GPU to VFIO", responses=_CHANGES)
@idempotent(working_one)
def bind_gpu(path: GpuPath, query: ChangeQuery, header: CreateChangeHeaders, body: BindBody) -> Response:
    """Bind a GPU and its companions to VFIO drivers, now and after each reboot. `dry_run` answers the plan."""
    require_match(lambda: service().gpu(path.address))
    if query.dry_run:
        host = service()
        return plain(host.plan_bind(path.address, driver=body.driver, force=body.force, also=body.also))
    host = ready_service()
    operation = host.bind(path.address, driver=body.driver, force=body.force, also=body.also)
    return working(operation, query.wait)


@api.post("/v1/gpus/<address>/release", summary="Give a GPU back to its host driver", responses=_CHANGES)
@idempotent(working_one)
def release_gpu(path: GpuPath, query: ChangeQuery, header: CreateChangeHeaders, body: ReleaseBody) -> Response:
    """Restore the drivers that a GPU and its companions had. `dry_run` answers the plan."""
    require_match(lambda: service().gpu(path.address))
    if query.dry_run:
        return plain(service().plan_release(path.address, force=body.force))
    operation = ready_service().release(path.address, force=body.force)
    return working(operation, query.wait)
