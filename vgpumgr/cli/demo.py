"""``vgpumgr demo``: the whole journey on a simulated host."""

from __future__ import annotations

import click

from vgpumgr.cli.base import VerbCommand, pass_invocation
from vgpumgr.cli.invocation import Invocation


@click.command("demo", cls=VerbCommand, examples="vgpumgr demo\nvgpumgr demo --keep")
@click.option("--keep", is_flag=True, help="Leave the service running until Ctrl-C.")
@pass_invocation
def demo(invocation: Invocation, keep: bool) -> int:
    """Drive the whole journey through the REST API of a service on a simulated host."""
    raise click.UsageError("not here yet")
