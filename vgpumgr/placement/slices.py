"""vGPUs: cards that can still take some of a profile, fullest first, so that empty cards stay whole."""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.address import sort_key
from vgpumgr.errors import Reason
from vgpumgr.model.allocation import (
    AllocatedDevice,
    AllocationRequest,
    Candidate,
    DeviceKind,
    GpuRefusal,
    Placement,
)
from vgpumgr.model.host import Gpu, HealthStatus, PassthroughState
from vgpumgr.model.vgpu import Backend, Profile

_KINDS = {Backend.MDEV: DeviceKind.MDEV, Backend.VENDOR_VFIO: DeviceKind.TYPED_VF, Backend.SRIOV: DeviceKind.VF}
_PREFIXES = ("GRID ", "NVIDIA ")
"""Vendor prefixes of profile names that a request may leave out."""


def find_profile(gpu: Gpu, wanted: str) -> Profile | None:
    """A card's profile by id or by name, exactly, the vendor's prefix left out or not."""
    for profile in gpu.vgpu.profiles:
        if wanted in (profile.id, profile.name):
            return profile
    for profile in gpu.vgpu.profiles:
        if wanted in (profile.name.removeprefix(prefix) for prefix in _PREFIXES):
            return profile
    return None


def place_slices(gpus: Sequence[Gpu], request: AllocationRequest) -> Placement:
    """Candidates of ``request.count`` vGPUs each, all on one card where one card can, else over several."""
    wanted = request.profile or ""
    refusals: list[GpuRefusal] = []
    able: list[tuple[Gpu, Profile]] = []
    for gpu in gpus:
        profile = find_profile(gpu, wanted)
        reasons = _why_not(gpu, profile, wanted)
        if profile is None or reasons:
            refusals.append(GpuRefusal(gpu.address, gpu.name, reasons))
        else:
            able.append((gpu, profile))
    able.sort(key=lambda pair: (-_score(*pair), sort_key(pair[0].address)))
    alone = [
        _candidate([(gpu, profile, request.count)]) for gpu, profile in able if profile.creatable >= request.count
    ]
    if alone:
        return Placement(tuple(alone), tuple(refusals))
    spread = _spread(able, request.count)
    if spread is not None:
        return Placement((spread,), tuple(refusals))
    total = sum(profile.creatable for _, profile in able)
    return Placement((), (*refusals, *(_too_few(gpu, total, request.count) for gpu, _ in able)))


def _why_not(gpu: Gpu, profile: Profile | None, wanted: str) -> tuple[Reason, ...]:
    name = gpu.address
    if gpu.passthrough.state is PassthroughState.FAILED or gpu.health.status is HealthStatus.FAILED:
        return tuple(reason for reason in gpu.passthrough.reasons if reason.code == "failed") or (
            Reason("failed", f"{name} does not work", (name,)),
        )
    if gpu.passthrough.state is PassthroughState.RESERVED:
        return (Reason("reserved", f"{name} is promised to an allocation as a whole", (name,)),)
    if profile is None:
        return (*gpu.vgpu.reasons, Reason("profile-unknown", f"{name} offers no profile {wanted!r}", (name,)))
    if profile.creatable < 1:
        limit = profile.limit or Reason("no-capacity", f"{name} takes no more {profile.name}", (name,))
        return (limit,)
    return ()


def _too_few(gpu: Gpu, total: int, wanted: int) -> GpuRefusal:
    reason = Reason("too-few", f"{wanted} vGPUs were asked for, and {total} more fit on the host", (gpu.address,))
    return GpuRefusal(gpu.address, gpu.name, (reason,))


def _score(gpu: Gpu, profile: Profile) -> int:
    """A card that is cut already before one that is whole; a fuller one before an emptier one."""
    most = profile.max_instances or profile.creatable
    return (50 if gpu.vgpu.instances else 0) + 50 - 50 * min(profile.creatable, most) // max(most, 1)


def _spread(able: Sequence[tuple[Gpu, Profile]], count: int) -> Candidate | None:
    shares, left = [], count
    for gpu, profile in able:
        share = min(left, profile.creatable)
        shares.append((gpu, profile, share))
        left -= share
        if left == 0:
            return _candidate(shares)
    return None


def _candidate(shares: Sequence[tuple[Gpu, Profile, int]]) -> Candidate:
    devices = tuple(_device(gpu, profile) for gpu, profile, share in shares for _ in range(share))
    notes = tuple(f"{gpu.address}: {profile.creatable} more {profile.name} fit" for gpu, profile, _ in shares)
    return Candidate(devices, min(_score(gpu, profile) for gpu, profile, _ in shares), notes)


def _device(gpu: Gpu, profile: Profile) -> AllocatedDevice:
    kind = _KINDS.get(gpu.vgpu.backend, DeviceKind.MDEV) if gpu.vgpu.backend else DeviceKind.MDEV
    return AllocatedDevice(kind, gpu.address, None, profile.id, profile.name)
