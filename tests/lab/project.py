"""The project inside the lab: its wheel, installed by the lab's own Python, ready to be copied into a machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.lab.image.build import Image
from tests.lab.image.cache import key_of, stage
from tests.lab.machine import Machine

CHECKOUT = Path(__file__).resolve().parents[2]
HOME = "/opt/vgpumgr"
_SOURCES = ("vgpumgr", "api/vgpumgr_api", "xml_templates", "systemd", "pyproject.toml", "README.md", "LICENSE")
_GUESTS = Path(__file__).parent / "guests"

_CHECK = """
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from packaging.requirements import Requirement
bad = []
for line in requires("vgpumgr") or []:
    need = Requirement(line)
    if need.marker and not need.marker.evaluate({"extra": ""}):
        continue
    try:
        have = version(need.name)
    except PackageNotFoundError:
        have = None
    if have is None or not need.specifier.contains(have, prereleases=True):
        bad.append(f"{need} (there is {have})")
sys.exit("the lab's image lacks: " + ", ".join(bad) if bad else 0)
"""


def build_project(image: Image) -> Path:
    """A folder with ``vgpumgr/``, the virtual environment that goes to ``/opt`` in the lab, and the wheel.

    Python of the lab's own release installs and compiles it here, at full speed; its packages are Debian's.
    """
    recipe = key_of(Path(__file__), image.rootfs.parent.name, image.wheelhouse.name, *_contents())

    def build(folder: Path) -> None:
        wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*wheel, "--wheel-dir", folder, CHECKOUT], check=True, timeout=300, stdin=subprocess.DEVNULL)
        inbox = image.rootfs / "opt" / "wheels"
        home = image.rootfs / HOME.lstrip("/")
        for leftover in (inbox, home):
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            inbox.mkdir()
            for found in (*folder.glob("*.whl"), *image.wheelhouse.glob("*.whl")):
                shutil.copy(found, inbox)
            _in_rootfs(image, "python3", "-m", "venv", "--system-site-packages", "--without-pip", HOME)
            for found in sorted(inbox.iterdir()):
                _in_rootfs(image, f"{HOME}/bin/python", "-m", "installer", f"/opt/wheels/{found.name}")
            _in_rootfs(image, f"{HOME}/bin/python", "-c", _CHECK)
            shutil.move(home, folder / "vgpumgr")
        finally:
            shutil.rmtree(inbox, ignore_errors=True)
            shutil.rmtree(home, ignore_errors=True)

    return stage("project", recipe, build)


def install(machine: Machine, project: Path) -> None:
    """Put the project into a machine as docs/operations/install.md says, with the units of its own wheel."""
    machine.put(project / "vgpumgr", HOME)
    machine.put(_GUESTS, "/etc/vgpumgr/xml_templates")
    machine.ok(
        f"""
        set -e
        units=$({HOME}/bin/python -c 'from vgpumgr.resources import directory; print(directory("systemd"))')
        cp "$units"/*.service "$units"/*.socket /etc/systemd/system/
        mkdir -p /etc/sysusers.d /etc/tmpfiles.d
        cp "$units"/sysusers.d/vgpumgr.conf /etc/sysusers.d/ && systemd-sysusers
        cp "$units"/tmpfiles.d/vgpumgr.conf /etc/tmpfiles.d/
        systemd-tmpfiles --create /etc/tmpfiles.d/vgpumgr.conf
        ln -sf {HOME}/bin/vgpumgr /usr/local/bin/vgpumgr
        systemctl daemon-reload
        systemctl -q enable vgpumgr.socket vgpumgr.service vgpumgr-bind.service
        """
    )


def _contents() -> list[Path]:
    return [CHECKOUT / name for name in _SOURCES]


def _in_rootfs(image: Image, *command: str) -> None:
    done = subprocess.run(
        ["chroot", image.rootfs, *command],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:100]} failed:\n{done.stdout}\n{done.stderr}")
