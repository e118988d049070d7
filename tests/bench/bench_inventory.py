"""What an inventory costs, as ratios within one run: against a bare loop over the same files, and by size of host.

Run with ``python -m tests.bench.bench_inventory [RECORDING]``; exit status 1 when a ratio is over its limit.
Times are CPU times (user and system), so that other work on the machine does not show.
"""

from __future__ import annotations

import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.hosttree import VF_CONFIG, HostTree
from tests.shared import shared_dir
from vgpumgr.inventory import take_inventory
from vgpumgr.kernel.port import Kernel
from vgpumgr.kernel.recorded import open_recording

BARE_LIMIT = 2.0
FLAT_LIMIT = 1.5
ROUNDS = 25
LARGE = 4000


class Trace:
    """A kernel that notes every access, to be repeated by the bare loop."""

    label = "trace"
    writable = False

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.files: list[str] = []
        self.folders: list[str] = []
        self.links: list[str] = []
        self.looks: list[str] = []

    def read(self, path: str) -> bytes:
        self.files.append(path)
        return self._kernel.read(path)

    def list(self, path: str) -> list[str]:
        self.folders.append(path)
        return self._kernel.list(path)

    def readlink(self, path: str) -> str:
        self.links.append(path)
        return self._kernel.readlink(path)

    def exists(self, path: str) -> bool:
        self.looks.append(path)
        return self._kernel.exists(path)


def bare_loop(root: str, trace: Trace) -> Callable[[], None]:
    """The same files opened and read, folders listed and links read, with nothing made of them."""
    files = [root + path for path in trace.files]
    folders = [root + path for path in trace.folders]
    links = [root + path for path in trace.links]
    looks = [root + path for path in trace.looks]

    def loop() -> None:
        for path in files:
            try:
                with open(path, "rb") as file:
                    file.read()
            except OSError:
                continue
        for path in folders:
            try:
                os.listdir(path)
            except OSError:
                continue
        for path in links:
            try:
                os.readlink(path)
            except OSError:
                continue
        for path in looks:
            os.path.exists(path)

    return loop


def compare(ours: Callable[[], object], bare: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds of one run of each: the best of several, taken by turns so that both see the same machine."""
    best = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for index, work in enumerate((ours, bare)):
            start = time.process_time()
            work()
            best[index] = min(best[index], time.process_time() - start)
    return best[0], best[1]


def vdi_host(root: Path, functions: int) -> None:
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


def measure(name: str, folder: str) -> tuple[float, float, float]:
    """Prints one host's line; returns (µs per function, ratio to the bare loop, opens per function)."""
    kernel = open_recording(folder)
    trace = Trace(kernel)
    count = len(take_inventory(trace).functions)
    ours, bare = compare(lambda: take_inventory(open_recording(folder)), bare_loop(folder, trace))
    opens = (len(trace.files) + len(trace.folders)) / count
    print(
        f"{name}: {count} functions, {len(trace.files)} files read, {len(trace.folders)} folders listed,"
        f" {len(trace.links)} links read: {opens:.2f} opens per function;"
        f" inventory {ours * 1e3:.2f} ms, bare loop {bare * 1e3:.2f} ms, ratio {ours / bare:.2f};"
        f" {ours / count * 1e6:.1f} µs per function"
    )
    return ours / count * 1e6, ours / bare, opens


def recording(scratch: Path, name: str) -> str | None:
    """A recorded host, unpacked."""
    shared = shared_dir()
    found = sorted((shared / "recordings" / name).glob("sysroot*.tar.*")) if shared else []
    if not found:
        return None
    with tarfile.open(found[-1]) as archive:
        archive.extractall(scratch / name)
    return str(scratch / name)


def main() -> int:
    """Measure a recorded host, then hosts of 226 and 4,000 functions of our own making."""
    failures = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = sys.argv[1] if len(sys.argv) > 1 else recording(Path(scratch), "vgpu-node-a2")
        costs = {}
        if folder is not None:
            _, ratio, _ = measure("recorded vgpu-node-a2", folder)
            if ratio > BARE_LIMIT:
                failures.append(f"inventory takes {ratio:.2f} times the bare loop, limit {BARE_LIMIT}")
        for size in (225, LARGE):
            vdi_host(Path(scratch) / str(size), size)
            costs[size], _, _ = measure(f"built host of {size}", str(Path(scratch) / str(size)))
        growth = costs[LARGE] / costs[225]
        print(f"cost per function at {LARGE}: {growth:.2f} times the cost at 225")
        if growth > FLAT_LIMIT:
            failures.append(f"cost per function grows {growth:.2f} times, limit {FLAT_LIMIT}")
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
