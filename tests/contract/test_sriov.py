"""SR-IOV: ``sriov_numvfs`` and what appears and vanishes with it."""

from __future__ import annotations

import errno

import pytest

from tests.contract.rig import Rig
from tests.contract.test_drivers import failing
from vgpumgr.address import is_address
from vgpumgr.kernel.port import PCI_DEVICES, Kernel, link_name

pytestmark = pytest.mark.needs("sriov")


def numvfs(rig: Rig) -> str:
    return f"{PCI_DEVICES}/{rig.sriov}/sriov_numvfs"


def test_vfs_appear_with_links_both_ways(kernel: Kernel, rig: Rig) -> None:
    kernel.write(f"{PCI_DEVICES}/{rig.sriov}/sriov_drivers_autoprobe", "0")
    kernel.write(numvfs(rig), "2")
    for index in range(2):
        vf = link_name(kernel, f"{PCI_DEVICES}/{rig.sriov}/virtfn{index}")
        assert vf is not None
        assert is_address(vf)
        assert link_name(kernel, f"{PCI_DEVICES}/{vf}/physfn") == rig.sriov
        assert link_name(kernel, f"{PCI_DEVICES}/{vf}/driver") is None
        assert link_name(kernel, f"{PCI_DEVICES}/{vf}/iommu_group") is not None
    kernel.write(f"{PCI_DEVICES}/{rig.sriov}/sriov_drivers_autoprobe", "1")


def test_vfs_have_ids_of_their_own_place(kernel: Kernel, rig: Rig) -> None:
    kernel.write(numvfs(rig), "1")
    vf = link_name(kernel, f"{PCI_DEVICES}/{rig.sriov}/virtfn0")
    vendor = kernel.read(f"{PCI_DEVICES}/{vf}/vendor")
    assert vendor == kernel.read(f"{PCI_DEVICES}/{rig.sriov}/vendor")
    expected = kernel.read(f"{PCI_DEVICES}/{rig.sriov}/sriov_vf_device").decode().strip()
    assert not expected.startswith("0x")
    assert int(kernel.read(f"{PCI_DEVICES}/{vf}/device"), 16) == int(expected, 16)


def test_more_than_there_are_is_erange(kernel: Kernel, rig: Rig) -> None:
    assert failing(kernel, numvfs(rig), str(rig.sriov_total + 1)) == errno.ERANGE


def test_no_number_is_einval(kernel: Kernel, rig: Rig) -> None:
    assert failing(kernel, numvfs(rig), "many") == errno.EINVAL


def test_from_one_count_to_another_is_ebusy(kernel: Kernel, rig: Rig) -> None:
    kernel.write(numvfs(rig), "1")
    assert failing(kernel, numvfs(rig), "2") == errno.EBUSY
    kernel.write(numvfs(rig), "1")
    assert kernel.read(numvfs(rig)) == b"1\n"


def test_zero_takes_all_away(kernel: Kernel, rig: Rig) -> None:
    kernel.write(numvfs(rig), "2")
    vf = link_name(kernel, f"{PCI_DEVICES}/{rig.sriov}/virtfn1")
    kernel.write(numvfs(rig), "0")
    assert not kernel.exists(f"{PCI_DEVICES}/{vf}")
    assert link_name(kernel, f"{PCI_DEVICES}/{rig.sriov}/virtfn0") is None


def test_vfio_does_not_take_a_function_with_vfs(kernel: Kernel, rig: Rig) -> None:
    kernel.write(numvfs(rig), "1")
    assert rig.sriov is not None
    kernel.write(f"{PCI_DEVICES}/{rig.sriov}/driver_override", "vfio-pci")
    driver = link_name(kernel, f"{PCI_DEVICES}/{rig.sriov}/driver")
    kernel.write("/sys/bus/pci/drivers_probe", rig.sriov)
    assert link_name(kernel, f"{PCI_DEVICES}/{rig.sriov}/driver") == driver
    kernel.write(f"{PCI_DEVICES}/{rig.sriov}/driver_override", "\n")


@pytest.mark.needs("no_sriov_driver")
def test_without_a_driver_it_is_enoent(kernel: Kernel, rig: Rig) -> None:
    assert failing(kernel, f"{PCI_DEVICES}/{rig.no_sriov_driver}/sriov_numvfs", "1") == errno.ENOENT
