"""NVML through older libraries, absent ones and failing calls: less is told, and nothing is made up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.unit.vgpu_hosts import CARD, h100, host, t4
from vgpumgr.errors import FailedError, UnavailableError
from vgpumgr.telemetry.nvml import Nvml, open_nvml
from vgpumgr.telemetry.nvml_simulated import SimulatedNvml, SimulatedNvmlError
from vgpumgr.vgpu.nvml_port import NvmlPort, Scheduler

OLD_LIBRARY = SimpleNamespace(
    NVMLError=SimulatedNvmlError,
    NVML_GPU_INSTANCE_PROFILE_COUNT=1,
    nvmlDeviceGetHandleByPciBusId=lambda bus_id: bus_id,
    nvmlDeviceGetMigMode=lambda handle: [1, 1],
    nvmlDeviceGetGpuInstanceProfileInfo=lambda handle, index: SimpleNamespace(
        id=19, sliceCount=1, memorySizeMB=9856
    ),
)
"""A library that knows a card and next to nothing of vGPUs."""


def test_an_older_library_tells_less() -> None:
    card = Nvml(OLD_LIBRARY, "old").card(CARD)
    assert card is not None
    assert (card.mig, card.mixed_size, card.scheduler, card.ecc, card.profiles) == (True, None, None, None, ())
    assert [(profile.id, profile.shape, profile.remaining) for profile in card.mig_profiles] == [(19, "1g.10gb", 0)]


def test_an_older_library_refuses_what_it_does_not_know() -> None:
    with pytest.raises(FailedError) as caught:
        Nvml(OLD_LIBRARY, "old").set_mixed_size(CARD, True)
    assert caught.value.code == "nvml-not-supported"


def test_a_host_without_the_library_refuses_every_change() -> None:
    with pytest.raises(UnavailableError) as caught:
        NvmlPort().set_scheduler(CARD, Scheduler.EQUAL_SHARE)
    assert caught.value.code == "nvml-absent"


def test_a_change_that_nvml_refuses_says_its_number() -> None:
    nvml = open_nvml(host(t4()))
    with pytest.raises(FailedError) as caught:
        nvml.set_mig(CARD, True)
    assert caught.value.code == "nvml-not-supported"
    assert "code 3" in caught.value.reasons[0].message


def test_a_card_that_nvml_does_not_show_cannot_be_changed() -> None:
    with pytest.raises(FailedError) as caught:
        open_nvml(host(t4())).set_ecc("0000:ff:00.0", True)
    assert caught.value.code == "nvml-no-card"


def test_an_instance_without_its_compute_instance_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise SimulatedNvmlError(23)

    monkeypatch.setattr(SimulatedNvml, "nvmlGpuInstanceCreateComputeInstance", refuse)
    nvml = open_nvml(host(h100()))
    nvml.set_mig(CARD, True)
    with pytest.raises(FailedError) as caught:
        nvml.create_gpu_instance(CARD, 19, 0)
    assert caught.value.code == "nvml-no-room"
    card = nvml.card(CARD)
    assert card is not None
    assert card.gpu_instances == ()


def test_the_most_that_fit_is_asked_anew_for_it_goes_by_the_cards_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = open_nvml(host(h100()))
    for most in (2, 3):
        monkeypatch.setattr(SimulatedNvml, "nvmlVgpuTypeGetMaxInstances", lambda *_, most=most: most)
        told = nvml.card(CARD)
        assert told is not None
        assert {profile.max_instances for profile in told.profiles} == {most}
