"""A command that only reads pays for nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.conftest import CHECKOUT

HEAVY = ("flask", "sqlalchemy", "libvirt", "rich", "yaml", "lxml", "pydantic", "http.client", "subprocess")


@pytest.mark.parametrize("arguments", [["gpu", "list"], ["inventory", "-o", "json"], ["group", "list"], ["--help"]])
def test_reading_imports_nothing_heavy(arguments: list[str]) -> None:
    probe = (
        f"import sys; from vgpumgr.cli.run import run; run({arguments!r});"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert ended.stderr.splitlines()[-1] == "[]"
