"""Recorded hosts and field cases from ``shared/``, made ready once per test run."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.shared import shared_dir
from vgpumgr.inventory import take_inventory
from vgpumgr.inventory.names import NoNames
from vgpumgr.kernel.recorded import RecordedKernel, open_recording
from vgpumgr.model.host import Gpu, HostInventory

_ARCHIVE = re.compile(r"sysroot(-recorded)?\.tar\.(gz|bz2)")


def shared() -> Path:
    """The folder of recordings and cases; the test is skipped where there is none."""
    folder = shared_dir()
    if folder is None:
        pytest.skip("no shared/ beside the checkout: recordings and field cases are there")
    return folder


@cache
def scratch() -> Path:
    """A folder for what is unpacked and built, for the length of the run."""
    return Path(mkdtemp(prefix="vgpumgr-recorded-"))


def archive(name: str) -> Path:
    """A recording's tar."""
    (found,) = (path for path in (shared() / "recordings" / name).iterdir() if _ARCHIVE.fullmatch(path.name))
    return found


@cache
def recording(name: str, unpacked: bool = True) -> RecordedKernel:
    """A recorded host, as a folder or straight from its tar."""
    path = archive(name)
    if not unpacked:
        return open_recording(str(path))
    folder = scratch() / name
    with tarfile.open(path) as tar:
        tar.extractall(folder)
    return open_recording(str(folder))


@cache
def host_of(name: str) -> HostInventory:
    """The inventory of a recording."""
    return take_inventory(recording(name), names=NoNames())


@cache
def listing(name: str) -> RecordedKernel:
    """A host re-typed from a listing (``*.devs``), built."""
    source = shared() / "recordings" / name / f"{name}.devs"
    _make(str(source), str(scratch() / "listings"))
    return open_recording(str(scratch() / "listings" / name))


@cache
def case(number: str) -> RecordedKernel:
    """The tree of a field case."""
    return open_recording(str(case_folder(number)))


@cache
def case_folder(number: str) -> Path:
    """The folder of a field case: ``sys/`` and ``input.*``."""
    _make(str(shared() / "cases" / "CASES.md"), str(scratch() / "cases"), number)
    return scratch() / "cases" / number


@cache
def host_of_case(number: str) -> HostInventory:
    """The inventory of a field case."""
    return take_inventory(case(number), names=NoNames())


def gpu_of(inventory: HostInventory, address: str) -> Gpu:
    """One GPU of an inventory."""
    (found,) = (gpu for gpu in inventory.gpus if gpu.address == address)
    return found


def _make(*arguments: str) -> None:
    tool = shared() / "cases" / "tools" / "mkcase.py"
    subprocess.run([sys.executable, str(tool), *arguments], check=True, capture_output=True)
