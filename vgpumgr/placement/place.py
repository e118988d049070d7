"""Which GPUs could satisfy a request, which best, and why the others cannot."""

from __future__ import annotations

from vgpumgr.address import parse
from vgpumgr.model.allocation import AllocationRequest, GpuRefusal, Placement
from vgpumgr.model.host import Gpu, HostInventory
from vgpumgr.placement.slices import place_slices
from vgpumgr.placement.wanted import unwanted
from vgpumgr.placement.whole import place_whole


def place(inventory: HostInventory, request: AllocationRequest) -> Placement:
    """All candidates, best first, ties in bus order; and every GPU passed over, with its reasons.

    A request for several devices yields a few good sets, never every combination. Unknown is never free.
    Raises AddressError for a GPU that is named by no address, nor by the name of a virtual one.
    """
    if request.gpu is not None and all(gpu.address != request.gpu for gpu in inventory.gpus):
        parse(request.gpu)
    fitting: list[Gpu] = []
    refusals: list[GpuRefusal] = []
    for gpu in inventory.gpus:
        reasons = unwanted(gpu, request)
        if reasons:
            refusals.append(GpuRefusal(gpu.address, gpu.name, tuple(reasons)))
        else:
            fitting.append(gpu)
    placed = place_slices(fitting, request) if request.profile is not None else place_whole(fitting, request)
    return Placement(placed.candidates, (*refusals, *placed.refusals))
