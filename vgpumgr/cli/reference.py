"""Writes docs/reference/cli.md from the commands themselves: ``python -m vgpumgr.cli.reference``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from vgpumgr.cli.root import cli

HEAD = """# Command line

Written by `make docs` from the commands' own help; do not edit.

Options of every command, before or after the noun and verb: `--sysfs-root`, `--simulate`, `--socket`, `--config`,
`-o/--output` (`table`, `json`, `yaml`), `--no-color`. Exit codes and error codes: [errors](errors.md).
"""


def reference() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_section(context) for context in _commands(click.Context(cli, info_name="vgpumgr")))])


def _commands(context: click.Context) -> Iterator[click.Context]:
    group = context.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            continue
        inner = click.Context(command, info_name=name, parent=context, max_content_width=100, terminal_width=100)
        if isinstance(command, click.Group):
            yield from _commands(inner)
        else:
            yield inner


def _section(context: click.Context) -> str:
    text = context.get_help()
    own, _, rest = text.partition("Options of every command:")
    examples = rest.partition("Examples:")[2].rstrip()
    body = own.rstrip() + (f"\n\nExamples:{examples}" if examples else "")
    return f"## {context.command_path}\n\n```text\n{body}\n```\n"


if __name__ == "__main__":
    print(reference(), end="")
