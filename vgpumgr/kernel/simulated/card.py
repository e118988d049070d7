"""A card of the simulation that can be sliced: one budget for all its VFs."""

from __future__ import annotations

from dataclasses import dataclass, field

from vgpumgr.kernel.simulated.mig import SimInstance, SimMig


@dataclass(frozen=True)
class SimType:
    """A vGPU type. ``size`` is framebuffer in MiB (GVT-g: aperture in MiB); ``most`` instances per card.

    ``slices`` is set for MIG-backed types; ``gib`` is the size their name tells.
    """

    id: str
    name: str
    size: int
    most: int
    description: str = ""
    slices: int = 0
    gib: int = 0


@dataclass
class Card:
    """A card that can be sliced. ``scheme``: ``mdev``, ``mdev-vf`` (one mdev per VF), ``vendor-vfio``, ``gvt``, or
    ``virtual`` (a parent that is no PCI function).

    ``equal`` says that all vGPUs of the card must have one size, NVIDIA's default (GVT-g's may differ); ``mixed``
    that sizes are mixed at aligned places, which only cards that ``can_mix`` do.
    """

    physfn: str
    scheme: str
    driver: str
    types: tuple[SimType, ...]
    total: int
    equal: bool = True
    header: bool = True
    bad_vfs: frozenset[str] = frozenset()
    can_mix: bool = False
    mixed: bool = False
    mig: SimMig | None = None
    scheduler: int = 1
    ecc: bool | None = None
    ecc_pending: bool | None = None
    live: dict[str, tuple[str, str]] = field(default_factory=dict)
    """vGPU (UUID, or the VF's address) → (parent, type id)."""
    homes: dict[str, int] = field(default_factory=dict)
    """vGPU → its GPU instance, or its place in MiB in mixed-size mode."""

    def type(self, type_id: str) -> SimType | None:
        """A type by its exact id."""
        return next((item for item in self.types if item.id == type_id), None)

    def left(self, wanted: SimType) -> int:
        """How many more of a type the card takes."""
        if self.mig is not None and self.mig.enabled:
            return sum(self._room(instance, wanted) for instance in self._instances(self.mig, wanted))
        if wanted.slices:
            return 0
        if self.mixed:
            return len(self.places(wanted))
        used = [kind for _, type_id in self.live.values() if (kind := self.type(type_id)) is not None]
        if self.equal and any(kind.size != wanted.size for kind in used):
            return 0
        memory = (self.total - sum(kind.size for kind in used)) // wanted.size
        most = wanted.most - (len(used) if self.equal else sum(kind.id == wanted.id for kind in used))
        return max(0, min(memory, most))

    def admit(self, name: str, parent: str, wanted: SimType) -> None:
        """Take a vGPU in; there is room for it."""
        if self.mig is not None and self.mig.enabled:
            homes = (item.id for item in self._instances(self.mig, wanted) if self._room(item, wanted))
            self.homes[name] = next(homes)
        elif self.mixed:
            self.homes[name] = self.places(wanted)[0]
        self.live[name] = (parent, wanted.id)

    def drop(self, name: str) -> None:
        """A vGPU goes; one that is not there is fine."""
        self.live.pop(name, None)
        self.homes.pop(name, None)

    def forget_modes(self) -> None:
        """The driver was rebound: GPU instances and mixed-size mode do not survive that."""
        self.mixed = False
        if self.mig is not None:
            self.mig.instances.clear()

    def places(self, wanted: SimType) -> list[int]:
        """Free places in mixed-size mode: multiples of the next halving of the card that holds the size."""
        width = self.total
        while width // 2 >= wanted.size:
            width //= 2
        taken = [(self.homes[name], kind.size) for name, kind in self._kinds() if name in self.homes]
        return [
            start
            for start in range(0, self.total - width + 1, width)
            if all(start + width <= at or at + size <= start for at, size in taken)
        ]

    def _kinds(self) -> list[tuple[str, SimType]]:
        found = ((name, self.type(type_id)) for name, (_, type_id) in self.live.items())
        return [(name, kind) for name, kind in found if kind is not None]

    def _instances(self, mig: SimMig, wanted: SimType) -> list[SimInstance]:
        shape = mig.shape(wanted.slices, wanted.gib) if wanted.slices else None
        return [item for item in mig.instances.values() if item.shape == shape]

    def _room(self, instance: SimInstance, wanted: SimType) -> int:
        """How many more of a type one GPU instance takes: one, or, shared by time, as many of one size as fit."""
        inside = [kind for name, kind in self._kinds() if self.homes.get(name) == instance.id]
        if self.mig is None or not self.mig.time_sliced:
            return 0 if inside else 1
        if any(kind.size != wanted.size for kind in inside):
            return 0
        return self.per_instance(wanted) - len(inside)

    def per_instance(self, wanted: SimType) -> int:
        """How many of a type share one GPU instance."""
        if self.mig is None or not self.mig.time_sliced or not wanted.slices:
            return 1
        widest = max(shape.size for shape in self.mig.shapes)
        shape = self.mig.shape(wanted.slices, wanted.gib)
        return self.total * (shape.size if shape else 0) // widest // wanted.size
