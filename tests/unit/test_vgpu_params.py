"""A vGPU's plugin parameters, the frame-rate limiter among them: shown, changed, refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.vgpu_hosts import CARD, flex, gvt, h100, nvidia
from vgpumgr.assembly import open_service
from vgpumgr.config import Config
from vgpumgr.errors import RefusedError
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.model.operation import Operation
from vgpumgr.plans.plan import Plan
from vgpumgr.service import Service
from vgpumgr.vgpu.modes import Modes
from vgpumgr.vgpu.nvml_port import Scheduler
from vgpumgr.vgpu.params import parsed, path_of, written


class Host:
    """Starts services on described hosts, and stops them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._service: Service | None = None

    def __call__(self, card: dict[str, Any]) -> Service:
        self.close()
        description = self._folder / "host.yaml"
        description.write_text(yaml.safe_dump({"modules": {"vfio_pci": ["vfio-pci"]}, "functions": [card]}))
        config = Config(
            state_dir=self._folder, runtime_dir=self._folder, simulate=str(description), host_id="the-host"
        )
        self._service = open_service(config, libvirt=False)
        self._service.start()
        return self._service

    def close(self) -> None:
        if self._service is not None:
            self._service.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.close()


def done(service: Service, operation: Operation) -> None:
    ended = service.wait(operation.id, None)
    assert ended.state == "succeeded", ended.error


def one(service: Service, profile: str, params: str = "") -> str:
    """The id of a vGPU, made on a card that is cut."""
    done(service, service.slices.slice(CARD))
    done(service, service.slices.create(profile, 1, CARD, params))
    (view,) = service.slices.vgpus()
    return view.vgpu.id


def shown(service: Service, vgpu: str) -> tuple[str | None, bool | None]:
    view = service.slices.vgpu(vgpu)
    return view.params, view.frame_rate_limiter


def code(plan: Plan) -> str | None:
    return plan.refusal.code if plan.refusal is not None else None


@pytest.mark.parametrize("scheme", ["mdev-vf", "vendor-vfio"])
def test_the_limiter_is_switched_and_comes_back_as_it_was_set(host: Host, scheme: str) -> None:
    service = host(nvidia(scheme))
    vgpu = one(service, "A40-8Q")
    assert shown(service, vgpu) == ("", None)
    plan = service.slices.plan_params(vgpu, limiter=False)
    assert [step.kind for step in plan.steps] == ["check-vgpu-idle", "set-vgpu-params", "remember-vgpu-params"]
    done(service, service.slices.set_params(vgpu, limiter=False))
    assert shown(service, vgpu) == ("frame_rate_limiter=0", False)
    assert service.slices.plan_params(vgpu, limiter=False).steps == ()
    again = host(nvidia(scheme))
    assert shown(again, vgpu) == ("frame_rate_limiter=0", False)


def test_other_parameters_stay_and_all_can_be_replaced_or_cleared(host: Host) -> None:
    service = host(nvidia("mdev-vf"))
    vgpu = one(service, "A40-8Q", "enable_uvm=1 disable_vnc=1")
    done(service, service.slices.set_params(vgpu, limiter=True))
    assert shown(service, vgpu) == ("enable_uvm=1,disable_vnc=1,frame_rate_limiter=1", True)
    plan = service.slices.plan_params(vgpu, "enable_uvm=1")
    assert [step.target_value for step in plan.steps if step.kind == "set-vgpu-params"] == [" ", "enable_uvm=1"]
    done(service, service.slices.set_params(vgpu, "enable_uvm=1"))
    assert shown(service, vgpu) == ("enable_uvm=1", None)
    done(service, service.slices.set_params(vgpu, ""))
    assert shown(service, vgpu) == ("", None)


def test_what_is_recorded_is_shown_while_a_reload_has_taken_it(host: Host) -> None:
    service = host(nvidia("mdev-vf"))
    vgpu = one(service, "A40-8Q", "frame_rate_limiter=0")
    assert isinstance(service.kernel, SimulatedKernel)
    service.kernel.reload_driver(CARD)
    assert shown(service, vgpu) == ("frame_rate_limiter=0", False)
    assert code(service.slices.plan_params(vgpu, limiter=True)) == "vgpu-missing"


def test_a_limiter_that_the_scheduler_makes_useless_is_refused_and_the_gpu_says_so(host: Host) -> None:
    service = host(h100())
    vgpu = one(service, "H100XM-40C")
    assert service.slices.modes(CARD).to_json()["frame_rate_limiter"] is True
    done(service, service.slices.set_modes(CARD, Modes(scheduler=Scheduler.FIXED_SHARE)))
    assert service.slices.modes(CARD).to_json()["frame_rate_limiter"] is False
    assert code(service.slices.plan_params(vgpu, limiter=True)) == "limiter-unsupported"
    assert code(service.slices.plan_params(vgpu, limiter=False)) is None


def test_a_guest_that_has_it_is_not_surprised(host: Host) -> None:
    service = host(nvidia("vendor-vfio"))
    vgpu = one(service, "A40-8Q")
    assert isinstance(service.kernel, SimulatedKernel)
    service.kernel.hold(vgpu, 4242, "qemu-system-x86")
    operation = service.wait(service.slices.set_params(vgpu, limiter=False).id, None)
    assert (operation.state, (operation.error or {})["code"]) == ("failed", "vgpu-in-use")
    assert shown(service, vgpu) == ("", None)


def test_somebody_elses_vgpu_is_not_touched(host: Host) -> None:
    service = host(nvidia("mdev-vf"))
    one(service, "A40-8Q")
    uuid = "c2177883-f1bb-47f0-914d-32a22e3a8804"
    service.kernel.write("/sys/class/mdev_bus/0000:3b:01.0/mdev_supported_types/nvidia-562/create", uuid)
    assert code(service.slices.plan_params(uuid, limiter=False)) == "vgpu-foreign"


@pytest.mark.parametrize(("card", "profile"), [(gvt(), "i915-GVTg_V5_4"), (flex(), "vf-8086-56c0")])
def test_drivers_without_parameters_refuse_them_before_any_write(
    host: Host, card: dict[str, Any], profile: str
) -> None:
    service = host(card)
    with pytest.raises(RefusedError) as caught:
        service.slices.create(profile, 1, CARD, "frame_rate_limiter=0")
    assert caught.value.code == "params-unsupported"
    done(service, service.slices.create(profile, 1, CARD))
    view = next(view for view in service.slices.vgpus() if view.ours)
    assert code(service.slices.plan_params(view.vgpu.id, limiter=False)) == "params-unsupported"
    assert shown(service, view.vgpu.id) == (None, None)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1,b=2", {"a": "1", "b": "2"}),
        ("a=1 b=2\n", {"a": "1", "b": "2"}),
        (" ", {}),
        ("debug, a=1", {"debug": "", "a": "1"}),
    ],
)
def test_both_ways_of_writing_them_are_read(text: str, values: dict[str, str]) -> None:
    assert parsed(text) == values
    assert parsed(written(values)) == values


def test_the_place_follows_from_what_the_vgpu_is() -> None:
    assert path_of("0000:3b:00.4") == "/sys/bus/pci/devices/0000:3b:00.4/nvidia/vgpu_params"
    assert path_of("c2177883-f1bb-47f0-914d-32a22e3a8804").startswith("/sys/bus/mdev/devices/c2177883")
