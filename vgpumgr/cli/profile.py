"""``vgpumgr profile``: what slices there are, and how many more fit."""

from __future__ import annotations

import click

from vgpumgr.cli import complete
from vgpumgr.cli.backend import JsonObject, Needs, open_backend
from vgpumgr.cli.base import NounGroup, pass_invocation
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.output import emit, note, reason_text
from vgpumgr.cli.table import Column, table

COLUMNS = (
    Column("ID"),
    Column("NAME"),
    Column("FRAMEBUFFER", right=True),
    Column("MAX", right=True),
    Column("CREATABLE", right=True),
    Column("NOTE"),
)


@click.command("profile", cls=NounGroup, examples="vgpumgr profile list")
def profile() -> None:
    """vGPU profiles: what a GPU can be sliced into."""


def profile_table(profiles: list[JsonObject], invocation: Invocation) -> str:
    """One line per profile; the note says on which GPUs it fits, or why no more of it do."""
    rows = [
        (
            item["id"],
            item["name"],
            f"{item['framebuffer_mib']} MiB" if item["framebuffer_mib"] is not None else None,
            item["max_instances"],
            item["creatable"],
            _note(item),
        )
        for item in profiles
    ]
    return table(COLUMNS, rows, invocation, empty="no vGPU profiles now")


def _note(item: JsonObject) -> str:
    fitting = [f"{gpu['address']}: {gpu['creatable']}" for gpu in item.get("gpus") or [] if gpu["creatable"]]
    limit = item.get("limit")
    return ", ".join(fitting) or (str(limit["message"]) if limit else "")


@profile.verb("list", examples="vgpumgr profile list\nvgpumgr profile list --gpu 3b:00.0 -o json")
@click.option("--gpu", metavar="ADDRESS", shell_complete=complete.gpus, help="Only what this GPU offers.")
@pass_invocation
def list_profiles(invocation: Invocation, gpu: str | None) -> None:
    """List the profiles, and how many more vGPUs of each fit now."""
    with open_backend(invocation, Needs.READING) as backend:
        offers = backend.profiles(gpu)
    emit(invocation, offers.profiles, profile_table)
    for reason in offers.reasons:
        note(f"{reason_text(reason)}{_way_on(reason)}")


_COMMANDS = {
    "vfs-off": "'vgpumgr gpu slice {}' enables them",
    "host-driver-absent": "'vgpumgr gpu release {}' gives it back to that",
}
"""What to do about a card that lists no profile."""


def _way_on(reason: JsonObject) -> str:
    command = _COMMANDS.get(reason["code"])
    return f" – {command.format(reason['addresses'][0])}" if command and reason["addresses"] else ""
