"""Writes of the real kernel, on files that hang as attributes do."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic

import pytest

from vgpumgr.kernel.open import open_kernel
from vgpumgr.kernel.real import RealKernel


def test_a_write_that_hangs_ends_at_its_deadline_and_does_not_come_true_later(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "create")
    kernel = RealKernel(str(tmp_path), write_deadline=0.2)
    began = monotonic()
    with pytest.raises(TimeoutError):
        kernel.write("/create", "1")
    assert monotonic() - began < 5
    reader = os.open(tmp_path / "create", os.O_RDONLY | os.O_NONBLOCK)
    assert os.read(reader, 10) == b""
    kernel.write("/create", "2")
    assert os.read(reader, 10) == b"2"
    os.close(reader)


def test_the_hosts_own_deadline_is_the_kernels() -> None:
    kernel = open_kernel(write_deadline=3.5)
    assert isinstance(kernel, RealKernel)
    assert kernel.write_deadline == 3.5
