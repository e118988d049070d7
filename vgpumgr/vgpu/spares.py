"""Sharing out free VFs: one to each vGPU, and what is over as spares for those that turn out bad."""

from __future__ import annotations

from collections.abc import Collection

from vgpumgr.vgpu.port import Room

_MOST_SPARES = 3


def share_out(room: Room, parents: Collection[str], count: int) -> list[tuple[str, tuple[str, ...]]]:
    """``count`` times (VF, spares), no VF twice; all of them are taken from the room. Fewer when fewer are free."""
    free = room.free(parents)
    chosen, over = free[:count], free[count : max(count, len(free) - room.later)]
    room.taken.update(chosen)
    shares = [tuple(over[index::count][:_MOST_SPARES]) for index in range(len(chosen))]
    room.taken.update(spare for share in shares for spare in share)
    return list(zip(chosen, shares, strict=True))


def skipped(meant: str, found: str | None, profile: str) -> str | None:
    """What to tell of a vGPU that another VF took than was meant; ``None`` where there is nothing to tell."""
    if found is None or found == meant:
        return None
    return f"{meant} refused to become a {profile}; {found} took it"
