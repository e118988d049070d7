"""``vgpumgr serve``: the service itself."""

from __future__ import annotations

import click

from vgpumgr.cli.base import VerbCommand, pass_invocation
from vgpumgr.cli.invocation import Invocation


@click.command(
    "serve",
    cls=VerbCommand,
    examples="""
        vgpumgr serve
        vgpumgr --simulate vdi-a40 serve --listen 127.0.0.1:8900
    """,
)
@click.option("--listen", metavar="ADDRESS:PORT", help="Also answer on TCP, on a loopback address.")
@pass_invocation
def serve(invocation: Invocation, listen: str | None) -> int:
    """Run the service in the foreground: the REST API on a unix socket and, if asked, on loopback."""
    from vgpumgr_api.server import serve as run

    return run(invocation.config(listen=listen))
