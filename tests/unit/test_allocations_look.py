"""What the rest of the house adds to the inventory: promises and VMs, by IOMMU group."""

from __future__ import annotations

from vgpumgr.allocations.look import Promises, look
from vgpumgr.kernel.simulated.build import build
from vgpumgr.kernel.simulated.machine import SimulatedKernel
from vgpumgr.model.host import Gpu

FIRST, MATE, OTHER = "10000:17:00.0", "10000:18:00.0", "10000:19:00.0"


def host() -> SimulatedKernel:
    groups = {FIRST: 5, MATE: 5, OTHER: 6}
    card = {"id": "10de:1ff2", "class": "030000", "driver": "vfio-pci"}
    return build(
        "test", {"functions": [{"address": name, "group": group, **card} for name, group in groups.items()]}
    )


def by_address(*gpus: Gpu) -> dict[str, tuple[str, bool]]:
    return {gpu.address: (str(gpu.passthrough.state), gpu.passthrough.assignable) for gpu in gpus}


def test_a_gpu_in_the_group_of_a_promised_one_is_not_offered_to_another_vm() -> None:
    gpus = look(host(), Promises(gpus={FIRST: "a-1"})).gpus
    assert by_address(*gpus) == {FIRST: ("reserved", False), MATE: ("reserved", False), OTHER: ("ready", True)}
    mate = next(gpu for gpu in gpus if gpu.address == MATE)
    assert f"a-1, which has {FIRST}" in mate.passthrough.reasons[0].message


def test_a_gpu_in_the_group_of_a_vms_is_in_use() -> None:
    gpus = look(host(), owners={FIRST: "desktop-7"}).gpus
    assert by_address(*gpus) == {FIRST: ("in-use", False), MATE: ("in-use", False), OTHER: ("ready", True)}
    mate = next(gpu for gpu in gpus if gpu.address == MATE)
    assert mate.passthrough.reasons[0].message == f"{FIRST} belongs to desktop-7"
