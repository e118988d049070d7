"""``vgpumgr inventory``: the whole host in one object."""

from __future__ import annotations

import click

from vgpumgr.cli.backend import JsonObject, Needs, open_backend
from vgpumgr.cli.base import VerbCommand, pass_invocation
from vgpumgr.cli.gpu import gpu_table
from vgpumgr.cli.group import group_table
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.output import emit


def inventory_text(data: JsonObject, invocation: Invocation) -> str:
    """The host, its GPUs, the groups that hold a GPU, and the warnings."""
    host = data["host"]
    iommu = "active" if host["iommu"]["active"] else "not active"
    lines = [f"Host {host['hostname'] or 'unknown'}, Linux {host['kernel'] or 'unknown'}, IOMMU {iommu}"]
    lines += [f"  {hint}" for hint in host["iommu"]["hints"]]
    lines += ["", gpu_table(data["gpus"], invocation)]
    if data["virtual_parents"]:
        lines += ["", "Virtual parents of vGPUs", gpu_table(data["virtual_parents"], invocation)]
    with_gpu = {item["iommu_group"] for item in data["gpus"]}
    groups = [item for item in data["iommu_groups"] if item["id"] in with_gpu]
    if groups:
        lines += ["", "IOMMU groups with a GPU", group_table(groups, invocation)]
    if data["warnings"]:
        lines += ["", "Warnings"]
        lines += [f"  {item['subject']}: {item['message']} [{item['code']}]" for item in data["warnings"]]
    return "\n".join(lines)


@click.command(
    "inventory",
    cls=VerbCommand,
    examples="vgpumgr inventory\nvgpumgr --sysfs-root ./recording inventory -o json",
)
@pass_invocation
def inventory(invocation: Invocation) -> None:
    """Show the whole host: IOMMU, groups, GPUs, vGPUs, warnings. Reads only."""
    with open_backend(invocation, Needs.READING) as backend:
        emit(invocation, backend.inventory(), inventory_text)
