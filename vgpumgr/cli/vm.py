"""``vgpumgr vm``: the libvirt domains that allocations end in."""

from __future__ import annotations

import click

from vgpumgr.cli import complete
from vgpumgr.cli.backend import JsonObject, Needs, open_backend
from vgpumgr.cli.base import NounGroup, pass_invocation
from vgpumgr.cli.changes import PLAN, YES, confirm, show_plan, succeeded
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.output import emit
from vgpumgr.cli.shape import shape_from, shape_options
from vgpumgr.cli.table import Column, facts, table
from vgpumgr.errors import EXIT_OK

COLUMNS = (Column("NAME"), Column("STATE", colored=True), Column("ALLOCATION"), Column("UUID"))


@click.command("vm", cls=NounGroup, examples="vgpumgr vm define ALLOCATION\nvgpumgr vm start desk-17")
def vm() -> None:
    """Virtual machines: define an allocation's VM in libvirt, start and stop it."""


def vm_table(vms: list[JsonObject], invocation: Invocation) -> str:
    """One line per domain; one without an allocation is foreign and never touched."""
    rows = [(item["name"], item["state"], item["allocation"] or "foreign", item["uuid"]) for item in vms]
    return table(COLUMNS, rows, invocation, empty="no VMs in libvirt")


def vm_details(item: JsonObject, invocation: Invocation) -> str:
    """Everything libvirt says of one domain."""
    return facts(
        [
            ("VM", item["name"]),
            ("UUID", item["uuid"]),
            ("state", item["state"]),
            ("allocation", item["allocation"] or "none, the VM is foreign"),
            ("persistent", item["persistent"]),
            *(("device", f"{device['type']} {device['address'] or device['uuid']}") for device in item["devices"]),
        ]
    )


@vm.verb("list", examples="vgpumgr vm list\nvgpumgr vm list -o json")
@pass_invocation
def list_vms(invocation: Invocation) -> None:
    """List every VM of the host's libvirt, ours and foreign."""
    with open_backend(invocation, Needs.SERVICE) as backend:
        emit(invocation, backend.vms(), vm_table)


@vm.verb("show", examples="vgpumgr vm show desk-17")
@click.argument("name", shell_complete=complete.vms)
@pass_invocation
def show(invocation: Invocation, name: str) -> None:
    """Show one VM."""
    with open_backend(invocation, Needs.SERVICE) as backend:
        emit(invocation, backend.vm(name), vm_details)


@vm.verb(
    "define",
    examples="""
        vgpumgr vm define ALLOCATION --template windows11-desktop --plan
        vgpumgr vm define ALLOCATION --memory 16384 --vcpus 8 --disk /srv/desk-17.qcow2
    """,
)
@click.argument("allocation_id", metavar="ALLOCATION", shell_complete=complete.allocations)
@shape_options
@PLAN
@pass_invocation
def define(invocation: Invocation, allocation_id: str, template: str, plan: bool, **wanted: object) -> int:
    """Define an allocation's VM in libvirt, after preflight."""
    shape = shape_from(wanted)
    with open_backend(invocation, Needs.SERVICE) as backend:
        if plan:
            return show_plan(invocation, backend.plan_define_vm(allocation_id, template, shape))
        name = succeeded(backend, backend.define_vm(allocation_id, template, shape))["subject"]
        emit(invocation, backend.vm(name), vm_details)
    return EXIT_OK


@vm.verb("start", examples="vgpumgr vm start desk-17")
@click.argument("name", shell_complete=complete.vms)
@PLAN
@pass_invocation
def start(invocation: Invocation, name: str, plan: bool) -> int:
    """Start a VM, after preflight of its devices."""
    with open_backend(invocation, Needs.SERVICE) as backend:
        if plan:
            return show_plan(invocation, backend.plan_start_vm(name))
        succeeded(backend, backend.start_vm(name))
        emit(invocation, backend.vm(name), vm_details)
    return EXIT_OK


@vm.verb("stop", examples="vgpumgr vm stop desk-17\nvgpumgr vm stop desk-17 --force --yes")
@click.argument("name", shell_complete=complete.vms)
@click.option("--force", is_flag=True, help="Pull the plug instead of asking the guest to shut down.")
@PLAN
@YES
@pass_invocation
def stop(invocation: Invocation, name: str, force: bool, plan: bool, yes: bool) -> int:
    """Stop a VM: ask its guest to shut down, or pull the plug."""
    with open_backend(invocation, Needs.SERVICE) as backend:
        if plan:
            return show_plan(invocation, backend.plan_stop_vm(name, force))
        if force:
            confirm(f"pull the plug of VM {name}", yes)
        succeeded(backend, backend.stop_vm(name, force))
        emit(invocation, backend.vm(name), vm_details)
    return EXIT_OK


@vm.verb("undefine", examples="vgpumgr vm undefine desk-17")
@click.argument("name", shell_complete=complete.vms)
@PLAN
@YES
@pass_invocation
def undefine(invocation: Invocation, name: str, plan: bool, yes: bool) -> int:
    """Remove the definition of a stopped VM of ours. Disks stay."""
    with open_backend(invocation, Needs.SERVICE) as backend:
        if plan:
            return show_plan(invocation, backend.plan_undefine_vm(name))
        confirm(f"remove the definition of VM {name}", yes)
        succeeded(backend, backend.undefine_vm(name))
    emit(invocation, {"name": name, "undefined": True}, lambda data, _: f"{data['name']}: undefined")
    return EXIT_OK
