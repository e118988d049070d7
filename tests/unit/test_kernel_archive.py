"""Recordings in a tar: what is damaged is said to be damaged, never taken for a smaller host."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpumgr.errors import SourceError
from vgpumgr.kernel.recorded import RecordedTree, open_recording

DEVICES = "sys/bus/pci/devices"
BLOCK = 512
NAMES = [f"0000:0{number}:00.0" for number in range(6)]


def plain() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in NAMES:
            member = tarfile.TarInfo(f"{DEVICES}/{name}/class")
            member.size = len(b"0x030000\n")
            archive.addfile(member, io.BytesIO(b"0x030000\n"))
    return packed.getvalue()


PLAIN = plain()
MEMBERS = 2 * len(NAMES) * BLOCK
"""Bytes of the members: a header and a block of content each."""
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
packings = pytest.mark.parametrize("pack", PACKINGS.values(), ids=PACKINGS.keys())


def opened(folder: Path, data: bytes) -> list[str]:
    place = folder / "recording"
    place.write_bytes(data)
    recording = open_recording(str(place))
    assert isinstance(recording, RecordedTree)
    return recording.list(f"/{DEVICES}")


@packings
def test_a_tar_is_read_however_it_is_compressed(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    assert opened(tmp_path, pack(PLAIN)) == NAMES


@packings
def test_a_tar_that_was_cut_short_is_refused_wherever_it_was_cut(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    # A block of zeros ends a tar: what is cut after it, in the padding, has lost nothing.
    whole = MEMBERS + BLOCK if pack is bytes else len(pack(PLAIN))
    for end in range(1, whole, BLOCK // 4):
        with pytest.raises(SourceError, match=r"damaged, or cut short|not a tar"):
            opened(tmp_path, pack(PLAIN)[:end])


def test_a_header_that_was_damaged_does_not_end_the_host(tmp_path: Path) -> None:
    data = bytearray(PLAIN)
    data[4 * BLOCK + 100] ^= 0xFF
    with pytest.raises(SourceError, match="damaged"):
        opened(tmp_path, bytes(data))


def test_a_cut_between_two_members_does_not_end_the_host(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="damaged, or cut short"):
        opened(tmp_path, PLAIN[: 4 * BLOCK])


@pytest.mark.parametrize("name", [name for name in PACKINGS if name != "plain"])
@given(st.data())
def test_a_byte_that_changed_in_a_compressed_tar_is_noticed(name: str, data: st.DataObject) -> None:
    packed = bytearray(PACKINGS[name](PLAIN))
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= data.draw(st.integers(1, 255))
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"vgpumgr-archive-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    try:
        found = opened(folder, bytes(packed))
    except SourceError:
        return
    finally:
        (folder / "recording").unlink(missing_ok=True)
        folder.rmdir()
    # Some bytes say nothing about the content: gzip's time, its flags.
    assert found == NAMES


@pytest.mark.parametrize(
    "content", [b"", b"root:x:0:0\n" * 200, b"\x28\xb5\x2f\xfd" + bytes(2000), bytes(range(256)) * 9]
)
def test_what_is_no_tar_is_one_clear_line(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        opened(tmp_path, content)
    assert "not a tar: plain, or compressed by gzip, bzip2 or xz" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_neither_a_directory_nor_a_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(SourceError, match="neither a directory nor a file"):
            open_recording(place)
