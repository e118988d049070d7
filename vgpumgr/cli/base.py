"""The click classes all commands are made of: lazily loaded groups, and the options every command takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, TypeVar, cast

import click

from vgpumgr.cli import complete
from vgpumgr.cli.invocation import FORMATS, Invocation, invocation_of

F = TypeVar("F", bound=Callable[..., Any])


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Remember a global option. Given twice, the one further right wins; not given, nothing changes."""
    if value == "":
        # An unset shell variable must not turn a recording into this machine.
        raise click.BadParameter("it is empty", ctx=context, param=parameter)
    if value is not None and parameter.name is not None:
        setattr(invocation_of(context), parameter.name, value)


class GlobalOption(click.Option):
    """An option that every command takes, before or after its noun and verb."""

    def __init__(self, declarations: list[str], **attributes: Any) -> None:
        super().__init__(
            declarations, default=None, expose_value=False, callback=_keep, is_eager=True, **attributes
        )


@cache
def _global_options() -> tuple[click.Parameter, ...]:
    return (
        GlobalOption(
            ["--sysfs-root"],
            metavar="DIR|TAR",
            type=click.Path(),
            help="Read a recorded host (DIR/sys, DIR/proc) instead of this one.",
        ),
        GlobalOption(
            ["--simulate"],
            metavar="NAME|FILE",
            shell_complete=complete.simulated_hosts,
            help="Use a simulated host, such as vdi-a40.",
        ),
        GlobalOption(["--socket"], metavar="PATH", type=click.Path(), help="The service's unix socket."),
        GlobalOption(
            ["--config", "config_file"],
            metavar="FILE",
            type=click.Path(),
            help="Settings file (default: /etc/vgpumgr/config.toml).",
        ),
        GlobalOption(["-o", "--output"], type=click.Choice(FORMATS), help="Output format (default: table)."),
        GlobalOption(["--no-color"], is_flag=True, flag_value=True, help="No colours, also on a terminal."),
    )


class _Help(click.Command):
    """Takes the global options and shows them below the command's own; keeps examples as they are written."""

    examples: str = ""

    def _add_global_options(self) -> None:
        self.params = [*self.params, *_global_options()]

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        everywhere: list[tuple[str, str]] = []
        for parameter in self.get_params(context):
            if isinstance(parameter, click.Argument):
                continue
            record = parameter.get_help_record(context)
            if record is not None:
                (everywhere if isinstance(parameter, GlobalOption) else own).append(record)
        if own:
            with formatter.section("Options"):
                formatter.write_dl(own)
        if isinstance(self, click.Group):
            self.format_commands(context, formatter)
        if everywhere:
            with formatter.section("Options of every command"):
                formatter.write_dl(everywhere)

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip().splitlines():
                    formatter.write(f"{'':>{formatter.current_indent}}{line.strip()}\n")


class VerbCommand(_Help):
    """One verb of a noun."""

    def __init__(self, *arguments: Any, examples: str = "", **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.examples = examples
        self._add_global_options()


class NounGroup(_Help, click.Group):
    """One noun: a group of verbs."""

    def __init__(self, *arguments: Any, examples: str = "", **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.examples = examples
        self._add_global_options()

    def verb(self, name: str, *, examples: str) -> Callable[[Callable[..., Any]], click.Command]:
        """Add a verb; ``examples`` are command lines, one a line."""
        return self.command(name, cls=VerbCommand, examples=examples)


class LazyGroup(NounGroup):
    """The root: nouns are imported only when they are called, so that one command does not pay for the others.

    ``nouns`` maps a name to ``module:attribute``.
    """

    def __init__(self, *arguments: Any, nouns: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self._nouns = nouns

    def list_commands(self, context: click.Context) -> list[str]:
        """The nouns, in the order of the table they come from."""
        return list(self._nouns)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import the noun's module and return its command."""
        target = self._nouns.get(name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        return cast(click.Command, getattr(import_module(module), attribute))


def pass_invocation(function: F) -> F:
    """Give the invocation to a command as its first argument."""
    return cast(F, click.make_pass_decorator(Invocation, ensure=True)(function))
