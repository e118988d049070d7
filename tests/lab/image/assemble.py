"""Puts the stages together: the disk, its initial RAM disk, and what guests boot."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.lab.image.cache import key_of, stage
from tests.lab.image.cpio import Archive
from tests.lab.image.ext4_times import settle_times

HERE = Path(__file__).parent
GUEST_PIXEL = bytes((0x11, 0x22, 0x33, 0xFF))
"""Blue, green, red and filler of the colour that a guest paints its screen with."""
GUEST_WIDTH = 640
"""Pixels in a row of that screen, as the virtio GPU is set up."""
_STAMP = 1700000000
_DISK_FREE_MIB = 700
_DISK_ID = "7b0c7c52-3d2a-4c7c-9f0e-0d4c1ab50001"
_DISK_MODULES = ["virtio_pci", "virtio_blk", "ext4"]
_SCREEN_MODULES = ["virtio_pci", "virtio-gpu"]
_UNITS_OFF = HERE / "lists" / "units-off"
"""Units that cost emulated seconds at every boot and that nothing in the lab needs."""


def assemble(rootfs: Path, kernel: Path, drivers: Path) -> Path:
    """A folder with ``disk.img``, ``initrd.img`` and ``vmlinux``: all that a machine boots from."""
    parts = (
        HERE / "rootfs",
        _UNITS_OFF,
        HERE / "initrd-init",
        HERE / "guest-init",
        HERE / "assemble.py",
        HERE / "cpio.py",
        HERE / "ext4_times.py",
    )
    recipe = key_of(rootfs.name, kernel.name, drivers.name, *parts)

    def build(folder: Path) -> None:
        root = folder / "root"
        subprocess.run(["cp", "-a", rootfs / "root", root], check=True, timeout=300)
        _add_modules(root, kernel, drivers)
        _configure(root)
        release = (kernel / "release").read_text()
        busybox = (root / "usr" / "bin" / "busybox").read_bytes()
        (folder / "initrd.img").write_bytes(_host_initrd(root, release, busybox))
        guest = root / "var" / "lib" / "lab"
        guest.mkdir(parents=True)
        (guest / "initrd.img").write_bytes(_guest_initrd(root, release, busybox))
        shutil.copy(kernel / "vmlinuz", guest / "vmlinuz")
        shutil.copy(kernel / "vmlinux", folder / "vmlinux")
        _make_disk(root, folder / "disk.img")
        shutil.rmtree(root)

    return stage("image", recipe, build)


def _add_modules(root: Path, kernel: Path, drivers: Path) -> None:
    release = (kernel / "release").read_text()
    target = root / "usr" / "lib" / "modules" / release
    target.parent.mkdir(exist_ok=True)
    shutil.copytree(kernel / "modules", target)
    shutil.copytree(drivers, target / "updates")
    subprocess.run(["chroot", root, "depmod", release], check=True, timeout=120)


def _configure(root: Path) -> None:
    shutil.copytree(HERE / "rootfs", root, dirs_exist_ok=True, copy_function=_copy)
    units = root / "etc" / "systemd" / "system"
    for unit in _UNITS_OFF.read_text().split():
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    generators = root / "etc" / "systemd" / "system-generators"
    generators.mkdir()
    for generator in (root / "usr" / "lib" / "systemd" / "system-generators").iterdir():
        (generators / generator.name).symlink_to("/dev/null")
    wants = units / "multi-user.target.wants"
    for unit in ("lab-network.service", "lab-ready.service"):
        (wants / unit).symlink_to(f"/etc/systemd/system/{unit}")
    for key in (root / "etc" / "ssh").glob("ssh_host_*"):
        key.unlink()
    (root / "etc" / "machine-id").write_text("b5e7c0de000000000000000000001ab0\n")
    (root / "etc" / "hostname").write_text("lab\n")
    (root / "etc" / "fstab").write_text("")
    shutil.rmtree(root / "var" / "log" / "journal", ignore_errors=True)


def _copy(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    Path(target).chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def _modules_in_order(root: Path, release: str, wanted: list[str]) -> list[Path]:
    """The module files that ``wanted`` need, in the order in which they load."""
    command = ["chroot", str(root), "modprobe", "-S", release, "-D", "-a", *wanted]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("insmod ")]
    files = [root / words[1].lstrip("/") for words in lines]
    return list(dict.fromkeys(files))


def _add_load_order(archive: Archive, modules: list[Path]) -> None:
    for module in modules:
        archive.file(f"modules/{module.name}", module.read_bytes())
    archive.file("modules/order", "".join(f"{module.name}\n" for module in modules).encode())


def _skeleton(busybox: bytes, root: Path, init: Path) -> Archive:
    archive = Archive()
    for folder in ("dev", "proc", "sys", "root"):
        archive.folder(folder)
    archive.file("bin/busybox", busybox, 0o755)
    listed = subprocess.run(
        ["chroot", root, "busybox", "--list"], check=True, capture_output=True, text=True, timeout=60
    )
    for applet in sorted(set(listed.stdout.split()) - {"busybox"}):
        archive.link(f"bin/{applet}", "busybox")
    archive.file("init", init.read_bytes(), 0o755)
    return archive


def _host_initrd(root: Path, release: str, busybox: bytes) -> bytes:
    archive = _skeleton(busybox, root, HERE / "initrd-init")
    _add_load_order(archive, _modules_in_order(root, release, _DISK_MODULES))
    return archive.packed()


def _guest_initrd(root: Path, release: str, busybox: bytes) -> bytes:
    archive = _skeleton(busybox, root, HERE / "guest-init")
    archive.file("row", GUEST_PIXEL * GUEST_WIDTH)
    _add_load_order(archive, _modules_in_order(root, release, _SCREEN_MODULES))
    return archive.packed()


def _make_disk(root: Path, disk: Path) -> None:
    """An ext4 without journal (it lives one boot), whose ids and times are fixed so that its bytes are."""
    _set_times(root)
    used = subprocess.run(["du", "-sm", root], check=True, capture_output=True, text=True, timeout=60)
    size = int(used.stdout.split()[0]) + _DISK_FREE_MIB
    features = "^has_journal,^metadata_csum,^dir_index,^resize_inode"
    extended = f"lazy_itable_init=1,nodiscard,hash_seed={_DISK_ID}"
    command = ["mke2fs", "-q", "-t", "ext4", "-O", features, "-E", extended, "-U", _DISK_ID, "-m0", "-N", "60000"]
    subprocess.run(
        [*command, "-d", str(root), str(disk), f"{size}M"],
        check=True,
        timeout=300,
        env={**os.environ, "E2FSPROGS_FAKE_TIME": str(_STAMP), "SOURCE_DATE_EPOCH": str(_STAMP)},
    )
    settle_times(disk, _STAMP)


def _set_times(root: Path) -> None:
    """No time later than the stamp. What packages brought keeps its own, and so do Python's sources: a compiled
    module names its source's time, and would count as stale.
    """
    newer = ["find", str(root), "-newermt", f"@{_STAMP}", "-not", "-name", "*.py"]
    subprocess.run([*newer, "-exec", "touch", "-h", "-d", f"@{_STAMP}", "{}", "+"], check=True, timeout=120)
