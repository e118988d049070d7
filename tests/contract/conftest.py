"""Runs the contract on the rig at hand; tests of abilities that it lacks are not collected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.rig import Rig, load_rig
from vgpumgr.kernel.port import PCI_DEVICES, PCI_DRIVERS, Kernel, link_name, list_or_empty

RIG = load_rig()
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lacking = [item for item in items if _HERE in item.path.parents and not all(map(RIG.can, _needs(item)))]
    if lacking:
        config.hook.pytest_deselected(items=lacking)
        items[:] = [item for item in items if item not in lacking]


def _needs(item: pytest.Item) -> list[str]:
    return [str(name) for marker in item.iter_markers("needs") for name in marker.args]


@pytest.fixture
def rig() -> Rig:
    return RIG


@pytest.fixture
def kernel(rig: Rig) -> Iterator[Kernel]:
    """A kernel with the rig's devices as they were; a real one is put back in order afterwards."""
    made = rig.make()
    made.load_module("vfio-pci")
    yield made
    _put_back(made, rig.function, rig.driver)
    for name in rig.shared or ():
        _put_back(made, name, rig.shared_driver)
    if rig.sriov is not None:
        made.write(f"{PCI_DEVICES}/{rig.sriov}/sriov_numvfs", "0")
    if rig.mdev_parent is not None:
        for name in list_or_empty(
            made, f"{PCI_DEVICES}/{rig.mdev_parent}/mdev_supported_types/{rig.mdev_type}/devices"
        ):
            made.write(f"/sys/bus/mdev/devices/{name}/remove", "1")


def _put_back(kernel: Kernel, address: str, driver: str | None) -> None:
    current = link_name(kernel, f"{PCI_DEVICES}/{address}/driver")
    kernel.write(f"{PCI_DEVICES}/{address}/driver_override", "\n")
    if current not in (None, driver):
        kernel.write(f"{PCI_DRIVERS}/{current}/unbind", address)
    if driver is not None and current != driver:
        kernel.write(f"{PCI_DRIVERS}/{driver}/bind", address)
