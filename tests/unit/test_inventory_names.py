"""Names come from pci.ids, found in place; what it does not know goes by its ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from vgpumgr.inventory.names import NoNames, PciIds, display_name

IDS = """\
1002  Some Maker
\t2235  Another card of the same number
10de  NVIDIA Corporation
\t2235  GA102GL [A40]
\t\t10de 145a  A40 board
# a comment between devices
\t25b6  GA107GL [A2 / A16]
\t\t10de 14a9  A16
\t\t10de 157e  A2
\t25b7  Next
\t\t10de 1111  Board of the next
10df  Emulex
\t10de  A device numbered like a vendor
C 03  Display controller
\t00  VGA compatible controller
"""


@pytest.fixture
def names(tmp_path: Path) -> PciIds:
    path = tmp_path / "pci.ids"
    path.write_text(IDS)
    return PciIds(path)


@pytest.mark.parametrize(
    ("vendor", "device", "subsystem", "expected"),
    [
        ("10de", "2235", None, "NVIDIA Corporation GA102GL [A40]"),
        ("10de", "25b6", "10de:157e", "NVIDIA Corporation GA107GL [A2 / A16] (A2)"),
        ("10de", "25b6", "10de:14a9", "NVIDIA Corporation GA107GL [A2 / A16] (A16)"),
        ("10de", "25b6", "10de:1111", "NVIDIA Corporation GA107GL [A2 / A16]"),
        ("10de", "25b6", None, "NVIDIA Corporation GA107GL [A2 / A16]"),
        ("1002", "2235", None, "Some Maker Another card of the same number"),
        ("10df", "10de", None, "Emulex A device numbered like a vendor"),
        ("10de", "10de", None, None),
        ("1002", "25b6", None, None),
        ("145a", "0000", None, None),
        ("ffff", "ffff", None, None),
    ],
)
def test_look_up(names: PciIds, vendor: str, device: str, subsystem: str | None, expected: str | None) -> None:
    assert names.name(vendor, device, subsystem) == expected


def test_without_a_name_the_ids_stand() -> None:
    assert display_name(NoNames(), "10de", "2235", None) == "10de:2235"
    assert display_name(NoNames(), None, "2235", None) == "unknown:2235"


@pytest.mark.parametrize("content", [b"10de  X", b"\x00\xff" * 40, b"10de  X\n\t2235"])
def test_a_broken_file_names_nothing_false(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pci.ids"
    path.write_bytes(content)
    assert PciIds(path).name("10de", "2235", "10de:145a") is None


def test_an_empty_or_missing_file_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="empty"):
        PciIds(tmp_path / "empty")
    with pytest.raises(FileNotFoundError):
        PciIds(tmp_path / "missing")
