"""/v1/vgpus, and cutting GPUs: /v1/gpus/ADDRESS/slice and /v1/gpus/ADDRESS/modes."""

from __future__ import annotations

from flask import Response, jsonify

from vgpumgr.vgpu.modes import Modes
from vgpumgr.vgpu.nvml_port import Scheduler
from vgpumgr_api.answers import one, page_of, plain, working, working_all, working_one
from vgpumgr_api.context import ready_service, service
from vgpumgr_api.idempotency import idempotent
from vgpumgr_api.outcomes import problems
from vgpumgr_api.preconditions import require_match
from vgpumgr_api.resource import Resource
from vgpumgr_api.responses import OperationModel, OperationOrPlan
from vgpumgr_api.schemas import (
    ChangeHeaders,
    ChangeQuery,
    CreateChangeHeaders,
    CreateHeaders,
    EmptyBody,
    GpuPath,
    IdPath,
    NoQuery,
)
from vgpumgr_api.vgpu_schemas import (
    ModesBody,
    ModesModel,
    ParamsBody,
    RestoreModel,
    SliceBody,
    VgpuCreateBody,
    VgpuListQuery,
    VgpuPage,
    VgpuViewModel,
)

api = Resource("vgpus", __name__, "vGPUs, and how GPUs are cut")
_CREATES = {200: OperationOrPlan, 202: OperationModel, **problems(403, 404, 409, 413, 415)}
_RESTORES = {200: RestoreModel, 202: RestoreModel, **problems(403, 409, 413, 415)}
_CHANGES = {**_CREATES, **problems(403, 404, 409, 412, 413, 415)}


@api.get("/v1/vgpus", summary="vGPUs", responses={200: VgpuPage, **problems(404)})
def list_vgpus(query: VgpuListQuery) -> Response:
    """Every vGPU of the host, ours and foreign; ours that a reboot took are `live: false`."""
    views = [view for view in service().slices.vgpus(query.gpu) if query.ours in (None, view.ours)]
    return page_of(views, query.limit, query.cursor)


@api.get("/v1/vgpus/<id>", summary="One vGPU", responses={200: VgpuViewModel, **problems(404)})
def show_vgpu(path: IdPath, query: NoQuery) -> Response:
    """A vGPU by its UUID, or its virtual function's address."""
    return one(service().slices.vgpu(path.id))


@api.post("/v1/vgpus", summary="Make vGPUs", responses=_CREATES)
@idempotent(working_one)
def create_vgpus(query: ChangeQuery, header: CreateHeaders, body: VgpuCreateBody) -> Response:
    """Make vGPUs that no allocation has, all of them or none. `dry_run` answers the plan."""
    order = (body.profile, body.count, body.gpu, body.params)
    if query.dry_run:
        return plain(service().slices.plan_create(*order))
    operation = ready_service().slices.create(*order)
    return working(operation, query.wait)


@api.post("/v1/vgpus/restore", summary="Bring back what a driver reload took", responses=_RESTORES)
@idempotent(working_all)
def restore_vgpus(query: ChangeQuery, header: CreateHeaders, body: EmptyBody) -> Response:
    """MIG, then virtual functions, then vGPUs that are recorded and missing; one operation for each, none when all
    is there. What cannot come back is an operation that fails. `dry_run` answers the plans.
    """
    if query.dry_run:
        return jsonify({"plans": [plan.to_json() for plan in service().plan_restore_slices()], "operations": []})
    return working_all(ready_service().start_restore_slices(), query.wait)


@api.delete("/v1/vgpus/<id>", summary="Delete a vGPU", responses=_CHANGES)
def delete_vgpu(path: IdPath, query: ChangeQuery, header: ChangeHeaders) -> Response:
    """Delete a vGPU of ours that no allocation has and no guest uses. `dry_run` answers the plan."""
    require_match(lambda: service().slices.vgpu(path.id))
    if query.dry_run:
        return plain(service().slices.plan_delete(path.id))
    operation = ready_service().slices.delete(path.id)
    return working(operation, query.wait)


@api.post("/v1/vgpus/<id>/params", summary="Change a vGPU's parameters", responses=_CHANGES)
@idempotent(working_one)
def set_vgpu_params(path: IdPath, query: ChangeQuery, header: CreateChangeHeaders, body: ParamsBody) -> Response:
    """Set the frame-rate limiter of a vGPU of ours, or all its plugin parameters; from its VM's next start on.
    `dry_run` answers the plan.
    """
    require_match(lambda: service().slices.vgpu(path.id))
    wanted = (path.id, body.params, body.frame_rate_limiter)
    if query.dry_run:
        return plain(service().slices.plan_params(*wanted))
    return working(ready_service().slices.set_params(*wanted), query.wait)


@api.post("/v1/gpus/<address>/slice", summary="Cut a GPU into virtual functions", responses=_CHANGES)
@idempotent(working_one)
def slice_gpu(path: GpuPath, query: ChangeQuery, header: CreateChangeHeaders, body: SliceBody) -> Response:
    """Enable virtual functions, now and after each reboot. `dry_run` answers the plan."""
    require_match(lambda: service().gpu(path.address))
    if query.dry_run:
        return plain(service().slices.plan_slice(path.address, body.vfs, body.share()))
    operation = ready_service().slices.slice(path.address, body.vfs, body.share())
    return working(operation, query.wait)


@api.get("/v1/gpus/<address>/modes", summary="Modes of a GPU", responses={200: ModesModel, **problems(404)})
def show_modes(path: GpuPath, query: NoQuery) -> Response:
    """MIG, mixed sizes, scheduler and error correction, as NVIDIA's driver shows them; `null` is not told."""
    return one(service().slices.modes(path.address))


@api.post("/v1/gpus/<address>/modes", summary="Change a GPU's modes", responses=_CHANGES)
@idempotent(working_one)
def set_modes(path: GpuPath, query: ChangeQuery, header: CreateChangeHeaders, body: ModesBody) -> Response:
    """Change the modes that are named. `dry_run` answers the plan."""
    require_match(lambda: service().slices.modes(path.address))
    wanted = Modes(
        mig=body.mig,
        layout=tuple(body.layout) if body.layout is not None else None,
        mixed_size=body.mixed_size,
        scheduler=Scheduler(body.scheduler) if body.scheduler is not None else None,
        ecc=body.ecc,
        at_load=body.scheduler_at_load,
    )
    if query.dry_run:
        return plain(service().slices.plan_modes(path.address, wanted))
    operation = ready_service().slices.set_modes(path.address, wanted)
    return working(operation, query.wait)
