"""What a whole ``vgpumgr gpu list`` costs, against the least a click program can cost. Measured side by side."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter

ROUNDS = 21
AT_MOST = 2.5
PROGRAM = Path(sys.executable).with_name("vgpumgr")


def _seconds(*command: str) -> float:
    start = perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return perf_counter() - start


def test_gpu_list_costs_little_more_than_importing_click() -> None:
    click, listing = [], []
    for _ in range(ROUNDS):
        # Turn and turn about, so that a busy moment of the machine hits both.
        click.append(_seconds(sys.executable, "-c", "import click"))
        listing.append(_seconds(str(PROGRAM), "gpu", "list"))
    ratio = statistics.median(listing) / statistics.median(click)
    print(
        f"\ngpu list: {statistics.median(listing) * 1000:.0f} ms, import click: "
        f"{statistics.median(click) * 1000:.0f} ms, ratio {ratio:.2f} (at most {AT_MOST})"
    )
    assert ratio <= AT_MOST
