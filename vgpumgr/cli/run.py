"""Runs one command line and turns every way it can end into an exit status and, at most, a few plain lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.output import print_error
from vgpumgr.cli.root import cli
from vgpumgr.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, VgpumgrError

EXIT_INTERRUPTED = 130
"""As a shell reports a program that SIGINT ended."""
EXIT_BROKEN_PIPE = 141
"""As a shell reports a program that SIGPIPE ended."""
# click before 8.2 (Debian 13 has 8.1) knows no such error: it prints the help by itself.
_NO_ARGUMENTS: tuple[type[click.ClickException], ...] = tuple(
    error for error in (getattr(click.exceptions, "NoArgsIsHelpError", None),) if error is not None
)


def run(arguments: Sequence[str]) -> int:
    """Run ``vgpumgr ARGUMENTS`` and return its exit status. Expected errors never show a traceback."""
    invocation = Invocation()
    if "_VGPUMGR_COMPLETE" in os.environ:
        from vgpumgr.cli.bash import add

        add()
    try:
        status = cli.main(args=list(arguments), prog_name="vgpumgr", standalone_mode=False, obj=invocation)
        sys.stdout.flush()
    except click.ClickException as error:
        return _help(error) if isinstance(error, _NO_ARGUMENTS) else _usage(error)
    except VgpumgrError as error:
        print_error(error, invocation)
        return error.exit_status
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has gone: nothing to say.
        _forget_output()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        return _system(error)
    return status if isinstance(status, int) else EXIT_OK


def _system(error: OSError) -> int:
    """A file, a pipe or a disk of this machine that failed: its own words, one line."""
    _forget_output()
    subject = f"{error.filename}: " if error.filename else ""
    click.echo(f"error: {subject}{error.strerror or error}", err=True)
    return EXIT_FAILED


def _forget_output() -> None:
    """Keep Python from flushing, on its way out, into an output that does not take it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _help(error: click.ClickException) -> int:
    """A group without a verb: its help, as wrong usage."""
    context = getattr(error, "ctx", None)
    click.echo(context.get_help() if context else "", err=True)
    return EXIT_USAGE


def _usage(error: click.ClickException) -> int:
    """One line for what click found wrong, and where the help is."""
    message = error.format_message().rstrip(".").replace("\n", " ")
    context = getattr(error, "ctx", None)
    where = f" – see '{context.command_path} --help'" if context else ""
    click.echo(f"error: {message[:1].lower()}{message[1:]}{where}", err=True)
    return EXIT_USAGE
