"""One look at a host: the pass that reads everything, in order, and puts it together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vgpumgr.inventory.classes import gpu_kind
from vgpumgr.inventory.companions import CardMap, find_companions, is_second_head
from vgpumgr.inventory.detail import Detail, bars
from vgpumgr.inventory.framebuffer import find_framebuffers
from vgpumgr.inventory.functions import read_functions
from vgpumgr.inventory.groups import build_groups, group_of_members, iommu_state, read_membership
from vgpumgr.inventory.health import judge_health
from vgpumgr.inventory.holders import Holders, look, watch
from vgpumgr.inventory.kernel_log import KernelLogText, with_driver_ready
from vgpumgr.inventory.names import Names, NoNames, display_name, machine_names
from vgpumgr.inventory.parents import find_virtual_parents
from vgpumgr.inventory.passthrough import Situation, judge
from vgpumgr.inventory.reader import Reader, clean, whole
from vgpumgr.inventory.topology import TopologyMap
from vgpumgr.inventory.watched import Watched
from vgpumgr.kernel.port import MDEV_PARENTS, PCI_DEVICES, Kernel
from vgpumgr.model.host import Companion, Gpu, GpuKind, HostInventory, IommuGroup, IommuState
from vgpumgr.model.pci import PciFunction


class _Card(NamedTuple):
    """A GPU function while its inventory is being put together."""

    function: PciFunction
    kind: GpuKind
    detail: Detail
    vfs: list[str]
    companions: tuple[Companion, ...]

    @property
    def addresses(self) -> tuple[str, ...]:
        return (self.function.address, *(companion.address for companion in self.companions))


def take_inventory(kernel: Kernel, *, names: Names | None = None) -> HostInventory:
    """Look at the whole host once, read-only. Never raises for a strange device: that becomes a warning.

    ``names`` is the hardware database; by default this machine's own. vGPU profiles and instances are not
    read here: ``Gpu.vgpu`` is left empty.
    """
    reader = Reader(kernel)
    membership = read_membership(reader)
    functions = read_functions(reader, group_of_members(membership))
    cards = _find_cards(reader, functions)
    gpu_groups = {card.function.iommu_group for card in cards} - {None}
    _notice_vfio_members(reader, functions, gpu_groups)
    groups = build_groups(reader, membership, functions, {group for group in gpu_groups if group is not None})
    state = iommu_state(reader, groups.values())
    if names is None:
        names = machine_names(live=kernel.label == "real") if cards else NoNames()
    builder = _Builder(reader, functions, groups, state, cards, names)
    return HostInventory(
        hostname=_word(reader, "/proc/sys/kernel/hostname"),
        kernel=_kernel_release(reader),
        iommu=state,
        gpus=(*(builder.build(card) for card in cards), *find_virtual_parents(reader)),
        functions=tuple(functions.values()),
        groups=tuple(groups.values()),
        warnings=reader.notices,
    )


def _find_cards(reader: Reader, functions: dict[str, PciFunction]) -> list[_Card]:
    """GPU functions that are cards of their own: no VFs, no second heads."""
    kinds = {name: kind for name, function in functions.items() if (kind := _kind(reader, function)) is not None}
    vfs = _virtual_functions(reader, functions, kinds)
    owned = {vf for mine in vfs.values() for vf in mine}
    details = {name: Detail(reader, functions[name]) for name in kinds if name not in owned}
    for name, detail in details.items():
        # A VF may lack its ``physfn`` link; its card still lists it.
        for vf in detail.virtual_functions:
            if vf not in owned and vf in functions:
                owned.add(vf)
                vfs.setdefault(name, []).append(vf)
                functions[vf] = functions[vf]._replace(physfn=name)
    card_map = CardMap(functions)
    found = []
    for name, detail in details.items():
        function = functions[name]
        if name not in owned and not is_second_head(function, card_map):
            companions = find_companions(function, kinds[name], card_map, detail.device_links())
            found.append(_Card(function, kinds[name], detail, vfs.get(name, []), companions))
    return found


def _kind(reader: Reader, function: PciFunction) -> GpuKind | None:
    """By class; in a fragment of a recording, without a class, by the vGPU types that only a GPU's driver shows."""
    if function.class_id is None and function.physfn is None and _shows_vgpu_types(reader, function.address):
        return GpuKind.GPU
    return gpu_kind(function.class_id, function.vendor_id, function.device_id)


def _shows_vgpu_types(reader: Reader, name: str) -> bool:
    exists = reader.kernel.exists
    vendor = exists(f"{PCI_DEVICES}/{name}/nvidia/creatable_vgpu_types")
    return vendor or exists(f"{MDEV_PARENTS}/{name}/mdev_supported_types")


def _virtual_functions(
    reader: Reader, functions: Mapping[str, PciFunction], gpu_like: Iterable[str]
) -> dict[str, list[str]]:
    """VFs of GPUs by physical function, as the VFs themselves name it. The link may dangle."""
    found: dict[str, list[str]] = {}
    for name in gpu_like:
        function = functions[name]
        if function.physfn is None:
            continue
        if function.physfn not in functions:
            reader.warn("vf-orphan", f"its physical function {function.physfn} is not here", function.address)
        found.setdefault(function.physfn, []).append(function.address)
    return found


def _notice_vfio_members(reader: Reader, functions: dict[str, PciFunction], groups: Iterable[int | None]) -> None:
    """A VFIO variant driver may have any name; ``vfio-dev`` gives it away. Looked for where GPUs are concerned."""
    concerned = set(groups)
    for name, function in functions.items():
        if function.driver is None or function.vfio or function.iommu_group not in concerned:
            continue
        if not function.is_bridge and reader.kernel.exists(f"{PCI_DEVICES}/{name}/vfio-dev"):
            functions[name] = function._replace(vfio=True)


class _Builder:
    """Puts GPUs together from what was read for all of them at once."""

    def __init__(
        self,
        reader: Reader,
        functions: Mapping[str, PciFunction],
        groups: Mapping[int, IommuGroup],
        state: IommuState,
        cards: list[_Card],
        names: Names,
    ) -> None:
        self._reader = reader
        self._functions = functions
        self._groups = groups
        self._state = state
        self._names = names
        self._topology = TopologyMap(reader, functions)
        self._resources = {card.function.address: card.detail.resources() for card in cards}
        self._log = KernelLogText(reader.kernel)
        self._framebuffers = find_framebuffers(reader, self._resources, functions, self._log)
        for holder in self._framebuffers:
            message = f"boot framebuffer ({holder.name}) owns part of {holder.detail}"
            reader.warn("framebuffer-held", message, holder.address)
        self._holders = self._look(cards)

    def build(self, card: _Card) -> Gpu:
        function, detail = self._functions[card.function.address], card.detail
        boot_display, subsystem, link = detail.boot_display(), detail.subsystem_id(), detail.link()
        found_bars = bars(self._resources[function.address])
        sriov = detail.sriov(card.vfs)
        health = judge_health(detail, link, self._slot_width(function), found_bars, self._configs(card))
        group = self._groups.get(function.iommu_group) if function.iommu_group is not None else None
        near = {*card.addresses, *(group.members if group else ()), *(sriov.vfs if sriov else ())}
        holders = self._holders.of(near)
        holders += tuple(holder for holder in self._framebuffers if holder.address == function.address)
        passthrough = judge(
            Situation(
                function=function,
                kind=card.kind,
                boot_display=boot_display,
                companions=card.companions,
                iommu=self._state,
                group=group,
                health=health,
                sriov=sriov,
                holders=holders,
                holders_known=self._holders.known,
                vfio_members=self._vfio(card, group),
            )
        )
        gpu = Gpu(
            function=function,
            kind=card.kind,
            name=display_name(self._names, function.vendor_id, function.device_id, subsystem),
            boot_display=boot_display,
            companions=card.companions,
            passthrough=passthrough,
            health=health,
            topology=self._topology.of(function),
            sriov=sriov,
            holders=holders,
            holders_known=self._holders.known,
            subsystem_id=subsystem,
            modalias=detail.word("modalias"),
            driver_override=detail.driver_override(),
            power_state=detail.word("power_state"),
            reset_methods=detail.reset_methods(),
            bars=found_bars,
            link=link,
        )
        return with_driver_ready(gpu, self._log)

    def _look(self, cards: list[_Card]) -> Holders:
        """Look for the holders of all cards in one go: the scan of all processes is the costly part."""
        watched: dict[str, Watched] = {}
        for card in cards:
            function = self._functions[card.function.address]
            watched[function.address] = Watched(
                function.address, card.detail.names, function.driver, function.iommu_group
            )
            for name in (*card.addresses[1:], *self._group_members(function)):
                if name not in watched:
                    watched[name] = watch(self._reader, name)
            for name in card.detail.virtual_functions or card.vfs:
                vf = self._functions.get(name)
                if vf is not None:
                    # No driver: a VF has no device node but VFIO's.
                    names = frozenset({"vfio-dev"} if vf.vfio else ())
                    watched[name] = Watched(name, names, None, vf.iommu_group)
        if not watched:
            return Holders((), True)
        holders = look(self._reader, watched)
        if not holders.known:
            self._reader.warn(
                "holders-unknown",
                "the open files of all processes cannot be read here: use of a GPU is looked for when it is taken",
                "host",
            )
        return holders

    def _group_members(self, function: PciFunction) -> list[str]:
        group = self._groups.get(function.iommu_group) if function.iommu_group is not None else None
        members = [self._functions.get(name) for name in group.members] if group else []
        return [member.address for member in members if member is not None and not member.is_bridge]

    def _configs(self, card: _Card) -> dict[str, bytes]:
        """Configuration space of the companions: a card that fell off the bus takes them with it."""
        found = {}
        for name in card.addresses[1:]:
            config = self._reader.raw(f"{PCI_DEVICES}/{name}/config", name)
            if config is not None:
                found[name] = config
        return found

    def _slot_width(self, function: PciFunction) -> int | None:
        """Lanes that the port above the GPU has, so that a short slot is not taken for a fault."""
        if not function.bridges:
            return None
        text = self._reader.text(f"{PCI_DEVICES}/{function.bridges[-1]}/max_link_width", function.bridges[-1])
        return whole(text or "")

    def _vfio(self, card: _Card, group: IommuGroup | None) -> frozenset[str]:
        members = {*card.addresses, *(group.members if group else ())}
        return frozenset(
            name for name in members if (member := self._functions.get(name)) is not None and member.vfio
        )


def _word(reader: Reader, path: str) -> str | None:
    text = reader.text(path, "host")
    return clean(text) if text else None


def _kernel_release(reader: Reader) -> str | None:
    release = _word(reader, "/proc/sys/kernel/osrelease")
    if release is None:
        words = (_word(reader, "/proc/version") or "").split()
        release = words[2] if len(words) > 2 and words[:2] == ["Linux", "version"] else None
    return release
