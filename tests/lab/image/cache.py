"""The cache of built stages: a stage's folder is named by the content of everything that goes into it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_KEPT = 2
"""Folders kept of each stage: the present one and the one before, for going back and forth in history."""


def cache_dir() -> Path:
    """``$VGPUMGR_LAB_CACHE``, or ``vgpumgr-lab`` in the user's cache."""
    named = os.environ.get("VGPUMGR_LAB_CACHE")
    base = (
        Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vgpumgr-lab"
    )
    base.mkdir(parents=True, exist_ok=True)
    return base.resolve()


def say(text: str) -> None:
    """A line of progress for the person who waits."""
    print(f"lab: [{time.strftime('%T')}] {text}", file=sys.stderr, flush=True)


def key_of(*parts: str | bytes | Path) -> str:
    """Twelve hex digits over texts, files and whole folders (names, modes and contents)."""
    digest = hashlib.sha256()
    for part in parts:
        for name, content in _pieces(part):
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:12]


def _pieces(part: str | bytes | Path) -> Iterator[tuple[str, bytes]]:
    if isinstance(part, str):
        yield "", part.encode()
    elif isinstance(part, bytes):
        yield "", part
    elif part.is_dir():
        for path in sorted(part.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{path.relative_to(part)}:{path.stat().st_mode & 0o111:o}", path.read_bytes()
    else:
        yield part.name, part.read_bytes()


def stage(name: str, key: str, build: Callable[[Path], None]) -> Path:
    """The folder of one stage, built by ``build(folder)`` when it is not there yet.

    A half-built folder is never seen: it gets its name only when it is complete.
    """
    final = cache_dir() / f"{name}-{key}"
    if not final.exists():
        started = time.monotonic()
        say(f"building {name}")
        fresh = cache_dir() / f"{name}-{key}.new"
        _remove(fresh)
        fresh.mkdir()
        build(fresh)
        fresh.rename(final)
        say(f"{name} built in {time.monotonic() - started:.0f} s")
    os.utime(final)
    _forget_old(name)
    return final


def _forget_old(name: str) -> None:
    found = [path for path in cache_dir().glob(f"{name}-*") if not path.name.endswith(".new")]
    found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in (*found[_KEPT:], *cache_dir().glob(f"{name}-*.new")):
        _remove(path)


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)


@contextmanager
def only_one() -> Iterator[None]:
    """Keeps a second build waiting: what the first one builds is then there."""
    with (cache_dir() / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is at work; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
