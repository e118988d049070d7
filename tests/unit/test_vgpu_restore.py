"""After a reboot: cards are cut as they were and our vGPUs are there again, whatever interface the kernel has."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.vgpu_hosts import CARD, flex, h100, nvidia
from vgpumgr.assembly import open_service
from vgpumgr.config import Config
from vgpumgr.errors import RefusedError
from vgpumgr.kernel.simulated.faults import Mishap
from vgpumgr.kernel.simulated.machine import SimulatedKernel
from vgpumgr.model.allocation import AllocationRequest, AllocationState, DeviceKind
from vgpumgr.model.operation import Operation
from vgpumgr.service import Service
from vgpumgr.vgpu.modes import Modes
from vgpumgr.vgpu.nvml_port import Scheduler


class Host:
    """A host that can be rebooted, also into another kernel."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.service: Service | None = None

    def boot(self, *functions: dict[str, Any]) -> Service:
        if self.service is not None:
            self.service.close()
        description = self._folder / "host.yaml"
        description.write_text(
            yaml.safe_dump({"modules": {"vfio_pci": ["vfio-pci"]}, "functions": list(functions)})
        )
        config = Config(
            state_dir=self._folder, runtime_dir=self._folder, simulate=str(description), host_id="the-host"
        )
        self.service = open_service(config, libvirt=False)
        self.service.start()
        return self.service


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    if made.service is not None:
        made.service.close()


def done(service: Service, operation: Operation) -> Operation:
    ended = service.wait(operation.id, None)
    assert ended.state == "succeeded", ended.error
    return ended


def allocate(service: Service, vm: str, profile: str) -> str:
    allocation = service.allocate(AllocationRequest(vm=vm, profile=profile))
    assert allocation.operation_id is not None
    assert service.wait(allocation.operation_id, None).state == "succeeded"
    return allocation.id


def live(service: Service) -> dict[str, str | None]:
    return {view.vgpu.id: view.vgpu.profile for view in service.slices.vgpus() if view.live}


def test_vgpus_come_back_with_their_uuids_and_parameters(host: Host) -> None:
    service = host.boot(nvidia("mdev-vf"))
    done(service, service.slices.slice(CARD))
    done(service, service.slices.create("NVIDIA A40-8Q", 2, params="frame_rate_limiter=0"))
    before = live(service)
    service = host.boot(nvidia("mdev-vf"))
    assert live(service) == before
    params = [service.kernel.read(f"/sys/bus/mdev/devices/{uuid}/nvidia/vgpu_params") for uuid in before]
    assert params == [b"frame_rate_limiter=0\n"] * 2


def test_vgpus_survive_a_kernel_with_another_interface(host: Host) -> None:
    service = host.boot(nvidia("mdev-vf"))
    done(service, service.slices.slice(CARD))
    allocation_id = allocate(service, "desk-1", "A40-8Q")
    (device,) = service.allocation(allocation_id).devices
    assert device.kind is DeviceKind.MDEV
    service = host.boot(nvidia("vendor-vfio"))
    (device,) = service.allocation(allocation_id).devices
    assert device.kind is DeviceKind.TYPED_VF
    assert live(service) == {device.handle: "NVIDIA A40-8Q"}
    assert service.allocation(allocation_id).state is AllocationState.READY


def test_typed_vfs_come_back_where_they_were(host: Host) -> None:
    service = host.boot(nvidia("vendor-vfio"))
    done(service, service.slices.slice(CARD))
    done(service, service.slices.create("NVIDIA A40-8Q", 3))
    done(service, service.slices.delete("0000:3b:00.4"))
    before = live(service)
    service = host.boot(nvidia("vendor-vfio"))
    assert live(service) == before


def test_mig_then_vfs_then_instances_then_vgpus(host: Host) -> None:
    service = host.boot(h100())
    done(service, service.slices.set_modes(CARD, Modes(mig=True)))
    done(service, service.slices.slice(CARD))
    done(service, service.slices.set_modes(CARD, Modes(layout=("3g.40gb", "1g.10gb"))))
    done(service, service.slices.create("NVIDIA H100XM-3-40C"))
    service = host.boot(h100())
    modes = service.slices.modes(CARD)
    assert modes.mig is True
    assert modes.source == "simulated NVML"
    assert {shape for shape, _ in modes.gpu_instances} == {"3g.40gb", "1g.10gb"}
    assert set(live(service).values()) == {"NVIDIA H100XM-3-40C"}


def test_mixed_sizes_and_scheduler_come_back(host: Host) -> None:
    service = host.boot(h100())
    done(service, service.slices.slice(CARD))
    done(service, service.slices.set_modes(CARD, Modes(mixed_size=True, scheduler=Scheduler.EQUAL_SHARE)))
    done(service, service.slices.create("H100XM-40C"))
    done(service, service.slices.create("H100XM-20C"))
    service = host.boot(h100())
    modes = service.slices.modes(CARD)
    assert (modes.mixed_size, modes.scheduler) == (True, "equal-share")
    assert sorted(str(name) for name in live(service).values()) == ["NVIDIA H100XM-20C", "NVIDIA H100XM-40C"]


def test_a_card_that_was_changed_is_left_alone_and_told(host: Host) -> None:
    service = host.boot(nvidia("mdev-vf"))
    done(service, service.slices.slice(CARD))
    done(service, service.slices.create("NVIDIA A40-8Q"))
    service = host.boot(nvidia("mdev-vf") | {"id": "10de:2236"})
    assert live(service) == {}
    failed = [operation for operation in service.operations().items if operation.kind.startswith("restore")]
    assert {(item.error or {}).get("code") for item in failed if item.state == "failed"} == {"gpu-changed"}
    assert [view.live for view in service.slices.vgpus()] == [False]


def test_what_was_deleted_does_not_come_back(host: Host) -> None:
    service = host.boot(nvidia("mdev-vf"))
    done(service, service.slices.slice(CARD))
    done(service, service.slices.create("NVIDIA A40-8Q"))
    (vgpu_id,) = live(service)
    done(service, service.slices.delete(vgpu_id))
    assert host.boot(nvidia("mdev-vf")).slices.vgpus() == []


def test_vgpus_of_an_allocation_go_with_it_only(host: Host) -> None:
    service = host.boot(nvidia("mdev-vf"))
    done(service, service.slices.slice(CARD))
    allocation_id = allocate(service, "desk-1", "A40-8Q")
    (vgpu_id,) = live(service)
    with pytest.raises(RefusedError) as caught:
        service.slices.delete(vgpu_id)
    assert caught.value.code == "vgpu-allocated"
    assert allocation_id in caught.value.hint


def test_plain_vfs_go_to_vfio_again(host: Host) -> None:
    card = flex() | {"native": ["i915"]}
    service = host.boot(card)
    done(service, service.slices.slice(CARD, 4))
    assert [view.ours for view in service.slices.vgpus()] == [None] * 4
    done(service, service.slices.create("vf-8086-56c0", 2))
    service = host.boot(card)
    assert [view.ours for view in service.slices.vgpus()] == [True, True, None, None]
    functions = {item.address: item.driver for item in service.inventory().functions}
    drivers = [functions[view.vgpu.id] for view in service.slices.vgpus()]
    assert drivers == ["vfio-pci", "vfio-pci", None, None]
    assert service.profiles()[0].creatable == 2


@pytest.mark.parametrize("by", ["hand", "allocation"])
def test_a_card_that_a_creation_cut_is_cut_so_again(host: Host, by: str) -> None:
    card = flex() | {"native": ["i915"]}
    service = host.boot(card)
    if by == "hand":
        done(service, service.slices.create("vf-8086-56c0", 2))
    else:
        allocated = service.allocate(AllocationRequest("desk-1", profile="vf-8086-56c0", count=2))
        service.wait(str(allocated.operation_id), None)
    before = [view.vgpu.id for view in service.slices.vgpus()]
    assert len(before) == 2
    service = host.boot(card)
    assert [(view.vgpu.id, view.ours, view.live) for view in service.slices.vgpus()] == [
        (vgpu, True, True) for vgpu in before
    ]
    assert {operation.state for operation in service.operations().items} == {"succeeded"}


def test_a_creation_that_fails_does_not_keep_how_it_cut_the_card(host: Host) -> None:
    service = host.boot(flex() | {"native": ["i915"]})
    assert isinstance(service.kernel, SimulatedKernel)
    service.kernel.faults.add("driver_override vfio-pci", Mishap.FAIL, errno=errno.EINVAL)
    assert service.wait(service.slices.create("vf-8086-56c0", 2).id, None).state == "failed"
    assert service._at_desk.store.setups.all() == []
    sriov = service.gpu(CARD).sriov
    assert sriov is not None
    assert sriov.num_vfs == 0


def test_a_card_promised_as_a_whole_is_not_cut(host: Host) -> None:
    service = host.boot(nvidia("mdev-vf"))
    allocation = service.allocate(AllocationRequest(vm="trainer", gpu=CARD))
    assert allocation.operation_id is not None
    service.wait(allocation.operation_id, None)
    with pytest.raises(RefusedError) as caught:
        service.slices.slice(CARD)
    assert caught.value.code == "reserved"


def reload(service: Service) -> SimulatedKernel:
    """What an operator does to the host driver while the service runs."""
    kernel = service.kernel
    assert isinstance(kernel, SimulatedKernel)
    kernel.reload_driver(CARD)
    return kernel


def ended(service: Service) -> list[tuple[str, str]]:
    operations = [service.wait(item.id, None) for item in service.start_restore_slices()]
    return [(item.kind, item.state) for item in operations]


@pytest.mark.parametrize("scheme", ["mdev-vf", "vendor-vfio"])
def test_a_reload_of_the_driver_is_made_good_while_the_service_runs(host: Host, scheme: str) -> None:
    service = host.boot(nvidia(scheme))
    done(service, service.slices.slice(CARD))
    done(service, service.slices.create("NVIDIA A40-8Q", 2))
    before = live(service)
    reload(service)
    assert live(service) == {}
    plans = service.plan_restore_slices()
    assert [(plan.kind, bool(plan.steps)) for plan in plans] == [
        ("restore-card", True),
        ("restore-vgpu", False),
        ("restore-vgpu", False),
    ]
    assert {warning.code for plan in plans[1:] for warning in plan.warnings} == {"planned-later"}
    assert ended(service) == [("restore-card", "succeeded")] + [("restore-vgpu", "succeeded")] * 2
    assert live(service) == before
    assert (service.plan_restore_slices(), ended(service)) == ([], [])


def test_two_who_restore_at_once_make_nothing_twice(host: Host) -> None:
    service = host.boot(nvidia("vendor-vfio"))
    done(service, service.slices.slice(CARD))
    done(service, service.slices.create("NVIDIA A40-8Q", 3))
    reload(service)
    both = [*service.start_restore_slices(), *service.start_restore_slices()]
    assert {service.wait(item.id, None).state for item in both} == {"succeeded"}
    assert len(live(service)) == 3


def test_mig_instances_that_a_reload_took_come_back_before_their_vgpus(host: Host) -> None:
    service = host.boot(h100())
    done(service, service.slices.set_modes(CARD, Modes(mig=True)))
    done(service, service.slices.slice(CARD))
    done(service, service.slices.set_modes(CARD, Modes(layout=("3g.40gb", "1g.10gb"))))
    done(service, service.slices.create("NVIDIA H100XM-3-40C"))
    before = live(service)
    reload(service)
    assert [plan.kind for plan in service.plan_restore_slices()] == ["restore-card"] * 2 + ["restore-vgpu"]
    assert {state for _, state in ended(service)} == {"succeeded"}
    assert live(service) == before


def test_the_vgpu_of_an_allocation_is_the_allocations_again(host: Host) -> None:
    service = host.boot(nvidia("mdev-vf"))
    done(service, service.slices.slice(CARD))
    allocation_id = allocate(service, "desk-1", "A40-8Q")
    before = service.allocation(allocation_id).devices
    reload(service)
    ended(service)
    assert service.allocation(allocation_id).devices == before
    assert list(live(service)) == [before[0].handle]


def test_what_cannot_come_back_fails_alone(host: Host) -> None:
    service = host.boot(nvidia("mdev-vf"))
    done(service, service.slices.slice(CARD))
    done(service, service.slices.create("NVIDIA A40-8Q", 2))
    (first, second) = live(service)
    reload(service).faults.add(f"/create {first}", Mishap.FAIL, errno=errno.EIO)
    states = {item.subject: service.wait(item.id, None).state for item in service.start_restore_slices()}
    assert (states[first], states[second]) == ("failed", "succeeded")


def test_what_was_deleted_meanwhile_is_not_made_again(host: Host) -> None:
    service = host.boot(nvidia("mdev-vf"))
    done(service, service.slices.slice(CARD))
    done(service, service.slices.create("NVIDIA A40-8Q"))
    (vgpu_id,) = live(service)
    reload(service)
    deletion = service.slices.delete(vgpu_id)
    assert {service.wait(item.id, None).state for item in service.start_restore_slices()} <= {"succeeded"}
    assert service.wait(deletion.id, None).state == "succeeded"
    assert live(service) == {}
