"""``vgpumgr candidates``: what could satisfy a request, and why the rest does not."""

from __future__ import annotations

import click

from vgpumgr.cli.backend import JsonObject, Needs, open_backend, reasons_of
from vgpumgr.cli.base import VerbCommand, pass_invocation
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.output import emit
from vgpumgr.cli.request import request_from, request_options
from vgpumgr.cli.table import Column, table
from vgpumgr.errors import EXIT_OK, EXIT_REFUSED

COLUMNS = (Column("SCORE", right=True), Column("DEVICES"), Column("NOTES"))
REFUSAL_COLUMNS = (Column("GPU"), Column("NAME"), Column("WHY NOT"))


def device_text(device: JsonObject) -> str:
    """One allocated or offered device in a few words."""
    what = device["profile"] or device["profile_id"] or "whole GPU"
    handle = f" {device['handle']}" if device["handle"] and device["handle"] != device["gpu"] else ""
    companions = f" with {', '.join(device['companions'])}" if device["companions"] else ""
    return f"{what}{handle} on {device['gpu']}{companions}"


def placement_text(placement: JsonObject, invocation: Invocation) -> str:
    """Candidates, best first; below them the GPUs that were passed over."""
    rows = [
        (item["score"], "; ".join(device_text(device) for device in item["devices"]), "; ".join(item["notes"]))
        for item in placement["candidates"]
    ]
    parts = [table(COLUMNS, rows, invocation, empty="nothing on this host satisfies the request")]
    if placement["refusals"]:
        refused = [(item["gpu"], item["name"], reasons_of(item["reasons"])) for item in placement["refusals"]]
        parts.append(table(REFUSAL_COLUMNS, refused, invocation))
    return "\n\n".join(parts)


@click.command(
    "candidates",
    cls=VerbCommand,
    examples="""
        vgpumgr candidates
        vgpumgr candidates --profile "NVIDIA A40-8Q" --count 2
        vgpumgr --simulate vdi-a40 candidates --numa-node 1 -o json
    """,
)
@request_options(vm_required=False)
@pass_invocation
def candidates(invocation: Invocation, **wanted: str | int | None) -> int:
    """Show ways to satisfy a request, best first, and why other GPUs do not. Exit status 3 when nothing fits."""
    with open_backend(invocation, Needs.READING) as backend:
        placement = backend.candidates(request_from(wanted))
    emit(invocation, placement, placement_text)
    return EXIT_OK if placement["candidates"] else EXIT_REFUSED
