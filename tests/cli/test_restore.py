"""``vgpumgr vgpu restore`` and ``set``: the plan, the question, what came back and what did not."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Vgpumgr
from vgpumgr.assembly import open_service
from vgpumgr.cli import vgpu
from vgpumgr.cli.local import LocalBackend
from vgpumgr.config import Config
from vgpumgr.kernel.simulated.faults import Mishap
from vgpumgr.kernel.simulated.machine import SimulatedKernel
from vgpumgr.service import Service

CUT = "0000:5e:00.0"


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """The service that the commands talk to; its driver was reloaded under two vGPUs."""
    settings = Config(state_dir=tmp_path, runtime_dir=tmp_path, simulate="vdi-a40", host_id="the-host")
    service = open_service(settings, libvirt=False)
    service.start()

    @contextmanager
    def backend(*_: object) -> Iterator[LocalBackend]:
        yield LocalBackend(service)

    monkeypatch.setattr(vgpu, "open_backend", backend)
    service.wait(service.slices.slice(CUT).id, None)
    service.wait(service.slices.create("NVIDIA A40-8Q", 2, CUT).id, None)
    kernel_of(service).reload_driver(CUT)
    yield service
    service.close()


def kernel_of(service: Service) -> SimulatedKernel:
    assert isinstance(service.kernel, SimulatedKernel)
    return service.kernel


def test_the_plan_names_every_piece_and_changes_nothing(service: Service, vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr("vgpu", "restore", "--plan")
    assert ended.status == 0
    assert f"restore-card {CUT}" in ended.out
    assert ended.out.count("planned when the card is cut as it was") == 2
    assert vgpumgr("vgpu", "list").out.count("not on the host") == 2


def test_nobody_to_ask_needs_a_yes(service: Service, vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr("vgpu", "restore")
    assert ended.status == 2
    assert f"restore-card {CUT}" in ended.err
    assert "add --yes" in ended.err


def test_all_comes_back_once(service: Service, vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr("vgpu", "restore", "--yes")
    assert ended.status == 0
    assert ended.out.count("succeeded") == 3
    assert "not on the host" not in vgpumgr("vgpu", "list").out
    again = vgpumgr("vgpu", "restore", "--yes")
    assert (again.status, again.out.strip()) == (0, "nothing to restore: all that is recorded is there")


def test_what_could_not_come_back_is_named(service: Service, vgpumgr: Vgpumgr) -> None:
    (lost, back) = [view.vgpu.id for view in service.slices.vgpus()]
    kernel_of(service).faults.add(f"/create {lost}", Mishap.FAIL, errno=errno.EIO)
    ended = vgpumgr("vgpu", "restore", "--yes", "-o", "json")
    error = ended.json["error"]
    assert (ended.status, error["code"]) == (4, "restore-incomplete")
    assert [reason["addresses"] for reason in error["reasons"]] == [[lost]]
    assert service.slices.vgpu(back).live
    assert not service.slices.vgpu(lost).live


def test_a_vgpus_limiter_is_set_and_shown(service: Service, vgpumgr: Vgpumgr) -> None:
    vgpumgr("vgpu", "restore", "--yes")
    vgpu_id = service.slices.vgpus()[0].vgpu.id
    assert "frame_rate_limiter=0" in vgpumgr("vgpu", "set", vgpu_id, "--frame-rate-limiter", "off", "--plan").out
    assert vgpumgr("vgpu", "set", vgpu_id, "--frame-rate-limiter", "off").status == 0
    assert "frame-rate limiter: off" in vgpumgr("vgpu", "show", vgpu_id).out
    assert vgpumgr("vgpu", "set", vgpu_id).status == 2
