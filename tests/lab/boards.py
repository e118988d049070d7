"""What stands in the lab's slots: every board, where Linux shows it, and why it is there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

BOOT_DISPLAY = "0000:01:00.0"
"""The VGA card that the firmware used."""
GPU_WITH_AUDIO = "0000:02:00.0"
GPU_AUDIO = "0000:02:00.1"
"""A display device on its driver, with an audio function in the same slot and group."""
VIRTIO_GPU = "0000:03:00.0"
"""A display device that a guest can really draw on, by DMA and interrupts."""
BEHIND_BRIDGE = ("0000:05:01.0", "0000:05:02.0")
"""Display devices on a conventional PCI bus: one group, together with the bridge."""
PLAIN_NVME = "0000:06:00.0"
"""An NVMe controller with virtual functions."""
A40 = "0000:07:00.0"
"""SR-IOV under NVIDIA's ids; its VFs are parents of mediated devices."""
L40S = "0000:08:00.0"
"""SR-IOV under NVIDIA's ids; its VFs are themselves the vGPUs, and only sriov-manage makes them."""
GPU_WITH_DISK = "0000:09:00.0"
DISK_BESIDE_GPU = "0000:09:00.1"
"""A display device whose group holds an NVMe disk."""
T4 = "0000:0a:00.0"
"""Mediated devices on the physical function itself."""
RTX3090 = "0000:0b:00.0"
"""An NVIDIA GPU without vGPU, FLR-capable, on NUMA node 0."""
A100 = "0000:42:00.0"
"""A GPU on NUMA node 1."""
SPARE_SLOT = "spare"
"""The bus name of the empty slot that boards are plugged into while the machine runs."""
SPARE_ADDRESS = "0000:0c:00.0"


@dataclass(frozen=True)
class VfioUserBoard:
    """A GPU played by :mod:`tests.lab.vfio_user`; the ids are hexadecimal text without ``0x``."""

    name: str
    bus: str
    vendor: str
    device: str
    class_id: str
    subsystem: str

    def spec(self, folder: Path) -> str:
        """The server's argument for this board."""
        return f"{self.socket(folder)}={self.vendor}:{self.device}:{self.class_id}:{self.subsystem}"

    def socket(self, folder: Path) -> Path:
        """Where its server listens."""
        return folder / f"{self.name}.sock"

    def qemu_device(self, folder: Path) -> dict[str, object]:
        """QEMU's ``device_add`` arguments."""
        socket = {"type": "unix", "path": str(self.socket(folder))}
        return {"driver": "vfio-user-pci", "bus": self.bus, "id": self.name, "socket": socket}


PLAYED_BOARDS = (
    VfioUserBoard("t4", "rp8", "10de", "1eb8", "030200", "12a2"),
    VfioUserBoard("rtx3090", "rp9", "10de", "2204", "030000", "1467"),
    VfioUserBoard("a100", "far1", "10de", "20b0", "030200", "1450"),
)
HOT_BOARD = VfioUserBoard("hot", SPARE_SLOT, "10de", "2230", "030000", "1459")
"""Plugged in and pulled out by tests."""

_ROOT_PORTS = 11
BESIDE_DISK = "beside.img"
"""File name of the NVMe disk that shares its group with a GPU."""


def qemu_devices(folder: Path) -> list[str]:
    """``-device`` and backend arguments of all boards, in the order in which buses are numbered."""
    arguments = [*_ports(), *_display_boards(folder / BESIDE_DISK), *_sriov_boards()]
    for board in PLAYED_BOARDS:
        arguments += ["-device", json.dumps(board.qemu_device(folder))]
    return arguments


def _ports() -> list[str]:
    out: list[str] = []
    for index in range(_ROOT_PORTS):
        name = SPARE_SLOT if index == _ROOT_PORTS - 1 else f"rp{index}"
        slot, function = 2 + index // 8, index % 8
        first = ",multifunction=on" if function == 0 else ""
        where = f"addr={slot:x}.{function}{first}"
        out += ["-device", f"pcie-root-port,bus=pcie.0,id={name},chassis={index + 1},slot={index + 1},{where}"]
    out += ["-device", "pxb-pcie,id=far,bus=pcie.0,bus_nr=64,numa_node=1,addr=4.0"]
    for index in range(2):
        out += [
            "-device",
            f"pcie-root-port,bus=far,id=far{index},chassis={40 + index},slot={40 + index},addr={index}.0",
        ]
    return out


def _display_boards(beside: Path) -> list[str]:
    return [
        *("-device", "VGA,bus=rp0,addr=0.0"),
        *("-device", "bochs-display,bus=rp1,addr=0.0,multifunction=on"),
        *("-device", "ich9-intel-hda,bus=rp1,addr=0.1"),
        *("-device", "virtio-gpu-pci,bus=rp2,id=screen,disable-legacy=on,iommu_platform=on,xres=640,yres=480"),
        *("-device", "pcie-pci-bridge,id=bridge,bus=rp3"),
        *("-device", "secondary-vga,bus=bridge,addr=1.0"),
        *("-device", "bochs-display,bus=bridge,addr=2.0"),
        *("-device", "bochs-display,bus=rp7,addr=0.0,multifunction=on"),
        *("-drive", f"if=none,id=beside,file={beside},format=raw,cache=unsafe"),
        *("-device", "nvme,bus=rp7,addr=0.1,serial=beside,drive=beside"),
    ]


def _sriov_boards() -> list[str]:
    queues = "max_ioqpairs=26,msix_qsize=33,sriov_vq_flexible=8,sriov_vi_flexible=8"
    out = ["-device", "nvme-subsys,id=nvmes"]
    out += ["-device", f"nvme,bus=rp4,serial=lab0,subsys=nvmes,sriov_max_vfs=4,{queues}"]
    for index, bus in enumerate(("rp5", "rp6")):
        out += ["-netdev", f"user,id=card{index},restrict=on"]
        out += ["-device", f"igb,bus={bus},netdev=card{index},romfile="]
    return out
