"""One page of a long list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """``items`` of this page; ``next_cursor`` is opaque, and ``None`` on the last page."""

    items: Sequence[T]
    next_cursor: str | None = None
