"""The host's answer to "how many more of X fit": one row for each profile, over all its GPUs."""

from __future__ import annotations

from collections.abc import Iterable

from vgpumgr.errors import Reason
from vgpumgr.model.host import Gpu
from vgpumgr.model.vgpu import Profile, ProfileOffer


def offers(gpus: Iterable[Gpu]) -> list[ProfileOffer]:
    """Every profile of these GPUs, in the order the GPUs list them, with how many more fit in all and on each.

    GPUs that list a profile and take none of it are in ``gpus`` with 0. Two cards' profiles are the same when
    id and name are.
    """
    found: dict[tuple[str, str], list[tuple[str, Profile]]] = {}
    for gpu in gpus:
        for profile in gpu.vgpu.profiles:
            found.setdefault((profile.id, profile.name), []).append((gpu.address, profile))
    return [_offer(rows) for rows in found.values()]


def silent(gpus: Iterable[Gpu]) -> list[Reason]:
    """Why GPUs that can be sliced list no profile now."""
    return [reason for gpu in gpus if gpu.vgpu.capable and not gpu.vgpu.profiles for reason in gpu.vgpu.reasons]


def _offer(rows: list[tuple[str, Profile]]) -> ProfileOffer:
    counts = tuple((address, profile.creatable) for address, profile in rows)
    return ProfileOffer(rows[0][1], sum(count for _, count in counts), counts)
