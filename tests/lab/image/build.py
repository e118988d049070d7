"""From nothing to a bootable image."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.lab.image.assemble import assemble
from tests.lab.image.cache import say
from tests.lab.image.debian import build_trees
from tests.lab.image.kernel import build_drivers, build_kernel
from tests.lab.image.mirrors import find_mirrors

_PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "ssh": "openssh-client",
    "xz": "xz-utils",
    "zstd": "zstd",
    "strip": "binutils",
}
"""Program → Debian package: what the machine that builds the lab must have."""


@dataclass(frozen=True)
class Image:
    """All that a machine is started from. ``qemu_root`` is a Debian tree whose QEMU runs by its own loader."""

    disk: Path
    initrd: Path
    vmlinux: Path
    kernel_release: str
    rootfs: Path
    qemu_root: Path


def build_image() -> Image:
    """Build what the cache lacks. Raises RuntimeError with what to do, subprocess errors with what failed."""
    started = time.monotonic()
    _install_programs()
    rootfs, tools = build_trees(find_mirrors())
    kernel = build_kernel(tools)
    drivers = build_drivers(tools, kernel)
    folder = assemble(rootfs, kernel, drivers)
    say(f"image {folder.name} is ready after {time.monotonic() - started:.0f} s")
    return Image(
        disk=folder / "disk.img",
        initrd=folder / "initrd.img",
        vmlinux=folder / "vmlinux",
        kernel_release=(kernel / "release").read_text(),
        rootfs=rootfs / "root",
        qemu_root=tools / "root",
    )


def _install_programs() -> None:
    missing = [package for program, package in _PROGRAMS.items() if shutil.which(program) is None]
    if os.geteuid() != 0:
        raise RuntimeError("the lab's image is built as root (it unpacks Debian packages); run make lab as root")
    if missing:
        say(f"installing {' '.join(missing)}")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        lock = "-oDPkg::Lock::Timeout=300"
        subprocess.run(["apt-get", "-q", lock, "update"], check=True, timeout=300, stdout=subprocess.DEVNULL)
        install = ["apt-get", "-q", "-y", lock, "install", "--no-install-recommends", *missing]
        subprocess.run(install, check=True, timeout=600, env=environment, stdout=subprocess.DEVNULL)
