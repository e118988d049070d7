"""Plans that cut a card into virtual functions, and that make them go."""

from __future__ import annotations

from collections.abc import Collection

from vgpumgr.address import PciAddress, parse
from vgpumgr.errors import Reason, counted
from vgpumgr.inventory.reader import whole
from vgpumgr.kernel.port import PCI_DEVICES, Kernel, read_text
from vgpumgr.model.host import Gpu
from vgpumgr.model.vgpu import Backend
from vgpumgr.plans.checks import CheckIdle
from vgpumgr.plans.plan import Plan, Refusal
from vgpumgr.plans.step import Step
from vgpumgr.vgpu.cards import cannot_enable
from vgpumgr.vgpu.guards import not_to_be_cut
from vgpumgr.vgpu.mode_steps import CreateGpuInstance, SetMixedSize
from vgpumgr.vgpu.nvml_port import NvmlCard, NvmlPort
from vgpumgr.vgpu.sriov_steps import SetAutoprobe, SetVfCount
from vgpumgr.vgpu.vf_shares import VfShare, share_steps, shares_supported

_NVIDIA = "10de"


def plan_slice(
    kernel: Kernel,
    gpu: Gpu,
    count: int | None = None,
    share: VfShare | None = None,
    *,
    claimed: Collection[str] = (),
    nvml: NvmlPort | None = None,
) -> Plan:
    """The plan that leaves the card with ``count`` VFs (``None``: all it has; 0: none), or the refusal.

    Refused while anything lives on VFs that would go, or one of them is ``claimed`` by an allocation. ``nvml``
    tells of modes that the change may wipe: the plan brings them back.
    """
    total = gpu.sriov.total_vfs if gpu.sriov is not None else 0
    now = gpu.sriov.num_vfs if gpu.sriov is not None else 0
    wanted = total if count is None else count
    if wanted == now and total and not share:
        return Plan("slice", gpu.address)
    refusal = not_to_be_cut(gpu) or _refusal(kernel, gpu, wanted, share)
    refusal = refusal or _claimed_vfs(gpu, claimed)
    if refusal is not None:
        return Plan("slice", gpu.address, refusal=refusal)
    vfs = gpu.sriov.vfs if gpu.sriov is not None else ()
    steps = [CheckIdle(gpu.address, (gpu.address, *vfs)), *enable_steps(kernel, gpu, wanted, share)]
    told = nvml.card(gpu.address) if nvml is not None and gpu.function.vendor_id == _NVIDIA else None
    return Plan("slice", gpu.address, (*steps, *_modes_again(told, wanted)))


def enable_steps(kernel: Kernel, gpu: Gpu, count: int, share: VfShare | None = None) -> list[Step]:
    """From the present number of VFs to ``count``, through 0; new VFs stay without a driver where they are the
    slices (NVIDIA's must be on its own).
    """
    now = gpu.sriov.num_vfs if gpu.sriov is not None else 0
    nvidia = gpu.function.vendor_id == _NVIDIA
    steps: list[Step] = []
    autoprobe = read_text(kernel, f"{PCI_DEVICES}/{gpu.address}/sriov_drivers_autoprobe")
    quiet = count > 0 and not nvidia and autoprobe == "1"
    if quiet:
        steps.append(SetAutoprobe(gpu.address, "0", "1"))
    if now and now != count:
        steps.append(SetVfCount(gpu.address, 0, now))
    steps += share_steps(kernel, gpu.address, count, share)
    if count:
        total = gpu.sriov.total_vfs if gpu.sriov is not None else count
        steps.append(SetVfCount(gpu.address, count, 0, at_least=nvidia and count <= total))
    if quiet:
        steps.append(SetAutoprobe(gpu.address, "1", "0"))
    return steps


def _modes_again(card: NvmlCard | None, count: int) -> list[Step]:
    """NVIDIA's tool rebinds the driver, which wipes GPU instances and mixed-size mode, on the way up and down."""
    if card is None:
        return []
    steps: list[Step] = [
        CreateGpuInstance(card.address, item.profile_id, item.shape, item.start) for item in card.gpu_instances
    ]
    if card.mixed_size and count:
        steps.append(SetMixedSize(card.address, True))
    return steps


def vf_addresses(kernel: Kernel, gpu: Gpu, count: int) -> list[str]:
    """The addresses that the first ``count`` VFs will have: 16-bit routing ids, which may spill to the next bus."""
    base = f"{PCI_DEVICES}/{gpu.address}"
    offset = whole(read_text(kernel, f"{base}/sriov_offset") or "") or 1
    stride = whole(read_text(kernel, f"{base}/sriov_stride") or "") or 1
    card = parse(gpu.address)
    first = (card.bus << 8 | card.slot << 3 | card.function) + offset
    ids = [first + stride * index for index in range(count)]
    return [str(PciAddress(card.domain, rid >> 8 & 0xFF, rid >> 3 & 0x1F, rid & 7)) for rid in ids]


def _refusal(kernel: Kernel, gpu: Gpu, wanted: int, share: VfShare | None) -> Refusal | None:
    name = gpu.address
    total = gpu.sriov.total_vfs if gpu.sriov is not None else 0
    barred = cannot_enable(gpu)
    if barred is not None:
        return Refusal(barred.code, f"{name} cannot be sliced: {barred.message}", (barred,))
    if not 0 <= wanted <= total:
        reason = Reason(
            "vfs-above-limit",
            f"{name} has at most {counted(total, 'virtual function', 'virtual functions')}",
            (name,),
        )
        return Refusal(reason.code, f"{wanted} virtual functions are asked for: {reason.message}", (reason,))
    live = gpu.vgpu.instances if gpu.vgpu.backend is not Backend.SRIOV else ()
    if live:
        ids = tuple(vgpu.id for vgpu in live)
        lives = counted(len(ids), "vGPU lives", "vGPUs live")
        reason = Reason("vgpu-live", f"{lives} on {name} and would be lost", ids)
        return Refusal(
            reason.code, f"{name} cannot be sliced anew: {reason.message}", (reason,), "delete them first"
        )
    if share is not None and share.values() and not shares_supported(kernel, name):
        reason = Reason("vf-share-unsupported", f"the driver of {name} has no shares to set for each VF", (name,))
        return Refusal(reason.code, reason.message, (reason,))
    return _held_vfs(gpu)


def _held_vfs(gpu: Gpu) -> Refusal | None:
    """VFs that somebody has, or that went to VFIO for somebody."""
    vfs = gpu.sriov.vfs if gpu.sriov is not None else ()
    held = tuple(holder for holder in gpu.holders if holder.address in vfs)
    if not held:
        return None
    reasons = tuple(
        Reason("in-use", f"{item.kind} {item.name} has {item.address}", (item.address,)) for item in held
    )
    return Refusal(
        "in-use", f"virtual functions of {gpu.address} are in use", reasons, "stop what uses them, then slice"
    )


def _claimed_vfs(gpu: Gpu, claimed: Collection[str]) -> Refusal | None:
    vfs = gpu.sriov.vfs if gpu.sriov is not None else ()
    taken = tuple(vf for vf in vfs if vf in claimed)
    if not taken:
        return None
    reason = Reason("reserved", f"{', '.join(taken)} belong to allocations", taken)
    return Refusal(reason.code, f"{gpu.address} cannot be sliced anew: {reason.message}", (reason,))
