"""The one transition table: how an allocation may go on from each state."""

from __future__ import annotations

from vgpumgr.model.allocation import AllocationState as State

TRANSITIONS: dict[State, frozenset[State]] = {
    State.REQUESTED: frozenset({State.RESERVED, State.FAILED}),
    State.RESERVED: frozenset({State.PREPARING, State.RELEASING, State.FAILED}),
    State.PREPARING: frozenset({State.READY, State.FAILED}),
    State.READY: frozenset({State.ATTACHED, State.RELEASING, State.FAILED}),
    State.ATTACHED: frozenset({State.READY, State.RELEASING, State.FAILED}),
    State.RELEASING: frozenset({State.RELEASED, State.FAILED}),
    State.FAILED: frozenset({State.RELEASING}),
    State.RELEASED: frozenset(),
}

LIVE = frozenset(State) - {State.RELEASED, State.FAILED}
"""States of an allocation that a VM can count on."""


def sources(after: State) -> frozenset[State]:
    """The states from which an allocation may become ``after``."""
    return frozenset(before for before, following in TRANSITIONS.items() if after in following)
