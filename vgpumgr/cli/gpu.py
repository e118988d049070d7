"""``vgpumgr gpu``: see GPUs, give them to VFIO and back."""

from __future__ import annotations

from typing import Any

import click

from vgpumgr.cli import complete
from vgpumgr.cli.backend import Backend, JsonObject, Needs, open_backend, reasons_of
from vgpumgr.cli.base import NounGroup, pass_invocation
from vgpumgr.cli.changes import PLAN, YES, carry_out, confirm, show_plan
from vgpumgr.cli.gpu_slicing import add_slicing_verbs
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.output import emit
from vgpumgr.cli.table import Column, table
from vgpumgr.errors import EXIT_OK

COLUMNS = (
    Column("ADDRESS"),
    Column("NAME"),
    Column("KIND"),
    Column("DRIVER"),
    Column("GROUP", right=True),
    Column("NUMA", right=True),
    Column("STATE", colored=True),
    Column("ASSIGNABLE", colored=True),
    Column("WHY NOT"),
)


@click.command("gpu", cls=NounGroup, examples="vgpumgr gpu list\nvgpumgr gpu bind 3b:00.0 --plan")
def gpu() -> None:
    """GPUs: list and show them, bind them to VFIO, give them back."""


def gpu_table(gpus: list[JsonObject], invocation: Invocation) -> str:
    """One line per GPU, with every reason against giving it to a VM."""
    rows = [
        (
            item["address"],
            item["name"],
            item["kind"],
            item["driver"],
            item["iommu_group"],
            item["numa_node"],
            item["passthrough"]["state"],
            item["passthrough"]["assignable"],
            reasons_of(item["passthrough"]["reasons"]),
        )
        for item in gpus
    ]
    return table(COLUMNS, rows, invocation, empty="no GPUs found")


@gpu.verb("list", examples="vgpumgr gpu list\nvgpumgr gpu list -o json\nvgpumgr --simulate vdi-a40 gpu list")
@pass_invocation
def list_gpus(invocation: Invocation) -> None:
    """List the GPUs: who has each, whether a VM can have it, and why not."""
    with open_backend(invocation, Needs.READING) as backend:
        emit(invocation, backend.gpus(), gpu_table)


@gpu.verb("show", examples="vgpumgr gpu show 3b:00.0\nvgpumgr gpu show 0000:3b:00.0 -o yaml")
@click.argument("address", shell_complete=complete.gpus)
@pass_invocation
def show(invocation: Invocation, address: str) -> None:
    """Show everything known about one GPU. A companion's or VF's ADDRESS names its GPU."""
    from vgpumgr.cli.gpu_details import gpu_details

    with open_backend(invocation, Needs.READING) as backend:
        emit(invocation, backend.gpu(address), gpu_details)


FORCE = click.option(
    "--force",
    is_flag=True,
    help="Also when the host uses it (boot display, open handles, group members). You name the address.",
)


@gpu.verb(
    "bind",
    examples="""
        vgpumgr gpu bind 3b:00.0 --plan
        vgpumgr gpu bind 3b:00.0
        vgpumgr gpu bind 04:00.0 --also 04:00.1
    """,
)
@click.argument("address", shell_complete=complete.gpus)
@click.option(
    "--driver", default="auto", show_default=True, help="VFIO driver; auto picks the best the kernel has."
)
@click.option(
    "--also",
    "--with",
    "also",
    metavar="ADDRESS",
    multiple=True,
    help="Bind this member of the IOMMU group as well (repeatable).",
)
@FORCE
@PLAN
@YES
@pass_invocation
def bind(
    invocation: Invocation, address: str, driver: str, also: tuple[str, ...], force: bool, plan: bool, yes: bool
) -> int:
    """Give a GPU and its companions to a VFIO driver, ready for a VM."""
    options = {"driver": driver, "force": force, "also": list(also)}
    with open_backend(invocation, Needs.READING if plan else Needs.BINDING) as backend:
        if plan:
            return show_plan(invocation, backend.plan_bind(address, options))
        if force or also:
            _ask(backend, address, yes, backend.plan_bind(address, options))
        carry_out(invocation, backend, backend.bind(address, options))
    return EXIT_OK


@gpu.verb("release", examples="vgpumgr gpu release 3b:00.0 --plan\nvgpumgr gpu release 3b:00.0")
@click.argument("address", shell_complete=complete.gpus)
@FORCE
@PLAN
@YES
@pass_invocation
def release(invocation: Invocation, address: str, force: bool, plan: bool, yes: bool) -> int:
    """Give a GPU and its companions back to their host drivers."""
    options = {"force": force}
    with open_backend(invocation, Needs.READING if plan else Needs.BINDING) as backend:
        if plan:
            return show_plan(invocation, backend.plan_release(address, options))
        if force:
            _ask(backend, address, yes, backend.plan_release(address, options))
        carry_out(invocation, backend, backend.release(address, options))
    return EXIT_OK


def _ask(backend: Backend, address: str, yes: bool, plan: JsonObject) -> None:
    """Force is for people who have seen what it overrides: the plan's warnings, and who holds the GPU."""
    if plan["refusal"]:
        return
    risks = [str(item["message"]) for item in plan.get("warnings", [])]
    holders = [f"{item['kind']} {item['name']}" for item in backend.gpu(address).get("holders", [])]
    if holders:
        risks.append("in use by " + ", ".join(holders))
    what = "take it" if plan["kind"] == "bind" else "give it back"
    confirm(f"{what} by force: {address}" + (f" ({'; '.join(risks)})" if risks else ""), yes)


@gpu.verb("restore", examples="vgpumgr gpu restore")
@pass_invocation
def restore(invocation: Invocation) -> int:
    """Bind again what was bound before the reboot (vgpumgr-bind.service runs this before libvirtd)."""
    from vgpumgr.cli.op import operation_table

    with open_backend(invocation, Needs.BOOT) as backend:
        operations: list[dict[str, Any]] = backend.restore_bindings()
    emit(invocation, operations, operation_table)
    failed = [item for item in operations if item["state"] != "succeeded"]
    if failed:
        from vgpumgr.errors import FailedError

        names = ", ".join(item["subject"] for item in failed)
        raise FailedError(f"could not bind again: {names}", hint="'vgpumgr op list' shows the steps that failed")
    return EXIT_OK


add_slicing_verbs(gpu)
