"""The options that shape the guest around its GPU; shared by ``alloc xml`` and ``vm define``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from vgpumgr.cli import complete
from vgpumgr.cli.backend import JsonObject

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS = (
    click.option(
        "--template",
        default="linux-compute",
        shell_complete=complete.templates,
        show_default=True,
        help="Domain template.",
    ),
    click.option("--memory", "memory_mib", type=click.IntRange(min=64), metavar="MIB", help="Memory of the guest."),
    click.option("--vcpus", type=click.IntRange(min=1), help="Virtual processors."),
    click.option(
        "--disk", "disks", metavar="FILE", multiple=True, help="Disk image, as an absolute path (repeatable)."
    ),
    click.option("--network", metavar="NAME", help="libvirt network to join."),
)


def shape_options(function: F) -> F:
    """Add the options to a command."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


def shape_from(wanted: Mapping[str, object]) -> JsonObject:
    """The guest's shape in JSON: what was given, nothing else."""
    given = {key: value for key, value in wanted.items() if value not in (None, ())}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}
