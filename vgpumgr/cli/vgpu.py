"""``vgpumgr vgpu``: vGPUs in being; made and deleted by hand, restored after a reload of the driver."""

from __future__ import annotations

import click

from vgpumgr.cli import complete
from vgpumgr.cli.backend import JsonObject, Needs, open_backend
from vgpumgr.cli.base import NounGroup, pass_invocation
from vgpumgr.cli.changes import PLAN, YES, carry_out, confirm, follow, plan_text, show_plan
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.output import emit, note
from vgpumgr.cli.table import Column, facts, table
from vgpumgr.errors import EXIT_OK, EXIT_REFUSED, FailedError, Reason, UsageError

COLUMNS = (
    Column("ID"),
    Column("PROFILE"),
    Column("GPU"),
    Column("PARENT"),
    Column("GROUP", right=True),
    Column("WHOSE"),
    Column("VM"),
)


@click.command(
    "vgpu", cls=NounGroup, examples='vgpumgr vgpu list\nvgpumgr vgpu create --profile "NVIDIA A40-8Q" --plan'
)
def vgpu() -> None:
    """vGPUs: list and show them, make some by hand, delete them, restore those that were lost."""


def vgpu_table(vgpus: list[JsonObject], invocation: Invocation) -> str:
    """One line per vGPU."""
    rows = [
        (
            item["id"],
            item["profile"] or item["profile_id"],
            item["gpu"],
            item["parent"],
            item["iommu_group"],
            _whose(item),
            item["owner"],
        )
        for item in vgpus
    ]
    return table(COLUMNS, rows, invocation, empty="no vGPUs on this host")


def _whose(item: JsonObject) -> str:
    if item["ours"] is None:
        return ""
    whose = (
        "foreign"
        if not item["ours"]
        else f"allocation {item['allocation_id']}"
        if item["allocation_id"]
        else "ours"
    )
    return whose if item["live"] else f"{whose}, not on the host"


def vgpu_details(item: JsonObject, invocation: Invocation) -> str:
    """Everything about one vGPU."""
    return facts(
        [
            ("vGPU", item["id"]),
            ("profile", item["profile"]),
            ("profile id", item["profile_id"]),
            ("GPU", item["gpu"]),
            ("parent", item["parent"]),
            ("IOMMU group", item["iommu_group"]),
            ("GPU instance", item["gpu_instance"]),
            ("parameters", item["params"]),
            ("frame-rate limiter", {True: "on", False: "off"}.get(item["frame_rate_limiter"])),
            ("whose", _whose(item)),
            ("VM", item["owner"]),
        ]
    )


@vgpu.verb("list", examples="vgpumgr vgpu list\nvgpumgr vgpu list --gpu 3b:00.0 -o json")
@click.option("--gpu", metavar="ADDRESS", shell_complete=complete.gpus, help="Only those of this GPU.")
@pass_invocation
def list_vgpus(invocation: Invocation, gpu: str | None) -> None:
    """List the vGPUs of this host: ours, and those that others made."""
    with open_backend(invocation, Needs.READING) as backend:
        emit(invocation, backend.vgpus(gpu), vgpu_table)


@vgpu.verb("show", examples="vgpumgr vgpu show 0000:3b:00.4\nvgpumgr vgpu show UUID -o yaml")
@click.argument("vgpu_id", metavar="ID", shell_complete=complete.vgpus)
@pass_invocation
def show(invocation: Invocation, vgpu_id: str) -> None:
    """Show one vGPU, by its UUID or its virtual function's address."""
    with open_backend(invocation, Needs.READING) as backend:
        emit(invocation, backend.vgpu(vgpu_id), vgpu_details)


@vgpu.verb(
    "create",
    examples="""
        vgpumgr vgpu create --profile "NVIDIA A40-8Q" --plan
        vgpumgr vgpu create --profile A40-8Q --gpu 3b:00.0 --count 4
        vgpumgr vgpu create --profile A40-8Q --params frame_rate_limiter=0
    """,
)
@click.option(
    "--profile", required=True, shell_complete=complete.profiles, help="The profile's name or id, exactly."
)
@click.option("--count", type=click.IntRange(min=1), default=1, show_default=True, help="How many.")
@click.option(
    "--gpu",
    metavar="ADDRESS",
    shell_complete=complete.gpus,
    help="On this GPU; by default the fullest that takes them all.",
)
@click.option("--params", metavar="TEXT", default="", help="Plugin parameters, such as frame_rate_limiter=0.")
@PLAN
@pass_invocation
def create(invocation: Invocation, profile: str, count: int, gpu: str | None, params: str, plan: bool) -> int:
    """Make vGPUs that no allocation has; they come back after a reboot. All of them, or none."""
    request = {"profile": profile, "count": count, "gpu": gpu, "params": params}
    with open_backend(invocation, Needs.READING if plan else Needs.SERVICE) as backend:
        if plan:
            return show_plan(invocation, backend.plan_vgpu_create(request))
        carry_out(invocation, backend, backend.create_vgpus(request))
    return EXIT_OK


@vgpu.verb(
    "set",
    examples="""
        vgpumgr vgpu set ID --frame-rate-limiter off --plan
        vgpumgr vgpu set ID --params enable_uvm=1,disable_vnc=1
        vgpumgr vgpu set ID --params ""
    """,
)
@click.argument("vgpu_id", metavar="ID", shell_complete=complete.vgpus)
@click.option("--frame-rate-limiter", type=click.Choice(("on", "off")), help="Works with best effort only.")
@click.option(
    "--params", metavar="TEXT", help="All plugin parameters, in the place of those there are; '' for none."
)
@PLAN
@pass_invocation
def set_params(
    invocation: Invocation, vgpu_id: str, frame_rate_limiter: str | None, params: str | None, plan: bool
) -> int:
    """Change the plugin parameters of a vGPU of ours, from the next start of its VM on."""
    limiter = None if frame_rate_limiter is None else frame_rate_limiter == "on"
    request = {"params": params, "frame_rate_limiter": limiter}
    if limiter is None and params is None:
        raise UsageError("nothing to set is named", hint="add --frame-rate-limiter or --params")
    with open_backend(invocation, Needs.SERVICE) as backend:
        if plan:
            return show_plan(invocation, backend.plan_vgpu_params(vgpu_id, request))
        carry_out(invocation, backend, backend.set_vgpu_params(vgpu_id, request))
    return EXIT_OK


@vgpu.verb("delete", examples="vgpumgr vgpu delete ID --plan\nvgpumgr vgpu delete ID --yes")
@click.argument("vgpu_id", metavar="ID", shell_complete=complete.vgpus)
@PLAN
@YES
@pass_invocation
def delete(invocation: Invocation, vgpu_id: str, plan: bool, yes: bool) -> int:
    """Delete a vGPU of ours that no allocation has and no guest uses."""
    with open_backend(invocation, Needs.READING if plan else Needs.SERVICE) as backend:
        if plan:
            return show_plan(invocation, backend.plan_vgpu_delete(vgpu_id))
        confirm(f"delete vGPU {vgpu_id}", yes)
        carry_out(invocation, backend, backend.delete_vgpu(vgpu_id))
    return EXIT_OK


@vgpu.verb(
    "restore", examples="vgpumgr vgpu restore --plan\nvgpumgr vgpu restore\nvgpumgr vgpu restore --yes -o json"
)
@PLAN
@YES
@pass_invocation
def restore(invocation: Invocation, plan: bool, yes: bool) -> int:
    """Bring back what is recorded and missing, as after a reload of the driver: MIG, then VFs, then vGPUs.

    What is there already stays as it is. What cannot come back is named at the end; the rest comes back.
    """
    with open_backend(invocation, Needs.SERVICE) as backend:
        plans = backend.plan_restore_vgpus()
        if plan:
            emit(invocation, plans, plans_text)
            return EXIT_REFUSED if any(item["refusal"] for item in plans) else EXIT_OK
        if plans and not yes:
            note(plans_text(plans, invocation))
            confirm(f"restore {len(plans)} {'pieces' if len(plans) > 1 else 'piece'}", yes)
        ended = [follow(backend, operation) for operation in backend.restore_vgpus()] if plans else []
    failed = [item for item in ended if item["state"] != "succeeded"]
    if not failed or not invocation.machine_readable:
        # Programs get one document: the operations, or the error with what could not come back.
        emit(invocation, ended, restored_text)
    if failed:
        raise FailedError(
            f"could not restore {', '.join(dict.fromkeys(item['subject'] for item in failed))}",
            hint="mend what the reasons say, then ask again: what is back stays as it is",
            reasons=[_why(item) for item in failed],
            code="restore-incomplete",
        )
    return EXIT_OK


def _why(operation: JsonObject) -> Reason:
    error = operation.get("error") or {}
    message = f"{operation['subject']}: {error.get('message', 'failed')}"
    return Reason(str(error.get("code", "failed")), message, (operation["subject"],))


def plans_text(plans: list[JsonObject], invocation: Invocation) -> str:
    """Each plan under a line that names what it restores."""
    if not plans:
        return "nothing to restore: all that is recorded is there"
    return "\n".join(f"{item['kind']} {item['subject']}\n{_indented(item, invocation)}" for item in plans)


def _indented(plan: JsonObject, invocation: Invocation) -> str:
    if not plan["steps"] and not plan["refusal"]:
        return "\n".join(f"  later: {item['message']}" for item in plan["warnings"])
    return "\n".join(f"  {line}" for line in plan_text(plan, invocation).splitlines())


def restored_text(operations: list[JsonObject], invocation: Invocation) -> str:
    """One line for each piece, and how it ended."""
    if not operations:
        return "nothing to restore: all that is recorded is there"
    return "\n".join(f"{item['kind']} {item['subject']}: {item['state']}" for item in operations)
