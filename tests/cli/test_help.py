"""Every command explains itself, and takes the options that every command takes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.cli.conftest import CHECKOUT, Vgpumgr
from vgpumgr.cli.base import VerbCommand
from vgpumgr.cli.root import NOUNS, cli

EVERYWHERE = ("--sysfs-root", "--simulate", "--socket", "--config", "--output", "--no-color")


def _verbs(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _verbs(command, (*path, name))
        else:
            yield (*path, name), command


VERBS = dict(_verbs(cli))


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_help_has_a_sentence_examples_and_the_common_options(path: tuple[str, ...], vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr(*path, "--help")
    assert ended.status == 0
    command = VERBS[path]
    assert isinstance(command, VerbCommand)
    assert command.help
    assert "Examples:" in ended.out
    assert f"vgpumgr {' '.join(path)}" in command.examples or "vgpumgr" in command.examples
    missing = [option for option in EVERYWHERE if option not in ended.out]
    assert not missing


def command_lines() -> list[str]:
    """Every command line that the help and the pages for users show, on one line each."""
    shown = [line for command in VERBS.values() for line in getattr(command, "examples", "").splitlines()]
    for page in (CHECKOUT / "README.md", *(CHECKOUT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        blocks = re.findall(r"^```(?:sh|console)?\n(.*?)^```|((?:^    .*\n)+)", text, re.MULTILINE | re.DOTALL)
        shown += [line for block in blocks for part in block for line in part.splitlines()]
    lines = [re.sub(r"\s+[#|>].*", "", line).strip().removeprefix("$ ") for line in shown]
    return sorted({line for line in lines if line.startswith("vgpumgr ") and "…" not in line and "$(" not in line})


@pytest.mark.parametrize("line", command_lines())
def test_what_the_help_and_the_pages_show_can_be_typed(line: str, vgpumgr: Vgpumgr) -> None:
    """An option that is not there is found before ``--help`` is followed."""
    assert vgpumgr(*shlex.split(line)[1:], "--help").status == 0


@pytest.mark.parametrize(
    "path",
    [("gpu", "bind"), ("gpu", "release"), ("alloc", "create"), ("alloc", "release")]
    + [("vm", verb) for verb in ("define", "start", "stop", "undefine")],
    ids=" ".join,
)
def test_what_changes_a_host_can_show_its_plan(path: tuple[str, ...]) -> None:
    assert "--plan" in {option for parameter in VERBS[path].params for option in parameter.opts}


def test_every_noun_of_the_design_is_there() -> None:
    wanted = {"inventory", "host", "gpu", "group", "profile", "candidates", "alloc", "vm", "op", "serve", "demo"}
    assert wanted | {"domain", "completion"} <= set(NOUNS)


def test_no_arguments_shows_the_help_and_is_wrong_usage(vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr()
    assert ended.status == 2
    assert "Usage: vgpumgr" in ended.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str, vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr("completion", shell)
    assert ended.status == 0
    assert "_VGPUMGR_COMPLETE" in ended.out


def test_completion_of_another_shell_is_wrong_usage(vgpumgr: Vgpumgr) -> None:
    assert vgpumgr("completion", "tcsh").status == 2


COMPLETED = [
    ("vgpumgr gpu re", ["release", "restore"]),
    ("vgpumgr --simulate vdi-a4", ["vdi-a40"]),
    ("vgpumgr --simulate vdi-a40 gpu show 0000:3", ["3b:00.0"]),
    ("vgpumgr --simulate vdi-a40 gpu show 0000:3b:", ["00.0"]),
    ("vgpumgr gpu show --simulate vdi-a40 3b", ["3b:00.0"]),
    ("vgpumgr --simulate vdi-a40 vgpu create --profile NVIDIA\\ A40-48", [rf"NVIDIA\ A40-48{s}" for s in "QAC"]),
    ("vgpumgr --simulate vdi-a40 alloc xml ID --template w", ["windows11-desktop"]),
    ("vgpumgr event follow --type gpu.", ["gpu.added", "gpu.removed"]),
    ("vgpumgr --simulate vdi-a40 event list --subject 3b", ["3b:00.0"]),
    ("vgpumgr --sysfs-root nowhere gpu show ", []),
]


@pytest.mark.parametrize(("line", "answers"), COMPLETED)
def test_bash_completes_nouns_verbs_and_values(
    line: str, answers: list[str], vgpumgr: Vgpumgr, tmp_path: Path
) -> None:
    """In bash itself, called as it calls the function when Tab is hit."""
    program = tmp_path / "vgpumgr"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vgpumgr.cli "$@"\n', "utf-8")
    program.chmod(0o755)
    shell = f"""
        {vgpumgr("completion", "bash").out}
        COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:'; COMP_LINE={shlex.quote(line)}; COMP_POINT=${{#COMP_LINE}}
        _vgpumgr_completion {program}; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    paths = {"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'api'}"}
    ended = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, check=True, env={**os.environ, **paths}
    )
    assert ([answer for answer in ended.stdout.split("\n") if answer], ended.stderr) == (answers, "")
