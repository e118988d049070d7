"""Runs the command line, in this process and as a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from vgpumgr.cli.run import run

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ended:
    """How a command line ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Vgpumgr = Callable[..., Ended]


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting, socket or colour of the machine the tests run on gets in."""
    for name in [*os.environ]:
        if name.startswith("VGPUMGR_") and name != "VGPUMGR_SHARED":
            monkeypatch.delenv(name)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("VGPUMGR_SOCKET", str(tmp_path / "no-service.sock"))


@pytest.fixture
def vgpumgr(capfd: pytest.CaptureFixture[str]) -> Vgpumgr:
    """``vgpumgr("gpu", "list")`` in this process."""

    def call(*arguments: object) -> Ended:
        capfd.readouterr()
        status = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ended(status, out, err)

    return call


@pytest.fixture
def program() -> Vgpumgr:
    """``program("gpu", "list")`` as a process of its own; ``feed`` is its standard input."""

    def call(*arguments: object, feed: str = "", **environment: str) -> Ended:
        ended = subprocess.run(
            [sys.executable, "-m", "vgpumgr.cli", *map(str, arguments)],
            input=feed,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'api'}", **environment},
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return call
