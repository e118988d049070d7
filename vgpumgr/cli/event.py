"""``vgpumgr event``: what happened, and what happens."""

from __future__ import annotations

import json
from contextlib import suppress

import click

from vgpumgr.cli import complete
from vgpumgr.cli.backend import JsonObject, Needs, only, open_backend
from vgpumgr.cli.base import NounGroup, pass_invocation
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.output import dump, emit, note
from vgpumgr.cli.table import Column, table
from vgpumgr.model.event import MAX_ID, EventType

COLUMNS = (Column("ID", right=True), Column("TIME"), Column("TYPE"), Column("SUBJECT"), Column("MESSAGE"))
KEYS = ("id", "time", "type", "subject", "message")
TYPES = tuple(str(item) for item in EventType)

_type = click.option("--type", "kind", type=click.Choice(TYPES), metavar="TYPE", help="Only events of this type.")
_subject = click.option(
    "--subject",
    metavar="ADDRESS|ID",
    shell_complete=complete.subjects,
    help="Only events of this GPU, vGPU or allocation.",
)


@click.command("event", cls=NounGroup, examples="vgpumgr event list\nvgpumgr event follow")
def event() -> None:
    """Events: what happened on this host, and what happens."""


def event_table(events: list[JsonObject], invocation: Invocation) -> str:
    """One line per event, newest first."""
    return table(COLUMNS, [[item[key] for key in KEYS] for item in events], invocation, empty="no events")


@event.verb(
    "list",
    examples="vgpumgr event list --type allocation.failed\nvgpumgr event list --after 120 -o json",
)
@_type
@_subject
@click.option("--after", type=click.IntRange(0, MAX_ID), default=0, help="Only events with a higher id.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@pass_invocation
def list_events(invocation: Invocation, kind: str | None, subject: str | None, after: int, limit: int) -> None:
    """List the events, newest first."""
    with open_backend(invocation, Needs.SERVICE) as backend:
        emit(invocation, backend.events(only({"type": kind, "subject": subject}), after, limit), event_table)


@event.verb(
    "follow",
    examples="vgpumgr event follow --after 120\nvgpumgr event follow --type allocation.failed -o json",
)
@_type
@_subject
@click.option("--after", type=click.IntRange(0, MAX_ID), help="Begin after this id (0: with all that are kept).")
@pass_invocation
def follow(invocation: Invocation, kind: str | None, subject: str | None, after: int | None) -> int:
    """Print events as they happen, until interrupted: a line each, or a JSON object a line.

    When the service goes away, it is waited for, and nothing is missed that happened meanwhile.
    """
    from vgpumgr.cli.run import EXIT_INTERRUPTED

    with open_backend(invocation, Needs.SERVICE) as backend, suppress(KeyboardInterrupt):
        for item in backend.follow(only({"type": kind, "subject": subject}), after, note):
            click.echo(_shown(item, invocation))
    return EXIT_INTERRUPTED


def _shown(item: JsonObject, invocation: Invocation) -> str:
    """One event, as a line where that can be: nobody knows the widths of what is still to come."""
    if invocation.output == "json":
        return json.dumps(item, ensure_ascii=False)
    if invocation.output == "yaml":
        return f"---\n{dump(item, 'yaml')}"
    return "  ".join(str(item[key]) for key in KEYS)
