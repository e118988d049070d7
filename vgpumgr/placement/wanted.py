"""Whether a GPU is what a request asks for, before anybody looks whether it is free."""

from __future__ import annotations

from vgpumgr.address import plain_name
from vgpumgr.errors import Reason
from vgpumgr.model.allocation import AllocationRequest
from vgpumgr.model.host import Gpu


def unwanted(gpu: Gpu, request: AllocationRequest) -> list[Reason]:
    """Why a GPU is not asked for; empty when it is."""
    reasons = []
    name, function = gpu.address, gpu.function
    if not gpu.offered:
        reasons.append(Reason("kind-not-offered", f"{name} is a {gpu.kind}, which is never given to a VM", (name,)))
    if request.gpu is not None and plain_name(request.gpu) != name:
        reasons.append(Reason("other-gpu", f"{request.gpu} was asked for", (name,)))
    if request.vendor_id is not None and request.vendor_id.lower() != function.vendor_id:
        reasons.append(Reason("other-vendor", f"{name} has vendor {function.vendor_id}", (name,)))
    if request.device_id is not None and request.device_id.lower() != function.device_id:
        reasons.append(Reason("other-device", f"{name} has device {function.device_id}", (name,)))
    if request.model is not None and request.model.lower() not in gpu.name.lower():
        reasons.append(Reason("other-model", f"{name} is a {gpu.name}", (name,)))
    if request.numa_node is not None and request.numa_node != function.numa_node:
        where = "an unknown NUMA node" if function.numa_node is None else f"NUMA node {function.numa_node}"
        reasons.append(Reason("other-numa-node", f"{name} is on {where}", (name,)))
    return reasons
