"""``vgpumgr version``: this program's version and those of what it stands on."""

from __future__ import annotations

import platform

import click

from vgpumgr import __version__
from vgpumgr.cli.backend import JsonObject
from vgpumgr.cli.base import VerbCommand, pass_invocation
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.output import emit
from vgpumgr.cli.table import facts


def _text(data: JsonObject, invocation: Invocation) -> str:
    return facts(list(data.items()))


@click.command("version", cls=VerbCommand, examples="vgpumgr version\nvgpumgr version -o json")
@pass_invocation
def version(invocation: Invocation) -> None:
    """Show the version of vgpumgr, Python and the kernel it runs on."""
    data = {"vgpumgr": __version__, "python": platform.python_version(), "kernel": platform.release()}
    emit(invocation, data, _text)
