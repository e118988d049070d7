"""Profiles, vGPUs and what a card can still be cut into."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from vgpumgr.errors import Reason
from vgpumgr.model.json import JsonObject


class Backend(StrEnum):
    """How slices are made on a GPU, told from what the kernel shows, never from the model's name."""

    MDEV = "mdev"
    VENDOR_VFIO = "vendor-vfio"
    SRIOV = "sriov"


class Profile(NamedTuple):
    """What a slice is. ``creatable`` counts how many more the *card* takes now, over all its VFs.

    ``id`` is the driver's own (``nvidia-558``, ``1147``, ``i915-GVTg_V5_4``); ``framebuffer_mib`` in MiB;
    ``max_resolution`` as ``"7680x4320"``; ``frame_rate_limit`` in frames per second (0: none). Unknown is ``None``.
    """

    id: str
    name: str
    creatable: int
    framebuffer_mib: int | None = None
    max_instances: int | None = None
    series: str | None = None
    heads: int | None = None
    max_resolution: str | None = None
    frame_rate_limit: int | None = None
    max_instances_per_vm: int | None = None
    mig_shape: str | None = None
    licence: str | None = None
    limit: Reason | None = None
    """Why not more of it can be created, when ``creatable`` is below ``max_instances``."""

    def to_json(self) -> JsonObject:
        """The five keys of DESIGN §6 first; the others are additions."""
        return {
            "id": self.id,
            "name": self.name,
            "framebuffer_mib": self.framebuffer_mib,
            "max_instances": self.max_instances,
            "creatable": self.creatable,
            "series": self.series,
            "heads": self.heads,
            "max_resolution": self.max_resolution,
            "frame_rate_limit": self.frame_rate_limit,
            "max_instances_per_vm": self.max_instances_per_vm,
            "mig_shape": self.mig_shape,
            "licence": self.licence,
            "limit": self.limit.to_json() if self.limit else None,
        }


class Vgpu(NamedTuple):
    """One slice in being. ``id`` is an mdev's UUID or a VF's address; ``parent`` the function it lives on.

    ``owner`` is the name of the VM that has it, ``None`` when nobody could be found.
    """

    id: str
    profile_id: str
    profile: str | None
    parent: str
    owner: str | None = None
    iommu_group: int | None = None
    gpu_instance: int | None = None
    """The MIG GPU instance that backs it, where the driver tells."""

    def to_json(self) -> JsonObject:
        """The shape of DESIGN §6, plus ``iommu_group`` and ``gpu_instance``."""
        return {
            "id": self.id,
            "profile_id": self.profile_id,
            "profile": self.profile,
            "parent": self.parent,
            "owner": self.owner,
            "iommu_group": self.iommu_group,
            "gpu_instance": self.gpu_instance,
        }


class VgpuState(NamedTuple):
    """What one card offers and holds. ``backend`` is ``None`` when nothing tells how it could be sliced."""

    capable: bool = False
    backend: Backend | None = None
    profiles: tuple[Profile, ...] = ()
    instances: tuple[Vgpu, ...] = ()
    reasons: tuple[Reason, ...] = ()
    modes: CardModes | None = None
    """MIG, mixed sizes, scheduler and ECC, where NVIDIA's driver was asked and answered."""

    def to_json(self) -> JsonObject:
        """The shape of DESIGN §6, plus ``modes``."""
        return {
            "capable": self.capable,
            "backend": str(self.backend) if self.backend else None,
            "profiles": [profile.to_json() for profile in self.profiles],
            "instances": [instance.to_json() for instance in self.instances],
            "reasons": [reason.to_json() for reason in self.reasons],
            "modes": self.modes.to_json() if self.modes else None,
        }


class ProfileOffer(NamedTuple):
    """How many more vGPUs of one profile fit on this host, in all and on each GPU (address → count)."""

    profile: Profile
    creatable: int
    gpus: tuple[tuple[str, int], ...]

    def to_json(self) -> JsonObject:
        """The profile's keys, with ``creatable`` over the whole host and ``gpus: [{"address", "creatable"}]``."""
        return self.profile.to_json() | {
            "creatable": self.creatable,
            "gpus": [{"address": address, "creatable": count} for address, count in self.gpus],
        }


def limits_frames(scheduler: str | None) -> bool | None:
    """Whether the frame-rate limiter works under a scheduler: with best effort only. ``None`` is not known."""
    return scheduler == "best-effort" if scheduler is not None else None


class VgpuView(NamedTuple):
    """A vGPU as users see it: where it is, and whose. ``ours`` is ``None`` where the store was not asked, and for
    a plain VF that nobody has.

    ``live`` is false for one of ours that is not on the host (a reboot or a driver reload took it).
    """

    vgpu: Vgpu
    gpu: str
    ours: bool | None = None
    allocation_id: str | None = None
    live: bool = True
    params: str | None = None
    """Its plugin parameters as the driver shows them; ``None`` where it has none."""
    frame_rate_limiter: bool | None = None
    """As its parameters have it; ``None``: they say nothing, and the driver decides."""

    def to_json(self) -> JsonObject:
        """The vGPU's keys, with ``gpu`` and what follows it here."""
        return self.vgpu.to_json() | {
            "gpu": self.gpu,
            "ours": self.ours,
            "allocation_id": self.allocation_id,
            "live": self.live,
            "params": self.params,
            "frame_rate_limiter": self.frame_rate_limiter,
        }


class CardModes(NamedTuple):
    """The modes of a card as NVIDIA's driver shows them; ``None`` is "has none" or "not told".

    ``source`` says who told: ``NVML 13.590``, ``simulated NVML``, ``absent``. ``gpu_instances``: (shape, start).
    """

    address: str
    source: str
    mig: bool | None = None
    mig_pending: bool | None = None
    gpu_instances: tuple[tuple[str, int], ...] = ()
    mixed_size: bool | None = None
    scheduler: str | None = None
    schedulers: tuple[str, ...] = ()
    """The policies that can be set at once; none where the driver's parameters are the only way."""
    ecc: bool | None = None
    ecc_pending: bool | None = None
    scheduler_configured: str | None = None
    """The policy that the driver's parameters ask for at its next load; ``None``: nothing is configured."""

    def to_json(self) -> JsonObject:
        """All fields by name; ``gpu_instances`` as ``[{"shape", "start"}]``; and whether the limiter works."""
        return {
            "address": self.address,
            "source": self.source,
            "mig": self.mig,
            "mig_pending": self.mig_pending,
            "gpu_instances": [{"shape": shape, "start": start} for shape, start in self.gpu_instances],
            "mixed_size": self.mixed_size,
            "scheduler": self.scheduler,
            "scheduler_configured": self.scheduler_configured,
            "schedulers": list(self.schedulers),
            "frame_rate_limiter": limits_frames(self.scheduler),
            "ecc": self.ecc,
            "ecc_pending": self.ecc_pending,
        }
