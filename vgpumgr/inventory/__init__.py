"""Kernel in, :class:`HostInventory` out: functions, groups, GPUs, companions, holders and names."""

from __future__ import annotations

from vgpumgr.inventory.passthrough import with_occupancy
from vgpumgr.inventory.take import take_inventory

__all__ = ["take_inventory", "with_occupancy"]
