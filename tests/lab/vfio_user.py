"""A vfio-user server: PCI devices of any id, played by this process, for QEMU to put into the lab.

``python -m tests.lab.vfio_user SOCKET=VENDOR:DEVICE:CLASS:SUBSYSTEM ...`` (hexadecimal). Each device has a 16 MiB
register BAR, a framebuffer BAR, MSI, and resets by FLR, so that the kernel's VFIO treats it as a real GPU.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import struct
import sys
import threading
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

_HEADER = struct.Struct("<HHIII")
_IS_REPLY, _NO_REPLY, _IS_ERROR = 0x1, 0x10, 0x20
_CONFIG, _REGISTERS, _FRAMEBUFFER, _EXTRA = 7, 0, 1, 3
_READ_WRITE = 0x3
_EOPNOTSUPP = 95
_MIB = 1 << 20
_LIMITS = {"capabilities": {"max_msg_fds": 8, "max_data_xfer_size": _MIB}}


class Command(IntEnum):
    """Messages of the protocol, version 0.0."""

    VERSION = 1
    DMA_MAP = 2
    DMA_UNMAP = 3
    DEVICE_INFO = 4
    REGION_INFO = 5
    REGION_IO_FDS = 6
    IRQ_INFO = 7
    SET_IRQS = 8
    REGION_READ = 9
    REGION_WRITE = 10
    DMA_READ = 11
    DMA_WRITE = 12
    RESET = 13


@dataclass
class Device:
    """One GPU: its configuration space and what was written to its BARs since the last reset."""

    vendor: int
    device: int
    class_id: int
    subsystem: int
    config: bytearray = field(default_factory=bytearray)
    memory: dict[tuple[int, int], int] = field(default_factory=dict)
    sizes: dict[int, int] = field(
        default_factory=lambda: {_REGISTERS: 16 * _MIB, _FRAMEBUFFER: 64 * _MIB, _EXTRA: 32 * _MIB, _CONFIG: 4096}
    )

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Back to how the device comes out of power-on."""
        self.config = self._fresh_config()
        self.memory.clear()

    def read(self, region: int, offset: int, count: int) -> bytes:
        """``count`` bytes of a region; never written memory reads zero."""
        if region == _CONFIG:
            return bytes(self.config[offset : offset + count]).ljust(count, b"\0")
        return bytes(self.memory.get((region, offset + index), 0) for index in range(count))

    def write(self, region: int, offset: int, data: bytes) -> None:
        """Write to a region. A function-level reset asked for in the PCIe capability happens here."""
        if region != _CONFIG:
            for index, value in enumerate(data):
                self.memory[region, offset + index] = value
            return
        for index, value in enumerate(data):
            if _writable(offset + index):
                self.config[offset + index] = value
        if self.config[_DEVICE_CONTROL + 1] & 0x80:
            self.reset()

    def _fresh_config(self) -> bytearray:
        space = bytearray(4096)
        struct.pack_into("<HHHH", space, 0x00, self.vendor, self.device, 0, 0x0010)
        struct.pack_into("<I", space, 0x08, self.class_id << 8 | 0xA1)
        struct.pack_into("<6I", space, 0x10, 0x0, 0xC, 0x0, 0xC, 0x0, 0x0)
        struct.pack_into("<HH", space, 0x2C, self.vendor, self.subsystem)
        space[0x34], space[0x3D] = _POWER, 1
        struct.pack_into("<BBHI", space, _POWER, 0x01, _MSI, 0x0003, 0x0008)
        struct.pack_into("<BBHQI", space, _MSI, 0x05, _EXPRESS, 0x0080, 0, 0)
        struct.pack_into("<BBH", space, _EXPRESS, 0x10, 0x00, 0x0002)
        struct.pack_into("<I", space, _EXPRESS + 0x04, 1 << 28 | 0x8001)
        struct.pack_into("<I", space, _EXPRESS + 0x0C, 0x0D04)
        struct.pack_into("<H", space, _EXPRESS + 0x12, 0x1104)
        return space


_POWER, _MSI, _EXPRESS = 0x60, 0x68, 0x78
_DEVICE_CONTROL = _EXPRESS + 0x08
_COMMAND_REGISTER = (0x04, 0x05)
_INTERRUPT_LINE = 0x3C


def _writable(offset: int) -> bool:
    in_power = _POWER + 4 <= offset < _POWER + 6
    in_msi = _MSI + 2 <= offset < _EXPRESS
    in_control = _DEVICE_CONTROL <= offset < _DEVICE_CONTROL + 2
    return offset in _COMMAND_REGISTER or offset == _INTERRUPT_LINE or in_power or in_msi or in_control


class Session:
    """One connection of QEMU's to one device."""

    def __init__(self, link: socket.socket, device: Device) -> None:
        self._link = link
        self._device = device

    def run(self) -> None:
        """Answer until the other side hangs up."""
        while head := self._receive(_HEADER.size):
            number, command, size, flags, _ = _HEADER.unpack(head)
            body = self._receive(size - _HEADER.size) if size > _HEADER.size else b""
            reply = self._answer(command, body)
            if flags & _NO_REPLY:
                continue
            failed = reply is None
            content = reply or b""
            answer_flags = _IS_REPLY | (_IS_ERROR if failed else 0)
            error = _EOPNOTSUPP if failed else 0
            size = _HEADER.size + len(content)
            self._link.sendall(_HEADER.pack(number, command, size, answer_flags, error) + content)

    def _answer(self, command: int, body: bytes) -> bytes | None:
        device = self._device
        match command:
            case Command.VERSION:
                return struct.pack("<HH", 0, 0) + json.dumps(_LIMITS).encode() + b"\0"
            case Command.DMA_MAP | Command.DMA_UNMAP:
                return body
            case Command.DEVICE_INFO:
                return struct.pack("<4I", 16, 0x3, 9, 5)
            case Command.REGION_INFO:
                region = struct.unpack_from("<3I", body)[2]
                size = device.sizes.get(region, 0)
                return struct.pack("<4IQQ", 32, _READ_WRITE if size else 0, region, 0, size, region << 40)
            case Command.IRQ_INFO:
                return _irq_info(struct.unpack_from("<3I", body)[2])
            case Command.SET_IRQS:
                return b""
            case Command.REGION_READ:
                offset, region, count = struct.unpack_from("<QII", body)
                return body[:16] + device.read(region, offset, count)
            case Command.REGION_WRITE:
                offset, region, count = struct.unpack_from("<QII", body)
                device.write(region, offset, body[16 : 16 + count])
                return body[:16]
            case Command.RESET:
                device.reset()
                return b""
        return None

    def _receive(self, count: int) -> bytes:
        """Exactly ``count`` bytes, or nothing when the other side is gone. File descriptors are closed unused."""
        data = b""
        while len(data) < count:
            part, ancillary, _, _ = self._link.recvmsg(count - len(data), socket.CMSG_SPACE(64))
            for level, kind, content in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    handles = array.array("i")
                    handles.frombytes(content[: len(content) - len(content) % handles.itemsize])
                    for handle in handles:
                        os.close(handle)
            if not part:
                return b""
            data += part
        return data


def _irq_info(index: int) -> bytes:
    flags = {0: 0x7, 1: 0x9, 4: 0x9}.get(index, 0)
    return struct.pack("<4I", 16, flags, index, 1 if flags else 0)


def serve(path: Path, device: Device) -> None:
    """Serve one device on one socket, one connection after the other, for ever."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen(1)
        while True:
            link, _ = door.accept()
            with link:
                try:
                    Session(link, device).run()
                except ConnectionError:
                    continue


def main(arguments: list[str]) -> None:
    """One thread per device."""
    for argument in arguments:
        path, _, spec = argument.partition("=")
        vendor, device, class_id, subsystem = (int(part, 16) for part in spec.split(":"))
        threading.Thread(
            target=serve, args=(Path(path), Device(vendor, device, class_id, subsystem)), daemon=True
        ).start()
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
