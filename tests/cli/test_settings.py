"""Where settings come from, and which one wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Vgpumgr
from tests.cli.trees import two_cards


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return two_cards(tmp_path / "host")


def addresses(vgpumgr: Vgpumgr, *arguments: object) -> list[str]:
    return [gpu["address"] for gpu in vgpumgr(*arguments, "gpu", "list", "-o", "json").json]


def test_a_file_can_name_the_source(vgpumgr: Vgpumgr, tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'sysfs_root = "{tree}"\n')
    assert addresses(vgpumgr, "--config", file) == ["0000:03:00.0", "0000:86:00.0"]


def test_the_environment_wins_over_the_file(
    vgpumgr: Vgpumgr, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    file.write_text('sysfs_root = "/nowhere"\n')
    monkeypatch.setenv("VGPUMGR_SYSFS_ROOT", str(tree))
    assert addresses(vgpumgr, "--config", file) == ["0000:03:00.0", "0000:86:00.0"]


def test_a_source_on_the_command_line_replaces_the_other_kind(
    vgpumgr: Vgpumgr, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGPUMGR_SIMULATE", "vdi-a40")
    assert addresses(vgpumgr, "--sysfs-root", tree) == ["0000:03:00.0", "0000:86:00.0"]


def test_colours_are_off_by_flag_by_variable_and_away_from_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from vgpumgr.cli.invocation import Invocation

    invocation = Invocation()
    assert not invocation.color
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert invocation.color
    monkeypatch.setenv("NO_COLOR", "1")
    assert not invocation.color
    monkeypatch.delenv("NO_COLOR")
    invocation.no_color = True
    assert not invocation.color
