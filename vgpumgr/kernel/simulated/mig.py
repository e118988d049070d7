"""MIG of the simulation: a card's memory slices, and the GPU instances that are cut from them."""

from __future__ import annotations

from dataclasses import dataclass, field

SEVEN, FOUR = 7, 4
"""Boards are cut into seven compute slices (A100, H100) or four (A30, RTX PRO 6000)."""


@dataclass(frozen=True)
class SimShape:
    """A GPU instance profile. ``id`` as the driver numbers it; ``size`` and ``starts`` in memory slices."""

    id: int
    name: str
    slices: int
    size: int
    starts: tuple[int, ...]


@dataclass(frozen=True)
class SimInstance:
    """A GPU instance in being."""

    id: int
    shape: SimShape
    start: int


@dataclass
class SimMig:
    """MIG of one card. ``time_sliced``: vGPUs share an instance, all of one size."""

    shapes: tuple[SimShape, ...]
    time_sliced: bool = False
    enabled: bool = False
    instances: dict[int, SimInstance] = field(default_factory=dict)

    def shape(self, slices: int, gib: int) -> SimShape | None:
        """The shape of a profile named ``slices-gib``; time slices of an instance have smaller names than it."""
        fitting = [shape for shape in self.shapes if shape.slices == slices]
        if self.time_sliced:
            return fitting[0] if fitting else None
        return next((shape for shape in fitting if shape.name.endswith(f".{gib}gb")), None)

    def free_starts(self, shape: SimShape) -> list[int]:
        """Where another instance of a shape can begin. Compute slices bind too: a board has so many of them."""
        used = sum(item.shape.slices for item in self.instances.values())
        if used + shape.slices > max(item.slices for item in self.shapes):
            return []
        taken = [(item.start, item.shape.size) for item in self.instances.values()]
        return [
            start
            for start in shape.starts
            if all(start + shape.size <= at or at + size <= start for at, size in taken)
        ]

    def remaining(self, shape: SimShape) -> int:
        """How many more of a shape fit, were all the rest of the card given to it."""
        trial = SimMig(self.shapes, self.time_sliced, True, dict(self.instances))
        count = 0
        while starts := trial.free_starts(shape):
            trial.create(shape, starts[0])
            count += 1
        return count

    def create(self, shape: SimShape, start: int) -> SimInstance:
        """Make an instance at a free place."""
        number = next(number for number in range(1, 16) if number not in self.instances)
        made = SimInstance(number, shape, start)
        self.instances[number] = made
        return made


def standard_shapes(slices: int, total_gib: int) -> tuple[SimShape, ...]:
    """The shapes of a board of that many compute slices and that much memory."""
    if slices == FOUR:
        quarter = total_gib // 4
        return (
            SimShape(14, f"1g.{quarter}gb", 1, 1, (0, 1, 2, 3)),
            SimShape(5, f"2g.{quarter * 2}gb", 2, 2, (0, 2)),
            SimShape(0, f"4g.{total_gib}gb", 4, 4, (0,)),
        )
    eighth = total_gib // 8
    return (
        SimShape(19, f"1g.{eighth}gb", 1, 1, (0, 1, 2, 3, 4, 5, 6)),
        SimShape(15, f"1g.{eighth * 2}gb", 1, 2, (0, 2, 4, 6)),
        SimShape(14, f"2g.{eighth * 2}gb", 2, 2, (0, 2, 4)),
        SimShape(9, f"3g.{eighth * 4}gb", 3, 4, (0, 4)),
        SimShape(5, f"4g.{eighth * 4}gb", 4, 4, (0,)),
        SimShape(0, f"7g.{total_gib}gb", 7, 8, (0,)),
    )
