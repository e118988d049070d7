"""What a service is put together from: the store and its worker, libvirt, NVIDIA's library, and what works on them.

Each part is made when it is first needed, or says what it needs and does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from vgpumgr.allocations.look import NO_PROMISES, Promises, look
from vgpumgr.errors import UnavailableError
from vgpumgr.kernel.port import Kernel
from vgpumgr.model.host import HostInventory
from vgpumgr.reading import Reading, find_gpu

if TYPE_CHECKING:
    from vgpumgr.allocations.desk import Desk
    from vgpumgr.allocations.machines import Machines
    from vgpumgr.allocations.manager import Manager
    from vgpumgr.allocations.slices import Slices
    from vgpumgr.hypervisor.port import Hypervisor
    from vgpumgr.vgpu.nvml_port import NvmlPort


class Parts(Reading):
    """The parts behind the use-cases of one host, and what :class:`Reading` asks of them."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        desk: Desk | None = None,
        hypervisor: Hypervisor | None = None,
        template_dir: Path | None = None,
    ) -> None:
        super().__init__(kernel)
        self._desk = desk
        self._hypervisor = hypervisor
        self._template_dir = template_dir

    # -- what Reading asks ------------------------------------------------------------------------------
    def _promises(self, but_for: str | None) -> Promises:
        return self._desk.promises(but_for) if self._desk is not None else NO_PROMISES

    def _owners(self) -> Mapping[str, str] | None:
        return self._hypervisor.owners() if self._hypervisor is not None else None

    def _libvirt_version(self) -> tuple[int, int, int] | None:
        return self._hypervisor.capabilities().version if self._hypervisor is not None else None

    # -- parts ----------------------------------------------------------------------------------------
    @property
    def _at_desk(self) -> Desk:
        if self._desk is None:
            raise UnavailableError(
                "this needs the service's store, which is not open here",
                hint="systemctl start vgpumgr",
                code="service-unavailable",
            )
        return self._desk

    @property
    def _libvirt(self) -> Hypervisor:
        if self._hypervisor is None:
            raise UnavailableError(
                "this needs libvirt, which is not configured here",
                hint="set 'libvirt_uri' in the configuration",
                code="libvirt-unavailable",
            )
        return self._hypervisor

    @cached_property
    def _nvml(self) -> NvmlPort | None:
        """NVML, where this service changes the host; a command that only reads does without."""
        if self._desk is None:
            return None
        from vgpumgr.vgpu.mode_steps import nvml_of

        return nvml_of(self._desk.context)

    @cached_property
    def slices(self) -> Slices:
        """Slicing: cards into VFs and modes, vGPUs by hand."""
        from vgpumgr.allocations.slices import Slices

        return Slices(self.kernel, self.inventory, find_gpu, self._desk)

    @cached_property
    def _manager(self) -> Manager:
        from vgpumgr.allocations.manager import Manager
        from vgpumgr.allocations.slicing import Slicing

        return Manager(self._at_desk, self._look_but_for, Slicing(self._at_desk))

    @cached_property
    def _machines(self) -> Machines:
        from vgpumgr.allocations.machines import Machines
        from vgpumgr.domain.templates import Templates

        templates = Templates(self._template_dir)
        return Machines(self._at_desk, self._manager, self._libvirt, templates, self._look_but_for)

    def _look_but_for(self, allocation_id: str | None) -> HostInventory:
        """The host without the promises to one allocation: they are no obstacle to itself."""
        return look(self.kernel, self._at_desk.promises(allocation_id), self._owners(), self._nvml)

    def _look_to_restore(self) -> HostInventory:
        """The host with what speaks against touching a card; what is to be restored is not promised to others."""
        promises = self._at_desk.promises()
        return look(self.kernel, Promises(promises.gpus, quarantined=promises.quarantined), nvml=self._nvml)
