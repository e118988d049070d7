"""Parents of mediated devices that are no PCI functions: the kernel's sample drivers, and GVT-g beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from vgpumgr.assembly import open_service
from vgpumgr.config import Config
from vgpumgr.errors import AddressError, NotFoundError, RefusedError, VgpumgrError
from vgpumgr.inventory import take_inventory
from vgpumgr.inventory.doctor import diagnose
from vgpumgr.kernel.recorded import RecordedTree
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.kernel.tree import Tree
from vgpumgr.model.allocation import AllocationRequest
from vgpumgr.model.host import Gpu, GpuKind
from vgpumgr.model.operation import Operation
from vgpumgr.plans.plan import Plan
from vgpumgr.service import Service

SAMPLES = ("mbochs", "mdpy", "mtty")
GVT = "0000:00:02.0"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    config = Config(state_dir=tmp_path, runtime_dir=tmp_path, simulate="mdev-samples", host_id="the-host")
    opened = open_service(config._replace(libvirt_uri="test:///default"))
    opened.start()
    yield opened
    opened.close()


def kernel_of(service: Service) -> SimulatedKernel:
    assert isinstance(service.kernel, SimulatedKernel)
    return service.kernel


def done(service: Service, operation: Operation) -> None:
    ended = service.wait(operation.id, None)
    assert ended.state == "succeeded", ended.error


def fits(service: Service, gpu: str) -> dict[str, int]:
    return {offer.profile.id: offer.creatable for offer in service.profiles(gpu)}


def code(plan: Plan) -> str | None:
    return plan.refusal.code if plan.refusal is not None else None


def test_each_is_a_card_of_its_own_named_by_its_device(service: Service) -> None:
    gpus = {gpu.address: gpu for gpu in service.inventory().gpus}
    assert list(gpus) == [GVT, *SAMPLES]
    for name in SAMPLES:
        found = gpus[name].to_json()
        assert (found["kind"], found["driver"], found["vendor_id"], found["iommu_group"]) == (
            "virtual",
            name,
            None,
            None,
        )
        assert (found["vgpu"]["capable"], found["vgpu"]["backend"]) == (True, "mdev")
        assert [reason["code"] for reason in found["passthrough"]["reasons"]] == ["not-pci"]
        assert found["passthrough"]["assignable"] is False


def test_programs_find_pci_devices_only_where_they_always_did(service: Service) -> None:
    data = service.inventory().to_json()
    assert [gpu["address"] for gpu in data["gpus"]] == [GVT]
    assert [gpu["address"] for gpu in data["virtual_parents"]] == list(SAMPLES)
    assert set(data["virtual_parents"][0]) == set(data["gpus"][0])


def test_figures_come_from_what_the_drivers_print(service: Service) -> None:
    offers = {offer.profile.id: offer.profile for offer in service.profiles()}
    assert offers["mbochs-medium"].framebuffer_mib == 16
    assert offers["mdpy-hd"].max_resolution == "1920x1080"
    assert (offers["mtty-2"].name, offers["mtty-2"].framebuffer_mib) == ("Dual port serial", None)
    assert offers["i915-GVTg_V5_4"].framebuffer_mib == 128


@pytest.mark.parametrize(
    ("gpu", "profile", "most"),
    [
        ("mtty", "mtty-1", 24),
        ("mtty", "mtty-2", 12),
        ("mdpy", "mdpy-xga", 4),
        ("mbochs", "mbochs-large", 4),
        (GVT, "i915-GVTg_V5_4", 2),
        (GVT, "i915-GVTg_V5_8", 4),
    ],
)
def test_up_to_the_last_and_not_one_more(service: Service, gpu: str, profile: str, most: int) -> None:
    assert fits(service, gpu)[profile] == most
    done(service, service.slices.create(profile, most, gpu))
    assert fits(service, gpu)[profile] == 0
    with pytest.raises(RefusedError) as caught:
        service.slices.create(profile, 1, gpu)
    assert caught.value.code == "no-capacity"
    assert caught.value.reasons
    views = service.slices.vgpus(gpu)
    assert [(view.gpu, view.vgpu.profile_id, view.ours) for view in views] == [(gpu, profile, True)] * most
    for view in views:
        done(service, service.slices.delete(view.vgpu.id))
    assert fits(service, gpu)[profile] == most


def test_sizes_share_one_memory_and_others_have_their_own(service: Service) -> None:
    before = fits(service, "mdpy")
    done(service, service.slices.create("mbochs-large", 3, "mbochs"))
    assert fits(service, "mbochs") == {"mbochs-small": 16, "mbochs-medium": 4, "mbochs-large": 1}
    assert fits(service, "mdpy") == before


def test_profiles_are_found_by_name_too_and_the_card_is_found_by_the_profile(service: Service) -> None:
    done(service, service.slices.create("Single port serial"))
    assert [view.gpu for view in service.slices.vgpus()] == ["mtty"]


def test_an_allocation_gets_one_and_gives_it_back(service: Service) -> None:
    request = AllocationRequest(vm="desk-1", profile="mbochs-medium", gpu="mbochs")
    allocation = service.allocate(request)
    assert allocation.operation_id is not None
    assert service.wait(allocation.operation_id, None).state == "succeeded"
    (device,) = service.allocation(allocation.id).devices
    assert (device.gpu, device.profile_id) == ("mbochs", "mbochs-medium")
    assert service.allocation(allocation.id).warnings == ()
    (view,) = service.slices.vgpus()
    assert (view.vgpu.id, view.vgpu.parent, view.allocation_id) == (device.handle, "mbochs", allocation.id)
    released = service.release_allocation(allocation.id)
    assert released.operation_id is not None
    assert service.wait(released.operation_id, None).state == "succeeded"
    assert service.slices.vgpus() == []


def test_the_domain_names_the_device_by_its_uuid(service: Service) -> None:
    allocation = service.allocate(AllocationRequest(vm="desk-1", profile="mdpy-hd"))
    assert allocation.operation_id is not None
    service.wait(allocation.operation_id, None)
    (device,) = service.allocation(allocation.id).devices
    xml = service.allocation_xml(allocation.id)
    assert str(device.handle) in xml
    assert "mdev" in xml
    result = service.check_domain(xml.encode()).to_json()
    assert [(found["type"], found["uuid"]) for found in result["devices"]] == [("mdev", device.handle)]
    assert [problem for problem in result["problems"] if problem["addresses"]] == []


def test_a_whole_one_is_given_to_nobody(service: Service) -> None:
    assert code(service.plan_bind("mtty")) == "not-pci"
    assert code(service.plan_allocation(AllocationRequest(vm="desk-1", gpu="mtty"))) == "no-candidate"
    assert code(service.slices.plan_slice("mtty")) == "not-capable"


def test_names_that_are_none_are_told_apart_from_those_that_are_not_there(service: Service) -> None:
    with pytest.raises(AddressError):
        service.gpu("mttx")
    with pytest.raises(AddressError):
        service.candidates(AllocationRequest(vm="desk-1", profile="mtty-1", gpu="mttx"))
    with pytest.raises(NotFoundError):
        service.gpu("0000:99:00.0")
    assert service.gpu("mtty").kind is GpuKind.VIRTUAL


def test_vgpus_that_others_made_are_counted_and_never_touched(service: Service) -> None:
    uuid = "c2177883-f1bb-47f0-914d-32a22e3a8804"
    service.kernel.write("/sys/class/mdev_bus/mdpy/mdev_supported_types/mdpy-vga/create", uuid)
    assert fits(service, "mdpy")["mdpy-hd"] == 3
    assert service.slices.vgpu(uuid).ours is False
    with pytest.raises(RefusedError) as caught:
        service.slices.delete(uuid)
    assert caught.value.code == "vgpu-foreign"


def test_a_driver_that_is_unloaded_takes_its_own_only(service: Service) -> None:
    done(service, service.slices.create("mtty-2", 1, "mtty"))
    done(service, service.slices.create("mdpy-hd", 1, "mdpy"))
    kernel_of(service).lose("mtty")
    assert [gpu.address for gpu in service.inventory().gpus] == [GVT, "mbochs", "mdpy"]
    assert [(view.gpu, view.live) for view in service.slices.vgpus()] == [("mdpy", True), ("mtty", False)]
    (plan,) = service.plan_restore_slices()
    assert code(plan) == "gpu-missing"


def test_a_driver_that_vanishes_between_plan_and_write_is_told(service: Service) -> None:
    kernel = kernel_of(service)
    plan = service.slices.plan_create("mtty-1", 1, "mtty")
    kernel.lose("mtty")
    from vgpumgr.plans.executor import execute
    from vgpumgr.plans.journal import MemoryJournal
    from vgpumgr.plans.step import StepContext

    with pytest.raises(VgpumgrError) as caught:
        execute("op", plan, StepContext(kernel), MemoryJournal())
    assert caught.value.code == "parent-gone"


def test_they_come_back_with_the_service(service: Service, tmp_path: Path) -> None:
    done(service, service.slices.create("mbochs-small", 2, "mbochs"))
    before = [view.vgpu.id for view in service.slices.vgpus()]
    service.close()
    config = Config(state_dir=tmp_path, runtime_dir=tmp_path, simulate="mdev-samples", host_id="the-host")
    again = open_service(config, libvirt=False)
    again.start()
    assert [(view.vgpu.id, view.live) for view in again.slices.vgpus()] == [(name, True) for name in before]
    again.close()


def test_the_doctor_finds_nothing_to_mend_in_them(service: Service) -> None:
    diagnosis = diagnose(service.kernel, service.inventory())
    found = {item.address: [finding.code for finding in item.findings] for item in diagnosis.gpus}
    assert {name: found[name] for name in SAMPLES} == {name: ["not-pci"] for name in SAMPLES}
    assert {
        finding.severity for item in diagnosis.gpus if item.address in SAMPLES for finding in item.findings
    } == {"info"}


def parents(*names_and_apis: tuple[str, str]) -> list[Gpu]:
    tree = Tree()
    tree.mkdir("/sys/bus/pci/devices")
    for name, api in names_and_apis:
        path = f"/sys/devices/virtual/x/{name}"
        tree.write_text(f"{path}/mdev_supported_types/{name}-1/device_api", api)
        tree.link(f"/sys/class/mdev_bus/{name}", path)
    return list(take_inventory(RecordedTree("test", tree)).gpus)


def test_parents_of_other_buses_are_no_gpus() -> None:
    found = parents(("matrix", "vfio-ap"), ("0.0.0313", "vfio-ccw"), ("other", "vfio-pci"), ("od\x1bd", "vfio-pci"))
    assert [gpu.address for gpu in found] == ["other"]
