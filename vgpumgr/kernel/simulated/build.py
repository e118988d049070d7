"""From a host description to a machine. The form is documented in docs/reference/host-descriptions.md."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from vgpumgr.kernel.simulated import pci, sriov
from vgpumgr.kernel.simulated.card import Card
from vgpumgr.kernel.simulated.description import checked, wrong
from vgpumgr.kernel.simulated.device import SimFunction, SriovShape
from vgpumgr.kernel.simulated.machine import Machine, SimulatedKernel
from vgpumgr.kernel.simulated.mig import SimMig, standard_shapes
from vgpumgr.kernel.simulated.standard import add_standard
from vgpumgr.kernel.simulated.types import expand_types
from vgpumgr.kernel.simulated.virtual import add_parent
from vgpumgr.kernel.tree import File, Link, Tree

_GIB = 1 << 30


def build(name: str, description: Mapping[str, Any]) -> SimulatedKernel:
    """The simulated kernel of a described host. Raises :class:`SourceError` naming the entry that is wrong."""
    description = checked(description)
    machine = Machine(Tree())
    iommu = description.get("iommu", "intel")
    for module, drivers in dict(description.get("modules") or {}).items():
        machine.modules[str(module)] = tuple(drivers)
    add_standard(
        machine,
        hostname=str(description.get("hostname", name)),
        release=str(description.get("kernel", "6.8.0")),
        cmdline=str(description.get("cmdline", "")),
    )
    if iommu:
        unit = {"intel": "dmar0", "amd": "ivhd0"}.get(str(iommu), "dmar0")
        machine.tree.mkdir(f"/sys/devices/virtual/iommu/{unit}")
        machine.tree.link(f"/sys/class/iommu/{unit}", f"/sys/devices/virtual/iommu/{unit}")
    for entry in description.get("functions") or []:
        _add_function(machine, entry, bool(iommu))
    for entry in description.get("virtual") or []:
        _add_virtual(machine, entry)
    _add_mounts(machine, description.get("mounts") or {})
    return SimulatedKernel(name, machine)


def _add_function(machine: Machine, entry: Mapping[str, Any], iommu: bool) -> None:
    where, class_id = str(entry["address"]), entry["class"]
    if where in machine.functions:
        raise wrong(where, "stands twice")
    vendor, _, device = entry["id"].partition(":")
    function = SimFunction(where, _path(machine, where, entry.get("behind")))
    function.native = _names(entry.get("native", entry.get("driver")))
    function.group = _group(machine, where, entry) if iommu else None
    machine.functions[where] = function
    _attributes(machine, function, entry, vendor, device, class_id)
    _slicing(machine, function, entry, vendor, device)
    if entry.get("driver"):
        _bind(machine, function, str(entry["driver"]))
    _enable_vfs(machine, function, entry)
    _neighbours(machine, function, entry)


def _names(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),)


def _path(machine: Machine, address: str, behind: object) -> str:
    if behind is None:
        domain, bus = address.split(":")[:2]
        return f"/sys/devices/pci{domain}:{bus}/{address}"
    bridge = machine.functions.get(str(behind))
    if bridge is None:
        raise wrong(address, f"behind: {behind} must be described before")
    return f"{bridge.path}/{address}"


def _group(machine: Machine, address: str, entry: Mapping[str, Any]) -> int:
    """The group asked for; else that of an earlier function of the same slot; else the next free one."""
    if "group" in entry:
        return int(entry["group"])
    mates = [item.group for name, item in machine.functions.items() if name[:-2] == address[:-2]]
    if mates and mates[0] is not None:
        return mates[0]
    return max((item.group for item in machine.functions.values() if item.group is not None), default=-1) + 1


def _attributes(
    machine: Machine, function: SimFunction, entry: Mapping[str, Any], vendor: str, device: str, class_id: str
) -> None:
    tree, path = machine.tree, function.path
    subsystem_vendor, _, subsystem_device = str(entry.get("subsystem", f"{vendor}:0000")).partition(":")
    texts = {
        "vendor": f"0x{vendor}",
        "device": f"0x{device}",
        "class": f"0x{class_id}",
        "subsystem_vendor": f"0x{subsystem_vendor}",
        "subsystem_device": f"0x{subsystem_device}",
        "revision": "0xa1",
        "numa_node": str(entry.get("numa", 0)),
        "power_state": str(entry.get("power", "D0")),
        "enable": "1",
    }
    if not class_id.startswith("06"):
        texts["reset_method"] = str(entry.get("reset", "flr bus"))
        tree.put(f"{path}/reset", File(error=errno.EACCES))
    if class_id.startswith("0300"):
        texts["boot_vga"] = "1" if entry.get("boot_vga") else "0"
    link = str(entry.get("link", "16.0 x16")).split(" x")
    texts |= {"current_link_speed": f"{link[0]} GT/s PCIe", "max_link_speed": f"{link[0]} GT/s PCIe"}
    texts |= {"current_link_width": link[-1], "max_link_width": link[-1]}
    for name, text in texts.items():
        tree.write_text(f"{path}/{name}", text)
    tree.put(f"{path}/config", File(_config(vendor, device, class_id)))
    tree.put(f"{path}/resource", File(_resource(entry.get("bars") or [])))
    sriov.publish_common(machine, function, class_id)


def _config(vendor: str, device: str, class_id: str) -> bytes:
    config = bytearray(64)
    config[0:2] = int(vendor, 16).to_bytes(2, "little")
    config[2:4] = int(device, 16).to_bytes(2, "little")
    config[9:12] = int(class_id, 16).to_bytes(3, "little")
    config[14] = 1 if class_id.startswith("0604") else 0
    return bytes(config)


def _resource(bars: list[Any]) -> bytes:
    """Thirteen lines; each BAR given as a size such as ``16M`` or ``64G``, 64-bit ones take two lines."""
    lines, start = [], 0x200000000000
    for text in map(str, bars):
        size = int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]]
        wide = size >= 256 << 20
        lines.append(f"{start:#018x} {start + size - 1:#018x} {0x14220C if wide else 0x40200:#018x}")
        lines += [f"{0:#018x} {0:#018x} {0:#018x}"] if wide else []
        start += max(size, _GIB)
    lines += [f"{0:#018x} {0:#018x} {0:#018x}"] * (13 - len(lines))
    return ("\n".join(lines[:13]) + "\n").encode()


def _slicing(machine: Machine, function: SimFunction, entry: Mapping[str, Any], vendor: str, device: str) -> None:
    shape = entry.get("sriov")
    if shape is not None:
        code = shape.get("refuses")
        function.sriov = SriovShape(
            int(shape["total"]),
            int(shape.get("offset", 4)),
            int(shape.get("stride", 1)),
            str(shape.get("vf_device", device)),
            shape.get("vf_class"),
            shape.get("vf_driver"),
            getattr(errno, str(code)) if code else 0,
        )
        sriov.publish(machine, function)
    card = entry.get("vgpu")
    if card is not None:
        machine.cards[function.address] = Card(
            function.address,
            str(card["scheme"]),
            str(card.get("driver", "nvidia")),
            expand_types(card["types"], str(card["scheme"]), int(card["framebuffer_mib"])),
            int(card["framebuffer_mib"]),
            bool(card.get("equal", card["scheme"] != "gvt")),
            bool(card.get("header", True)),
            frozenset(map(str, card.get("bad_vfs", []))),
            can_mix=bool(card.get("mixed", False)),
            mig=_mig(card.get("mig"), int(card["framebuffer_mib"])),
            ecc=card.get("ecc"),
            ecc_pending=card.get("ecc"),
        )


def _add_virtual(machine: Machine, entry: Mapping[str, Any]) -> None:
    """``{name: mbochs, framebuffer_mib: 256, types: [...]}``: what a sample driver of mediated devices makes."""
    name = entry["name"]
    if name in machine.functions:
        raise wrong("virtual", f"{name} stands twice")
    total = int(entry.get("framebuffer_mib", 0))
    types = expand_types(entry["types"], "virtual", total)
    add_parent(machine, Card(name, "virtual", name, types, total, equal=False))


def _enable_vfs(machine: Machine, function: SimFunction, entry: Mapping[str, Any]) -> None:
    """The VFs that a vendor's tool enabled while the host booted."""
    enabled = (entry.get("sriov") or {}).get("enabled")
    if not enabled:
        return
    try:
        sriov.write_numvfs(machine, function, str(enabled))
    except OSError as error:
        raise wrong(function.address, f"sriov: enabled: {enabled}: {error.strerror}") from error


def _mig(mig: Any, total: int) -> SimMig | None:
    """``{slices: 7}``, or 4; with ``time_sliced`` vGPUs share GPU instances."""
    if mig is None:
        return None
    return SimMig(standard_shapes(mig["slices"], total >> 10), bool(mig.get("time_sliced", False)))


def _bind(machine: Machine, function: SimFunction, driver: str) -> None:
    if driver not in machine.drivers:
        pci.register_driver(machine, driver)
        module = driver.replace("-", "_")
        machine.modules.setdefault(module, (driver,))
        machine.tree.mkdir(f"/sys/module/{module}/drivers")
        machine.tree.link(f"/sys/module/{module}/drivers/pci:{driver}", f"/sys/bus/pci/drivers/{driver}")
    if pci.VFIO_DRIVER.fullmatch(driver):
        function.override = driver
    if pci.probe(machine, function, driver):
        raise wrong(function.address, f"driver: {driver} would not take it")


def _neighbours(machine: Machine, function: SimFunction, entry: Mapping[str, Any]) -> None:
    """Interfaces, disks and displays that hang on the function."""
    tree, path = machine.tree, function.path
    if entry.get("net"):
        name, _, state = str(entry["net"]).partition(" ")
        base = f"{path}/net/{name}"
        tree.write_text(f"{base}/operstate", state or "down")
        tree.write_text(f"{base}/flags", "0x1003" if state == "up" else "0x1002")
        tree.link(f"{base}/device", path)
        tree.link(f"/sys/class/net/{name}", base)
    if entry.get("disk"):
        name, _, number = str(entry["disk"]).partition(" ")
        base = f"{path}/nvme/{name.partition('n1')[0]}/{name}"
        tree.write_text(f"{base}/dev", number)
        tree.link(f"/sys/class/block/{name}", base)
        tree.link(f"/sys/dev/block/{number}", base)
    if entry.get("drm"):
        name, _, connector = str(entry["drm"]).partition(" ")
        tree.mkdir(f"{path}/drm/{name}")
        if connector:
            base = f"{path}/drm/{name}/{name}-{connector}"
            tree.write_text(f"{base}/status", "connected")
            tree.write_text(f"{base}/enabled", "enabled")
            tree.link(f"/sys/class/drm/{name}-{connector}", base)
        tree.link(f"{path}/drm/{name}/device", path)
        tree.link(f"/sys/class/drm/{name}", f"{path}/drm/{name}")
        tree.put(f"/dev/dri/{name}", File())


def _add_mounts(machine: Machine, mounts: Mapping[str, str]) -> None:
    """``mounts: {/: "259:0 /dev/nvme0n1p1"}``: what the first process sees mounted."""
    lines = []
    for index, (point, source) in enumerate(mounts.items()):
        number, _, device = str(source).partition(" ")
        lines.append(f"{20 + index} 1 {number} / {point} rw,relatime - ext4 {device} rw")
    if lines:
        machine.tree.write_text("/proc/self/mountinfo", "\n".join(lines))
        machine.tree.put("/proc/mounts", Link("self/mountinfo"))
