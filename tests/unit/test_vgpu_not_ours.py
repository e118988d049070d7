"""vGPUs and plain virtual functions of others: left alone, and said whose they are and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.vgpu_hosts import CARD, flex, service_of, simulated, t4
from vgpumgr.plans.plan import Refusal
from vgpumgr.service import Service

VF = "0000:3b:00.1"
UUID = "0a53bba5-9d16-4e0f-9e7a-31d4b1a0d0a1"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    opened = service_of(tmp_path, flex(enabled=4))
    yield opened
    opened.close()


def refusal_of(service: Service, vgpu: str) -> Refusal:
    refusal = service.slices.plan_delete(vgpu).refusal
    assert refusal is not None
    return refusal


def to_vfio(service: Service) -> None:
    kernel = simulated(service)
    kernel.load_module("vfio_pci")
    kernel.write(f"/sys/bus/pci/devices/{VF}/driver_override", "vfio-pci")
    if kernel.driver(VF) is not None:
        kernel.write(f"/sys/bus/pci/devices/{VF}/driver/unbind", VF)
    kernel.write("/sys/bus/pci/drivers_probe", VF)


def test_a_vf_that_nobody_was_given_is_no_vgpu_to_delete(service: Service) -> None:
    refusal = refusal_of(service, VF)
    assert refusal.code == "vf-not-given"
    assert f"{VF} is a virtual function of {CARD} on i915" in refusal.message
    assert f"slicing {CARD} into 0 VFs" in refusal.hint


def test_a_vf_that_others_put_on_vfio_is_theirs(service: Service) -> None:
    to_vfio(service)
    refusal = refusal_of(service, VF)
    assert refusal.code == "vf-foreign"
    assert "on vfio-pci that vgpumgr did not give away; nobody is seen to have it open" in refusal.message
    assert "who put it on vfio-pci takes it back" in refusal.hint


def test_who_has_the_vf_is_named(service: Service) -> None:
    to_vfio(service)
    simulated(service).hold(VF, 78, "qemu-kvm")
    refusal = refusal_of(service, VF)
    assert "process qemu-kvm (pid 78) has it" in refusal.message
    assert refusal.hint.startswith("stop process qemu-kvm (pid 78)")


def test_a_vf_takes_no_parameters_whosever_it_is(service: Service) -> None:
    refusal = service.slices.plan_params(VF, limiter=True).refusal
    assert refusal is not None
    assert refusal.code == "params-unsupported"


def test_a_vgpu_of_others_is_deleted_by_who_made_it(tmp_path: Path) -> None:
    service = service_of(tmp_path, t4())
    service.kernel.write(f"/sys/class/mdev_bus/{CARD}/mdev_supported_types/nvidia-232/create", UUID)
    refusal = refusal_of(service, UUID)
    assert (refusal.code, refusal.hint) == ("vgpu-foreign", "who made it deletes it")
    service.close()
