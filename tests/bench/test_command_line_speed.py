"""What a whole ``vgpumgr gpu list`` costs, against the least a click program can cost. Measured side by side.

On this machine as it is, on a recorded host, and on a built one with nine cards that hold vGPUs. What is judged is
CPU time (user and system), so that other work on the machine does not show; the time that passed is printed beside.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from tests.bench.bench_inventory import vdi_host
from vgpumgr.kernel.port import PCI_DEVICES

ROUNDS = 21
AT_MOST = 2.5
PROGRAM = Path(sys.executable).with_name("vgpumgr")
FUNCTIONS = 225
TYPES = "ID    : vGPU Name\n" + "".join(
    f"{number}   : NVIDIA A40-{size}Q\n" for number, size in enumerate((1, 2, 3, 4, 6, 8, 12, 16, 24, 48), 557)
)


class Cost(NamedTuple):
    """Seconds of one run: spent by the processors, and passed."""

    cpu: float
    wall: float


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _run(*command: str) -> Cost:
    cpu, wall = _used(), perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return Cost(_used() - cpu, perf_counter() - wall)


def _ratio(name: str, *options: str) -> float:
    """How many times the cost of importing click a listing has; prints one host's line."""
    click, listing = [], []
    for _ in range(ROUNDS):
        # Turn and turn about, so that a busy moment of the machine hits both.
        click.append(_run(sys.executable, "-c", "import click"))
        listing.append(_run(str(PROGRAM), *options, "gpu", "list"))
    ours, least = (Cost(*map(statistics.median, zip(*runs, strict=True))) for runs in (listing, click))
    print(
        f"\ngpu list, {name}: {ours.cpu * 1e3:.0f} ms of CPU, import click {least.cpu * 1e3:.0f} ms,"
        f" ratio {ours.cpu / least.cpu:.2f} (at most {AT_MOST}; {ours.wall / least.wall:.2f} of time passed)"
    )
    return ours.cpu / least.cpu


def test_gpu_list_costs_little_more_than_importing_click() -> None:
    assert _ratio("this machine") <= AT_MOST


def test_so_it_does_on_a_recorded_host_with_226_functions(recorded: str) -> None:
    assert _ratio("vgpu-node-a2", "--sysfs-root", recorded) <= AT_MOST


def test_so_it_does_on_a_host_with_nine_cards_full_of_vgpus(tmp_path: Path) -> None:
    tree = vdi_host(tmp_path, FUNCTIONS)
    for vf in (tmp_path / PCI_DEVICES.lstrip("/")).glob("*/physfn"):
        place = f"{PCI_DEVICES}/{vf.parent.name}/nvidia"
        tree.files({f"{place}/creatable_vgpu_types": TYPES, f"{place}/current_vgpu_type": "558\n"})
    shown = subprocess.run(
        [PROGRAM, "--sysfs-root", tmp_path, "gpu", "list"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    assert shown.count("16 vGPUs live on the card") == FUNCTIONS // 25
    assert _ratio("nine cards with vGPUs", "--sysfs-root", str(tmp_path)) <= AT_MOST
