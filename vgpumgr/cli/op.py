"""``vgpumgr op``: operations, running and past."""

from __future__ import annotations

import click

from vgpumgr.cli import complete
from vgpumgr.cli.backend import JsonObject, Needs, only, open_backend
from vgpumgr.cli.base import NounGroup, pass_invocation
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.output import emit, error_lines
from vgpumgr.cli.table import Column, facts, table

COLUMNS = (Column("ID"), Column("KIND"), Column("SUBJECT"), Column("STATE", colored=True), Column("STARTED"))
STEP_COLUMNS = (Column("STATE", colored=True), Column("STEP"))
STATES = ("pending", "running", "succeeded", "failed", "stuck")


@click.command("op", cls=NounGroup, examples="vgpumgr op list --state failed\nvgpumgr op show ID")
def op() -> None:
    """Operations: plans being carried out, or carried out earlier."""


def operation_table(operations: list[JsonObject], invocation: Invocation) -> str:
    """One line per operation, newest first."""
    keys = ("id", "kind", "subject", "state", "created_at")
    return table(COLUMNS, [[item[key] for key in keys] for item in operations], invocation, empty="no operations")


def operation_details(item: JsonObject, invocation: Invocation) -> str:
    """An operation with its steps, and what went wrong."""
    head = facts(
        [
            ("operation", item["id"]),
            ("kind", item["kind"]),
            ("subject", item["subject"]),
            ("allocation", item.get("allocation_id")),
            ("state", item["state"]),
            ("started", item["created_at"]),
            ("last change", item["updated_at"]),
        ]
    )
    rows = [
        (step["state"], step["describe"] + (f": {step['error']}" if step["error"] else ""))
        for step in item["steps"]
    ]
    parts = [head, table(STEP_COLUMNS, rows, invocation, empty="no steps")]
    if item.get("error"):
        parts.append("\n".join(error_lines(item["error"])))
    return "\n\n".join(parts)


@op.verb("list", examples="vgpumgr op list\nvgpumgr op list --state failed\nvgpumgr op list --subject 0000:3b:00.0")
@click.option("--state", type=click.Choice(STATES), help="Only operations in this state.")
@click.option(
    "--subject",
    metavar="ADDRESS|ID",
    shell_complete=complete.subjects,
    help="Only operations on this GPU or allocation.",
)
@pass_invocation
def list_operations(invocation: Invocation, state: str | None, subject: str | None) -> None:
    """List the operations, newest first."""
    with open_backend(invocation, Needs.SERVICE) as backend:
        emit(invocation, backend.operations(only({"state": state, "subject": subject})), operation_table)


@op.verb("show", examples="vgpumgr op show ID\nvgpumgr op show ID -o json")
@click.argument("operation_id", metavar="ID", shell_complete=complete.operations)
@pass_invocation
def show(invocation: Invocation, operation_id: str) -> None:
    """Show one operation: its steps, how far it is, what failed, what was undone."""
    with open_backend(invocation, Needs.SERVICE) as backend:
        emit(invocation, backend.operation(operation_id), operation_details)
