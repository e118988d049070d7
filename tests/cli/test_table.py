"""Tables for people."""

from __future__ import annotations

import os

import click
import pytest

from vgpumgr.cli.alloc import allocation_table
from vgpumgr.cli.invocation import Invocation
from vgpumgr.cli.table import Column, facts, table

COLUMNS = (Column("NAME"), Column("COUNT", right=True), Column("STATE", colored=True))


class _AtTerminal(Invocation):
    @property
    def color(self) -> bool:
        return True


def test_columns_are_as_wide_as_their_widest_cell_and_nothing_trails() -> None:
    text = table(COLUMNS, [("a", 1, "ready"), ("longer", 100, None)], Invocation())
    assert text.splitlines() == ["NAME    COUNT  STATE", "a           1  ready", "longer    100  -"]


def test_unknown_is_a_dash_and_truth_is_a_word() -> None:
    rows = [(None, 0, True), ("", 1, False)]
    lines = table(COLUMNS, rows, Invocation()).splitlines()[1:]
    assert [line.split() for line in lines] == [["-", "0", "yes"], ["-", "1", "no"]]


def test_an_empty_table_is_its_remark() -> None:
    assert table(COLUMNS, [], Invocation(), empty="nothing") == "nothing"


def test_a_terminal_gets_colours_and_no_line_wider_than_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((40, 24)))
    columns = (Column("STATE", colored=True), Column("WHY"))
    text = table(columns, [("failed", "x" * 100)], _AtTerminal())
    assert "\x1b[31m" in text
    assert max(len(line) for line in click.unstyle(text).splitlines()) <= 40


def test_facts_leave_out_what_is_not_known() -> None:
    assert facts([("driver", "nvidia"), ("node", None), ("primary", False)]) == "driver:  nvidia\nprimary: no"


def test_an_allocation_whose_device_is_gone_shows_it_in_the_list() -> None:
    item = {"id": "a1", "vm": "vm1", "tenant": "red", "state": "ready", "devices": []}
    gone = {**item, "warnings": [{"code": "gpu-missing", "message": "gone", "addresses": []}]}
    rows = allocation_table([{**item, "warnings": []}, gone], Invocation()).splitlines()
    assert ["device missing" in row for row in rows] == [False, False, True]
