"""Plain tables: columns as wide as their widest cell, no borders, nothing cut unless a terminal is too narrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import click

from vgpumgr.cli.invocation import Invocation

Cell = object
"""Shown with ``str``; ``None`` and the empty text become ``-``; True and False become yes and no."""

COLORS = {
    "ready": "green",
    "ok": "green",
    "yes": "green",
    "succeeded": "green",
    "attached": "green",
    "running": "green",
    "reserved": "cyan",
    "in-use": "cyan",
    "preparing": "yellow",
    "parked": "yellow",
    "unknown": "yellow",
    "degraded": "yellow",
    "pending": "yellow",
    "failed": "red",
    "stuck": "red",
    "error": "red",
}


class Column(NamedTuple):
    """One column: its heading, and whether its cells carry a state worth a colour."""

    heading: str
    colored: bool = False
    right: bool = False


def text_of(cell: Cell) -> str:
    """A cell's text."""
    if cell is None or cell == "":
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return str(cell)


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], invocation: Invocation, empty: str = ""
) -> str:
    """The table as text; ``empty`` instead when there are no rows."""
    if not rows:
        return empty
    cells = [[text_of(cell) for cell in row] for row in rows]
    widths = [max(len(column.heading), *(len(row[index]) for row in cells)) for index, column in enumerate(columns)]
    if invocation.color:
        from shutil import get_terminal_size

        widths = _fit(widths, get_terminal_size().columns)
    heading = _line([column.heading for column in columns], columns, widths, invocation.color, heading=True)
    return "\n".join([heading, *(_line(row, columns, widths, invocation.color) for row in cells)])


def _fit(widths: list[int], available: int) -> list[int]:
    """Make the last column as narrow as the terminal needs, but not useless."""
    others = sum(widths[:-1]) + 2 * (len(widths) - 1)
    return [*widths[:-1], min(widths[-1], max(available - others, 20))]


def _line(
    row: Sequence[str], columns: Sequence[Column], widths: Sequence[int], color: bool, heading: bool = False
) -> str:
    parts = []
    for text, column, width in zip(row, columns, widths, strict=True):
        shown = text if len(text) <= width else text[: width - 1] + "…"
        padded = shown.rjust(width) if column.right else shown.ljust(width)
        if color and heading:
            padded = click.style(padded, bold=True)
        elif color and column.colored:
            padded = click.style(padded, fg=COLORS.get(text))
        parts.append(padded)
    return "  ".join(parts).rstrip()


def facts(pairs: Sequence[tuple[str, Cell]], indent: str = "") -> str:
    """``name: value`` lines, values in one column; pairs whose value is ``None`` or empty are left out."""
    shown = [(name, text_of(value)) for name, value in pairs if value is not None and value not in ("", [], ())]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"{indent}{name + ':':<{width + 1}} {value}" for name, value in shown)
