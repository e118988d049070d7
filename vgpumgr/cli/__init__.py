"""The command line: click commands, one file per noun."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """The ``vgpumgr`` program: run one command and exit with the status of DESIGN §6."""
    # Most of a short command is loading modules, which leaves no garbage to look for.
    gc.set_threshold(50_000)
    _open_what_is_closed()
    from vgpumgr.cli.run import run

    sys.exit(run(sys.argv[1:]))


def _open_what_is_closed() -> None:
    """A caller may have closed standard streams (``>&-``): the next file opened would get their number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w"))
