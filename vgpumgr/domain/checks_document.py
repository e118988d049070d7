"""What a domain's XML tells by itself, whatever the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lxml import etree

from vgpumgr.domain.document import devices_of
from vgpumgr.domain.findings import Findings
from vgpumgr.domain.guest_slots import check_guest_slots
from vgpumgr.domain.memory import check_memory
from vgpumgr.domain.parser import NamedDevice, Way

Version = tuple[int, int, int]
"""libvirt's version: major, minor, release."""

_MDEV_MODELS = ("vfio-pci", "vfio-ccw", "vfio-ap")


def check_document(
    root: etree._Element, devices: Sequence[NamedDevice], libvirt: Version | None, findings: Findings
) -> None:
    """All findings that need no look at the host. ``libvirt`` is the version that will read it, if known."""
    for named in devices:
        _readable(named, findings)
    _twice(devices, findings)
    _displays(root, findings)
    check_guest_slots(root, findings)
    check_memory(root, devices, findings)
    _versions(root, libvirt, findings)


def _readable(named: NamedDevice, findings: Findings) -> None:
    device, element = named.device, named.element
    if named.fault is not None:
        findings.error(named.fault_code, named.fault, device.key)
    if named.way is Way.ARGUMENT:
        message = f"{device.key or 'a device'} goes to QEMU by <qemu:commandline>: libvirt does not know of it"
        findings.warning("commandline-device", message, device.key)
    if element is None or device.type != "mdev":
        return
    name = device.uuid or "a mediated device"
    model = element.get("model")
    if model is None:
        findings.error(
            "model-missing", f"{name}: libvirt needs model='vfio-pci'", *([device.key] if device.key else [])
        )
    elif model not in _MDEV_MODELS:
        findings.error("model-unknown", f"{name}: libvirt knows no model={model!r}; use vfio-pci", device.key)
    if device.managed:
        findings.warning(
            "managed-ignored", f"{name}: libvirt ignores managed='yes' on a mediated device", device.key
        )


def _twice(devices: Sequence[NamedDevice], findings: Findings) -> None:
    seen: set[str] = set()
    for key in (named.device.key for named in devices):
        if key and key in seen:
            findings.error("device-twice", f"{key} is named twice in this domain", key)
        seen.add(key)


def _displays(root: etree._Element, findings: Findings) -> None:
    elements = devices_of(root)
    hostdevs = [element for element in elements if element.tag == "hostdev"]
    shown = [element for element in hostdevs if element.get("display") == "on"]
    if shown and root.tag == "domain" and not any(element.tag == "graphics" for element in elements):
        findings.error("display-without-graphics", "display='on' needs a <graphics> device in the domain")
    ramfb = [element for element in hostdevs if element.get("ramfb") == "on"]
    if len(ramfb) > 1:
        findings.error("ramfb-twice", "only one host device of a domain can have ramfb='on'")


def _has(path: str) -> Callable[[etree._Element], bool]:
    return lambda device: device.find(path) is not None


_NEEDS: tuple[tuple[str, Version, Callable[[etree._Element], bool]], ...] = (
    ("<driver iommufd=...>", (12, 1, 0), _has("driver[@iommufd]")),
    ("<driver model=...>", (10, 0, 0), _has("driver[@model]")),
    ("<acpi nodeset=...>", (11, 8, 0), _has("acpi[@nodeset]")),
    (
        "display or ramfb of a PCI device",
        (10, 3, 0),
        lambda device: device.get("type") == "pci" and _displayed(device),
    ),
    ("ramfb", (5, 10, 0), lambda device: device.get("ramfb") is not None),
)
"""What a ``<hostdev>`` may say since which libvirt; older ones drop it, or refuse it when they validate."""


def _displayed(device: etree._Element) -> bool:
    return device.get("display") is not None or device.get("ramfb") is not None


def _versions(root: etree._Element, libvirt: Version | None, findings: Findings) -> None:
    if libvirt is None:
        return
    for device in (element for element in devices_of(root) if element.tag == "hostdev"):
        for what, since, wanted in _NEEDS:
            if wanted(device) and libvirt < since:
                findings.warning(
                    "libvirt-too-old", f"{what} needs libvirt {_dotted(since)}; this is {_dotted(libvirt)}"
                )
    if root.find("iommufd") is not None and libvirt < (12, 2, 0):
        findings.warning("libvirt-too-old", f"<iommufd> needs libvirt 12.2.0; this is {_dotted(libvirt)}")


def _dotted(version: Version) -> str:
    return ".".join(str(part) for part in version)
