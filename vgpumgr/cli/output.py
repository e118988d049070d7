"""How results and errors are printed: tables for people, JSON and YAML for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from vgpumgr.cli.invocation import Invocation
from vgpumgr.errors import VgpumgrError

T = TypeVar("T")

SHOWN_ADDRESSES = 4


def emit(invocation: Invocation, data: T, render: Callable[[T, Invocation], str]) -> None:
    """Print ``data`` in the format asked for; ``render`` makes the text for people."""
    if invocation.machine_readable:
        click.echo(dump(data, invocation.output))
        return
    text = render(data, invocation)
    if text:
        click.echo(text, color=invocation.color)


def dump(data: Any, form: str) -> str:
    """JSON or YAML text of plain data, keys in the order they have."""
    if form == "yaml":
        import yaml

        return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True)).rstrip("\n")
    import json

    return json.dumps(data, indent=2, ensure_ascii=False)


def note(text: str) -> None:
    """A remark for the person at the terminal, beside the result: goes to standard error."""
    click.echo(text, err=True)


def print_error(error: VgpumgrError, invocation: Invocation) -> None:
    """``error: what (why) – hint`` on standard error, a refusal's reasons below it.

    With ``-o json|yaml`` programs get ``{"error": {"code", "message", "hint", "reasons"}}`` on standard output too.
    """
    if invocation.machine_readable:
        click.echo(dump({"error": error.to_json()}, invocation.output))
    click.echo("\n".join(error_lines(error.to_json())), err=True)


def error_lines(error: dict[str, Any], word: str = "error") -> list[str]:
    """The lines a person reads of an error in its JSON shape."""
    hint = f" – {error['hint']}" if error.get("hint") else ""
    lines = [f"{word}: {error['message']}{hint}".replace("\n", " ")]
    for reason in error.get("reasons") or []:
        if reason["message"] not in error["message"]:
            lines.append(f"  {reason_text(reason)}")
    return lines


def reason_text(reason: dict[str, Any]) -> str:
    """``message (addresses)``; the addresses only where the message does not name them, and not a whole page."""
    missing = [address for address in reason.get("addresses") or [] if address not in reason["message"]]
    if not missing:
        return str(reason["message"])
    more = f" and {len(missing) - SHOWN_ADDRESSES} more" if len(missing) > SHOWN_ADDRESSES else ""
    return f"{reason['message']} ({', '.join(missing[:SHOWN_ADDRESSES])}{more})"


def is_interactive() -> bool:
    """True when a person can be asked: both standard input and standard error are terminals."""
    return sys.stdin.isatty() and sys.stderr.isatty()
