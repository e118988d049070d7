"""Where the files that ship beside the code are: domain templates, systemd units.

Installed, they lie inside the package (``vgpumgr/_data``); in a checkout, at the top of the tree.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def directory(name: str) -> Path:
    """The folder ``name`` (``xml_templates`` or ``systemd``), wherever this copy of the project keeps it."""
    packaged = _PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name
