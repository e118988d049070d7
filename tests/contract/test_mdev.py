"""Mediated devices: creating, counting and removing, with the errno of each mistake."""

from __future__ import annotations

import errno
import uuid

import pytest

from tests.contract.rig import Rig
from tests.contract.test_drivers import failing
from vgpumgr.kernel.port import MDEV_DEVICES, MDEV_PARENTS, Kernel, link_name

pytestmark = pytest.mark.needs("mdev_parent")


def type_dir(rig: Rig) -> str:
    return f"{MDEV_PARENTS}/{rig.mdev_parent}/mdev_supported_types/{rig.mdev_type}"


def available(kernel: Kernel, rig: Rig) -> int:
    return int(kernel.read(f"{type_dir(rig)}/available_instances"))


def create(kernel: Kernel, rig: Rig) -> str:
    name = str(uuid.uuid4())
    kernel.write(f"{type_dir(rig)}/create", name)
    return name


def test_creating_makes_a_device_and_takes_from_the_counter(kernel: Kernel, rig: Rig) -> None:
    before = available(kernel, rig)
    name = create(kernel, rig)
    assert available(kernel, rig) == before - 1
    assert link_name(kernel, f"{MDEV_DEVICES}/{name}/mdev_type") == rig.mdev_type
    group = link_name(kernel, f"{MDEV_DEVICES}/{name}/iommu_group")
    assert kernel.list(f"/sys/kernel/iommu_groups/{group}/devices") == [name]
    assert name in kernel.list(f"{type_dir(rig)}/devices")


def test_removing_gives_back(kernel: Kernel, rig: Rig) -> None:
    before = available(kernel, rig)
    name = create(kernel, rig)
    kernel.write(f"{MDEV_DEVICES}/{name}/remove", "1")
    assert not kernel.exists(f"{MDEV_DEVICES}/{name}")
    assert available(kernel, rig) == before


@pytest.mark.parametrize("text", ["nonsense", "c2177883-f1bb-47f0-914d-32a22e3a88"])
def test_no_uuid_is_einval(kernel: Kernel, rig: Rig, text: str) -> None:
    assert failing(kernel, f"{type_dir(rig)}/create", text) == errno.EINVAL


def test_a_uuid_twice_is_eexist(kernel: Kernel, rig: Rig) -> None:
    name = create(kernel, rig)
    assert failing(kernel, f"{type_dir(rig)}/create", name) == errno.EEXIST


@pytest.mark.needs("mdev_capacity")
def test_above_the_capacity_the_driver_says_no(kernel: Kernel, rig: Rig) -> None:
    for _ in range(available(kernel, rig)):
        create(kernel, rig)
    assert available(kernel, rig) == 0
    refused = failing(kernel, f"{type_dir(rig)}/create", str(uuid.uuid4()))
    assert refused in (errno.EUSERS, errno.ENOSPC, errno.EIO)


def test_the_device_api_is_vfio(kernel: Kernel, rig: Rig) -> None:
    assert kernel.read(f"{type_dir(rig)}/device_api") == b"vfio-pci\n"
