"""Steps that make and remove mediated devices."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from typing import ClassVar

from vgpumgr.errors import ConflictError, Reason
from vgpumgr.kernel.port import MDEV_DEVICES, MDEV_PARENTS, Kernel, link_name, read_text
from vgpumgr.plans.step import Step, StepContext
from vgpumgr.vgpu.driver_answers import as_error, log_of, patiently
from vgpumgr.vgpu.spares import skipped


def mdev_exists(kernel: Kernel, uuid: str) -> bool:
    """True while the bus lists the device; a link that cannot be followed still counts."""
    return kernel.exists(f"{MDEV_DEVICES}/{uuid}") or link_name(kernel, f"{MDEV_DEVICES}/{uuid}") is not None


def mdev_parent(kernel: Kernel, uuid: str) -> str | None:
    """The function an mdev lives on, from its link's text."""
    try:
        parts = kernel.readlink(f"{MDEV_DEVICES}/{uuid}").rstrip("/").split("/")
    except OSError:
        return None
    return parts[-2] if len(parts) > 1 else None


def same_params(found: str | None, wanted: str) -> bool:
    """True for the same parameters, whether commas or blanks stand between them."""
    return found is not None and re.split(r"[\s,]+", found) == re.split(r"[\s,]+", wanted)


def remove_mdev(kernel: Kernel, uuid: str) -> None:
    """Remove it. Raises :class:`ConflictError` ``vgpu-in-use`` while a guest has it, else OSError."""
    try:
        kernel.write(f"{MDEV_DEVICES}/{uuid}/remove", "1")
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise ConflictError(
                f"vGPU {uuid} is in use",
                hint="stop the VM that has it",
                reasons=[Reason("vgpu-in-use", "the driver says that a guest still has it", (uuid,))],
                code="vgpu-in-use",
            ) from error
        if mdev_exists(kernel, uuid):
            raise


def _create(kernel: Kernel, parent: str, type_id: str, uuid: str, tries: int, wait: float) -> None:
    path = f"{MDEV_PARENTS}/{parent}/mdev_supported_types/{type_id}/create"
    patiently(lambda: kernel.write(path, uuid), tries, wait)


@dataclass(frozen=True)
class CreateMdev(Step):
    """Make a mediated device on ``address``, or, where that function refuses, on one of ``spares``.

    Spares are free VFs of the same card that no other step of the plan uses, so one bad VF does not end a plan.
    """

    kind: ClassVar[str] = "create-mdev"
    address: str
    type_id: str
    uuid: str
    profile: str
    spares: tuple[str, ...] = ()
    tries: int = 6
    wait: float = 0.5

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"create {self.profile} as mediated device {self.uuid} on {self.address}"

    @property
    def target_path(self) -> str:
        """``…/mdev_supported_types/TYPE/create``."""
        return f"{MDEV_PARENTS}/{self.address}/mdev_supported_types/{self.type_id}/create"

    @property
    def target_value(self) -> str:
        """The UUID."""
        return self.uuid

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return link_name(context.kernel, f"{MDEV_DEVICES}/{self.uuid}/mdev_type") == self.type_id

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`. Raises what :func:`as_error` makes of the last refusal."""
        with log_of(context).follow() as said:
            for parent in (self.address, *self.spares):
                try:
                    _create(context.kernel, parent, self.type_id, self.uuid, self.tries, self.wait)
                except TimeoutError:
                    raise
                except OSError as error:
                    refused = error
                    continue
                return
            raise as_error(refused, self.describe(), self.address, said()) from refused

    def undo(self, context: StepContext) -> None:
        """Remove what was made. A device of that UUID and another type is somebody else's."""
        if self.is_done(context):
            remove_mdev(context.kernel, self.uuid)

    def remark(self, context: StepContext) -> str | None:
        """Names a function that refused and the one that took it."""
        return skipped(self.address, self.made(context.kernel), self.profile)

    def made(self, kernel: Kernel) -> str | None:
        """The function that took it; ``None`` while there is none."""
        return mdev_parent(kernel, self.uuid)


@dataclass(frozen=True)
class RemoveMdev(Step):
    """Remove a mediated device. Undoing makes it again, with its parameters."""

    kind: ClassVar[str] = "remove-mdev"
    address: str
    type_id: str
    uuid: str
    params: str = ""
    tries: int = 6
    wait: float = 0.5

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"remove mediated device {self.uuid} from {self.address}"

    @property
    def target_path(self) -> str:
        """``…/UUID/remove``."""
        return f"{MDEV_DEVICES}/{self.uuid}/remove"

    @property
    def target_value(self) -> str:
        """Always ``1``."""
        return "1"

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return not mdev_exists(context.kernel, self.uuid)

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        remove_mdev(context.kernel, self.uuid)

    def undo(self, context: StepContext) -> None:
        """Make it again on the same function."""
        if mdev_exists(context.kernel, self.uuid):
            return
        _create(context.kernel, self.address, self.type_id, self.uuid, self.tries, self.wait)
        if self.params:
            context.kernel.write(f"{MDEV_DEVICES}/{self.uuid}/nvidia/vgpu_params", self.params)


@dataclass(frozen=True)
class SetParams(Step):
    """Write a vGPU's plugin parameters. They take effect when its VM next starts; a blank clears them all."""

    kind: ClassVar[str] = "set-vgpu-params"
    path: str
    params: str
    prior: str = ""

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"set the parameters of vGPU {self.vgpu} to {self.params or 'none'}"

    @property
    def vgpu(self) -> str:
        """The UUID or VF the parameters belong to."""
        return self.path.rpartition("/nvidia/")[0].rpartition("/")[2]

    @property
    def subject(self) -> str:
        """See :class:`Step`."""
        return self.vgpu

    @property
    def target_path(self) -> str:
        """``…/nvidia/vgpu_params``."""
        return self.path

    @property
    def target_value(self) -> str:
        """The parameters; single keys cannot be cleared, only all of them."""
        return self.params or " "

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return same_params(read_text(context.kernel, self.path), self.params)

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.kernel.write(self.path, self.target_value)

    def undo(self, context: StepContext) -> None:
        """Write back what stood there. Gone with its vGPU when that was undone first."""
        if context.kernel.exists(self.path) and read_text(context.kernel, self.path) != self.prior:
            context.kernel.write(self.path, self.prior or " ")
