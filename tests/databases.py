"""An empty database at the newest version, made once per run and copied: migrating for each test takes time."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

from vgpumgr.store.store import open_store


@cache
def _empty() -> bytes:
    folder = Path(tempfile.mkdtemp(prefix="vgpumgr-test-"))
    try:
        open_store(f"sqlite:///{folder / 'empty.db'}", "host").close()
        return (folder / "empty.db").read_bytes()
    finally:
        shutil.rmtree(folder)


def put_empty_database(folder: Path) -> str:
    """Put one into a folder, unless there is one; its URL."""
    file = folder / "vgpumgr.db"
    if not file.exists():
        file.write_bytes(_empty())
        file.chmod(0o600)
    return f"sqlite:///{file}"
