"""The options that say what a VM asks for; shared by ``candidates`` and ``alloc create``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from vgpumgr.cli import complete
from vgpumgr.cli.backend import JsonObject

F = TypeVar("F", bound=Callable[..., Any])


def request_options(*, vm_required: bool) -> Callable[[F], F]:
    """Add the request's options to a command."""
    vm = click.option("--vm", required=True, help="Name of the VM.")
    if not vm_required:
        vm = click.option("--vm", default="unnamed", help="Name of the VM.")
    options = (
        vm,
        click.option(
            "--profile",
            metavar="NAME|ID",
            shell_complete=complete.profiles,
            help="vGPU profile; without it, whole GPUs.",
        ),
        click.option("--count", type=click.IntRange(min=1), default=1, show_default=True, help="How many."),
        click.option("--gpu", metavar="ADDRESS", shell_complete=complete.gpus, help="On this GPU only."),
        click.option("--model", metavar="TEXT", help="A part of the GPU's name, such as A40."),
        click.option("--vendor-id", metavar="HEX", help="PCI vendor, such as 10de."),
        click.option("--device-id", metavar="HEX", help="PCI device, such as 2235."),
        click.option("--numa-node", type=click.IntRange(min=0), help="On this NUMA node only."),
        click.option("--tenant", default="default", show_default=True, help="Who asks."),
    )

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def request_from(wanted: Mapping[str, str | int | None]) -> JsonObject:
    """The request in JSON: what was given, nothing else."""
    return {key: value for key, value in wanted.items() if value is not None}
