"""Loading driver modules on the machine this runs on.

The confined service may not load modules itself (``CAP_SYS_MODULE`` would be the whole machine); it asks systemd,
whose ``modprobe@.service`` does nothing else. Everywhere else ``modprobe`` is called directly.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess

DEADLINE = 60.0
_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
_NAME = re.compile(r"[A-Za-z0-9_:*-]+")
_MAY_LOAD = 1 << 16
"""CAP_SYS_MODULE in the kernel's capability masks."""


def load(name: str) -> None:
    """Load a module by name or by a device's alias. Raises OSError: ENOENT, EPERM, ETIMEDOUT."""
    if not _NAME.fullmatch(name):
        raise OSError(errno.EINVAL, "not the name of a module", name)
    modprobe = shutil.which("modprobe", path=_PATH)
    if modprobe is None:
        raise FileNotFoundError(errno.ENOENT, "modprobe is not installed (Debian package kmod)", name)
    if _may_load():
        _run([modprobe, "--", name], name)
        return
    systemctl = shutil.which("systemctl", path=_PATH)
    if systemctl is None:
        raise PermissionError(errno.EPERM, "loading a module needs root", name)
    _run([systemctl, "start", f"modprobe@{_escaped(name)}.service"], name)


def _may_load() -> bool:
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) & _MAY_LOAD)
    return False


def _escaped(name: str) -> str:
    """As systemd wants a text in a unit's name."""
    keep = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_"
    return "".join(char if char in keep else f"\\x{ord(char):02x}" for char in name)


def _run(command: list[str], name: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    except subprocess.TimeoutExpired:
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), name) from None
    if done.returncode:
        raise FileNotFoundError(errno.ENOENT, done.stderr.strip() or f"{command[0]} failed", name)
