"""Real hosts that others recorded; read in place, skipped where the recordings are not at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shared import shared_dir
from vgpumgr.inventory import take_inventory
from vgpumgr.kernel.recorded import open_recording
from vgpumgr.model.host import Gpu
from vgpumgr.vgpu.observe import observe_vgpus


def recording(path: str) -> str:
    shared = shared_dir()
    if shared is None:
        pytest.skip("the folder of recordings is not beside this checkout (set VGPUMGR_SHARED)")
    return str(Path(shared) / "recordings" / path)


@pytest.fixture(params=["recorded", "derived-alltypes"])
def a2(request: pytest.FixtureRequest) -> Gpu:
    kernel = open_recording(recording(f"vgpu-node-a2/sysroot-{request.param}.tar.gz"))
    inventory = observe_vgpus(kernel, take_inventory(kernel))
    return next(gpu for gpu in inventory.gpus if gpu.address == "0000:08:00.0")


def test_exactly_one_more_vgpu_of_four_gib_fits_on_the_a2(a2: Gpu) -> None:
    fits = {profile.id: profile.creatable for profile in a2.vgpu.profiles if profile.creatable}
    assert fits == {"nvidia-746": 1, "nvidia-751": 1, "nvidia-754": 1}
    assert {profile.framebuffer_mib for profile in a2.vgpu.profiles if profile.creatable} == {4096}
    assert len(a2.vgpu.profiles) == 15


def test_the_a2_names_its_three_vgpus(a2: Gpu) -> None:
    found = {(vgpu.profile_id, vgpu.profile, vgpu.parent, vgpu.iommu_group) for vgpu in a2.vgpu.instances}
    assert found == {
        ("nvidia-754", "NVIDIA A2-4C", "0000:08:00.4", 106),
        ("nvidia-751", "NVIDIA A2-4A", "0000:08:00.6", 108),
        ("nvidia-746", "NVIDIA A2-4Q", "0000:08:02.0", 107),
    }


def test_every_other_size_says_that_the_card_holds_one_size(a2: Gpu) -> None:
    others = [profile for profile in a2.vgpu.profiles if profile.framebuffer_mib != 4096]
    assert {profile.limit.code for profile in others if profile.limit} == {"size-class"}


def test_a_t4_without_a_vgpu_driver_offers_nothing() -> None:
    kernel = open_recording(recording("node-t4/sysroot.tar.gz"))
    inventory = observe_vgpus(kernel, take_inventory(kernel))
    (t4,) = (gpu for gpu in inventory.gpus if gpu.function.device_id == "1eb8")
    assert (t4.vgpu.capable, t4.vgpu.profiles, t4.vgpu.instances) == (False, (), ())
