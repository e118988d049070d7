"""Puts a host's service together from its settings: kernel, store, libvirt."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from vgpumgr.config import Config
from vgpumgr.errors import UnavailableError
from vgpumgr.kernel.open import open_kernel
from vgpumgr.kernel.port import Kernel
from vgpumgr.service import Service

_MACHINE_ID = Path("/etc/machine-id")


def open_reader(config: Config) -> Service:
    """A service that only reads: no database, no libvirt."""
    return Service(open_kernel(config.sysfs_root, config.simulate))


def open_service(config: Config, *, libvirt: bool = True, nvml: bool = True) -> Service:
    """The whole service of a host; both ``False`` for early boot: libvirt is not there yet, and who asks NVIDIA's
    library opens the cards that are to leave its driver.

    Raises UsageError and UnavailableError for settings and surroundings that do not fit.
    """
    from vgpumgr.allocations.desk import Desk
    from vgpumgr.hypervisor.port import Hypervisor
    from vgpumgr.kernel.log import KernelLog, open_log
    from vgpumgr.kernel.options import OptionsFile, options_file
    from vgpumgr.plans.lock import HostLock
    from vgpumgr.plans.step import StepContext
    from vgpumgr.store.store import Store, open_store
    from vgpumgr.vgpu.sriov_manage import sriov_tool
    from vgpumgr.vgpu.sriov_steps import SriovTool

    kernel = open_kernel(config.sysfs_root, config.simulate, config.write_deadline_seconds)
    store = open_store(config.database_url, _host_id(config, kernel))
    ports: dict[type, object] = {
        Store: store,
        SriovTool: sriov_tool(kernel),
        KernelLog: open_log(kernel),
        OptionsFile: options_file(kernel),
    }
    if nvml:
        from vgpumgr.telemetry.nvml import open_nvml
        from vgpumgr.vgpu.nvml_port import NvmlPort

        ports[NvmlPort] = open_nvml(kernel)
    hypervisor: Hypervisor | None = None
    if libvirt and config.libvirt_uri:
        from vgpumgr.hypervisor.libvirt_port import LibvirtHypervisor

        hypervisor = LibvirtHypervisor(config.libvirt_uri)
        ports[Hypervisor] = hypervisor
    lock = HostLock(None if config.simulate else config.runtime_dir / "host.lock")
    desk = Desk(store, StepContext(kernel, ports), lock, lambda: str(uuid4()))
    return Service(kernel, desk=desk, hypervisor=hypervisor, template_dir=config.template_dir)


def _host_id(config: Config, kernel: Kernel) -> str:
    """Which host the rows belong to: as configured, else the machine's id, else the simulated host's name."""
    if config.host_id:
        return config.host_id
    if config.simulate:
        return kernel.label[:64]
    try:
        return _MACHINE_ID.read_text(encoding="ascii").strip()
    except OSError as error:
        raise UnavailableError(
            f"{_MACHINE_ID} cannot be read: {error.strerror}", hint="set 'host_id' in the configuration"
        ) from error
