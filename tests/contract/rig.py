"""What the contract suite runs on: a kernel, and the devices on it that each ability needs.

Outside the lab the rig is a simulated host. Inside, ``VGPUMGR_CONTRACT_RIG`` names a YAML file whose keys are the
fields of :class:`Rig`, and the same tests run against the real kernel. An ability that a rig lacks (a field left
out) takes its tests out of the collection.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from vgpumgr.kernel.port import Kernel
from vgpumgr.kernel.real import RealKernel
from vgpumgr.kernel.simulated.build import build

ENVIRONMENT = "VGPUMGR_CONTRACT_RIG"


@dataclass(frozen=True)
class Rig:
    """Devices by what they are good for; ``None`` where the machine has none.

    ``function``: a function alone in its group, on ``driver``. ``shared``: two functions of one group.
    ``sriov``: a physical function without VFs on a driver that can make them, ``sriov_total`` of them.
    ``no_sriov_driver``: a physical function without a driver. ``mdev_parent`` with ``mdev_type``.
    ``removable``: a function that may be removed for good.
    """

    function: str
    driver: str
    shared: tuple[str, str] | None = None
    shared_driver: str | None = None
    sriov: str | None = None
    sriov_total: int = 0
    no_sriov_driver: str | None = None
    mdev_parent: str | None = None
    mdev_type: str | None = None
    mdev_capacity: int | None = None
    removable: str | None = None
    make: Callable[[], Kernel] = field(default=RealKernel, repr=False)

    def can(self, ability: str) -> bool:
        """Whether the rig has the device that tests marked ``needs(ability)`` work on."""
        return getattr(self, ability) is not None


def load_rig() -> Rig:
    """The rig that the environment names, or the simulated one."""
    path = os.environ.get(ENVIRONMENT)
    if not path:
        return _simulated()
    values: dict[str, Any] = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    unknown = set(values) - {item.name for item in fields(Rig)}
    if unknown:
        raise ValueError(f"{path}: unknown keys {sorted(unknown)}")
    if values.get("shared"):
        values["shared"] = tuple(values["shared"])
    return Rig(**values)


def _simulated() -> Rig:
    types = [
        {"id": "nvidia-1", "name": "GRID T4-8Q", "size_mib": 8192},
        {"id": "nvidia-2", "name": "GRID T4-4Q", "size_mib": 4096},
    ]
    functions = [
        {"address": "0000:01:00.0", "id": "10de:20b0", "class": "030200", "driver": "nvidia"},
        {"address": "0000:02:00.0", "id": "1234:1111", "class": "030000", "driver": "bochs-drm", "group": 7},
        {"address": "0000:03:00.0", "id": "1234:1111", "class": "030000", "driver": "bochs-drm", "group": 7},
        {
            "address": "0000:04:00.0",
            "id": "8086:10c9",
            "class": "020000",
            "driver": "igb",
            "sriov": {"total": 7, "offset": 128, "stride": 2, "vf_device": "10ca"},
        },
        {"address": "0000:05:00.0", "id": "8086:10c9", "class": "020000", "native": [], "sriov": {"total": 7}},
        {
            "address": "0000:06:00.0",
            "id": "10de:1eb8",
            "class": "030200",
            "driver": "nvidia",
            "vgpu": {"scheme": "mdev", "framebuffer_mib": 16384, "types": types},
        },
        {"address": "0000:07:00.0", "id": "1234:11e8", "class": "00ff00", "native": []},
    ]
    return Rig(
        function="0000:01:00.0",
        driver="nvidia",
        shared=("0000:02:00.0", "0000:03:00.0"),
        shared_driver="bochs-drm",
        sriov="0000:04:00.0",
        sriov_total=7,
        no_sriov_driver="0000:05:00.0",
        mdev_parent="0000:06:00.0",
        mdev_type="nvidia-1",
        mdev_capacity=2,
        removable="0000:07:00.0",
        make=lambda: build("contract", {"functions": functions}),
    )
