"""Two Debian trees: the lab's root file system, and the tools that build its kernel modules and run its QEMU."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab.image.cache import key_of, stage
from tests.lab.image.mirrors import SUITE, Mirrors

_LISTS = Path(__file__).parent / "lists"
ROOTFS_PACKAGES = _LISTS / "rootfs-packages"
"""What the lab's host has: an ordinary libvirt host and the Python packages of the project's wheel."""
TOOLS_PACKAGES = _LISTS / "tools-packages"
"""A compiler fit for Debian's kernel, and a QEMU young enough to have vfio-user and igb."""

_OPTIONS = [
    "--mode=root",
    "--variant=minbase",
    "--format=directory",
    "--components=main",
    "--quiet",
    "--aptopt=APT::Install-Recommends false",
    "--aptopt=Acquire::Retries 3",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=force-unsafe-io",
]
_DOWNLOAD = (
    'set -e; mkdir -p "$1/srv/kernel"; cd "$1/srv/kernel"; version=$(basename "$1"/lib/modules/*); '
    "APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get -q download "
    '"linux-image-$version" "linux-source-$(echo "$version" | cut -d. -f1,2)"'
)
"""The kernel of the very version of those headers, and its source for the sample drivers. Unpacked, not installed:
its installation would make an initial RAM disk that nobody boots."""

_DEADLINE = 900
_STAMP = "1700000000"
"""Seconds: the time that every made file bears, so that the same inputs give the same bytes."""


def build_trees(mirrors: Mirrors) -> tuple[Path, Path]:
    """The root file system and the tools, side by side: each waits mostly for its downloads."""
    with ThreadPoolExecutor(2) as pool:
        rootfs = pool.submit(_tree, "rootfs", ROOTFS_PACKAGES, mirrors.sources(), [])
        hooks = [f"--customize-hook={_DOWNLOAD}"]
        tools = pool.submit(_tree, "tools", TOOLS_PACKAGES, mirrors.sources(backports=True), hooks)
        return rootfs.result(), tools.result()


def _tree(name: str, listed: Path, sources: list[str], hooks: list[str]) -> Path:
    packages = listed.read_text().split()
    key = key_of(" ".join(packages), " ".join(_OPTIONS), " ".join(hooks), SUITE)

    def build(folder: Path) -> None:
        log = folder / "build.log"
        command = ["mmdebstrap", *_OPTIONS, *hooks, f"--include={','.join(packages)}", SUITE, str(folder / "root")]
        with log.open("wb") as out:
            done = subprocess.run(
                [*command, *sources],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=_environment(),
                timeout=_DEADLINE,
                check=False,
            )
        if done.returncode:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise RuntimeError(f"mmdebstrap could not make the {name} tree (whole log: {log}):\n{tail}")

    return stage(name, key, build)


def _environment() -> dict[str, str]:
    return {**os.environ, "SOURCE_DATE_EPOCH": _STAMP, "LC_ALL": "C.UTF-8"}
