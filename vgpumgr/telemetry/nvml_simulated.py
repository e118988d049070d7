"""A simulated NVML: the functions of ``pynvml`` that this project calls, over a simulated kernel's cards.

It shares the cards with the kernel, so what one changes the other shows. It is used for simulated hosts only,
and says so wherever a person looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import Structure, c_uint
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from vgpumgr.kernel.port import Kernel
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.kernel.simulated.card import Card, SimType
from vgpumgr.kernel.simulated.mig import SimInstance, SimMig, SimShape

INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, IN_USE, NO_ROOM = 2, 3, 6, 19, 23
_NO_PROFILE = 0xFFFFFFFF
_SHAPE_INDEX = {"1": 0, "2": 1, "3": 2, "4": 3, "7": 4}
"""Number of compute slices → NVML's index of the GPU instance profile; doubled memory has its own (9)."""
_DOUBLED = 9


class SimulatedNvmlError(Exception):
    """An NVML error; ``value`` is its number."""

    def __init__(self, value: int) -> None:
        super().__init__(f"simulated NVML error {value}")
        self.value = value


class Placement(Structure):
    """``nvmlGpuInstancePlacement_t``."""

    _fields_ = (("start", c_uint), ("size", c_uint))


class SchedulerState(Structure):
    """The part of ``nvmlVgpuSchedulerSetState_t`` that is looked at."""

    _fields_ = (("schedulerPolicy", c_uint), ("enableARRMode", c_uint))


@dataclass(frozen=True)
class _Instance:
    """A handle of a GPU instance, and of the compute instance over all of it."""

    address: str
    number: int


class SimulatedNvml:
    """One simulated host's NVML. Method names are pynvml's."""

    NVMLError = SimulatedNvmlError
    NVML_GPU_INSTANCE_PROFILE_COUNT = 0x12
    NVML_COMPUTE_INSTANCE_PROFILE_COUNT = 9
    NVML_DEVICE_VGPU_CAP_HETEROGENEOUS_TIMESLICE_SIZES = 2
    NVML_DEVICE_VGPU_CAP_MIG_TIMESLICING_SUPPORTED = 10
    c_nvmlGpuInstancePlacement_t = Placement
    c_nvmlVgpuSchedulerSetState_t = SchedulerState

    def __init__(self, kernel: SimulatedKernel) -> None:
        self._kernel = kernel

    @contextmanager
    def _card(self, address: str) -> Iterator[Card]:
        """The card, while nobody else changes it. NVML shows a card only while its own driver has it."""
        with self._kernel.driver_call() as machine:
            card = machine.cards.get(address)
            function = machine.functions.get(address)
            if card is None or function is None or function.driver != "nvidia":
                raise SimulatedNvmlError(NOT_FOUND)
            yield card

    # -- the host -------------------------------------------------------------------------------------
    def nvmlInit(self) -> None:
        """Nothing to start."""

    def nvmlSystemGetDriverVersion(self) -> str:
        """No driver's version."""
        return "simulated"

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: bytes) -> str:
        """The address is the handle."""
        address = bus_id.decode()
        with self._card(address):
            return address

    # -- vGPU types -----------------------------------------------------------------------------------
    def nvmlDeviceGetVgpuCapabilities(self, handle: str, capability: int) -> int:
        """Mixed sizes, and time-sliced MIG."""
        with self._card(handle) as card:
            if capability == self.NVML_DEVICE_VGPU_CAP_HETEROGENEOUS_TIMESLICE_SIZES:
                return int(card.can_mix)
            if capability == self.NVML_DEVICE_VGPU_CAP_MIG_TIMESLICING_SUPPORTED:
                return int(card.mig is not None and card.mig.time_sliced)
            raise SimulatedNvmlError(NOT_SUPPORTED)

    def nvmlDeviceGetSupportedVgpus(self, handle: str) -> list[int]:
        """The numbers of all types of the card."""
        with self._card(handle) as card:
            return [_number(item) for item in card.types]

    def _type(self, number: int) -> tuple[Card, SimType]:
        with self._kernel.driver_call() as machine:
            for card in machine.cards.values():
                for item in card.types:
                    if _number(item) == number:
                        return card, item
        raise SimulatedNvmlError(NOT_FOUND)

    def nvmlVgpuTypeGetName(self, number: int) -> str:
        """The type's name."""
        return self._type(number)[1].name

    def nvmlVgpuTypeGetFramebufferSize(self, number: int) -> int:
        """Bytes."""
        return self._type(number)[1].size << 20

    def nvmlVgpuTypeGetMaxInstances(self, handle: str, number: int) -> int:
        """On one card."""
        return self._type(number)[1].most

    def nvmlVgpuTypeGetMaxInstancesPerVm(self, number: int) -> int:
        """The simulation's driver lets a VM have one of each card."""
        return 1

    def nvmlVgpuTypeGetMaxInstancesPerGpuInstance(self, number: int) -> int:
        """For MIG-backed types."""
        card, item = self._type(number)
        if not item.slices:
            raise SimulatedNvmlError(NOT_SUPPORTED)
        return card.per_instance(item)

    def nvmlVgpuTypeGetGpuInstanceProfileId(self, number: int) -> int:
        """The GPU instance profile of a MIG-backed type."""
        card, item = self._type(number)
        shape = card.mig.shape(item.slices, item.gib) if card.mig is not None and item.slices else None
        return shape.id if shape is not None else _NO_PROFILE

    def _described(self, number: int, key: str) -> str:
        for part in self._type(number)[1].description.split(", "):
            name, _, value = part.partition("=")
            if name == key:
                return value
        raise SimulatedNvmlError(NOT_SUPPORTED)

    def nvmlVgpuTypeGetNumDisplayHeads(self, number: int) -> int:
        """Displays."""
        return int(self._described(number, "num_heads"))

    def nvmlVgpuTypeGetResolution(self, number: int) -> tuple[int, int]:
        """Width and height of the largest display."""
        width, _, height = self._described(number, "max_resolution").partition("x")
        return int(width), int(height)

    def nvmlVgpuTypeGetFrameRateLimit(self, number: int) -> int:
        """Frames per second."""
        return int(self._described(number, "frl_config"))

    def nvmlVgpuTypeGetLicense(self, number: int) -> str:
        """Left to the shipped facts."""
        raise SimulatedNvmlError(NOT_SUPPORTED)

    def nvmlDeviceGetVgpuTypeCreatablePlacements(self, handle: str, number: int) -> SimpleNamespace:
        """The free places of a type in mixed-size mode."""
        with self._card(handle) as card:
            item = next((item for item in card.types if _number(item) == number), None)
            if item is None or not card.mixed:
                raise SimulatedNvmlError(NOT_SUPPORTED)
            return SimpleNamespace(count=len(card.places(item)))

    # -- modes ----------------------------------------------------------------------------------------
    def nvmlDeviceGetVgpuHeterogeneousMode(self, handle: str) -> int:
        """Mixed-size mode."""
        with self._card(handle) as card:
            if not card.can_mix:
                raise SimulatedNvmlError(NOT_SUPPORTED)
            return int(card.mixed)

    def nvmlDeviceSetVgpuHeterogeneousMode(self, handle: str, mode: int) -> None:
        """Refused while a vGPU is on the card."""
        with self._card(handle) as card:
            if not card.can_mix or (card.mig is not None and card.mig.enabled):
                raise SimulatedNvmlError(NOT_SUPPORTED)
            if card.live:
                raise SimulatedNvmlError(IN_USE)
            card.mixed = bool(mode)

    def nvmlDeviceGetVgpuSchedulerState(self, handle: str) -> SimpleNamespace:
        """The policy in force."""
        with self._card(handle) as card:
            return SimpleNamespace(schedulerPolicy=card.scheduler)

    def nvmlDeviceGetVgpuSchedulerCapabilities(self, handle: str) -> SimpleNamespace:
        """All three policies."""
        with self._card(handle):
            return SimpleNamespace(supportedSchedulers=(1, 2, 3))

    def nvmlDeviceSetVgpuSchedulerState(self, handle: str, state: SchedulerState) -> None:
        """Set the policy."""
        with self._card(handle) as card:
            card.scheduler = int(state.schedulerPolicy)

    def nvmlDeviceGetEccMode(self, handle: str) -> list[int]:
        """Now, and after the next reset."""
        with self._card(handle) as card:
            if card.ecc is None:
                raise SimulatedNvmlError(NOT_SUPPORTED)
            return [int(card.ecc), int(bool(card.ecc_pending))]

    def nvmlDeviceSetEccMode(self, handle: str, mode: int) -> None:
        """For after the next reset."""
        with self._card(handle) as card:
            if card.ecc is None:
                raise SimulatedNvmlError(NOT_SUPPORTED)
            card.ecc_pending = bool(mode)

    # -- MIG ------------------------------------------------------------------------------------------
    @contextmanager
    def _mig(self, handle: str) -> Iterator[tuple[Card, SimMig]]:
        with self._card(handle) as card:
            if card.mig is None:
                raise SimulatedNvmlError(NOT_SUPPORTED)
            yield card, card.mig

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        """Now, and after the next reset."""
        with self._mig(handle) as (_, mig):
            return [int(mig.enabled), int(mig.enabled)]

    def nvmlDeviceSetMigMode(self, handle: str, mode: int) -> int:
        """Refused while vGPUs or GPU instances are there; off is refused while VFs are enabled."""
        with self._mig(handle) as (card, mig):
            vfs = self._kernel.machine.functions[handle].vfs
            if card.live or mig.instances or (not mode and vfs):
                raise SimulatedNvmlError(IN_USE)
            mig.enabled = bool(mode)
            return 0

    def nvmlDeviceGetGpuInstanceProfileInfo(self, handle: str, index: int) -> SimpleNamespace:
        """By NVML's index, not by the profile's id."""
        with self._mig(handle) as (_, mig):
            shape = next((shape for shape in mig.shapes if _index(shape, mig) == index), None)
            if shape is None or not mig.enabled:
                raise SimulatedNvmlError(NOT_SUPPORTED)
            return SimpleNamespace(id=shape.id, sliceCount=shape.slices, name=f"MIG {shape.name}".encode())

    def nvmlDeviceGetGpuInstanceRemainingCapacity(self, handle: str, profile: int) -> int:
        """How many more of a profile can be made."""
        with self._mig(handle) as (_, mig):
            return mig.remaining(_shape(mig, profile))

    def nvmlDeviceGetGpuInstancePossiblePlacements(self, handle: str, profile: int, array: Any, count: Any) -> int:
        """Every place of a profile; asked for the count first."""
        with self._mig(handle) as (_, mig):
            shape = _shape(mig, profile)
            count._obj.value = len(shape.starts)
            if array is not None:
                for item, start in zip(array, shape.starts, strict=True):
                    item.start, item.size = start, shape.size
            return 0

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, handle: str, profile: int, place: Any) -> _Instance:
        """Refused where the place is taken."""
        with self._mig(handle) as (_, mig):
            shape, start = _shape(mig, profile), int(place._obj.start)
            if start not in mig.free_starts(shape):
                raise SimulatedNvmlError(NO_ROOM)
            return _Instance(handle, mig.create(shape, start).id)

    def nvmlDeviceGetGpuInstanceById(self, handle: str, number: int) -> _Instance:
        """A handle."""
        with self._mig(handle) as (_, mig):
            if number not in mig.instances:
                raise SimulatedNvmlError(NOT_FOUND)
            return _Instance(handle, number)

    def _instance(self, mig: SimMig, instance: _Instance) -> SimInstance:
        if instance.number not in mig.instances:
            raise SimulatedNvmlError(NOT_FOUND)
        return mig.instances[instance.number]

    def nvmlGpuInstanceGetInfo(self, instance: _Instance) -> SimpleNamespace:
        """Id, profile and place."""
        with self._mig(instance.address) as (_, mig):
            found = self._instance(mig, instance)
            place = SimpleNamespace(start=found.start, size=found.shape.size)
            return SimpleNamespace(id=found.id, profileId=found.shape.id, placement=place)

    def nvmlGpuInstanceDestroy(self, instance: _Instance) -> None:
        """Refused while a vGPU lives in it."""
        with self._mig(instance.address) as (card, mig):
            self._instance(mig, instance)
            if instance.number in card.homes.values():
                raise SimulatedNvmlError(IN_USE)
            del mig.instances[instance.number]

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(
        self, instance: _Instance, index: int, engines: int
    ) -> SimpleNamespace:
        """One profile only: all of the GPU instance."""
        with self._mig(instance.address) as (_, mig):
            if index:
                raise SimulatedNvmlError(NOT_SUPPORTED)
            return SimpleNamespace(id=0, sliceCount=self._instance(mig, instance).shape.slices)

    def nvmlGpuInstanceCreateComputeInstance(self, instance: _Instance, profile: int) -> _Instance:
        """It lives and dies with its GPU instance here."""
        with self._mig(instance.address) as (_, mig):
            self._instance(mig, instance)
            return instance

    def nvmlGpuInstanceGetComputeInstanceById(self, instance: _Instance, number: int) -> _Instance:
        """The one compute instance has the number 0."""
        if number:
            raise SimulatedNvmlError(NOT_FOUND)
        return instance

    def nvmlComputeInstanceDestroy(self, instance: _Instance) -> None:
        """It goes with its GPU instance."""


def simulated_api(kernel: Kernel) -> SimulatedNvml:
    """The simulated NVML of a simulated kernel."""
    if not isinstance(kernel, SimulatedKernel):
        raise TypeError(f"{kernel.label} is no simulated kernel")
    return SimulatedNvml(kernel)


def _number(item: SimType) -> int:
    digits = item.id.removeprefix("nvidia-")
    return int(digits) if digits.isdecimal() else -1


def _index(shape: SimShape, mig: SimMig) -> int:
    first = next(item for item in mig.shapes if item.slices == shape.slices)
    return _SHAPE_INDEX[str(shape.slices)] if shape == first else _DOUBLED


def _shape(mig: SimMig, profile: int) -> SimShape:
    shape = next((shape for shape in mig.shapes if shape.id == profile), None)
    if shape is None or not mig.enabled:
        raise SimulatedNvmlError(INVALID_ARGUMENT if shape is None else NOT_SUPPORTED)
    return shape
