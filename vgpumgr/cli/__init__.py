"""The command line: click commands, one file per noun."""

from __future__ import annotations

import sys


def main() -> None:
    """The ``vgpumgr`` program: run one command and exit with the status of DESIGN §6."""
    from vgpumgr.cli.run import run

    sys.exit(run(sys.argv[1:]))
