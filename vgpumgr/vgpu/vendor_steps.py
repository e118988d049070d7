"""Steps that give a virtual function a vGPU type, and take it away (NVIDIA's interface without mdev)."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import ClassVar

from vgpumgr.errors import ConflictError, FailedError, Reason, VgpumgrError
from vgpumgr.inventory.holders import find_holders
from vgpumgr.kernel.port import PCI_DEVICES, Kernel, read_text
from vgpumgr.plans.checks import holder_reason
from vgpumgr.plans.step import Step, StepContext
from vgpumgr.vgpu.driver_answers import as_error, log_of, patiently
from vgpumgr.vgpu.files import NO_TYPE
from vgpumgr.vgpu.mdev_steps import same_params
from vgpumgr.vgpu.spares import skipped


def type_of(kernel: Kernel, vf: str) -> str | None:
    """The type a VF carries, ``0`` for none, ``None`` when it cannot be read."""
    return read_text(kernel, type_path(vf))


def type_path(vf: str) -> str:
    """``…/nvidia/current_vgpu_type``."""
    return f"{PCI_DEVICES}/{vf}/nvidia/current_vgpu_type"


def params_path(vf: str) -> str:
    """Where the plugin parameters of a typed VF stand."""
    return f"{PCI_DEVICES}/{vf}/nvidia/vgpu_params"


def clear_type(kernel: Kernel, vf: str) -> None:
    """Take the vGPU off a VF. Never while somebody has the VF open: the path is the next vGPU's, too."""
    seen = find_holders(kernel, (vf,))
    if seen.holders or not seen.known:
        raise ConflictError(
            f"vGPU {vf} is in use" if seen.holders else f"it cannot be seen whether vGPU {vf} is in use",
            hint="stop the VM that has it" if seen.holders else "run as root, with /proc mounted",
            reasons=[holder_reason(holder) for holder in seen.holders],
            code="vgpu-in-use" if seen.holders else "holders-unknown",
        )
    try:
        kernel.write(type_path(vf), NO_TYPE)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        raise ConflictError(
            f"vGPU {vf} is in use",
            hint="stop the VM that has it",
            reasons=[Reason("vgpu-in-use", "the driver says that a guest still has it", (vf,))],
            code="vgpu-in-use",
        ) from error


def set_type(kernel: Kernel, vf: str, type_id: str, tries: int, wait: float) -> None:
    """Give a free VF a type. A VF that took another in the meantime is not ours to change."""
    if not kernel.exists(type_path(vf)):
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), type_path(vf))
    if type_of(kernel, vf) != NO_TYPE:
        raise OSError(errno.EIO, "the virtual function is not free any more", type_path(vf))
    patiently(lambda: kernel.write(type_path(vf), type_id), tries, wait)


@dataclass(frozen=True)
class SetVgpuType(Step):
    """Give the VF ``address`` a vGPU type, or, where it refuses, one of ``spares``. It stays on its driver.

    The VF was claimed when the plan was made; spares are free VFs that no other step of the plan uses.
    """

    kind: ClassVar[str] = "set-vgpu-type"
    address: str
    type_id: str
    profile: str
    spares: tuple[str, ...] = ()
    tries: int = 6
    wait: float = 0.5

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"make {self.address} a {self.profile} (type {self.type_id})"

    @property
    def target_path(self) -> str:
        """``…/nvidia/current_vgpu_type``."""
        return type_path(self.address)

    @property
    def target_value(self) -> str:
        """The type's number."""
        return self.type_id

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return self.made(context.kernel) is not None

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`. Raises what :func:`as_error` makes of the last refusal."""
        with log_of(context).follow() as said:
            for vf in (self.address, *self.spares):
                try:
                    set_type(context.kernel, vf, self.type_id, self.tries, self.wait)
                except TimeoutError:
                    raise
                except OSError as error:
                    refused = error
                    continue
                return
            raise as_error(refused, self.describe(), self.address, said()) from refused

    def foreign(self, context: StepContext) -> VgpumgrError | None:
        """See :class:`Step`: a VF that has the type by now was given it by somebody else."""
        other = self.made(context.kernel)
        if other is None:
            return None
        return ConflictError(
            f"{self.describe()}: {other} has become one meanwhile, and not by us",
            hint="ask again: another virtual function is chosen then",
            reasons=[Reason("vgpu-foreign", f"somebody else gave {other} the type {self.type_id}", (other,))],
            code="vgpu-exists",
        )

    def remark(self, context: StepContext) -> str | None:
        """Names a VF that refused and the one that took the type."""
        return skipped(self.address, self.made(context.kernel), self.profile)

    def undo(self, context: StepContext) -> None:
        """Take the type off again."""
        vf = self.made(context.kernel)
        if vf is not None:
            clear_type(context.kernel, vf)

    def made(self, kernel: Kernel) -> str | None:
        """The VF that carries it; ``None`` while none does. All of them were free when the plan was made."""
        candidates = (self.address, *self.spares)
        return next((vf for vf in candidates if type_of(kernel, vf) == self.type_id), None)


@dataclass(frozen=True)
class SetVfParams(Step):
    """Write the plugin parameters of the vGPU that ``address`` or one of ``spares`` has become; none clears what an
    earlier vGPU left on the VF. They take effect when its VM next starts.
    """

    kind: ClassVar[str] = "set-vf-params"
    address: str
    type_id: str
    params: str
    spares: tuple[str, ...] = ()

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"set the parameters of vGPU {self.address} to {self.params or 'none'}"

    @property
    def target_path(self) -> str:
        """``…/nvidia/vgpu_params``."""
        return params_path(self.address)

    @property
    def target_value(self) -> str:
        """The parameters; single keys cannot be cleared, only all of them."""
        return self.params or " "

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        path = self._path(context.kernel)
        return path is not None and same_params(read_text(context.kernel, path), self.params)

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`. Raises :class:`FailedError` when no VF carries the vGPU."""
        path = self._path(context.kernel)
        if path is None:
            raise FailedError(f"the vGPU of type {self.type_id} on {self.address} is gone again", code="vgpu-lost")
        context.kernel.write(path, self.target_value)

    def undo(self, context: StepContext) -> None:
        """Clear them, while the vGPU is there: they go with it."""
        path = self._path(context.kernel)
        if path is not None and read_text(context.kernel, path):
            context.kernel.write(path, " ")

    def _path(self, kernel: Kernel) -> str | None:
        places = (self.address, *self.spares)
        return next((params_path(vf) for vf in places if type_of(kernel, vf) == self.type_id), None)


@dataclass(frozen=True)
class ClearVgpuType(Step):
    """Delete the vGPU on a VF. Undoing makes it again, with its parameters."""

    kind: ClassVar[str] = "clear-vgpu-type"
    address: str
    type_id: str
    params: str = ""
    tries: int = 6
    wait: float = 0.5

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"delete the vGPU (type {self.type_id}) on {self.address}"

    @property
    def target_path(self) -> str:
        """``…/nvidia/current_vgpu_type``."""
        return type_path(self.address)

    @property
    def target_value(self) -> str:
        """Always ``0``."""
        return NO_TYPE

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`. A VF that vanished carries nothing; one that cannot be read may."""
        found = type_of(context.kernel, self.address)
        return found == NO_TYPE or (found is None and not context.kernel.exists(type_path(self.address)))

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`. Raises :class:`FailedError` when the VF carries another type by now."""
        found = type_of(context.kernel, self.address)
        if found is None:
            raise FailedError(
                f"{self.describe()}: what it carries now cannot be read",
                hint=f"look at {type_path(self.address)} and ask again",
                code="kernel-refused",
            )
        if found != self.type_id:
            raise FailedError(
                f"{self.address} carries type {found}, not {self.type_id}: it is another vGPU by now",
                code="vgpu-changed",
            )
        clear_type(context.kernel, self.address)

    def undo(self, context: StepContext) -> None:
        """Give the VF its type again."""
        if type_of(context.kernel, self.address) != NO_TYPE:
            return
        set_type(context.kernel, self.address, self.type_id, self.tries, self.wait)
        if self.params:
            context.kernel.write(params_path(self.address), self.params)
