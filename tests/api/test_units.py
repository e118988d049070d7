"""The systemd units: correct, confined, and as the documentation says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from vgpumgr.kernel.modprobe import OWN_FILE

CHECKOUT = Path(__file__).resolve().parents[2]
UNITS = sorted(path for path in (CHECKOUT / "systemd").iterdir() if path.suffix in (".service", ".socket"))
SERVICES = [path for path in UNITS if path.suffix == ".service"]
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")


def settings(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
    )


@needs_systemd
def test_systemd_finds_nothing_to_complain_about() -> None:
    ended = analyze("verify", *UNITS)
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.name)
def test_the_exposure_is_low(unit: Path) -> None:
    overall = re.search(
        r"Overall exposure level for \S+: ([0-9.]+)", analyze("security", "--offline=true", unit).stdout
    )
    assert overall is not None
    assert float(overall[1]) < 3.0


def test_the_service_may_write_to_sys_its_own_folders_and_driver_parameters_only() -> None:
    service = settings(CHECKOUT / "systemd" / "vgpumgr.service")
    assert service["ProtectSystem"] == ["strict"]
    assert service["ProtectKernelTunables"] == ["no"]
    assert service["StateDirectory"] == service["RuntimeDirectory"] == ["vgpumgr"]
    assert service["ReadWritePaths"] == [f"-{OWN_FILE.rpartition('/')[0]}"]


def test_modes_can_be_changed_and_nothing_can_be_mounted() -> None:
    service = settings(CHECKOUT / "systemd" / "vgpumgr.service")
    assert "CAP_SYS_ADMIN" in service["CapabilityBoundingSet"][0].split()
    assert {"@mount", "@module"} <= set(service["SystemCallFilter"][-1].split())
    assert service["RestrictNamespaces"] == service["NoNewPrivileges"] == ["yes"]


def test_the_service_says_when_it_is_ready_and_is_watched() -> None:
    service = settings(CHECKOUT / "systemd" / "vgpumgr.service")
    assert service["Type"] == ["notify"]
    assert int(service["WatchdogSec"][0]) > 0


def test_socket_and_service_can_be_restarted_by_one_command() -> None:
    """systemctl asks for one unit after the other; only in one job with its service can the socket come back."""
    service = settings(CHECKOUT / "systemd" / "vgpumgr.service")
    assert service["PartOf"] == ["vgpumgr.socket"]
    assert "vgpumgr.socket" in " ".join(service["After"]).split()


def test_gpus_are_bound_before_anything_uses_them() -> None:
    bind = settings(CHECKOUT / "systemd" / "vgpumgr-bind.service")
    before = set(" ".join(bind["Before"]).split())
    assert {"libvirtd.service", "virtqemud.service", "display-manager.service", "vgpumgr.service"} <= before
    assert bind["ExecStart"][0].endswith("vgpumgr gpu restore")


def test_the_socket_is_the_one_that_the_command_line_looks_for() -> None:
    from vgpumgr.config import DEFAULT_SOCKET, Config

    socket = settings(CHECKOUT / "systemd" / "vgpumgr.socket")
    assert socket["ListenStream"] == [str(DEFAULT_SOCKET)]
    assert socket["SocketMode"] == ["0660"]
    assert socket["SocketGroup"] == [Config().socket_group]
