"""A command pays for what it needs and for nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import CHECKOUT
from tests.hosttree import HostTree

HEAVY = ("flask", "sqlalchemy", "libvirt", "rich", "yaml", "lxml", "pydantic", "http.client", "subprocess")
NOT_TO_READ = (*HEAVY, "dataclasses", "logging", "tomllib", "tarfile", "vgpumgr.vgpu.nvml_port")
"""Beside what is heavy: what costs more than it is worth to a command of some tens of milliseconds."""
NOT_AT_BOOT = ("flask", "pydantic", "libvirt", "lxml", "alembic", "vgpumgr.telemetry.nvml")
CARD, VF = "0000:3b:00.0", "0000:3b:00.4"


def imported(arguments: list[str], names: tuple[str, ...]) -> str:
    """Which of ``names`` a command line imports, as text."""
    probe = (
        f"import sys; from vgpumgr.cli.run import run; run({arguments!r});"
        f"print([name for name in {names!r} if name in sys.modules], file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    return ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments", [["gpu", "list"], ["vgpu", "list"], ["inventory", "-o", "json"], ["group", "list"], ["--help"]]
)
def test_reading_imports_nothing_heavy(arguments: list[str]) -> None:
    assert imported(arguments, HEAVY) == "[]"


def test_nor_does_reading_a_card_full_of_vgpus(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.function(CARD, "030200", "10de:2235", "nvidia", 1, sriov_totalvfs="1", sriov_numvfs="1")
    place = tree.function(VF, "030200", "10de:2235", "nvidia", 2, physfn=CARD)
    tree.files({f"{place}/nvidia/creatable_vgpu_types": "", f"{place}/nvidia/current_vgpu_type": "558\n"})
    assert imported(["--sysfs-root", str(tmp_path), "gpu", "list"], NOT_TO_READ) == "[]"


def test_binding_again_at_boot_asks_neither_libvirt_nor_nvidia() -> None:
    assert imported(["--simulate", "vdi-a40", "gpu", "restore"], NOT_AT_BOOT) == "[]"
