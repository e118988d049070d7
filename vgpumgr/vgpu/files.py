"""What the kernel shows about vGPUs, as it shows it: type lists, offers, and the vGPUs in being."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vgpumgr import address
from vgpumgr.inventory.reader import Reader, clean, whole
from vgpumgr.kernel.port import MDEV_DEVICES, MDEV_PARENTS, PCI_DEVICES, read_text
from vgpumgr.vgpu.descriptions import Description, parse_creatable, parse_description

NO_TYPE = "0"
"""What ``current_vgpu_type`` reads while a VF carries no vGPU."""


class TypeFiles(NamedTuple):
    """One mdev type as a parent describes it; ``name`` falls back to the id."""

    id: str
    name: str
    description: Description


class MdevTypes(NamedTuple):
    """The mdev types of one card, merged over its parents (the card itself, or its VFs)."""

    types: dict[str, TypeFiles]
    available: dict[str, dict[str, int | None]]
    """Parent → type id → ``available_instances``; ``None`` where it cannot be read."""


class Mdev(NamedTuple):
    """A mediated device. ``type_id`` is empty when its ``mdev_type`` link is missing."""

    uuid: str
    parent: str
    type_id: str
    vm_name: str | None
    iommu_group: int | None


class VendorVf(NamedTuple):
    """A VF with NVIDIA's own interface: what it offers, and the type it carries (``None``: cannot be read)."""

    address: str
    creatable: tuple[tuple[str, str], ...]
    current: str | None
    gpu_instance: int | None = None
    """The MIG GPU instance behind its vGPU."""


def read_mdev_types(reader: Reader, parents: Iterable[str]) -> MdevTypes:
    """The types that any of these functions offers. Name and description are read once for each type."""
    found = MdevTypes({}, {})
    classed = set(reader.names(MDEV_PARENTS, "host"))
    for parent in parents:
        base = f"{PCI_DEVICES}/{parent}/mdev_supported_types"
        ids = reader.names(base, parent)
        if not ids and parent in classed:
            # A fragment of a recording may hold the parent in its class alone.
            base = f"{MDEV_PARENTS}/{parent}/mdev_supported_types"
            ids = reader.names(base, parent)
        if not ids:
            continue
        offers: dict[str, int | None] = {}
        for type_id in ids:
            if not _plain(reader, type_id, parent):
                continue
            if type_id not in found.types:
                found.types[type_id] = _read_type(reader, f"{base}/{type_id}", type_id, parent)
            offers[type_id] = _available(reader, f"{base}/{type_id}/available_instances", parent)
        found.available[parent] = offers
    return found


def _read_type(reader: Reader, base: str, type_id: str, parent: str) -> TypeFiles:
    name = reader.text(f"{base}/name", parent)
    description = reader.text(f"{base}/description", parent)
    return TypeFiles(type_id, clean(name) if name else type_id, parse_description(description or ""))


def _plain(reader: Reader, name: str, subject: str) -> bool:
    """True for a name as kernels give them; others are told and left out: they could not be spoken of."""
    if name.isascii() and name.isprintable():
        return True
    reader.warn("name-malformed", f"{name!r} is no name that a kernel gives", subject)
    return False


def _available(reader: Reader, path: str, parent: str) -> int | None:
    count = reader.integer(path, parent)
    return count if count is None or count >= 0 else None


def read_mdevs(reader: Reader) -> dict[str, list[Mdev]]:
    """All mediated devices of the host by parent function, from the texts of their links: targets may be gone."""
    found: dict[str, list[Mdev]] = {}
    uuids = reader.names(MDEV_DEVICES, "host")
    classed = set(reader.names(MDEV_PARENTS, "host")) if uuids else set()
    for uuid in uuids:
        base = f"{MDEV_DEVICES}/{uuid}"
        parts = (reader.link(base) or "").rstrip("/").split("/")
        parent = parts[-2] if len(parts) > 1 else ""
        if not (address.is_address(parent) or parent in classed) or not _plain(reader, uuid, parent):
            continue
        type_id = clean(reader.link_name(f"{base}/mdev_type") or "")
        if not type_id:
            reader.warn("mdev-type-unknown", f"the type of vGPU {uuid} on {parent} cannot be read", uuid)
        group = whole(reader.link_name(f"{base}/iommu_group") or "")
        vm_name = clean(reader.text(f"{base}/nvidia/vm_name", uuid) or "")
        found.setdefault(parent, []).append(Mdev(uuid, parent, type_id, vm_name or None, group))
    return found


def read_vendor_vfs(reader: Reader, vfs: Iterable[str]) -> list[VendorVf]:
    """The VFs that show ``nvidia/creatable_vgpu_types``; others (on vfio-pci, unbound) are left out."""
    found = []
    for vf in vfs:
        base = f"{PCI_DEVICES}/{vf}/nvidia"
        text = reader.text(f"{base}/creatable_vgpu_types", vf)
        if text is None and not reader.kernel.exists(f"{base}/current_vgpu_type"):
            continue
        current = _current(reader, f"{base}/current_vgpu_type", vf)
        instance = None
        if current not in (None, NO_TYPE):
            # Reading it is an error (ENXIO) while there is no vGPU, so it is asked only then.
            instance = whole(read_text(reader.kernel, f"{base}/gpu_instance_id") or "")
        found.append(VendorVf(vf, parse_creatable(text or ""), current, instance))
    return found


def _current(reader: Reader, path: str, vf: str) -> str | None:
    """The type a VF carries; nonsense is "cannot be read", so the VF is not taken for free."""
    number = reader.integer(path, vf)
    return str(number) if number is not None and number >= 0 else None


def merged_names(vfs: Iterable[VendorVf]) -> Mapping[str, str]:
    """Type id → name over the lists of all VFs: the list of a full VF holds nothing but its header."""
    return {type_id: name for vf in vfs for type_id, name in vf.creatable}
