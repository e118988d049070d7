"""vGPUs of allocations: made by the card's backend, remembered as the allocation's."""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.errors import Reason
from vgpumgr.model.allocation import AllocatedDevice
from vgpumgr.model.host import HostInventory
from vgpumgr.plans.plan import Plan, Refusal
from vgpumgr.store.store import Store


class Slicing:
    """Plans that make and unmake the vGPUs of one host's allocations."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def plan_create(self, inventory: HostInventory, devices: Sequence[AllocatedDevice], owner: str) -> Plan:
        """The plan that makes these vGPUs and remembers each as the allocation's (``owner``), or the refusal."""
        reasons = tuple(
            Reason("vgpu-not-made", f"{device.profile} on {device.gpu} would have to be made", (device.gpu,))
            for device in devices
        )
        message = "vGPUs cannot be made by this release"
        return Plan("vgpu-create", owner, refusal=Refusal("vgpu-not-made", message, reasons, "ask for a whole GPU"))

    def plan_delete(self, inventory: HostInventory, owner: str) -> Plan:
        """The plan that deletes every vGPU of the allocation and forgets it; empty when there is none."""
        return Plan("vgpu-delete", owner)
