"""NVIDIA's management library: the only importer of ``pynvml``.

:func:`open_nvml` gives the host's :class:`NvmlPort`. Where the library, its driver or a card is missing, the
answer is "not told", never "free" and never an exception.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from ctypes import byref, c_uint
from types import ModuleType
from typing import Any

from vgpumgr.errors import FailedError, Reason
from vgpumgr.kernel.port import Kernel
from vgpumgr.vgpu.mig import GpuInstance
from vgpumgr.vgpu.nvml_port import MigProfile, NvmlCard, NvmlPort, NvmlProfile, Scheduler

_NO_PROFILE = 0xFFFFFFFF
"""What a type that is not MIG-backed has in the place of a GPU instance profile."""
_MOST_INSTANCES = 32
_SHARED_ENGINES = 0
_POLICIES = {1: Scheduler.BEST_EFFORT, 2: Scheduler.EQUAL_SHARE, 3: Scheduler.FIXED_SHARE}
_CODES = {
    3: ("nvml-not-supported", "the card or its driver does not support it"),
    4: ("nvml-no-permission", "only root may"),
    10: ("nvml-timeout", "the driver did not answer in time"),
    15: ("nvml-gpu-lost", "the GPU has fallen off the bus"),
    16: ("nvml-reset-required", "the GPU must be reset first"),
    19: ("nvml-in-use", "the card is in use"),
    23: ("nvml-no-room", "there is no room left on the card"),
    29: ("nvml-invalid-state", "the card is not in a state for it"),
}


def open_nvml(kernel: Kernel) -> NvmlPort:
    """NVML of the host a kernel belongs to: the library for this machine, a simulated one for a simulated kernel,
    none for a recording.
    """
    if kernel.label.startswith("simulated:"):
        from vgpumgr.telemetry.nvml_simulated import simulated_api

        return Nvml(simulated_api(kernel), "simulated NVML")
    if not kernel.writable:
        return NvmlPort()
    try:
        import pynvml
    except ImportError:
        return NvmlPort()
    return _started(pynvml)


def _started(api: ModuleType) -> NvmlPort:
    try:
        api.nvmlInit()
        version = _text(api.nvmlSystemGetDriverVersion())
    except api.NVMLError:
        # No library, no driver, or a driver that does not fit the library.
        return NvmlPort()
    return Nvml(api, f"NVML {version}")


class Nvml(NvmlPort):
    """NVML through a module with pynvml's functions. One call at a time: the library's handles are shared."""

    def __init__(self, api: Any, label: str) -> None:
        self._api = api
        self._label = label
        self._guard = threading.RLock()
        self._types: dict[int, NvmlProfile] = {}

    @property
    def label(self) -> str:
        """See :class:`NvmlPort`."""
        return self._label

    # -- reading --------------------------------------------------------------------------------------
    def card(self, address: str) -> NvmlCard | None:
        """See :class:`NvmlPort`."""
        with self._guard:
            handle = self._handle(address)
            return None if handle is None else self._card(address, handle)

    def _handle(self, address: str) -> Any | None:
        try:
            return self._api.nvmlDeviceGetHandleByPciBusId(address.encode())
        except self._api.NVMLError:
            return None

    def _card(self, address: str, handle: Any) -> NvmlCard:
        mig = self._ask("nvmlDeviceGetMigMode", handle)
        in_mig = bool(mig[0]) if mig is not None else None
        ecc = self._ask("nvmlDeviceGetEccMode", handle)
        mixed = self._mixed_size(handle, bool(in_mig))
        return NvmlCard(
            address=address,
            profiles=tuple(self._profiles(handle, bool(mixed))),
            mixed_size=mixed,
            mig=in_mig,
            mig_pending=bool(mig[1]) if mig is not None else None,
            mig_time_sliced=self._can(handle, "NVML_DEVICE_VGPU_CAP_MIG_TIMESLICING_SUPPORTED"),
            mig_profiles=tuple(self._mig_profiles(handle)) if in_mig is not None else (),
            gpu_instances=tuple(self._gpu_instances(handle)) if in_mig else (),
            scheduler=self._scheduler(handle),
            schedulers=self._schedulers(handle),
            ecc=bool(ecc[0]) if ecc is not None else None,
            ecc_pending=bool(ecc[1]) if ecc is not None else None,
        )

    def _ask(self, name: str, *arguments: Any) -> Any | None:
        """A call's answer; ``None`` where the card, the driver or (an older) library does not know the question."""
        function = getattr(self._api, name, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except self._api.NVMLError:
            return None

    def _can(self, handle: Any, capability: str) -> bool:
        number = getattr(self._api, capability, None)
        return number is not None and bool(self._ask("nvmlDeviceGetVgpuCapabilities", handle, number))

    def _mixed_size(self, handle: Any, in_mig: bool) -> bool | None:
        """A card that can mix sizes does not while it is in MIG mode."""
        if not self._can(handle, "NVML_DEVICE_VGPU_CAP_HETEROGENEOUS_TIMESLICE_SIZES"):
            return None
        if in_mig:
            return False
        mode = self._ask("nvmlDeviceGetVgpuHeterogeneousMode", handle)
        return bool(mode) if mode is not None else None

    def _profiles(self, handle: Any, mixed: bool) -> Iterable[NvmlProfile]:
        for number in self._ask("nvmlDeviceGetSupportedVgpus", handle) or ():
            known = self._types.get(number)
            if known is None:
                known = self._types[number] = self._type(number)
            places = None
            if mixed and known.gpu_instance_profile is None:
                found = self._ask("nvmlDeviceGetVgpuTypeCreatablePlacements", handle, number)
                places = int(found.count) if found is not None else None
            # Unlike the rest, the most that fit is not the type's alone: it is the card's, in the mode it is in.
            most = self._ask("nvmlVgpuTypeGetMaxInstances", handle, number)
            yield known._replace(max_instances=most, places=places)

    def _type(self, number: int) -> NvmlProfile:
        size = self._ask("nvmlVgpuTypeGetFramebufferSize", number)
        resolution = self._ask("nvmlVgpuTypeGetResolution", number)
        instance = self._ask("nvmlVgpuTypeGetGpuInstanceProfileId", number)
        licence = self._ask("nvmlVgpuTypeGetLicense", number)
        return NvmlProfile(
            id=int(number),
            name=_text(self._ask("nvmlVgpuTypeGetName", number) or str(number)),
            framebuffer_mib=size >> 20 if size is not None else None,
            max_per_vm=self._ask("nvmlVgpuTypeGetMaxInstancesPerVm", number),
            max_per_gpu_instance=self._ask("nvmlVgpuTypeGetMaxInstancesPerGpuInstance", number),
            heads=self._ask("nvmlVgpuTypeGetNumDisplayHeads", number),
            max_resolution=f"{resolution[0]}x{resolution[1]}" if resolution is not None else None,
            frame_rate_limit=self._ask("nvmlVgpuTypeGetFrameRateLimit", number),
            licence=_text(licence) if licence is not None else None,
            gpu_instance_profile=None if instance in (None, _NO_PROFILE) else instance,
        )

    def _mig_profiles(self, handle: Any) -> Iterable[MigProfile]:
        for index in range(getattr(self._api, "NVML_GPU_INSTANCE_PROFILE_COUNT", 0)):
            info = self._ask("nvmlDeviceGetGpuInstanceProfileInfo", handle, index)
            if info is None:
                continue
            places = self._places(handle, info.id)
            left = self._ask("nvmlDeviceGetGpuInstanceRemainingCapacity", handle, info.id)
            shape = _shape_of(info)
            size = places[0][1] if places else int(info.sliceCount)
            yield MigProfile(int(info.id), shape, size, tuple(start for start, _ in places), int(left or 0))

    def _places(self, handle: Any, profile: int) -> list[tuple[int, int]]:
        """(start, size) of every place of a GPU instance profile, taken or not; asked twice, as C wants it."""
        count = c_uint(0)
        if self._ask("nvmlDeviceGetGpuInstancePossiblePlacements", handle, profile, None, byref(count)) is None:
            return []
        array = (self._api.c_nvmlGpuInstancePlacement_t * count.value)()
        if self._ask("nvmlDeviceGetGpuInstancePossiblePlacements", handle, profile, array, byref(count)) is None:
            return []
        return sorted((int(item.start), int(item.size)) for item in array[: count.value])

    def _gpu_instances(self, handle: Any) -> Iterable[GpuInstance]:
        shapes = {profile.id: profile.shape for profile in self._mig_profiles(handle)}
        for number in range(_MOST_INSTANCES):
            instance = self._ask("nvmlDeviceGetGpuInstanceById", handle, number)
            info = self._ask("nvmlGpuInstanceGetInfo", instance) if instance is not None else None
            if info is not None:
                shape = shapes.get(int(info.profileId), f"profile {info.profileId}")
                place = info.placement
                yield GpuInstance(int(info.id), int(info.profileId), shape, int(place.start), int(place.size))

    def _scheduler(self, handle: Any) -> Scheduler | None:
        state = self._ask("nvmlDeviceGetVgpuSchedulerState", handle)
        return _POLICIES.get(state.schedulerPolicy) if state is not None else None

    def _schedulers(self, handle: Any) -> tuple[Scheduler, ...]:
        found = self._ask("nvmlDeviceGetVgpuSchedulerCapabilities", handle)
        return tuple(_POLICIES[item] for item in found.supportedSchedulers if item in _POLICIES) if found else ()

    # -- changing -------------------------------------------------------------------------------------
    def set_mig(self, address: str, enabled: bool) -> None:
        """See :class:`NvmlPort`."""
        what = f"turn MIG mode of {address} {'on' if enabled else 'off'}"
        self._change(address, what, lambda handle: self._call("nvmlDeviceSetMigMode", handle, int(enabled)))

    def create_gpu_instance(self, address: str, profile: int, start: int) -> None:
        """See :class:`NvmlPort`."""
        self._change(
            address,
            f"create a GPU instance (profile {profile}) at slice {start} of {address}",
            lambda handle: self._create_instance(handle, profile, start),
        )

    def _create_instance(self, handle: Any, profile: int, start: int) -> None:
        api = self._api
        size = next((size for at, size in self._places(handle, profile) if at == start), 0)
        place = api.c_nvmlGpuInstancePlacement_t(start, size)
        instance = self._call("nvmlDeviceCreateGpuInstanceWithPlacement", handle, profile, byref(place))
        try:
            self._call("nvmlGpuInstanceCreateComputeInstance", instance, self._whole_compute_profile(instance))
        except api.NVMLError:
            self._call("nvmlGpuInstanceDestroy", instance)
            raise

    def _whole_compute_profile(self, instance: Any) -> int:
        """The compute instance profile that takes the whole GPU instance: the one with most slices."""
        found = []
        for index in range(self._api.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
            info = self._ask("nvmlGpuInstanceGetComputeInstanceProfileInfo", instance, index, _SHARED_ENGINES)
            if info is not None:
                found.append((int(info.sliceCount), -index, int(info.id)))
        return max(found)[2] if found else 0

    def destroy_gpu_instance(self, address: str, instance: int) -> None:
        """See :class:`NvmlPort`."""
        what = f"destroy GPU instance {instance} of {address}"
        self._change(address, what, lambda handle: self._destroy_instance(handle, instance))

    def _destroy_instance(self, handle: Any, number: int) -> None:
        instance = self._call("nvmlDeviceGetGpuInstanceById", handle, number)
        for index in range(_MOST_INSTANCES):
            compute = self._ask("nvmlGpuInstanceGetComputeInstanceById", instance, index)
            if compute is not None:
                self._call("nvmlComputeInstanceDestroy", compute)
        self._call("nvmlGpuInstanceDestroy", instance)

    def set_mixed_size(self, address: str, enabled: bool) -> None:
        """See :class:`NvmlPort`."""
        what = f"turn mixed-size mode of {address} {'on' if enabled else 'off'}"
        self._change(
            address, what, lambda handle: self._call("nvmlDeviceSetVgpuHeterogeneousMode", handle, int(enabled))
        )

    def set_scheduler(self, address: str, policy: Scheduler) -> None:
        """See :class:`NvmlPort`."""
        state = self._api.c_nvmlVgpuSchedulerSetState_t()
        state.schedulerPolicy = next(number for number, item in _POLICIES.items() if item is policy)
        what = f"schedule the vGPUs of {address} by {policy}"
        self._change(address, what, lambda handle: self._call("nvmlDeviceSetVgpuSchedulerState", handle, state))

    def set_ecc(self, address: str, enabled: bool) -> None:
        """See :class:`NvmlPort`."""
        what = f"turn error correction of {address} {'on' if enabled else 'off'}"
        self._change(address, what, lambda handle: self._call("nvmlDeviceSetEccMode", handle, int(enabled)))

    def _call(self, name: str, *arguments: Any) -> Any:
        """A call that must be there. Raises NVML's error, or FailedError from a library without it."""
        function = getattr(self._api, name, None)
        if function is None:
            raise FailedError(f"this NVML library has no {name}", hint="update it", code="nvml-not-supported")
        return function(*arguments)

    def _change(self, address: str, what: str, change: Callable[[Any], Any]) -> None:
        with self._guard:
            handle = self._handle(address)
            if handle is None:
                raise FailedError(f"{what}: NVML does not show the card", code="nvml-no-card")
            try:
                change(handle)
            except self._api.NVMLError as error:
                code, why = _CODES.get(error.value, ("nvml-failed", f"NVML answered {error}"))
                reason = Reason(code, f"NVML answered {error} (code {error.value})", (address,))
                raise FailedError(f"{what}: {why}", reasons=[reason], code=code) from error


def _shape_of(info: Any) -> str:
    """``1g.10gb``: as the driver calls it, or, from an older library, by its slices and its memory in whole GB."""
    name = getattr(info, "name", None)
    if name:
        return _text(name).removeprefix("MIG ")
    return f"{info.sliceCount}g.{-(-int(info.memorySizeMB) // 1024)}gb"


def _text(value: str | bytes) -> str:
    """NVML's text: ``str`` from most calls, ``bytes`` from some."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
