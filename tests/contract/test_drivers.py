"""Linux' driver core: override, unbind, bind and probe, with the errno of each mistake."""

from __future__ import annotations

import errno

import pytest

from tests.contract.rig import Rig
from vgpumgr.kernel.port import PCI_DEVICES, PCI_DRIVERS, Kernel, link_name

PROBE = "/sys/bus/pci/drivers_probe"


def driver(kernel: Kernel, address: str) -> str | None:
    return link_name(kernel, f"{PCI_DEVICES}/{address}/driver")


def override(kernel: Kernel, address: str, name: str) -> None:
    kernel.write(f"{PCI_DEVICES}/{address}/driver_override", name)


def to_vfio(kernel: Kernel, address: str) -> None:
    override(kernel, address, "vfio-pci")
    current = driver(kernel, address)
    if current:
        kernel.write(f"{PCI_DRIVERS}/{current}/unbind", address)
    kernel.write(PROBE, address)


def failing(kernel: Kernel, path: str, text: str) -> int:
    with pytest.raises(OSError) as caught:
        kernel.write(path, text)
    assert caught.value.errno is not None
    return caught.value.errno


def test_an_unset_override_reads_as_null(kernel: Kernel, rig: Rig) -> None:
    assert kernel.read(f"{PCI_DEVICES}/{rig.function}/driver_override") == b"(null)\n"


def test_an_override_is_set_and_cleared(kernel: Kernel, rig: Rig) -> None:
    override(kernel, rig.function, "vfio-pci")
    assert kernel.read(f"{PCI_DEVICES}/{rig.function}/driver_override") == b"vfio-pci\n"
    override(kernel, rig.function, "\n")
    assert kernel.read(f"{PCI_DEVICES}/{rig.function}/driver_override") == b"(null)\n"


def test_override_unbind_probe_brings_a_function_to_vfio(kernel: Kernel, rig: Rig) -> None:
    to_vfio(kernel, rig.function)
    assert driver(kernel, rig.function) == "vfio-pci"
    assert kernel.list(f"{PCI_DEVICES}/{rig.function}/vfio-dev")
    group = link_name(kernel, f"{PCI_DEVICES}/{rig.function}/iommu_group")
    assert kernel.exists(f"/dev/vfio/{group}")


def test_a_probe_of_a_bound_function_changes_nothing(kernel: Kernel, rig: Rig) -> None:
    override(kernel, rig.function, "vfio-pci")
    kernel.write(PROBE, rig.function)
    assert driver(kernel, rig.function) == rig.driver


def test_a_probe_that_finds_no_driver_is_no_error(kernel: Kernel, rig: Rig) -> None:
    kernel.write(f"{PCI_DRIVERS}/{rig.driver}/unbind", rig.function)
    override(kernel, rig.function, "no-such-driver")
    kernel.write(PROBE, rig.function)
    assert driver(kernel, rig.function) is None


def test_a_probe_of_an_unknown_function_is_enodev(kernel: Kernel) -> None:
    assert failing(kernel, PROBE, "0000:ff:1f.7") == errno.ENODEV


def test_unbinding_from_a_driver_that_does_not_have_it_is_enodev(kernel: Kernel, rig: Rig) -> None:
    assert failing(kernel, f"{PCI_DRIVERS}/vfio-pci/unbind", rig.function) == errno.ENODEV
    assert driver(kernel, rig.function) == rig.driver


def test_unbinding_twice_is_enodev(kernel: Kernel, rig: Rig) -> None:
    kernel.write(f"{PCI_DRIVERS}/{rig.driver}/unbind", rig.function)
    assert failing(kernel, f"{PCI_DRIVERS}/{rig.driver}/unbind", rig.function) == errno.ENODEV


def test_binding_twice_is_ebusy(kernel: Kernel, rig: Rig) -> None:
    assert failing(kernel, f"{PCI_DRIVERS}/{rig.driver}/bind", rig.function) == errno.EBUSY


def test_binding_to_a_driver_that_does_not_match_is_enodev(kernel: Kernel, rig: Rig) -> None:
    kernel.write(f"{PCI_DRIVERS}/{rig.driver}/unbind", rig.function)
    assert failing(kernel, f"{PCI_DRIVERS}/vfio-pci/bind", rig.function) == errno.ENODEV


def test_an_override_keeps_every_other_driver_away(kernel: Kernel, rig: Rig) -> None:
    to_vfio(kernel, rig.function)
    kernel.write(f"{PCI_DRIVERS}/vfio-pci/unbind", rig.function)
    assert failing(kernel, f"{PCI_DRIVERS}/{rig.driver}/bind", rig.function) == errno.ENODEV


def test_a_cleared_override_lets_the_driver_that_waits_have_it_again(kernel: Kernel, rig: Rig) -> None:
    to_vfio(kernel, rig.function)
    override(kernel, rig.function, "\n")
    kernel.write(f"{PCI_DRIVERS}/vfio-pci/unbind", rig.function)
    kernel.write(PROBE, rig.function)
    assert driver(kernel, rig.function) == rig.driver
    assert not kernel.exists(f"{PCI_DEVICES}/{rig.function}/vfio-dev")


def test_a_driver_that_is_absent_has_no_directory(kernel: Kernel, rig: Rig) -> None:
    assert failing(kernel, f"{PCI_DRIVERS}/no-such-driver/bind", rig.function) == errno.ENOENT


def test_a_module_that_is_unknown_is_enoent(kernel: Kernel) -> None:
    with pytest.raises(FileNotFoundError):
        kernel.load_module("no-such-module")


def test_an_attribute_that_is_absent_is_enoent(kernel: Kernel, rig: Rig) -> None:
    with pytest.raises(FileNotFoundError):
        kernel.read(f"{PCI_DEVICES}/{rig.function}/no_such_attribute")
    assert failing(kernel, f"{PCI_DEVICES}/{rig.function}/no_such_attribute", "1") == errno.ENOENT


def test_a_directory_is_no_attribute(kernel: Kernel, rig: Rig) -> None:
    with pytest.raises(IsADirectoryError):
        kernel.read(f"{PCI_DEVICES}/{rig.function}")
    with pytest.raises(NotADirectoryError):
        kernel.list(f"{PCI_DEVICES}/{rig.function}/vendor")


def test_a_link_is_read_as_text(kernel: Kernel, rig: Rig) -> None:
    target = kernel.readlink(f"{PCI_DEVICES}/{rig.function}")
    assert target.startswith("../../../devices/pci")
    assert target.endswith(rig.function)
    with pytest.raises(OSError) as caught:
        kernel.readlink(f"{PCI_DEVICES}/{rig.function}/vendor")
    assert caught.value.errno == errno.EINVAL


def test_reset_methods_are_those_that_linux_knows(kernel: Kernel, rig: Rig) -> None:
    path = f"{PCI_DEVICES}/{rig.function}/reset_method"
    if kernel.exists(path):
        known = {"device_specific", "acpi", "flr", "af_flr", "pm", "bus", "cxl_bus"}
        assert set(kernel.read(path).decode().split()) <= known


@pytest.mark.needs("shared")
def test_members_of_one_group_bind_one_by_one(kernel: Kernel, rig: Rig) -> None:
    assert rig.shared is not None
    first, second = rig.shared
    groups = {link_name(kernel, f"{PCI_DEVICES}/{name}/iommu_group") for name in rig.shared}
    assert len(groups) == 1
    to_vfio(kernel, first)
    # The other member is still on its host driver: binding works, only using the group would not.
    assert driver(kernel, first) == "vfio-pci"
    assert driver(kernel, second) == rig.shared_driver
    assert set(rig.shared) <= set(kernel.list(f"/sys/kernel/iommu_groups/{groups.pop()}/devices"))


@pytest.mark.needs("removable")
def test_a_function_that_goes_away_is_gone_everywhere(kernel: Kernel, rig: Rig) -> None:
    assert rig.removable is not None
    group = link_name(kernel, f"{PCI_DEVICES}/{rig.removable}/iommu_group")
    kernel.write(f"{PCI_DEVICES}/{rig.removable}/remove", "1")
    assert not kernel.exists(f"{PCI_DEVICES}/{rig.removable}")
    assert not kernel.exists(f"/sys/kernel/iommu_groups/{group}/devices/{rig.removable}")
    assert failing(kernel, PROBE, rig.removable) == errno.ENODEV
