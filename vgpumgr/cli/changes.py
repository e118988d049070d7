"""What commands that change a host share: ``--plan``, ``--yes``, the question, progress, and the outcome."""

from __future__ import annotations

import sys

import click

from vgpumgr.cli.backend import Backend, JsonObject
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.output import emit, error_lines, is_interactive, note
from vgpumgr.cli.problems import raise_error
from vgpumgr.errors import EXIT_OK, EXIT_REFUSED, UsageError

PLAN = click.option("--plan", is_flag=True, help="Show what would be done, step by step, and do nothing.")
YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")

FINAL = ("succeeded", "failed", "stuck")
POLL_SECONDS = 0.5
PATIENCE_SECONDS = 30.0
MARKS = {"done": "✓", "skipped": "✓", "failed": "✗", "undone": "↶", "left": "✗"}


def show_plan(invocation: Invocation, plan: JsonObject) -> int:
    """Print a plan; the exit status says whether it could be carried out."""
    emit(invocation, plan, plan_text)
    return EXIT_REFUSED if plan["refusal"] else EXIT_OK


def plan_text(plan: JsonObject, invocation: Invocation) -> str:
    """The steps, numbered, or the refusal with its reasons."""
    if plan["refusal"]:
        return "\n".join(error_lines(plan["refusal"], "refused"))
    lines = [f"warning: {item['message']}" for item in plan.get("warnings", [])]
    if not plan["steps"]:
        return "\n".join([*lines, "nothing to do: the host is already as wanted"])
    for number, step in enumerate(plan["steps"], start=1):
        lines.append(f"{number:>3}. {step['describe']}")
        if step["path"]:
            value = "" if step["value"] is None else f" ← {step['value'].strip() or 'empty'}"
            lines.append(f"     {step['path']}{value}")
    return "\n".join(lines)


def confirm(what: str, yes: bool) -> None:
    """Ask before something that cannot be taken back. Without a terminal only ``--yes`` is an answer."""
    if yes:
        return
    if not is_interactive():
        raise UsageError(
            f"this will {what} and nobody is there to ask", hint="add --yes", code="confirmation-needed"
        )
    click.confirm(f"This will {what}. Go on?", abort=True, err=True)


def carry_out(invocation: Invocation, backend: Backend, operation: JsonObject) -> None:
    """Wait for an operation, show its steps as they finish, print it; raise when it failed."""
    emit(invocation, succeeded(backend, operation), outcome_text)


def succeeded(backend: Backend, operation: JsonObject) -> JsonObject:
    """Wait for an operation and show its steps as they finish; raise when it failed."""
    final = follow(backend, operation)
    if final["state"] != "succeeded":
        raise_error(final.get("error") or {"code": "failed", "message": f"operation {final['id']} failed"})
    return final


def follow(backend: Backend, operation: JsonObject) -> JsonObject:
    """Wait until an operation is final; on a terminal show each step as it ends."""
    watched = sys.stderr.isatty()
    shown = 0
    try:
        while operation["state"] not in FINAL:
            operation = backend.wait(operation["id"], POLL_SECONDS if watched else PATIENCE_SECONDS)
            if watched:
                shown = _show_finished(operation["steps"], shown)
    except KeyboardInterrupt:
        note(f"operation {operation['id']} goes on without you; see: vgpumgr op show {operation['id']}")
        raise
    if watched:
        _show_finished(operation["steps"], shown)
    return operation


def _show_finished(steps: list[JsonObject], shown: int) -> int:
    """Print the steps that ended since the last look; return how many have been printed in all."""
    for step in steps[shown:]:
        if step["state"] not in MARKS:
            break
        note(f"{MARKS[step['state']]} {step['describe']}{_remark(step)}")
        shown += 1
    return shown


def _remark(step: JsonObject) -> str:
    return f": {step['error']}" if step["error"] else ""


def outcome_text(operation: JsonObject, invocation: Invocation) -> str:
    """One line: what was done; and one for each step that went another way than planned."""
    changed = sum(1 for step in operation["steps"] if step["state"] == "done")
    if not changed:
        return f"{operation['kind']} {operation['subject']}: nothing to do, the host was already as wanted"
    remarks = [f"  {step['error']}" for step in operation["steps"] if step["state"] == "done" and step["error"]]
    done = (
        f"{operation['kind']} {operation['subject']}: done, {changed} steps read back (operation {operation['id']})"
    )
    return "\n".join([done, *remarks])
