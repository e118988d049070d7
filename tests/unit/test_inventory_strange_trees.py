"""Whatever lies under a sysfs root, an inventory comes out of it, never an exception."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vgpumgr.inventory import take_inventory
from vgpumgr.inventory.doctor import diagnose
from vgpumgr.inventory.holders import find_holders
from vgpumgr.inventory.names import NoNames
from vgpumgr.inventory.snapshot import write_snapshot
from vgpumgr.kernel.port import Kernel
from vgpumgr.kernel.real import RealKernel
from vgpumgr.kernel.recorded import RecordedDirectory

ADDRESSES = ["0000:01:00.0", "0000:01:00.1", "0001:d6:00.0", "10000:e1:00.0", "0000:01:00.4", "bad", "0000:01:00.9"]
ATTRIBUTES = [
    *(
        "uevent",
        "class",
        "vendor",
        "device",
        "numa_node",
        "config",
        "resource",
        "boot_vga",
        "reset_method",
        "driver",
    ),
    *(
        "iommu_group",
        "physfn",
        "virtfn0",
        "virtfn1",
        "sriov_totalvfs",
        "sriov_numvfs",
        "aer_dev_fatal",
        "power_state",
    ),
    *(
        "drm",
        "drm/card0/card0-DP-1/status",
        "vfio-dev",
        "vfio-dev/vfio0",
        "sound/card1",
        "consumer:pci:0000:01:00.1",
    ),
    *(
        "current_link_width",
        "max_link_width",
        "current_link_speed",
        "subsystem_vendor",
        "modalias",
        "driver_override",
    ),
]
ELSEWHERE = [
    "sys/kernel/iommu_groups",
    "sys/kernel/iommu_groups/1/devices/0000:01:00.0",
    "sys/kernel/iommu_groups/1/devices/platform-thing/driver",
    "sys/kernel/iommu_groups/one",
    "sys/kernel/iommu_groups/-1/devices",
    "sys/kernel/iommu_groups/1/type",
    "sys/class/iommu/dmar0",
    "sys/class/net/eth0",
    "sys/class/block/sda",
    "sys/class/block/sda/holders/sda",
    "proc/cmdline",
    "proc/iomem",
    "proc/cpuinfo",
    "proc/version",
    "proc/swaps",
    "proc/1/mountinfo",
    "proc/1/fd/0",
    "proc/1/comm",
    "proc/99999999999999999999/fd",
    "proc/driver/nvidia/gpus/0000:01:00.0/information",
    "proc/sys/kernel/hostname",
]
PATHS = [f"sys/bus/pci/devices/{address}/{name}" for address in ADDRESSES for name in ATTRIBUTES] + ELSEWHERE

TEXTS = [
    *(
        "",
        "\n",
        "0",
        "1",
        "-1",
        "99999999999999999999999999",
        "0x030000",
        "0x030200",
        "0x10de",
        "0x120000",
        "(null)",
    ),
    *(
        "030000",
        "0xzzzzzz",
        "16.0 GT/s PCIe",
        "flr bus",
        "connected",
        "vfio-pci",
        "TOTAL_ERR_FATAL x",
        "-",
        " : ",
        ":",
    ),
    "DRIVER=x\nPCI_CLASS=30000\nPCI_ID=10DE:2204\nPCI_SLOT_NAME=0000:01:00.0\n",
    "PCI_CLASS=120000\nPCI_ID=1002:74A5\n",
    "PCI_CLASS=\nPCI_ID=:\n",
    "0x0 0x1 0x200\n0xffffffffffffffff 0x0 0x200\nx y z\n",
    "10-20 : 0000:01:00.0\n  10-18 : efifb\n    : BOOTFB\n",
    "36 35 0:31 / / rw - btrfs /dev/sda rw\nshort\n - \n",
    "Device Minor: \t x\nDevice Minor: 0\n",
    "\ud83d\ude00 \x1b[31m \u0661\u0662",
]
TARGETS = [
    *(".", "..", "/", "uevent", "../../../..", "/etc", "nowhere", "../../../kernel/iommu_groups/1", "x/" * 2000),
    *("../0000:01:00.0", "../0000:01:00.4", "../../../../bus/pci/drivers/nvidia", "../../../kernel/iommu_groups/x"),
    *(
        "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0",
        "/dev/vfio/1",
        "/dev/nvidia0",
        "pci" * 80,
        "drivers/vfio-pci",
    ),
]
CONTENTS = st.one_of(
    st.sampled_from(TEXTS).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=80),
    st.sampled_from([b"\xff" * 64, b"\xff" * 4096, bytes(4096), b"\x00" * 52 + b"\x40" + b"\x40" * 204]),
)
THINGS = st.one_of(
    st.tuples(st.just("file"), CONTENTS),
    st.tuples(st.just("link"), st.sampled_from(TARGETS)),
    st.tuples(st.sampled_from(["folder", "itself", "fifo"]), st.none()),
)
GPUS: list[tuple[str, tuple[str, object]]] = [
    *((f"sys/bus/pci/devices/{address}/class", ("file", b"0x030000\n")) for address in ADDRESSES[:5]),
    *((f"sys/bus/pci/devices/{address}/vendor", ("file", b"0x10de\n")) for address in ADDRESSES[:5]),
    *((f"sys/bus/pci/devices/{address}/driver", ("link", "drivers/vfio-pci")) for address in ADDRESSES[:3]),
    *((f"sys/bus/pci/devices/{address}/iommu_group", ("link", "iommu_groups/1")) for address in ADDRESSES[:4]),
    ("proc/1/fd/1", ("link", "/dev/vfio/1")),
]
"""What is there unless something strange took its place: most of the inventory's code only runs for GPUs."""

HOSTS = st.lists(st.tuples(st.sampled_from(PATHS), THINGS), max_size=25)
FAULTS = st.dictionaries(
    st.sampled_from(PATHS).map(lambda path: f"/{path}"),
    st.sampled_from([errno.EACCES, errno.EIO, errno.ENXIO, errno.ELOOP, errno.ENODEV, errno.EINVAL]),
    max_size=5,
)


def build(root: Path, host: list[tuple[str, tuple[str, object]]]) -> None:
    """Make what can be made, inside the root only; what contradicts an earlier thing is left out."""
    for path, (kind, content) in host:
        place = root / path
        if any(above.is_symlink() for above in (place, *place.parents)) or place.exists():
            continue
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if kind == "file":
                place.write_bytes(content if isinstance(content, bytes) else b"")
            elif kind == "link":
                place.symlink_to(str(content))
            elif kind == "itself":
                place.symlink_to(place.name)
            elif kind == "fifo":
                os.mkfifo(place)
            else:
                place.mkdir()
        except OSError:
            continue


class Faulty:
    """A kernel that fails on some paths."""

    label = "faulty"
    writable = False

    def __init__(self, kernel: Kernel, faults: dict[str, int]) -> None:
        self._kernel = kernel
        self._faults = faults

    def _check(self, path: str) -> None:
        if path in self._faults:
            raise OSError(self._faults[path], os.strerror(self._faults[path]), path)

    def read(self, path: str) -> bytes:
        self._check(path)
        return self._kernel.read(path)

    def list(self, path: str) -> list[str]:
        self._check(path)
        return self._kernel.list(path)

    def readlink(self, path: str) -> str:
        self._check(path)
        return self._kernel.readlink(path)

    def exists(self, path: str) -> bool:
        return path not in self._faults and self._kernel.exists(path)


@pytest.mark.parametrize("kind", ["real", "recorded"])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(host=HOSTS, faults=FAULTS)
def test_any_tree_yields_an_inventory(
    kind: str, host: list[tuple[str, tuple[str, object]]], faults: dict[str, int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        build(root, host + GPUS)
        inner: Kernel = RealKernel(folder) if kind == "real" else RecordedDirectory(folder, root)
        kernel = Faulty(inner, faults)
        inventory = take_inventory(kernel, names=NoNames())
        json.dumps(inventory.to_json(), allow_nan=False).encode("utf-8")
        json.dumps(diagnose(kernel, inventory).to_json()).encode("utf-8")
        find_holders(kernel, ADDRESSES)
        with tempfile.TemporaryFile() as file:
            write_snapshot(kernel, file)


@pytest.mark.parametrize("kind", ["real", "recorded"])
def test_a_tree_of_nothing_yields_an_empty_inventory(tmp_path: Path, kind: str) -> None:
    kernel: Kernel = RealKernel(str(tmp_path)) if kind == "real" else RecordedDirectory("x", tmp_path)
    inventory = take_inventory(kernel)
    assert (inventory.functions, inventory.groups, inventory.gpus) == ((), (), ())
    assert not inventory.iommu.active


def test_the_machine_that_runs_this_is_inventoried() -> None:
    kernel = RealKernel()
    inventory = take_inventory(kernel)
    present = Path("/sys/bus/pci/devices")
    there = {entry.name for entry in present.iterdir()} if present.is_dir() else set()
    assert {function.address for function in inventory.functions} == there
    assert inventory.hostname
    assert inventory.kernel == os.uname().release
    diagnose(kernel, inventory)
