"""What an inventory costs, as ratios within one run: against a bare loop over the same files, and by size of host.

The bare loop opens and reads the same files and makes nothing of them; the folders and links that an inventory
reads besides are all its own. Times are CPU times (user and system): other work on the machine does not show.
A host is read as its own service reads it, and as a recording from elsewhere, whose links may lie: there, every
folder on the way is looked at first, and the bare loop lists the folders too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.hosttree import VF_CONFIG, HostTree
from vgpumgr.inventory import take_inventory
from vgpumgr.kernel.port import Kernel
from vgpumgr.kernel.real import RealKernel
from vgpumgr.kernel.recorded import open_recording

BARE_LIMIT = 2.0
FLAT_LIMIT = 1.25
ROUNDS = 40
SMALL, LARGE = 225, 4000


class Trace:
    """A kernel that notes every access, to be repeated by the bare loop."""

    label = "trace"
    writable = False

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.files: list[str] = []
        self.folders: list[str] = []
        self.links = 0

    def read(self, path: str) -> bytes:
        self.files.append(path)
        return self._kernel.read(path)

    def list(self, path: str) -> list[str]:
        self.folders.append(path)
        return self._kernel.list(path)

    def readlink(self, path: str) -> str:
        self.links += 1
        return self._kernel.readlink(path)

    def exists(self, path: str) -> bool:
        return self._kernel.exists(path)


def reading(root: str, paths: list[str]) -> Callable[[], None]:
    """Files opened and read, with nothing made of them."""
    files = [root + path for path in paths if os.path.isfile(root + path)]

    def loop() -> None:
        for path in files:
            with open(path, "rb") as file:
                file.read()

    return loop


def listing(root: str, paths: list[str]) -> Callable[[], None]:
    """Folders opened and read."""
    folders = [root + path for path in paths if os.path.isdir(root + path)]

    def loop() -> None:
        for path in folders:
            os.listdir(path)

    return loop


def compare(*works: Callable[[], object]) -> list[float]:
    """CPU seconds of one run of each: the best of several, taken by turns so that all see the same machine."""
    best = [float("inf")] * len(works)
    for _ in range(ROUNDS):
        for index, work in enumerate(works):
            start = time.process_time()
            work()
            best[index] = min(best[index], time.process_time() - start)
    return best


def vdi_host(root: Path, functions: int) -> HostTree:
    """A host made of the same parts whatever its size: per 25 functions one GPU with 16 VFs and eight others."""
    tree = HostTree(root)
    tree.iommu()
    group = 0
    for index in range(functions // 25):
        domain, bus = divmod(index, 200)
        slot = f"{domain:04x}:{bus + 1:02x}"
        port = f"{domain:04x}:00:{index % 32:02x}.{index // 32 % 8}"
        if not (root / f"sys/bus/pci/devices/{port}").is_symlink():
            tree.function(port, "060400", "8086:347a", "pcieport", group)
        gpu = f"{slot}:00.0"
        tree.function(
            gpu, "030200", "10de:2235", "nvidia", group + 1, parent=port, sriov_totalvfs="16", sriov_numvfs="16"
        )
        for vf in range(16):
            address = f"{slot}:{vf // 8 + 1:02x}.{vf % 8}"
            tree.function(
                address, "030200", "10de:2235", "nvidia", group + 2 + vf, parent=port, physfn=gpu, config=VF_CONFIG
            )
        for other in range(7):
            tree.function(f"{slot}:1f.{other}", "088000", "8086:09a2", None, group + 20 + other // 4, parent=port)
        group += 24
    return tree


class Measured(NamedTuple):
    """CPU seconds for one host: its inventory live and as a recording, the loops over its files and folders."""

    functions: int
    live: float
    recorded: float
    files: float
    folders: float

    @property
    def ratio(self) -> float:
        """The host's own inventory beside the bare loop over the same files."""
        return self.live / self.files

    @property
    def recorded_ratio(self) -> float:
        """The recording's, beside the bare loop over the same files and folders."""
        return self.recorded / (self.files + self.folders)


def measure(name: str, folder: str) -> Measured:
    """Measures one host and prints its line."""
    trace = Trace(RealKernel(folder))
    count = len(take_inventory(trace).functions)
    times = compare(
        lambda: take_inventory(RealKernel(folder)),
        lambda: take_inventory(open_recording(folder)),
        reading(folder, trace.files),
        listing(folder, trace.folders),
    )
    measured = Measured(count, *times)
    opens = (len(trace.files) + len(trace.folders)) / count
    print(
        f"{name}: {count} functions, {len(trace.files)} files read, {len(trace.folders)} folders listed,"
        f" {trace.links} links read: {opens:.2f} opens per function;"
        f" inventory {measured.live * 1e3:.2f} ms, bare loop {measured.files * 1e3:.2f} ms,"
        f" ratio {measured.ratio:.2f}; {measured.live / count * 1e6:.1f} µs per function;"
        f" as a recording {measured.recorded * 1e3:.2f} ms, ratio {measured.recorded_ratio:.2f}"
    )
    return measured


def test_an_inventory_costs_at_most_twice_the_bare_loop_over_the_same_files(recorded: str) -> None:
    measured = measure("vgpu-node-a2", recorded)
    assert measured.ratio <= BARE_LIMIT
    assert measured.recorded_ratio <= BARE_LIMIT


def test_the_cost_per_function_is_flat(tmp_path: Path) -> None:
    ratios = {}
    for size in (SMALL, LARGE):
        vdi_host(tmp_path / str(size), size)
        ratios[size] = measure(f"built host of {size}", str(tmp_path / str(size))).ratio
    # The kernel's own share grows a little as its caches fill; the bare loop shows how much.
    growth = ratios[LARGE] / ratios[SMALL]
    print(f"cost per function at {LARGE}, beside the bare loop's: {growth:.2f} times that at {SMALL}")
    assert growth <= FLAT_LIMIT
