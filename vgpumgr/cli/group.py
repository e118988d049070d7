"""``vgpumgr group``: IOMMU groups and what blocks them."""

from __future__ import annotations

import click

from vgpumgr.cli import complete
from vgpumgr.cli.backend import JsonObject, Needs, open_backend
from vgpumgr.cli.base import NounGroup, pass_invocation
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.output import emit
from vgpumgr.cli.table import Column, facts, table

COLUMNS = (Column("GROUP", right=True), Column("VIABLE", colored=True), Column("MEMBERS"), Column("BLOCKERS"))


@click.command("group", cls=NounGroup, examples="vgpumgr group list\nvgpumgr group show 12")
def group() -> None:
    """IOMMU groups: the kernel's units of isolation."""


def group_table(groups: list[JsonObject], invocation: Invocation) -> str:
    """One line per group."""
    rows = [
        (
            item["id"],
            item["viable"],
            " ".join([*item["members"], *item["other_members"]]),
            ", ".join(f"{blocker['address']} ({blocker['driver']})" for blocker in item["blockers"]),
        )
        for item in groups
    ]
    return table(
        COLUMNS, rows, invocation, empty="no IOMMU groups: the IOMMU is not active, see 'vgpumgr host doctor'"
    )


def group_details(item: JsonObject, invocation: Invocation) -> str:
    """A group's members, and each blocker with its reason."""
    lines = [
        f"IOMMU group {item['id']}",
        facts(
            [
                ("viable", item["viable"]),
                ("type", item.get("type")),
                ("members", " ".join(item["members"])),
                ("other members", " ".join(item["other_members"])),
            ],
            indent="  ",
        ),
    ]
    lines += [f"  blocked by {blocker['address']}: {blocker['reason']}" for blocker in item["blockers"]]
    return "\n".join(lines)


@group.verb("list", examples="vgpumgr group list\nvgpumgr group list --blocked\nvgpumgr group list -o json")
@click.option("--blocked", is_flag=True, help="Only groups that are not viable.")
@pass_invocation
def list_groups(invocation: Invocation, blocked: bool) -> None:
    """List the IOMMU groups with their members and blockers."""
    with open_backend(invocation, Needs.READING) as backend:
        groups = backend.groups()
    emit(invocation, [item for item in groups if not (blocked and item["viable"])], group_table)


@group.verb("show", examples="vgpumgr group show 12")
@click.argument("group_id", type=int, metavar="ID", shell_complete=complete.groups)
@pass_invocation
def show(invocation: Invocation, group_id: int) -> None:
    """Show one IOMMU group, and why it is not viable."""
    with open_backend(invocation, Needs.READING) as backend:
        emit(invocation, backend.group(group_id), group_details)
