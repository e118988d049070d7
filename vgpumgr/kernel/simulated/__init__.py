"""A simulated kernel: a host described in YAML, or a recording, that reacts to writes as Linux does."""

from vgpumgr.kernel.simulated.hosts import open_simulation, shipped_hosts
from vgpumgr.kernel.simulated.machine import SimulatedKernel

__all__ = ["SimulatedKernel", "open_simulation", "shipped_hosts"]
