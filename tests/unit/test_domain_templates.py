"""Templates: whole valid domains by name, an administrator's before the shipped, never outside their folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.guests import domain, hostdev
from vgpumgr.domain.document import parse_domain
from vgpumgr.domain.schema import schema_errors, validate
from vgpumgr.domain.templates import Templates
from vgpumgr.errors import NotFoundError, UnavailableError, UsageError
from vgpumgr.resources import directory


@pytest.mark.parametrize("path", sorted(directory("xml_templates").glob("*.xml")), ids=lambda path: path.stem)
def test_a_shipped_template_is_a_whole_valid_domain_with_comments(path: Path) -> None:
    assert validate(parse_domain(path.read_bytes())) == []
    assert Templates().load(path.stem).findtext("name") == path.stem
    assert path.read_text(encoding="utf-8").startswith("<!--")


def test_two_templates_ship() -> None:
    assert Templates().names() == ["linux-compute", "windows11-desktop"]


def test_an_administrators_template_comes_first(tmp_path: Path) -> None:
    (tmp_path / "linux-compute.xml").write_text(domain("", name="mine"))
    (tmp_path / "desk.xml").write_text(domain("", name="desk"))
    (tmp_path / ".hidden.xml").write_text("")
    templates = Templates(tmp_path)
    assert templates.names() == ["desk", "linux-compute", "windows11-desktop"]
    assert templates.load("linux-compute").findtext("name") == "mine"


def test_a_missing_folder_of_the_administrator_is_fine(tmp_path: Path) -> None:
    assert Templates(tmp_path / "none").names() == ["linux-compute", "windows11-desktop"]


@pytest.mark.parametrize(
    "name",
    [
        "no-such",
        "",
        "..",
        ".",
        "../linux-compute",
        "/etc/passwd",
        "a/b",
        "linux-compute.xml",
        "a" * 300,
        "a\0b",
        "a\nb",
    ],
)
def test_an_unknown_name_says_which_are_known(tmp_path: Path, name: str) -> None:
    (tmp_path.parent / "linux-compute.xml").write_text(domain(""))
    with pytest.raises(NotFoundError, match="known: linux-compute, windows11-desktop") as caught:
        Templates(tmp_path).load(name)
    assert caught.value.code == "template-unknown"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<domain/>",
        "<network/>",
        hostdev("3b:00.0"),
        domain(hostdev("3b:00.0")),
        domain("<hostdev mode='subsystem' type='pci'/>"),
        domain("<disk type='nvme' device='disk'><source type='pci'><address bus='1'/></source></disk>"),
        domain(
            "",
            "<q:commandline xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'>"
            "<q:arg value='-device'/><q:arg value='vfio-pci,host=3b:00.0'/></q:commandline>",
        ),
    ],
)
def test_a_template_that_is_none_or_names_devices_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.xml").write_text(text)
    with pytest.raises(UsageError, match=r"mine\.xml") as caught:
        Templates(tmp_path).load("mine")
    assert caught.value.code == "template-invalid"


def test_every_load_is_a_fresh_copy() -> None:
    templates = Templates()
    templates.load("linux-compute").clear()
    assert templates.load("linux-compute").find("devices") is not None


def test_the_schema_finds_what_libvirt_does_not_know() -> None:
    root = Templates().load("linux-compute")
    root.find("devices").append(root.makeelement("hostdv"))
    assert schema_errors(root) == validate(root) != []


def test_pieces_of_a_domain_have_no_schema() -> None:
    assert schema_errors(parse_domain(hostdev("3b:00.0").encode())) == []


def test_a_missing_schema_names_the_package(tmp_path: Path) -> None:
    root = Templates().load("linux-compute")
    with pytest.raises(UnavailableError, match="libvirt-common") as caught:
        validate(root, tmp_path / "domain.rng")
    assert caught.value.code == "schema-missing"
    assert schema_errors(root, tmp_path / "domain.rng") == []
