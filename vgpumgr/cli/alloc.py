"""``vgpumgr alloc``: GPUs and vGPUs granted to VMs."""

from __future__ import annotations

import click

from vgpumgr.cli import complete
from vgpumgr.cli.backend import JsonObject, Needs, only, open_backend
from vgpumgr.cli.base import NounGroup, pass_invocation
from vgpumgr.cli.candidates import device_text
from vgpumgr.cli.changes import PLAN, YES, confirm, follow, show_plan
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.output import emit, error_lines
from vgpumgr.cli.problems import raise_error
from vgpumgr.cli.request import request_from, request_options
from vgpumgr.cli.shape import shape_from, shape_options
from vgpumgr.cli.table import Column, facts, table
from vgpumgr.errors import EXIT_OK

COLUMNS = (
    Column("ID"),
    Column("VM"),
    Column("TENANT"),
    Column("STATE", colored=True),
    Column("DEVICES"),
)
STATES = ("requested", "reserved", "preparing", "ready", "attached", "releasing", "released", "failed")


@click.command(
    "alloc",
    cls=NounGroup,
    examples='vgpumgr alloc create --vm desk-17 --profile "NVIDIA A40-8Q"\nvgpumgr alloc list',
)
def alloc() -> None:
    """Allocations: give GPUs or vGPUs to a VM, and take them back."""


def allocation_table(allocations: list[JsonObject], invocation: Invocation) -> str:
    """One line per allocation, newest first."""
    rows = [
        (
            item["id"],
            item["vm"],
            item["tenant"],
            item["state"] + (", device missing" if item["warnings"] else ""),
            "; ".join(device_text(device) for device in item["devices"]),
        )
        for item in allocations
    ]
    return table(COLUMNS, rows, invocation, empty="no allocations")


def allocation_details(item: JsonObject, invocation: Invocation) -> str:
    """Everything about one allocation."""
    text = facts(
        [
            ("allocation", item["id"]),
            ("VM", item["vm"]),
            ("tenant", item["tenant"]),
            ("state", item["state"]),
            *(("device", device_text(device)) for device in item["devices"]),
            ("domain", item["domain_uuid"]),
            ("operation", item["operation_id"]),
            ("created", item["created_at"]),
            ("last change", item["updated_at"]),
            ("lease ends", item["lease_expires_at"]),
        ]
    )
    warnings = [f"warning: {warning['message']}" for warning in item["warnings"]]
    errors = error_lines(item["error"]) if item["error"] else []
    return "\n".join([text, *warnings, *errors])


@alloc.verb(
    "create",
    examples="""
        vgpumgr alloc create --vm desk-17 --profile "NVIDIA A40-8Q"
        vgpumgr alloc create --vm trainer --count 2 --numa-node 0
        vgpumgr alloc create --vm trainer --gpu 3b:00.0 --plan
    """,
)
@request_options(vm_required=True)
@PLAN
@pass_invocation
def create(invocation: Invocation, plan: bool, **wanted: str | int | None) -> int:
    """Allocate GPUs or vGPUs for a VM: claim them, prepare them, wait until they are ready."""
    request = request_from(wanted)
    with open_backend(invocation, Needs.SERVICE) as backend:
        if plan:
            return show_plan(invocation, backend.plan_allocation(request))
        allocation = backend.allocate(request)
        if allocation["operation_id"]:
            follow(backend, backend.operation(allocation["operation_id"]))
        allocation = backend.allocation(allocation["id"])
    if allocation["state"] == "failed":
        raise_error(allocation["error"] or {"code": "failed", "message": f"allocation {allocation['id']} failed"})
    emit(invocation, allocation, allocation_details)
    return EXIT_OK


@alloc.verb(
    "list", examples="vgpumgr alloc list\nvgpumgr alloc list --state attached\nvgpumgr alloc list --vm desk-17"
)
@click.option("--state", type=click.Choice(STATES), help="Only allocations in this state.")
@click.option("--vm", metavar="NAME", help="Only this VM's.")
@click.option("--tenant", help="Only this tenant's.")
@pass_invocation
def list_allocations(invocation: Invocation, state: str | None, vm: str | None, tenant: str | None) -> None:
    """List the allocations, newest first."""
    filters = only({"state": state, "vm": vm, "tenant": tenant})
    with open_backend(invocation, Needs.SERVICE) as backend:
        emit(invocation, backend.allocations(filters), allocation_table)


@alloc.verb("show", examples="vgpumgr alloc show ID\nvgpumgr alloc show ID -o json")
@click.argument("allocation_id", metavar="ID", shell_complete=complete.allocations)
@pass_invocation
def show(invocation: Invocation, allocation_id: str) -> None:
    """Show one allocation: its state, its devices, what went wrong."""
    with open_backend(invocation, Needs.SERVICE) as backend:
        emit(invocation, backend.allocation(allocation_id), allocation_details)


@alloc.verb(
    "xml", examples="vgpumgr alloc xml ID\nvgpumgr alloc xml ID --template windows11-desktop --memory 16384"
)
@click.argument("allocation_id", metavar="ID", shell_complete=complete.allocations)
@shape_options
@pass_invocation
def xml(invocation: Invocation, allocation_id: str, template: str, **wanted: object) -> None:
    """Print the libvirt domain XML of an allocation that is ready."""
    with open_backend(invocation, Needs.SERVICE) as backend:
        text = backend.allocation_xml(allocation_id, template, shape_from(wanted))
    emit(invocation, {"allocation": allocation_id, "template": template, "xml": text}, lambda data, _: data["xml"])


@alloc.verb("release", examples="vgpumgr alloc release ID\nvgpumgr alloc release ID --yes")
@click.argument("allocation_id", metavar="ID", shell_complete=complete.allocations)
@PLAN
@YES
@pass_invocation
def release(invocation: Invocation, allocation_id: str, plan: bool, yes: bool) -> int:
    """Take back what a VM was given: vGPUs are deleted, whole GPUs go back. Its VM must be stopped."""
    with open_backend(invocation, Needs.SERVICE) as backend:
        if plan:
            return show_plan(invocation, backend.plan_allocation_release(allocation_id))
        allocation = backend.allocation(allocation_id)
        if allocation["state"] != "released":
            devices = "; ".join(device_text(device) for device in allocation["devices"])
            confirm(f"take {devices or 'nothing'} from VM {allocation['vm']}", yes)
        allocation = backend.release_allocation(allocation_id)
        if allocation["operation_id"]:
            operation = follow(backend, backend.operation(allocation["operation_id"]))
            if operation["state"] != "succeeded":
                raise_error(operation["error"] or {"code": "failed", "message": f"{allocation_id}: release failed"})
        allocation = backend.allocation(allocation_id)
    emit(invocation, allocation, allocation_details)
    return EXIT_OK
