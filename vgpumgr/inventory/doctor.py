"""The doctor: what stands between each GPU and a VM, and the exact remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from vgpumgr.errors import Reason
from vgpumgr.inventory.doctor_host import diagnose_host, iommu_remedies, look_again
from vgpumgr.inventory.health import POWER_CYCLE
from vgpumgr.inventory.reader import Reader
from vgpumgr.kernel.port import Kernel
from vgpumgr.model.doctor import Diagnosis, Finding, GpuDiagnosis, Remedy, RemedyKind, Severity
from vgpumgr.model.host import Gpu, GpuKind, HealthStatus, Holder, HostInventory, PassthroughState
from vgpumgr.model.reasons import INFORMATIVE

_Remedies = Callable[[Gpu, Reason, HostInventory], Iterator[Remedy]]


def diagnose(kernel: Kernel, inventory: HostInventory) -> Diagnosis:
    """Explain an inventory. Reads a few more host facts (CPU vendor, ACPI tables, modules); raises nothing."""
    reader = Reader(kernel)
    iommu = () if inventory.iommu.active else iommu_remedies(reader)
    of_host = {"iommu-inactive": iommu, "owner-unknown": (look_again(reader),)}
    return Diagnosis(
        host=tuple(diagnose_host(reader, inventory, iommu)),
        gpus=tuple(_diagnose_gpu(gpu, inventory, of_host) for gpu in inventory.gpus),
    )


def _diagnose_gpu(gpu: Gpu, inventory: HostInventory, of_host: Mapping[str, tuple[Remedy, ...]]) -> GpuDiagnosis:
    """``of_host``: remedies, by code, that are the same for every GPU."""
    reasons = gpu.passthrough.reasons
    if gpu.kind is GpuKind.VIRTUAL:
        reasons = tuple(reason for reason in reasons if reason.code == "not-pci")
    elif not gpu.offered:
        # Nothing would make it a VM's, so nothing else about it needs a remedy, but that it works.
        reasons = tuple(reason for reason in reasons if reason.code in ("kind-not-offered", "failed"))
    findings = [_explain(gpu, reason, inventory, of_host) for reason in reasons]
    findings += _health(gpu)
    if gpu.offered:
        findings += [*_reset(gpu), *_next_step(gpu)]
    return GpuDiagnosis(gpu.address, gpu.name, gpu.passthrough.assignable, gpu.passthrough.state, tuple(findings))


def _explain(
    gpu: Gpu, reason: Reason, inventory: HostInventory, of_host: Mapping[str, tuple[Remedy, ...]]
) -> Finding:
    informative = reason.code in INFORMATIVE or reason.code in ("kind-not-offered", "not-pci")
    severity = Severity.INFO if informative else Severity.BLOCKING
    remedies = of_host.get(reason.code)
    if remedies is None:
        remedies = tuple(_REMEDIES.get(reason.code, _none)(gpu, reason, inventory))
    return Finding(reason.code, severity, reason.message, reason.addresses, remedies)


def _none(gpu: Gpu, reason: Reason, inventory: HostInventory) -> Iterator[Remedy]:
    yield from ()


def _no_group(gpu: Gpu, reason: Reason, inventory: HostInventory) -> Iterator[Remedy]:
    if any("igfx_off" in hint for hint in inventory.iommu.hints):
        text = "remove igfx_off from intel_iommu= on the kernel command line: it takes graphics out of the IOMMU"
        yield Remedy(RemedyKind.KERNEL_PARAMETER, text, "intel_iommu=igfx_off", undo=True)
    yield Remedy(
        RemedyKind.FIRMWARE,
        "the firmware's tables leave this function out of the IOMMU: update the firmware, or use another slot",
        "firmware update",
    )


def _boot_display(gpu: Gpu, reason: Reason, inventory: HostInventory) -> Iterator[Remedy]:
    other = next((each for each in inventory.gpus if each.kind is GpuKind.BMC_VGA), None)
    instead = f"the management display {other.address}" if other else "another display"
    yield Remedy(
        RemedyKind.FIRMWARE,
        f"in the firmware, make {instead} the primary display, then reboot",
        "primary display",
    )
    yield _command(
        f"vgpumgr gpu bind {gpu.address} --force", "or, if the host can do without a console, take it by name"
    )


def _framebuffer(gpu: Gpu, reason: Reason, inventory: HostInventory) -> Iterator[Remedy]:
    yield Remedy(
        RemedyKind.KERNEL_PARAMETER,
        "keep the kernel from putting its boot framebuffer on this GPU: add initcall_blacklist=sysfb_init"
        " to the kernel command line and reboot",
        "initcall_blacklist=sysfb_init",
    )


def _group_shared(gpu: Gpu, reason: Reason, inventory: HostInventory) -> Iterator[Remedy]:
    bridged = gpu.topology.root_port is not None
    if bridged and gpu.topology.acs is False:
        yield Remedy(
            RemedyKind.FIRMWARE,
            f"a port above {gpu.address} does not isolate (ACS): enable ACS in the firmware if it offers that",
            "ACS",
        )
    if bridged:
        text = f"move the card to a slot behind another root port than {gpu.topology.root_port}"
        yield Remedy(RemedyKind.HARDWARE, text, "another slot")
    yield from _members(gpu, reason)
    yield from _together(gpu, inventory)


def _members(gpu: Gpu, reason: Reason) -> Iterator[Remedy]:
    """The members that are not the card's own and, where none is in use, the command that takes all along."""
    own = {companion.address for companion in gpu.companions}
    used = {item.address: f"{item.kind} {item.name}" for item in reversed(gpu.holders)}
    others = [name for name in reason.addresses if name in used or name not in own]
    for name in others:
        if name in used:
            text = f"{name} cannot be taken along while the host uses it: {used[name]}"
        else:
            text = f"{name} can be taken along, if the host can do without it"
        yield Remedy(RemedyKind.GROUP_MEMBER, text, name)
    if others and not used.keys() & set(others):
        command = " ".join([f"vgpumgr gpu bind {gpu.address}", *(f"--also {name}" for name in others)])
        yield _command(command, "to take them along")


def _together(gpu: Gpu, inventory: HostInventory) -> Iterator[Remedy]:
    """GPUs that only each other keep from a VM: one VM can have them all."""
    mates = [each for each in inventory.gpus if each.function.iommu_group == gpu.function.iommu_group]
    theirs = {name for each in mates for name in (each.address, *(one.address for one in each.companions))}
    barred = [each for mate in mates for each in mate.passthrough.reasons if each.code not in INFORMATIVE]
    if len(mates) > 1 and all(each.code == "group-shared" and theirs >= set(each.addresses) for each in barred):
        command = f"vgpumgr alloc create --vm NAME --count {len(mates)}"
        yield _command(command, f"or give all {len(mates)} GPUs of the group to one VM")


def _vfs(gpu: Gpu, reason: Reason, inventory: HostInventory) -> Iterator[Remedy]:
    # Not by hand: what is cut on record is cut again after each reboot.
    why = "delete the vGPUs on it, then disable its virtual functions, to give it away whole"
    yield _command(f"vgpumgr gpu slice {gpu.address} --vfs 0", why)


def _holders(gpu: Gpu, reason: Reason, inventory: HostInventory) -> Iterator[Remedy]:
    for holder in gpu.holders:
        if holder.address in reason.addresses and _message_is_about(holder, reason):
            yield _let_go(holder)


def _message_is_about(holder: Holder, reason: Reason) -> bool:
    return holder.kind in reason.message and holder.name in reason.message


def _let_go(holder: Holder) -> Remedy:
    """How to make one holder let go."""
    if holder.kind == "mount":
        return _holder(f"unmount {holder.name}", f"umount {holder.name}")
    if holder.kind == "swap":
        return _holder(f"switch the swap area {holder.name} off", f"swapoff {holder.name}")
    if holder.kind == "network":
        return _holder(f"take the interface {holder.name} down", f"ip link set {holder.name} down")
    if holder.kind == "vm":
        return _holder(f"shut the VM {holder.name} down", f"virsh shutdown {holder.name}")
    if holder.kind == "process" and holder.name.startswith("nvidia-persiste"):
        return _holder("stop the persistence daemon", "systemctl stop nvidia-persistenced")
    if holder.pid is not None:
        return _holder(f"stop {holder.name} (pid {holder.pid})", f"kill {holder.pid}")
    return Remedy(RemedyKind.HOLDER, _without_command(holder), holder.name)


def _holder(what: str, command: str) -> Remedy:
    return Remedy(RemedyKind.HOLDER, f"{what}: {command}", command)


def _without_command(holder: Holder) -> str:
    if holder.kind == "block":
        return f"stop what is built on the disk: {holder.name} ({holder.detail})"
    if holder.kind == "display":
        return f"stop what shows a picture on {holder.name} (a display server, the console)"
    return f"stop {holder.name}"


def _live_vgpus(gpu: Gpu, reason: Reason, inventory: HostInventory) -> Iterator[Remedy]:
    """Which way a vGPU goes depends on who made it; 'vgpu list' tells."""
    text = (
        "see whose they are: vgpumgr vgpu list; then release the allocation that has one (vgpumgr alloc release), "
        "delete one of ours (vgpumgr vgpu delete), or leave a foreign one to who made it"
    )
    yield Remedy(RemedyKind.COMMAND, text, "vgpumgr vgpu list")


def _promised_vgpus(gpu: Gpu, reason: Reason, inventory: HostInventory) -> Iterator[Remedy]:
    """Those that are being made are there soon; those that were lost come back, or are let go."""
    text = (
        "wait for the operations that make them (vgpumgr op list), or see which are gone: vgpumgr vgpu list; then "
        "bring them back (vgpumgr vgpu restore) or let them go (vgpumgr vgpu delete, vgpumgr alloc release)"
    )
    yield Remedy(RemedyKind.COMMAND, text, "vgpumgr vgpu list")


def _failed(gpu: Gpu, reason: Reason, inventory: HostInventory) -> Iterator[Remedy]:
    if "(ff)" in reason.message:
        yield Remedy(RemedyKind.HARDWARE, POWER_CYCLE, "power cycle")


def _parked(gpu: Gpu, reason: Reason, inventory: HostInventory) -> Iterator[Remedy]:
    if gpu.passthrough.assignable:
        yield _command(f"vgpumgr gpu bind {gpu.address}", "bind it, with everything that belongs to the card")


_REMEDIES: dict[str, _Remedies] = {
    "no-iommu-group": _no_group,
    "boot-display": _boot_display,
    "framebuffer-held": _framebuffer,
    "group-shared": _group_shared,
    "vfs-enabled": _vfs,
    "vgpu-live": _live_vgpus,
    "vgpu-promised": _promised_vgpus,
    "in-use-by-host": _holders,
    "in-use": _holders,
    "failed": _failed,
    "parked": _parked,
}


def _health(gpu: Gpu) -> Iterator[Finding]:
    """What health says beyond a failure, which is among the reasons already."""
    if gpu.health.status is not HealthStatus.DEGRADED:
        return
    for reason in gpu.health.reasons:
        remedies: tuple[Remedy, ...] = ()
        if reason.code == "bar-unassigned":
            text = "enable 'Above 4G decoding' (64-bit MMIO) in the firmware"
            remedies = (Remedy(RemedyKind.FIRMWARE, text, "Above 4G decoding"),)
        yield Finding(reason.code, Severity.WARNING, reason.message, reason.addresses, remedies)


def _reset(gpu: Gpu) -> Iterator[Finding]:
    if gpu.reset_methods == ():
        message = f"the kernel knows no way to reset {gpu.address}: a VM may find it as the last one left it"
        yield Finding("no-reset", Severity.WARNING, message, (gpu.address,))


def _next_step(gpu: Gpu) -> Iterator[Finding]:
    if not gpu.passthrough.assignable:
        return
    if gpu.passthrough.state is PassthroughState.HOST:
        message = f"nothing stands in the way; the host driver {gpu.function.driver} has it now"
        command = _command(f"vgpumgr gpu bind {gpu.address}", "give it to VFIO")
        yield Finding("bind-to-use", Severity.INFO, message, (gpu.address,), (command,))
    elif gpu.passthrough.state is PassthroughState.READY:
        yield Finding("ready", Severity.INFO, f"{gpu.address} can be given to a VM now", (gpu.address,))


def _command(command: str, why: str) -> Remedy:
    return Remedy(RemedyKind.COMMAND, f"{why}: {command}", command)
