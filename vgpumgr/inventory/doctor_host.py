"""What the doctor finds about the host as a whole: IOMMU, VFIO modules, parameters that hurt."""

from __future__ import annotations

from collections.abc import Iterator

from vgpumgr.inventory.reader import Reader
from vgpumgr.kernel.port import PCI_DRIVERS
from vgpumgr.model.doctor import Finding, Remedy, RemedyKind, Severity
from vgpumgr.model.host import HostInventory

_TABLES = "/sys/firmware/acpi/tables"
_UNSAFE_INTERRUPTS = "/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"

_INTEL, _AMD, _ARM = "Intel", "AMD", "Arm"
_ACPI_TABLE = {_INTEL: "DMAR", _AMD: "IVRS", _ARM: "IORT"}
_SWITCHED_OFF = ("intel_iommu=off", "amd_iommu=off", "iommu=off", "iommu=0", "iommu.passthrough=off")

_FIRMWARE = {
    _INTEL: Remedy(
        RemedyKind.FIRMWARE,
        "enable VT-d (Intel Virtualization Technology for Directed I/O) in the firmware",
        "VT-d",
    ),
    _AMD: Remedy(RemedyKind.FIRMWARE, "enable AMD-Vi (often just called IOMMU) in the firmware", "AMD-Vi"),
    _ARM: Remedy(RemedyKind.FIRMWARE, "enable the SMMU in the firmware", "SMMU"),
}
_PARAMETER = {
    _INTEL: Remedy(
        RemedyKind.KERNEL_PARAMETER,
        "add intel_iommu=on to the kernel command line (GRUB_CMDLINE_LINUX, then update-grub) and reboot",
        "intel_iommu=on",
    ),
    _AMD: Remedy(
        RemedyKind.KERNEL_PARAMETER,
        "the kernel uses AMD's IOMMU by itself; where it does not, its platform being known for faults, "
        "add amd_iommu=force_enable to the kernel command line (GRUB_CMDLINE_LINUX, then update-grub) and reboot",
        "amd_iommu=force_enable",
    ),
}


def diagnose_host(reader: Reader, inventory: HostInventory, iommu: tuple[Remedy, ...]) -> Iterator[Finding]:
    """Findings about the host; ``iommu`` are the remedies when no IOMMU is at work."""
    if not inventory.iommu.active:
        message = "IOMMU not active: no entry in /sys/class/iommu, no IOMMU groups; no GPU can be given to a VM"
        yield Finding("iommu-inactive", Severity.BLOCKING, message, (), iommu)
    words = (reader.text("/proc/cmdline", "host") or "").split()
    yield from _parameters(words)
    if inventory.iommu.active:
        yield from _vfio(reader)
    if any(notice.code == "holders-unknown" for notice in inventory.warnings):
        message = "the open files of all processes cannot be read here, so use of GPUs cannot be seen"
        yield Finding("holders-unknown", Severity.WARNING, message, (), (look_again(reader),))
    if not any(gpu.offered for gpu in inventory.gpus):
        yield Finding("no-gpu", Severity.INFO, "no GPU or accelerator that could be given to a VM is in this host")


def look_again(reader: Reader) -> Remedy:
    """How to see the open files of all processes. A recording shows no more, whoever reads it."""
    if reader.kernel.label.startswith("recorded"):
        text = "they are not in this recording: take another on the host, as root: vgpumgr host snapshot FILE"
        return Remedy(RemedyKind.PRIVILEGE, text, "vgpumgr host snapshot FILE")
    return Remedy(RemedyKind.PRIVILEGE, "look again as root, with /proc mounted", "root")


def iommu_remedies(reader: Reader) -> tuple[Remedy, ...]:
    """What switches the IOMMU on: most likely first.

    The firmware describes its IOMMU in an ACPI table; without the table the kernel cannot use it whatever
    its parameters are, with the table the firmware has done its part.
    """
    words = (reader.text("/proc/cmdline", "host") or "").split()
    off = [word for word in words if word in _SWITCHED_OFF]
    if off:
        return tuple(
            Remedy(
                RemedyKind.KERNEL_PARAMETER,
                f"remove {word} from the kernel command line and reboot",
                word,
                undo=True,
            )
            for word in off
        )
    vendor = _cpu_vendor(reader)
    tables = reader.names(_TABLES, "host")
    vendors = (vendor,) if vendor else (_INTEL, _AMD)
    firmware = tuple(_FIRMWARE[each] for each in vendors)
    parameters = tuple(_PARAMETER[each] for each in vendors if each in _PARAMETER)
    parameters = tuple(remedy for remedy in parameters if remedy.value not in words)
    if not tables:
        return firmware + parameters
    described = any(_ACPI_TABLE[each] in tables for each in vendors)
    return (parameters or firmware) if described else firmware


def _cpu_vendor(reader: Reader) -> str | None:
    text = reader.text("/proc/cpuinfo", "host") or ""
    if "GenuineIntel" in text:
        return _INTEL
    if "AuthenticAMD" in text or "HygonGenuine" in text:
        return _AMD
    return _ARM if "CPU implementer" in text else None


def _parameters(words: list[str]) -> Iterator[Finding]:
    """Kernel parameters that are active and do harm."""
    for word in words:
        if word.startswith("pcie_acs_override="):
            message = (
                "pcie_acs_override makes groups look isolated that are not: VMs can reach each other's devices"
            )
            yield _remove("acs-override", word, message)
        elif word.startswith(("vfio-pci.ids=", "vfio_pci.ids=")):
            message = "vfio-pci takes every device of these ids at boot, not just the one that was meant"
            yield _remove("vfio-ids", word, message)
        elif word in ("intremap=off", "nointremap"):
            message = "interrupt remapping is off: attaching a GPU to a VM fails, or is unsafe"
            yield _remove("no-interrupt-remapping", word, message)


def _remove(code: str, word: str, message: str) -> Finding:
    remedy = Remedy(RemedyKind.KERNEL_PARAMETER, f"remove {word} from the kernel command line", word, undo=True)
    return Finding(code, Severity.WARNING, message, (), (remedy,))


def _vfio(reader: Reader) -> Iterator[Finding]:
    if not reader.kernel.exists(f"{PCI_DRIVERS}/vfio-pci"):
        text = "binding loads it; to have it from boot on: echo vfio-pci > /etc/modules-load.d/vfio-pci.conf"
        remedy = Remedy(RemedyKind.MODULE, text, "vfio-pci")
        yield Finding("vfio-not-loaded", Severity.INFO, "the driver vfio-pci is not loaded", (), (remedy,))
    if reader.text(_UNSAFE_INTERRUPTS, "host") in ("Y", "1"):
        message = "vfio_iommu_type1 allows unsafe interrupts: a VM can inject interrupts into the host"
        text = (
            "remove vfio_iommu_type1.allow_unsafe_interrupts from the kernel command line and "
            "'options vfio_iommu_type1 allow_unsafe_interrupts=1' from /etc/modprobe.d, then reboot"
        )
        remedy = Remedy(RemedyKind.MODULE, text, "vfio_iommu_type1.allow_unsafe_interrupts", undo=True)
        yield Finding("unsafe-interrupts", Severity.WARNING, message, (), (remedy,))
