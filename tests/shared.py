"""Finds the folder of recordings and field cases that may lie beside a checkout."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def shared_dir() -> Path | None:
    """The ``shared`` folder: ``$VGPUMGR_SHARED``, or ``shared/`` beside any parent of this checkout."""
    named = os.environ.get("VGPUMGR_SHARED")
    if named:
        return Path(named)
    checkout = Path(__file__).resolve().parents[1]
    for parent in checkout.parents:
        candidate = parent / "shared"
        if (candidate / "cases" / "CASES.md").is_file():
            return candidate
    return None
