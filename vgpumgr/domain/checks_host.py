"""What one look at the host tells of the devices that a domain names."""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.domain.findings import Findings
from vgpumgr.domain.host_index import HostIndex
from vgpumgr.domain.parser import NamedDevice
from vgpumgr.errors import counted
from vgpumgr.model.domain import HostDevice
from vgpumgr.model.host import Blocker, Gpu, HealthStatus
from vgpumgr.model.pci import PciFunction


def check_host(host: HostIndex, devices: Sequence[NamedDevice], findings: Findings) -> None:
    """All findings about devices whose addresses can be read."""
    readable = [named.device for named in devices if named.fault is None]
    managed = {device.key for device in readable if device.managed}
    for device in readable:
        if device.type == "mdev":
            _mdev(host, device, findings)
        elif device.key in host.functions:
            _function(host, device, managed, findings)
        else:
            findings.error("device-unknown", f"there is no PCI function {device.key} on this host", device.key)
    _companions(host, {device.key for device in readable}, findings)


def _mdev(host: HostIndex, device: HostDevice, findings: Findings) -> None:
    if device.key not in host.mdevs:
        message = f"there is no mediated device {device.key} on this host: create it first"
        findings.error("mdev-unknown", message, device.key)


def _function(host: HostIndex, device: HostDevice, managed: set[str], findings: Findings) -> None:
    function = host.functions[device.key]
    if function.is_bridge:
        message = (
            f"{device.key} is a bridge: libvirt assigns only endpoints, and bridges need not leave their driver"
        )
        findings.error("bridge", message, device.key)
        return
    _driver(host, device, function, findings)
    _group(host, function, managed, findings)
    _virtual_functions(host, function, findings)
    gpu = host.gpus.get(device.key)
    if gpu is not None:
        _gpu(gpu, device, findings)
    if device.managed and not function.vfio:
        _taken_from_host(host, gpu or host.companions.get(device.key), device, findings)


def _driver(host: HostIndex, device: HostDevice, function: PciFunction, findings: Findings) -> None:
    """Unmanaged: on a VFIO driver already, or a VF with a type on its vendor's. Managed: libvirt sees to it."""
    name, driver = function.address, function.driver or "no driver"
    if mdevs := host.mdevs_on_vf(function):
        message = f"{name} carries {', '.join(mdevs)}, which would be lost: name the mediated device instead"
        findings.error("vgpu-live", message, name)
    elif host.carries_vgpu(name):
        if device.managed:
            message = f"{name} carries a vGPU: with managed='yes' libvirt would rebind it and the vGPU be lost"
            findings.error("managed-vgpu", f"{message}; write managed='no'", name)
        elif not host.on_vendor_driver(function) and not function.vfio:
            _not_detached(host, name, driver, findings)
    elif host.on_vendor_driver(function):
        message = f"{name} carries no vGPU: create one on it first (vgpumgr vgpu create, or its current_vgpu_type)"
        findings.error("vf-without-type", message, name)
    elif not device.managed and not function.vfio:
        _not_detached(host, name, driver, findings)


def _not_detached(host: HostIndex, name: str, driver: str, findings: Findings) -> None:
    gpu = host.gpus.get(name) or host.companions.get(name)
    how = f"vgpumgr gpu bind {gpu.address}" if gpu is not None else f"virsh nodedev-detach {_node_name(name)}"
    message = (
        f"{name} is bound to {driver}, not to a VFIO driver, and managed='no' leaves it there: "
        f"detach it first ({how}), or write managed='yes'"
    )
    findings.error("device-not-detached", message, name)


def _node_name(address: str) -> str:
    """What libvirt calls a PCI function: ``pci_0000_3b_00_0``."""
    return "pci_" + address.replace(":", "_").replace(".", "_")


def _group(host: HostIndex, function: PciFunction, managed: set[str], findings: Findings) -> None:
    """``managed='yes'`` takes the listed devices off their drivers, and no other member of the group."""
    name, group = function.address, host.group_of(function)
    if group is None:
        why = (
            "is in none of the IOMMU groups" if host.iommu_active else "cannot be isolated: the IOMMU is not active"
        )
        findings.error("no-iommu-group" if host.iommu_active else "iommu-inactive", f"{name} {why}", name)
        return
    settled = managed | {name}  # Of the device's own driver more has been said already.
    left = [item for item in group.blockers if item.address not in settled and not _vgpu_driver(host, item)]
    if left:
        who = ", ".join(f"{item.address} ({item.driver or 'driver unknown'})" for item in left)
        message = f"IOMMU group {group.id} is not viable: {who} must leave the host's driver first"
        findings.error("group-not-viable", message, *(item.address for item in left))


def _vgpu_driver(host: HostIndex, blocker: Blocker) -> bool:
    """A vendor's vGPU driver lets VFIO have the VFs that carry a vGPU, though it has the name of a host driver."""
    function = host.functions.get(blocker.address)
    return function is not None and host.carries_vgpu(blocker.address) and host.on_vendor_driver(function)


def _virtual_functions(host: HostIndex, function: PciFunction, findings: Findings) -> None:
    vfs = host.vfs.get(function.address)
    if vfs:
        name = function.address
        enabled = counted(len(vfs), f"virtual function of {name} is", f"virtual functions of {name} are")
        findings.error("vfs-enabled", f"{enabled} enabled: it cannot go as a whole", name)
    parent = host.functions.get(function.physfn or "")
    if parent is not None and parent.vfio:
        message = (
            f"{function.address} is a VF of {parent.address}, which is on {parent.driver}: QEMU needs its VF token"
        )
        findings.warning("vf-token", message, function.address)


def _gpu(gpu: Gpu, device: HostDevice, findings: Findings) -> None:
    name, reasons = gpu.address, gpu.passthrough.reasons
    for reason in reasons:
        if reason.code == "failed":
            findings.error("device-failed", f"{name} has failed: {reason.message}", name)
        elif reason.code == "vgpu-live":
            findings.error("vgpu-live", reason.message, name)
        elif reason.code in ("framebuffer-held", "reserved", "vgpu-promised", "kind-not-offered"):
            findings.warning(reason.code, reason.message, name)
    if gpu.health.status is HealthStatus.DEGRADED:
        why = "; ".join(reason.message for reason in gpu.health.reasons)
        findings.warning("device-degraded", f"{name} is degraded: {why}", name)
    if gpu.boot_display and not (device.managed and not gpu.function.vfio):
        findings.warning("boot-display", f"{name} is the boot display: its console goes with it", name)


def _taken_from_host(host: HostIndex, gpu: Gpu | None, device: HostDevice, findings: Findings) -> None:
    """libvirt would unbind the host's driver without a look at who uses the device."""
    if gpu is None:
        return
    if gpu.boot_display and gpu.address == device.key:
        message = f"{device.key} is the boot display: managed='yes' would take the host's console"
        findings.error("boot-display", f"{message}; bind it on purpose first if that is meant", device.key)
    for holder in gpu.holders:
        if holder.address == device.key and holder.kind not in ("framebuffer", "vm"):
            who = f"{holder.kind} {holder.name}" + (f" (pid {holder.pid})" if holder.pid is not None else "")
            message = f"{who} uses {device.key}: managed='yes' would take it away, or hang"
            findings.error("in-use-by-host", message, device.key)


def _companions(host: HostIndex, named: set[str], findings: Findings) -> None:
    for gpu in (host.gpus[name] for name in sorted(named) if name in host.gpus):
        for companion in gpu.companions:
            if companion.address not in named:
                message = (
                    f"{companion.address} belongs to {gpu.address} and is not in the domain ({companion.reason})"
                )
                findings.warning("companion-missing", message, companion.address)
