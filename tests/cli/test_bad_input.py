"""Whatever is wrong: one line that says what and what to do, the right exit status, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import CHECKOUT, Ended, Vgpumgr
from tests.cli.trees import two_cards


def check_one_line(ended: Ended, status: int, *words: str) -> None:
    """One line on standard error with these words in it, nothing on standard output."""
    assert ended.status == status, ended.err
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1, ended.err
    missing = [word for word in words if word not in ended.err]
    assert not missing, ended.err
    assert ended.out == ""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return two_cards(tmp_path / "host")


@pytest.mark.parametrize("address", ["gpu0", "00:00", "3b:00.8", "3b:20.0", "", "0000:3b:00.0; rm", "../3b:00.0"])
@pytest.mark.parametrize("verb", ["show", "bind", "release"])
def test_a_wrong_address(verb: str, address: str, vgpumgr: Vgpumgr, tree: Path) -> None:
    plan = [] if verb == "show" else ["--plan"]
    check_one_line(vgpumgr("--sysfs-root", tree, "gpu", verb, address, *plan), 2, "not a PCI address", "gpu list")


def test_an_address_where_no_gpu_is(vgpumgr: Vgpumgr, tree: Path) -> None:
    check_one_line(vgpumgr("--sysfs-root", tree, "gpu", "show", "0000:ff:00.0"), 2, "0000:ff:00.0")


def test_a_group_that_is_not_there(vgpumgr: Vgpumgr, tree: Path) -> None:
    check_one_line(vgpumgr("--sysfs-root", tree, "group", "show", 99), 2, "99")


@pytest.mark.parametrize("command", [("inventory",), ("gpu", "list"), ("host", "doctor")], ids=" ".join)
def test_a_tree_that_is_no_sysfs(command: tuple[str, ...], vgpumgr: Vgpumgr, tmp_path: Path) -> None:
    check_one_line(vgpumgr("--sysfs-root", tmp_path, *command), 2, str(tmp_path), "sys/")


def test_a_source_that_is_not_there(vgpumgr: Vgpumgr, tmp_path: Path) -> None:
    check_one_line(vgpumgr("--sysfs-root", tmp_path / "none", "gpu", "list"), 2, "none")


def test_a_source_that_is_no_archive(vgpumgr: Vgpumgr, tmp_path: Path) -> None:
    file = tmp_path / "host.tar"
    file.write_text("not a tar")
    check_one_line(vgpumgr("--sysfs-root", file, "gpu", "list"), 2, "host.tar")


def test_an_unknown_simulated_host_lists_the_known_ones(vgpumgr: Vgpumgr) -> None:
    check_one_line(vgpumgr("--simulate", "nope", "gpu", "list"), 2, "nope", "vdi-a40")


@pytest.mark.parametrize("option", ["--sysfs-root", "--simulate", "--config", "--socket"])
def test_an_empty_source_is_not_this_machine(option: str, vgpumgr: Vgpumgr) -> None:
    check_one_line(vgpumgr(option, "", "gpu", "list"), 2, option, "empty")


@pytest.mark.parametrize(
    ("text", "word"), [("[" * 5000, "nested too deep"), ("hostname: [1]\n", "hostname: must be text")]
)
def test_a_host_description_that_makes_no_sense(text: str, word: str, vgpumgr: Vgpumgr, tmp_path: Path) -> None:
    file = tmp_path / "host.yaml"
    file.write_text(text)
    check_one_line(vgpumgr("--simulate", file, "gpu", "list"), 2, word, "host-descriptions.md")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("functions: []\nfunctions: []\n", "'functions' stands twice in line 2, column 1"),
        ("hostname: [\n", "in line 2, column 1"),
        ("!!python/name:os.system\n", "in line 1, column 1"),
    ],
)
def test_yaml_that_makes_no_sense(text: str, word: str, vgpumgr: Vgpumgr, tmp_path: Path) -> None:
    file = tmp_path / "host.yaml"
    file.write_text(text)
    check_one_line(vgpumgr("--simulate", file, "gpu", "list"), 2, "not valid YAML", word, "host-descriptions.md")


def test_two_sources_at_once(vgpumgr: Vgpumgr, tree: Path) -> None:
    check_one_line(vgpumgr("--sysfs-root", tree, "--simulate", "vdi-a40", "gpu", "list"), 2, "--simulate")


def test_a_settings_file_that_is_not_there(vgpumgr: Vgpumgr, tmp_path: Path) -> None:
    check_one_line(vgpumgr("--config", tmp_path / "none.toml", "gpu", "list"), 2, "none.toml")


def test_a_settings_file_with_an_unknown_setting(vgpumgr: Vgpumgr, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("colour = 'blue'\n")
    check_one_line(vgpumgr("--config", file, "gpu", "list"), 2, "colour", "configuration.md")


def test_a_setting_of_the_wrong_type(vgpumgr: Vgpumgr, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("socket = 5\n")
    check_one_line(vgpumgr("--config", file, "gpu", "list"), 2, "socket must be a path, not 5")


def test_a_recording_cannot_be_changed(vgpumgr: Vgpumgr, tree: Path) -> None:
    check_one_line(vgpumgr("--sysfs-root", tree, "gpu", "bind", "86:00.0"), 3, "recording", "--plan")


def test_a_recording_has_no_allocations(vgpumgr: Vgpumgr, tree: Path) -> None:
    check_one_line(vgpumgr("--sysfs-root", tree, "alloc", "create", "--vm", "a", "--plan"), 2, "--simulate")


def test_a_domain_that_is_no_xml(vgpumgr: Vgpumgr, tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "vm.xml"
    file.write_text("<domain>")
    check_one_line(vgpumgr("--sysfs-root", tree, "domain", "check", file), 2)


def test_a_domain_file_that_is_too_large_or_absent(vgpumgr: Vgpumgr, tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "vm.xml"
    file.write_bytes(b" " * (1024 * 1024 + 1))
    check_one_line(vgpumgr("--sysfs-root", tree, "domain", "check", file), 2, "1 MiB")
    check_one_line(vgpumgr("--sysfs-root", tree, "domain", "check", tmp_path / "none.xml"), 2, "none.xml")


@pytest.mark.parametrize(
    "arguments",
    [
        ("gpu",),
        ("gpu", "frobnicate"),
        ("gpu", "bind"),
        ("gpu", "list", "--wat"),
        ("gpu", "list", "-o", "xml"),
        ("candidates", "--count", "0"),
        ("group", "show", "x"),
        ("alloc", "create"),
    ],
    ids=" ".join,
)
def test_wrong_usage_points_to_the_help(arguments: tuple[str, ...], vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr(*arguments)
    assert ended.status == 2
    assert "Usage:" in ended.err or "--help" in ended.err
    assert ended.out == ""


def test_programs_get_the_error_as_an_object(vgpumgr: Vgpumgr, tree: Path) -> None:
    ended = vgpumgr("--sysfs-root", tree, "gpu", "show", "gpu0", "-o", "json")
    assert ended.status == 2
    assert ended.json["error"]["code"] == "address-invalid"
    assert set(ended.json["error"]) == {"code", "message", "hint", "reasons"}
    assert ended.err.startswith("error: ")


def test_binding_needs_root(vgpumgr: Vgpumgr, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    check_one_line(vgpumgr("gpu", "bind", "0000:3b:00.0"), 5, "root", "sudo")


def test_force_is_not_taken_without_an_answer(vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr("--simulate", "vdi-a40", "gpu", "bind", "0000:3b:00.0", "--force")
    check_one_line(ended, 2, "--yes")


def test_a_reader_that_goes_away_is_no_error(tree: Path) -> None:
    shell = f"{sys.executable} -m vgpumgr.cli --sysfs-root {tree} inventory -o json | head -c 1"
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shell}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    assert ended.stderr == ""


def test_a_full_disk_is_one_line(tree: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "vgpumgr.cli", "--sysfs-root", str(tree), "inventory"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=CHECKOUT,
        )
    assert (ended.returncode, ended.stderr) == (4, "error: No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_caller_may_close_the_standard_streams(closed: str, tree: Path) -> None:
    shell = f"{sys.executable} -m vgpumgr.cli --sysfs-root {tree} gpu list {closed}"
    ended = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False, cwd=CHECKOUT)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_snapshot_goes_into_a_pipe(program: Vgpumgr, tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "host.tar"
    shell = f"{sys.executable} -m vgpumgr.cli --sysfs-root {tree} host snapshot - > {file}"
    subprocess.run(["bash", "-c", shell], check=True, cwd=CHECKOUT)
    seen = [program("--sysfs-root", source, "gpu", "list", "-o", "json").json for source in (tree, file)]
    assert seen[0] == seen[1]


def test_output_that_is_no_terminal_has_no_colours(program: Vgpumgr, tree: Path) -> None:
    for command in (("gpu", "list"), ("host", "doctor"), ("inventory",)):
        assert "\x1b" not in program("--sysfs-root", tree, *command).out
