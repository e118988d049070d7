"""What this project asks of NVIDIA's management library, and what it is told. ``telemetry/nvml.py`` answers.

:class:`NvmlPort` itself is the answer of a host without the library or its driver: it knows no card, and
unknown is never "free".
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from vgpumgr.errors import UnavailableError
from vgpumgr.vgpu.mig import GpuInstance


class Scheduler(StrEnum):
    """Who runs when on a shared GPU. The frame-rate limiter works with best effort only."""

    BEST_EFFORT = "best-effort"
    EQUAL_SHARE = "equal-share"
    FIXED_SHARE = "fixed-share"


class NvmlProfile(NamedTuple):
    """A vGPU type as the driver knows it. ``framebuffer_mib`` in MiB; ``None`` is not told.

    ``gpu_instance_profile`` is the MIG GPU instance profile it belongs to; ``places`` how many places are free
    for it in mixed-size mode.
    """

    id: int
    name: str
    framebuffer_mib: int | None = None
    max_instances: int | None = None
    max_per_vm: int | None = None
    max_per_gpu_instance: int | None = None
    heads: int | None = None
    max_resolution: str | None = None
    frame_rate_limit: int | None = None
    licence: str | None = None
    gpu_instance_profile: int | None = None
    places: int | None = None


class MigProfile(NamedTuple):
    """A GPU instance profile: ``shape`` as ``1g.10gb``; ``starts`` are its places and ``size`` its width, both in
    memory slices; ``remaining`` how many more can be made now.
    """

    id: int
    shape: str
    size: int
    starts: tuple[int, ...]
    remaining: int


class NvmlCard(NamedTuple):
    """What NVML says of one card. ``None`` is "not told", and "not supported" where the field says so."""

    address: str
    profiles: tuple[NvmlProfile, ...] = ()
    mixed_size: bool | None = None
    """Mixed-size mode; ``None`` where the card has none."""
    mig: bool | None = None
    """MIG mode; ``None`` where the card has none."""
    mig_pending: bool | None = None
    mig_time_sliced: bool = False
    mig_profiles: tuple[MigProfile, ...] = ()
    gpu_instances: tuple[GpuInstance, ...] = ()
    scheduler: Scheduler | None = None
    schedulers: tuple[Scheduler, ...] = ()
    """The policies the card supports; none where it cannot be set."""
    ecc: bool | None = None
    """Error correction; ``None`` where the card has none."""
    ecc_pending: bool | None = None


class NvmlPort:
    """NVML of one host, by PCI address. Changing calls raise :class:`FailedError` with a stable code.

    Codes: ``nvml-in-use``, ``nvml-not-supported``, ``nvml-no-permission``, ``nvml-no-room``, ``nvml-failed``.
    """

    @property
    def label(self) -> str:
        """What a person should read: ``absent``, ``NVML 13.590`` or ``simulated NVML``."""
        return "absent"

    def card(self, address: str) -> NvmlCard | None:
        """One card; ``None`` when NVML does not show it (no driver, on VFIO, fallen off the bus)."""
        return None

    def set_mig(self, address: str, enabled: bool) -> None:
        """Turn MIG mode on or off. Some boards need a reset before it counts (``mig_pending``)."""
        raise self._absent()

    def create_gpu_instance(self, address: str, profile: int, start: int) -> None:
        """Make a GPU instance at a place, with a compute instance over all of it."""
        raise self._absent()

    def destroy_gpu_instance(self, address: str, instance: int) -> None:
        """Destroy a GPU instance and its compute instances."""
        raise self._absent()

    def set_mixed_size(self, address: str, enabled: bool) -> None:
        """Turn mixed-size mode on or off; only while no vGPU is on the card."""
        raise self._absent()

    def set_scheduler(self, address: str, policy: Scheduler) -> None:
        """Set the scheduling policy."""
        raise self._absent()

    def set_ecc(self, address: str, enabled: bool) -> None:
        """Turn error correction on or off; it counts after the next reset."""
        raise self._absent()

    def _absent(self) -> UnavailableError:
        return UnavailableError(
            "NVIDIA's management library does not answer on this host",
            hint="install NVIDIA's vGPU host driver and load it",
            code="nvml-absent",
        )
