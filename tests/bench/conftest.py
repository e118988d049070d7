"""The recorded host that benches measure on."""

from __future__ import annotations

import tarfile

import pytest

from tests.shared import shared_dir


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A recorded host with 226 functions, unpacked."""
    shared = shared_dir()
    if shared is None:
        pytest.skip("no shared/ beside the checkout: the recorded host is there")
    folder = tmp_path_factory.mktemp("recorded")
    with tarfile.open(shared / "recordings" / "vgpu-node-a2" / "sysroot-recorded.tar.gz") as archive:
        archive.extractall(folder)
    return str(folder)
