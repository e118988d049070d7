"""``vgpumgr``: the table of its nouns."""

from __future__ import annotations

import click

from vgpumgr import __version__
from vgpumgr.cli.base import LazyGroup

NOUNS = {
    "inventory": "vgpumgr.cli.inventory:inventory",
    "host": "vgpumgr.cli.host:host",
    "gpu": "vgpumgr.cli.gpu:gpu",
    "group": "vgpumgr.cli.group:group",
    "profile": "vgpumgr.cli.profile:profile",
    "vgpu": "vgpumgr.cli.vgpu:vgpu",
    "candidates": "vgpumgr.cli.candidates:candidates",
    "alloc": "vgpumgr.cli.alloc:alloc",
    "vm": "vgpumgr.cli.vm:vm",
    "op": "vgpumgr.cli.op:op",
    "event": "vgpumgr.cli.event:event",
    "domain": "vgpumgr.cli.domain:domain",
    "serve": "vgpumgr.cli.serve:serve",
    "demo": "vgpumgr.cli.demo:demo",
    "completion": "vgpumgr.cli.completion:completion",
    "version": "vgpumgr.cli.version:version",
}


@click.command(
    cls=LazyGroup,
    nouns=NOUNS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    examples="""
        vgpumgr inventory
        vgpumgr host doctor
        vgpumgr gpu bind 3b:00.0 --plan
        vgpumgr --simulate vdi-a40 gpu list -o json
    """,
)
@click.version_option(__version__, prog_name="vgpumgr", message="%(prog)s %(version)s")
def cli() -> None:
    """Manage the GPUs of a KVM host: see, bind, slice, allocate.

    Reading works without the service; what changes a host shows its steps with --plan. Exit status: 0 done,
    2 wrong usage, 3 refused, 4 tried and failed, 5 something needed is not there.
    """
