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

_UNMET = """
from importlib.metadata import PackageNotFoundError, requires, version
from packaging.requirements import Requirement
for line in requires("vgpumgr") or []:
    need = Requirement(line)
    if need.marker and not need.marker.evaluate({"extra": ""}):
        continue
    try:
        met = need.specifier.contains(version(need.name), prereleases=True)
    except PackageNotFoundError:
        met = False
    if not met:
        print(f"{need.name}{need.specifier}")
"""
"""Prints the requirements of the wheel that the lab's Python does not meet, one a line."""


def build_project(image: Image) -> Path:
    """A folder with ``vgpumgr/``, the virtual environment that goes to ``/opt`` in the lab, and the wheel.

    Python of the lab's own release installs and compiles it here, at full speed. What it needs comes from Debian's
    packages in the image; what they lack, or have too old, from pip.
    """
    recipe = key_of(Path(__file__), image.rootfs.parent.name, *_contents())

    def build(folder: Path) -> None:
        wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*wheel, "--wheel-dir", folder, CHECKOUT], check=True, timeout=300, stdin=subprocess.DEVNULL)
        home = image.rootfs / HOME.lstrip("/")
        shutil.rmtree(home, ignore_errors=True)
        try:
            _in_rootfs(image, "python3", "-m", "venv", "--system-site-packages", "--without-pip", HOME)
            _install(image, folder)
            unmet = _in_rootfs(image, f"{HOME}/bin/python", "-c", _UNMET).split()
            if unmet:
                more = folder / "more"
                _download(unmet, more)
                _install(image, more)
            still = _in_rootfs(image, f"{HOME}/bin/python", "-c", _UNMET).split()
            if still:
                raise RuntimeError(f"the project in the lab lacks {', '.join(still)}")
            shutil.move(home, folder / "vgpumgr")
        finally:
            shutil.rmtree(home, ignore_errors=True)

    return stage("project", recipe, build)


def _install(image: Image, wheels: Path) -> None:
    inbox = image.rootfs / "opt" / "wheels"
    shutil.rmtree(inbox, ignore_errors=True)
    inbox.mkdir()
    try:
        for found in sorted(wheels.glob("*.whl")):
            shutil.copy(found, inbox)
            _in_rootfs(image, f"{HOME}/bin/python", "-m", "installer", f"/opt/wheels/{found.name}")
    finally:
        shutil.rmtree(inbox)


def _download(requirements: list[str], folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version=3.13", "--dest", str(folder), *requirements]
    subprocess.run(command, check=True, timeout=300, stdin=subprocess.DEVNULL)


def install(machine: Machine, project: Path) -> None:
    """Put the project into a machine as docs/operations/install.md says, with the units of its own wheel."""
    # With what Python compiled: the service may not write it there, and would compile everything at each start.
    machine.put(project / "vgpumgr", HOME, leave="*.opt-1.pyc")
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


def _in_rootfs(image: Image, *command: str) -> str:
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
    return done.stdout
