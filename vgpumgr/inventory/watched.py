"""A function whose holders are looked for."""

from __future__ import annotations

from typing import NamedTuple


class Watched(NamedTuple):
    """``names`` are the names in the function's sysfs directory; ``group`` its IOMMU group's number."""

    address: str
    names: frozenset[str]
    driver: str | None
    group: int | None
