"""Where settings come from, and which one wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Vgpumgr
from tests.cli.trees import two_cards
from vgpumgr.config import load


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


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('listen = "10.0.0.1:8900"', "loopback"),
        ('listen = "127.evil.example:8900"', "loopback"),
        ('listen = "localhost.evil.example:8900"', "loopback"),
        ('listen = "127.0.0.256:8900"', "loopback"),
        ('listen = "127.0.0.1:65536"', "address:port"),
        ('listen = "127.0.0.1:²"', "address:port"),
        ('listen = "8900"', "address:port"),
        ("threads = 1.5", "whole number"),
        ("threads = 0", "above zero"),
        ("threads = true", "whole number"),
        ("write_deadline_seconds = nan", "above zero"),
        ("write_deadline_seconds = inf", "above zero"),
        ('log_level = "loud"', "one of debug, info, warning, error"),
        ('log_format = "xml"', "one of text, json"),
        ('nope = "x"', "unknown setting 'nope'"),
        ("socket = [", "not valid TOML"),
    ],
)
def test_a_setting_that_cannot_be_is_one_line_that_names_file_and_setting(
    vgpumgr: Vgpumgr, tmp_path: Path, line: str, words: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(line, encoding="utf-8")
    ended = vgpumgr("--config", file, "serve")
    assert ended.status == 2
    assert ended.err.count("\n") == 1
    assert str(file) in ended.err
    assert words in ended.err


@pytest.mark.parametrize("listen", ["127.0.0.1:8900", "127.1.2.3:1", "localhost:65535", "[::1]:8900", ""])
def test_every_spelling_of_loopback_can_be_listened_on(tmp_path: Path, listen: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'listen = "{listen}"')
    assert load(file, {}).listen == listen
