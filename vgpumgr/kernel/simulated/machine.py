"""The simulated machine: a tree that reacts to writes as Linux does."""

from __future__ import annotations

import errno
import os
import queue
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from vgpumgr.address import is_address
from vgpumgr.kernel.modprobe import OWN_FILE
from vgpumgr.kernel.port import KERNEL_LOG, PCI_DEVICES, WRITE_DEADLINE, KernelEvent, Watch
from vgpumgr.kernel.simulated import driver_params, pci, sriov, vgpu, virtual
from vgpumgr.kernel.simulated.card import Card
from vgpumgr.kernel.simulated.device import SimFunction
from vgpumgr.kernel.simulated.faults import Faults, Mishap
from vgpumgr.kernel.tree import Dir, File, Link, Tree, fail

_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]"
_DRIVER_FILE = re.compile(r"/sys/bus/pci/drivers/([^/]+)/(bind|unbind|new_id|remove_id)")
_FUNCTION_FILE = re.compile(rf"/sys/devices/.*/({_ADDRESS})/([^/]+)")
_MDEV_CREATE = re.compile(r"/sys/devices/.*/([^/]+)/mdev_supported_types/([^/]+)/create")
_MDEV_FILE = re.compile(r"/sys/devices/.*/([^/]+)/([0-9a-f-]{36})/(?:nvidia/)?(remove|vgpu_params)")
_TYPED_VF = re.compile(rf"/sys/devices/.*/({_ADDRESS})/nvidia/(current_vgpu_type|vgpu_params)")
_NVIDIA = "/proc/driver/nvidia/gpus"


class _Events:
    """One subscriber's queue."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[KernelEvent | None] = queue.SimpleQueue()

    def poll(self, timeout: float | None) -> KernelEvent | None:
        """See :class:`vgpumgr.kernel.port.Watch`."""
        try:
            return self.queue.get(timeout=timeout)
        except queue.Empty:
            return None

    def wake(self) -> None:
        """See :class:`vgpumgr.kernel.port.Watch`."""
        self.queue.put(None)


class Machine:
    """What all reactions share: the tree, the functions, the drivers, and the events."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.functions: dict[str, SimFunction] = {}
        self.drivers: set[str] = set()
        self.modules: dict[str, tuple[str, ...]] = {}
        """Modules that can be loaded, with the drivers they register."""
        self.cards: dict[str, Card] = {}
        """Cards that can be sliced, by their physical function."""
        self.messages: list[str] = _recorded(tree)
        """What the kernel logged, oldest first."""
        tree.put(KERNEL_LOG, File(self._log))
        self.subscribers: list[_Events] = []
        self._vfio = 0

    def next_vfio(self) -> int:
        """The number of the next VFIO device."""
        self._vfio += 1
        return self._vfio - 1

    def emit(self, action: str, subsystem: str, name: str, properties: dict[str, str]) -> None:
        """Tell every subscriber."""
        for subscriber in self.subscribers:
            subscriber.queue.put(KernelEvent(action, subsystem, name, properties))

    def _log(self) -> bytes:
        """:data:`KERNEL_LOG`: all messages, in its form."""
        return "".join(f"6,{number},0,-;{text}\n" for number, text in enumerate(self.messages)).encode()

    def on_bound(self, function: SimFunction) -> None:
        """A driver took a function: vGPU drivers put their files there, NVIDIA's numbers its GPU."""
        vgpu.on_bound(self, function)
        if function.driver == "nvidia" and function.physfn is None:
            if not self._numbered():
                driver_params.load(self)
            taken = [int(self.tree.read(f"{_NVIDIA}/{name}/information").split()[-1]) for name in self._numbered()]
            minor = next(number for number in range(len(taken) + 1) if number not in taken)
            self.tree.write_text(f"{_NVIDIA}/{function.address}/information", f"Device Minor: \t {minor}")

    def _numbered(self) -> list[str]:
        return self.tree.list(_NVIDIA) if self.tree.exists(_NVIDIA) else []

    def on_unbinding(self, function: SimFunction) -> None:
        """A driver lets go of a function: vGPUs and VFs that it made vanish with it."""
        vgpu.on_unbinding(self, function)
        self.tree.remove(f"{_NVIDIA}/{function.address}")
        if function.vfs and function.sriov is not None:
            sriov.disable(self, function)


class SimulatedKernel:
    """A kernel of the simulation: the port's methods, and a few handles for tests and demos.

    Thread-safe. A write is atomic: nobody reads a half-changed tree.
    """

    def __init__(self, name: str, machine: Machine) -> None:
        self.name = name
        self.machine = machine
        self.write_deadline = WRITE_DEADLINE
        self.faults = Faults()
        self._changed = threading.Condition(threading.RLock())
        self._lost: dict[str, tuple[SimFunction, Dir]] = {}

    @property
    def label(self) -> str:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        return f"simulated:{self.name}"

    @property
    def writable(self) -> bool:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        return True

    def read(self, path: str) -> bytes:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        with self._changed:
            return self.machine.tree.read(path)

    def list(self, path: str) -> list[str]:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        with self._changed:
            return self.machine.tree.list(path)

    def readlink(self, path: str) -> str:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        with self._changed:
            return self.machine.tree.readlink(path)

    def exists(self, path: str) -> bool:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        with self._changed:
            return self.machine.tree.exists(path)

    def write(self, path: str, text: str, *, deadline: float | None = None) -> None:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        end = monotonic() + (self.write_deadline if deadline is None else deadline)
        with self._changed:
            node = self.machine.tree.lookup(path)
            if isinstance(node, Dir):
                fail(errno.EISDIR, path)
            real = self.machine.tree.resolve(path)
            fault = self.faults.next(real, text)
            if fault is not None and fault.mishap is Mishap.FAIL:
                fail(fault.errno, path)
            if fault is not None and fault.mishap is Mishap.IGNORE:
                return
            self._wait(lambda: fault is None and not self._held(real, text), end, path)
            if not self.machine.tree.exists(path):
                fail(errno.ENODEV, path)
            self._react(real, text)
            self._changed.notify_all()

    def _wait(self, free: Callable[[], bool], end: float, path: str) -> None:
        """A write that hangs: until the device is let go, or the caller's deadline."""
        while not free():
            left = end - monotonic()
            if left <= 0 or not self._changed.wait(left):
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), path)

    def _held(self, path: str, text: str) -> bool:
        """Unbinding and removing wait while somebody has the device open."""
        match = _DRIVER_FILE.fullmatch(path)
        name = text.strip() if match and match[2] == "unbind" else ""
        found = _FUNCTION_FILE.fullmatch(path)
        if found and found[2] == "remove":
            name = found[1]
        function = self.machine.functions.get(name)
        return function is not None and bool(function.holders)

    def _react(self, path: str, text: str) -> None:
        machine = self.machine
        if match := _DRIVER_FILE.fullmatch(path):
            self._driver_file(match[1], match[2], text)
        elif path == "/sys/bus/pci/drivers_probe":
            pci.write_probe(machine, text)
        elif path == "/sys/bus/pci/rescan":
            return
        elif match := _MDEV_CREATE.fullmatch(path):
            vgpu.create_mdev(machine, match[1], match[2], text)
        elif match := _MDEV_FILE.fullmatch(path):
            vgpu.write_mdev(machine, match[2], match[3], text)
        elif match := _TYPED_VF.fullmatch(path):
            vgpu.write_typed_vf(machine, match[1], match[2], text)
        elif (match := _FUNCTION_FILE.fullmatch(path)) and match[1] in machine.functions:
            self._function_file(machine.functions[match[1]], match[2], text)
        else:
            self._plain(path, text)

    def _driver_file(self, driver: str, name: str, text: str) -> None:
        if name == "bind":
            pci.write_bind(self.machine, driver, text)
        elif name == "unbind":
            pci.write_unbind(self.machine, driver, text)
        else:
            fail(errno.EPERM, f"{driver}/{name}")  # Matching by vendor and device is never this project's way.

    def _function_file(self, function: SimFunction, name: str, text: str) -> None:
        if name == "driver_override":
            pci.write_override(self.machine, function, text)
        elif name == "sriov_numvfs":
            sriov.write_numvfs(self.machine, function, text)
        elif name == "sriov_drivers_autoprobe":
            sriov.write_autoprobe(self.machine, function, text)
        elif name == "remove":
            pci.remove_function(self.machine, function)
        elif name == "reset":
            return
        else:
            self._plain(f"{function.path}/{name}", text)

    def _plain(self, path: str, text: str) -> None:
        node = self.machine.tree.lookup(path)
        if not isinstance(node, File) or callable(node.content):
            fail(errno.EACCES, path)
        self.machine.tree.put(path, File(text.encode()))

    def load_module(self, name: str) -> None:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        with self._changed:
            key = name.replace("-", "_")
            drivers = self.machine.modules.get(key)
            if drivers is None:
                fail(errno.ENOENT, name)
            self.machine.tree.mkdir(f"/sys/module/{key}/drivers")
            for driver in drivers:
                pci.register_driver(self.machine, driver)
                self.machine.tree.link(f"/sys/module/{key}/drivers/pci:{driver}", f"/sys/bus/pci/drivers/{driver}")

    @contextmanager
    def watch(self) -> Iterator[Watch]:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        events = _Events()
        with self._changed:
            self.machine.subscribers.append(events)
        try:
            yield events
        finally:
            with self._changed:
                self.machine.subscribers.remove(events)

    # -- the vendor's own ways to the driver, past sysfs -----------------------------------------------
    @contextmanager
    def driver_call(self) -> Iterator[Machine]:
        """The machine for one call that goes to a driver directly (NVML, a vendor's tool): nobody else is in it."""
        with self._changed:
            yield self.machine
            self._changed.notify_all()

    def vendor_vfs(self, address: str, enabled: bool) -> None:
        """What ``sriov-manage`` does: rebind the card's driver, then enable all its VFs, or none."""
        with self._changed:
            function = self.machine.functions[address]
            pci.detach(self.machine, function)
            pci.attach(self.machine, function)
            if enabled and function.sriov is not None:
                sriov.enable(self.machine, function, function.sriov.total)
            self._changed.notify_all()

    # -- handles for tests and demos ------------------------------------------------------------------
    def hold(self, address: str, pid: int, name: str) -> None:
        """A process opens the function's VFIO node, or its driver's: a VM started, a program computes."""
        with self._changed:
            function = self.machine.functions[address]
            function.holders.add(pid)
            self.machine.tree.write_text(f"/proc/{pid}/comm", name)
            number = len(self.machine.tree.mkdir(f"/proc/{pid}/fd").entries) + 3
            self.machine.tree.put(f"/proc/{pid}/fd/{number}", Link(self._node(function)))

    def _node(self, function: SimFunction) -> str:
        if function.driver and pci.VFIO_DRIVER.fullmatch(function.driver):
            return f"/dev/vfio/{function.group}"
        vfio = f"{function.path}/vfio-dev"
        if self.machine.tree.exists(vfio):
            return f"/dev/vfio/devices/{self.machine.tree.list(vfio)[0]}"
        information = f"{_NVIDIA}/{function.address}/information"
        if self.machine.tree.exists(information):
            return f"/dev/nvidia{self.machine.tree.read(information).split()[-1].decode()}"
        drm = f"{function.path}/drm"
        if self.machine.tree.exists(drm):
            return f"/dev/dri/{self.machine.tree.list(drm)[0]}"
        return f"/sys/bus/pci/devices/{function.address}/resource0"

    def let_go(self, pid: int) -> None:
        """The process ends: its handles are closed, what waited for them goes on."""
        with self._changed:
            for function in self.machine.functions.values():
                function.holders.discard(pid)
            self.machine.tree.remove(f"/proc/{pid}")
            self._changed.notify_all()

    def lose(self, address: str) -> None:
        """The device is pulled out, falls off the bus, or goes with its driver: no write, no warning."""
        with self._changed:
            function = self.machine.functions[address]
            folder = self.machine.tree.lookup(function.path)
            assert isinstance(folder, Dir)
            self._lost[address] = function, folder
            remove = pci.remove_function if is_address(address) else virtual.remove_parent
            remove(self.machine, function)
            self._changed.notify_all()

    def plug(self, address: str) -> None:
        """A PCI function that was lost is plugged in again, where it was."""
        with self._changed:
            pci.add_function(self.machine, *self._lost.pop(address))
            self._changed.notify_all()

    def reload_driver(self, address: str) -> None:
        """The function's driver is unloaded and loaded again: its VFs and vGPUs are gone."""
        with self._changed:
            function = self.machine.functions[address]
            pci.detach(self.machine, function)
            pci.attach(self.machine, function)

    def reload_module(self, driver: str) -> None:
        """All functions of a driver are taken from it, then given back: it reads its parameters anew."""
        with self._changed:
            mine = [
                item for item in self.machine.functions.values() if item.driver == driver and item.physfn is None
            ]
            for function in mine:
                pci.detach(self.machine, function)
            for function in mine:
                pci.attach(self.machine, function)

    def replace_options(self, text: str) -> None:
        """Our file for modprobe, whole; an empty text removes it."""
        with self._changed:
            fault = self.faults.next(OWN_FILE, text)
            if fault is not None and fault.mishap is Mishap.FAIL:
                fail(fault.errno, OWN_FILE)
            if text:
                self.machine.tree.put(OWN_FILE, File(text.encode("utf-8", "surrogateescape")))
            else:
                self.machine.tree.remove(OWN_FILE)

    def driver(self, address: str) -> str | None:
        """The driver a function is bound to."""
        return self.machine.functions[address].driver


def device_link(machine: Machine, function: SimFunction) -> None:
    """The function's entry under /sys/bus/pci/devices."""
    machine.tree.link(f"{PCI_DEVICES}/{function.address}", function.path)


def _recorded(tree: Tree) -> list[str]:
    """The messages of a recorded host that comes to life."""
    return tree.read(KERNEL_LOG).decode("utf-8", "replace").splitlines() if tree.exists(KERNEL_LOG) else []
