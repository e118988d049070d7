"""The command line: click commands, one file per noun."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """The ``vgpumgr`` program: run one command and exit with the status of DESIGN §6."""
    # Most of a short command is loading modules, which leaves no garbage to look for.
    gc.set_threshold(50_000)
    from vgpumgr.cli.run import run

    sys.exit(run(sys.argv[1:]))
