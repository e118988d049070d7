"""What is promised on a host, as the store has it: to allocations, and to operations that make vGPUs by hand.

A vGPU has an id as soon as the plan that makes it is in the journal. From then on it is promised by that id, so
that it counts once, as promised or as live, at every moment of its making.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from vgpumgr.allocations.look import Promises
from vgpumgr.allocations.vgpu_steps import RememberVgpu
from vgpumgr.model.records import Reservation
from vgpumgr.store.store import Store

if TYPE_CHECKING:
    from vgpumgr.store.allocations import Claim


class _Named(NamedTuple):
    """A vGPU that has an id. ``owner`` is an allocation or an operation, ``None`` once it is an operator's."""

    owner: str | None
    gpu: str
    vgpu: str
    profile_id: str


def promised(store: Store, but_for: str | None) -> Promises:
    """All promises but those to one allocation or operation, which are no obstacle to itself."""
    # What is to be made is read first: a making that ends meanwhile is then promised twice, and not forgotten.
    claims = store.allocations.claims()
    wanted = [*_claimed(claims), *store.operations.reservations()]
    named = {*_recorded(store), *_being_made(store)}
    vgpus: dict[str, dict[str, str]] = {}
    for item in named:
        if item.owner is None or item.owner != but_for:
            vgpus.setdefault(item.gpu, {})[item.vgpu] = item.profile_id
    having_ids = Counter((item.owner, item.gpu) for item in named)
    pending: dict[str, dict[str, int]] = {}
    for owner, what in wanted:
        nameless = max(what.count - having_ids[owner, what.gpu], 0)
        having_ids[owner, what.gpu] -= what.count - nameless
        if nameless and owner != but_for:
            counts = pending.setdefault(what.gpu, {})
            counts[what.profile_id] = counts.get(what.profile_id, 0) + nameless
    whole = [claim for claim in claims if claim.profile_id is None and claim.allocation_id != but_for]
    gpus = {claim.gpu: claim.allocation_id for claim in whole}
    return Promises(gpus, pending, store.quarantine.all(), vgpus)


def _claimed(claims: Iterable[Claim]) -> Iterator[tuple[str, Reservation]]:
    for claim in claims:
        if claim.profile_id is not None:
            yield claim.allocation_id, Reservation(claim.gpu, claim.profile_id, 1)


def _recorded(store: Store) -> Iterator[_Named]:
    for record in store.vgpus.all():
        yield _Named(record.allocation_id, record.gpu, record.id, record.profile_id)


def _being_made(store: Store) -> Iterator[_Named]:
    """Where a spare place stands in for a bad one, the bad one stays promised as well until the end."""
    for owner, records in store.operations.under_way():
        for record in records:
            if record["kind"] == RememberVgpu.kind:
                yield _Named(owner, record["gpu"], record["places"][0], record["profile_id"])
