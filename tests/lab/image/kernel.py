"""The lab's kernel: Debian's own, unpacked, its modules thinned out and the lab's added, ready to boot fast."""

from __future__ import annotations

import lzma
import shutil
import struct
import subprocess
from pathlib import Path

from tests.lab.image.cache import key_of, stage

MODULES_HERE = Path(__file__).parent / "modules"

_UNWANTED = Path(__file__).parent / "lists" / "unwanted-modules"
"""Module folders that no lab machine needs: they would double the image and the time of every depmod."""

_SAMPLES = ("mtty.c", "mdpy.c", "mdpy-fb.c", "mdpy-defs.h", "mbochs.c")


def build_kernel(tools: Path) -> Path:
    """A folder with ``release`` (text), ``vmlinux`` (an ELF that QEMU starts directly) and ``modules/``."""
    recipe = key_of(Path(__file__), _UNWANTED, tools.name)

    def build(folder: Path) -> None:
        debs = tools / "root" / "srv" / "kernel"
        image = _only(debs, "linux-image-*.deb")
        unpacked = folder / "unpacked"
        subprocess.run(["dpkg", "-x", image, unpacked], check=True, timeout=120)
        release = _only(unpacked / "boot", "vmlinuz-*").name.removeprefix("vmlinuz-")
        (folder / "release").write_text(release)
        shutil.copy(unpacked / "boot" / f"vmlinuz-{release}", folder / "vmlinuz")
        (folder / "vmlinux").write_bytes(extract_vmlinux((folder / "vmlinuz").read_bytes()))
        shutil.move(unpacked / "usr" / "lib" / "modules" / release, folder / "modules")
        _thin_out(folder / "modules")
        shutil.rmtree(unpacked)
        _take_samples(_only(debs, "linux-source-*.deb"), folder / "samples")

    return stage("kernel", recipe, build)


def build_drivers(tools: Path, kernel: Path) -> Path:
    """A folder with the lab's own modules and the kernel's sample mdev drivers, as ``.ko`` files."""
    recipe = key_of(kernel.name, MODULES_HERE)

    def build(folder: Path) -> None:
        source = tools / "root" / "root" / "drivers"
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(MODULES_HERE, source)
        for sample in _SAMPLES:
            shutil.copy(kernel / "samples" / sample, source)
        release = (kernel / "release").read_text()
        make = ["make", "-s", "-j2", "-C", f"/usr/src/linux-headers-{release}", "M=/root/drivers", "modules"]
        _in_tree(tools / "root", make)
        for module in source.glob("*.ko"):
            shutil.copy(module, folder)
            subprocess.run(["strip", "--strip-debug", folder / module.name], check=True, timeout=60)
        shutil.rmtree(source)

    return stage("drivers", recipe, build)


def extract_vmlinux(bzimage: bytes) -> bytes:
    """The ELF kernel inside a bzImage: QEMU starts it by its PVH note, which spares emulated decompression.

    The payload's place stands in the header of the Linux/x86 boot protocol; its last word is its unpacked size.
    """
    sectors = bzimage[0x1F1] or 4
    offset, length = struct.unpack_from("<II", bzimage, 0x248)
    start = (sectors + 1) * 512 + offset
    payload = bzimage[start : start + length - 4]
    if payload.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor().decompress(payload)
    if payload.startswith(b"\x28\xb5\x2f\xfd"):
        done = subprocess.run(["zstd", "-dcq"], input=payload, capture_output=True, check=True, timeout=60)
        return done.stdout
    raise RuntimeError(f"the kernel is packed in a way unknown here (starts with {payload[:6]!r})")


def _thin_out(modules: Path) -> None:
    for pattern in _UNWANTED.read_text().split():
        for found in (modules / "kernel").glob(pattern):
            if found.is_dir():
                shutil.rmtree(found)
    packed = sorted((modules / "kernel").rglob("*.ko.xz"))
    for start in range(0, len(packed), 200):
        subprocess.run(["xz", "-dT2", *packed[start : start + 200]], check=True, timeout=300)
    plain = sorted((modules / "kernel").rglob("*.ko"))
    for start in range(0, len(plain), 200):
        subprocess.run(["strip", "--strip-debug", *plain[start : start + 200]], check=True, timeout=300)
    for leftover in ("build", "source"):
        (modules / leftover).unlink(missing_ok=True)


def _take_samples(deb: Path, target: Path) -> None:
    target.mkdir()
    name = deb.name.split("_")[0]
    pipe = (
        f"dpkg-deb --fsys-tarfile {deb} | tar -xO ./usr/src/{name}.tar.xz | xz -dcT2"
        f" | tar -x -C {target} --strip-components=3 --wildcards '*/samples/vfio-mdev/*'"
    )
    subprocess.run(["bash", "-o", "pipefail", "-c", pipe], check=True, timeout=300)


def _in_tree(root: Path, command: list[str]) -> None:
    done = subprocess.run(
        ["chroot", root, *command],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise RuntimeError(f"{folder} should hold exactly one {pattern}, it holds {len(found)}")
    return found[0]
