"""Why a vGPU that vgpumgr did not make is left alone, and so is a plain VF that it did not give away."""

from __future__ import annotations

from vgpumgr.errors import Reason
from vgpumgr.model.host import Gpu, HostInventory
from vgpumgr.model.vgpu import Backend, Vgpu
from vgpumgr.plans.plan import Refusal


def not_ours(inventory: HostInventory, gpu: Gpu, vgpu: Vgpu) -> Refusal:
    """The refusal to touch it: who has it, as far as that is seen, and what to do instead."""
    if gpu.vgpu.backend is Backend.SRIOV:
        return _plain_vf(inventory, gpu, vgpu)
    reason = Reason("vgpu-foreign", f"vGPU {vgpu.id} was not made by vgpumgr", (vgpu.id,))
    hint = "who made it deletes it" if vgpu.owner is None else f"stop the VM {vgpu.owner}; who made it deletes it"
    return Refusal(reason.code, f"{reason.message}: it is not touched", (reason,), hint)


def _plain_vf(inventory: HostInventory, gpu: Gpu, vgpu: Vgpu) -> Refusal:
    function = next((item for item in inventory.functions if item.address == vgpu.id), None)
    driver = (function.driver if function is not None else None) or "no driver"
    having = _having(gpu, vgpu)
    if having is None and (function is None or not function.vfio):
        message = f"{vgpu.id} is a virtual function of {gpu.address} on {driver}, and was given to nobody"
        hint = f"nothing is to be deleted; slicing {gpu.address} into 0 VFs takes all of them away"
        return _refusal("vf-not-given", message, vgpu, hint)
    message = f"{vgpu.id} is a virtual function of {gpu.address} on {driver} that vgpumgr did not give away; "
    message += f"{having} has it" if having is not None else "nobody is seen to have it open"
    hint = (
        f"stop {having}; who put it on {driver} takes it back"
        if having
        else f"who put it on {driver} takes it back"
    )
    return _refusal("vf-foreign", message, vgpu, hint)


def _having(gpu: Gpu, vgpu: Vgpu) -> str | None:
    """Who has the VF: a VM by libvirt's word, or a process that has it open."""
    if vgpu.owner is not None:
        return f"the VM {vgpu.owner}"
    holder = next((item for item in gpu.holders if item.address == vgpu.id), None)
    if holder is None:
        return None
    return f"{holder.kind} {holder.name}" + (f" (pid {holder.pid})" if holder.pid is not None else "")


def _refusal(code: str, message: str, vgpu: Vgpu, hint: str) -> Refusal:
    return Refusal(code, f"{message}: it is not touched", (Reason(code, message, (vgpu.id,)),), hint)
