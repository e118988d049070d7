"""``vgpumgr completion``: scripts that make a shell complete command lines."""

from __future__ import annotations

import click

from vgpumgr.cli.base import VerbCommand

SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    cls=VerbCommand,
    examples="""
        vgpumgr completion bash > /etc/bash_completion.d/vgpumgr
        vgpumgr completion zsh > "${fpath[1]}/_vgpumgr"
        vgpumgr completion fish > ~/.config/fish/completions/vgpumgr.fish
    """,
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete verbs, options, and the addresses, ids and names of the host."""
    from click.shell_completion import get_completion_class

    from vgpumgr.cli.bash import add
    from vgpumgr.cli.root import cli

    add()

    script = get_completion_class(shell)
    if script is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(script(cli, {}, "vgpumgr", "_VGPUMGR_COMPLETE").source())
