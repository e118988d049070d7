"""What commands that change a host share: plans as text, the question, progress, the outcome."""

from __future__ import annotations

from typing import Any, cast

import click
import pytest

from vgpumgr.cli import changes
from vgpumgr.cli.backend import Backend
from vgpumgr.cli.changes import carry_out, confirm, plan_text, show_plan
from vgpumgr.cli.invocation import Invocation
from vgpumgr.errors import FailedError, UsageError

STEPS = [
    {"kind": "unbind", "address": "0000:3b:00.0", "describe": "unbind 0000:3b:00.0 from nvidia", "error": None},
    {"kind": "probe", "address": "0000:3b:00.0", "describe": "bind 0000:3b:00.0 to vfio-pci", "error": None},
]


def operation(state: str, *states: str, error: dict[str, Any] | None = None) -> dict[str, Any]:
    steps = [{**step, "state": done} for step, done in zip(STEPS, states, strict=True)]
    return {"id": "op-1", "kind": "bind", "subject": "0000:3b:00.0", "state": state, "steps": steps, "error": error}


class _Backend:
    """Answers ``wait`` with one prepared operation after the other."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = list(answers)

    def wait(self, operation_id: str, seconds: float) -> dict[str, Any]:
        return self._answers.pop(0)


def follow(*answers: dict[str, Any]) -> None:
    carry_out(Invocation(), cast(Backend, _Backend(*answers)), operation("running", "started", "pending"))


def test_a_terminal_sees_each_step_once_as_it_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    follow(operation("running", "done", "started"), operation("succeeded", "done", "done"))
    assert capsys.readouterr().err.splitlines() == [f"✓ {step['describe']}" for step in STEPS]


class _Interrupted(_Backend):
    def wait(self, operation_id: str, seconds: float) -> dict[str, Any]:
        raise KeyboardInterrupt


def test_an_impatient_person_is_told_that_the_operation_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        carry_out(Invocation(), cast(Backend, _Interrupted()), operation("running", "started", "pending"))
    assert "vgpumgr op show op-1" in capsys.readouterr().err


def test_no_terminal_sees_the_outcome_only(capsys: pytest.CaptureFixture[str]) -> None:
    follow(operation("succeeded", "done", "done"))
    out, err = capsys.readouterr()
    assert err == ""
    assert out == "bind 0000:3b:00.0: done, 2 steps read back (operation op-1)\n"


def test_nothing_to_do_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    follow(operation("succeeded", "skipped", "skipped"))
    assert "already as wanted" in capsys.readouterr().out


def test_a_failed_operation_is_raised_with_its_own_code_and_what_is_left() -> None:
    left = {"code": "left-behind", "message": "could not undo: bind", "addresses": ["0000:3b:00.0"]}
    error = {"code": "kernel-refused", "message": "no such device", "hint": "", "reasons": [left]}
    with pytest.raises(FailedError) as caught:
        follow(operation("stuck", "left", "failed", error=error))
    assert caught.value.code == "kernel-refused"
    assert caught.value.exit_status == 4
    assert caught.value.reasons[0].code == "left-behind"


def test_a_plan_shows_what_is_written_where() -> None:
    path = "/sys/bus/pci/drivers/nvidia/unbind"
    plan = {"steps": [{**STEPS[0], "path": path, "value": "0000:3b:00.0"}], "refusal": None, "warnings": []}
    assert plan_text(plan, Invocation()).splitlines() == [
        "  1. unbind 0000:3b:00.0 from nvidia",
        f"     {path} ← 0000:3b:00.0",
    ]


def test_a_refused_plan_shows_every_reason_once(capsys: pytest.CaptureFixture[str]) -> None:
    reasons = [
        {"code": "boot-display", "message": "it is the boot display", "addresses": ["0000:3b:00.0"]},
        {"code": "in-use-by-host", "message": "Xorg uses it", "addresses": []},
    ]
    refusal = {
        "code": "boot-display",
        "message": "no: it is the boot display",
        "hint": "move it",
        "reasons": reasons,
    }
    assert show_plan(Invocation(), {"steps": [], "refusal": refusal}) == 3
    expected = ["refused: no: it is the boot display – move it", "  Xorg uses it"]
    assert capsys.readouterr().out.splitlines() == expected


def test_an_empty_plan_says_that_nothing_is_to_be_done() -> None:
    assert "nothing to do" in plan_text({"steps": [], "refusal": None}, Invocation())


def test_yes_is_not_asked() -> None:
    confirm("pull the plug", yes=True)


def test_nobody_there_to_ask_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "is_interactive", lambda: False)
    with pytest.raises(UsageError, match="--yes"):
        confirm("pull the plug", yes=False)


@pytest.mark.parametrize(("answer", "goes_on"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_a_person_is_asked(answer: str, goes_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "is_interactive", lambda: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: answer.strip())
    if goes_on:
        confirm("pull the plug", yes=False)
    else:
        with pytest.raises(click.Abort):
            confirm("pull the plug", yes=False)
