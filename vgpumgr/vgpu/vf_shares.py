"""What each VF of an Intel card gets: local memory, a time slice, a preemption timeout.

Two drivers keep it in two places: ``xe`` under the card (``sriov_admin``), and ``i915`` of Intel's own releases
under its display device (``prelim_iov``, on some trees ``iov``), once for each of the card's tiles.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vgpumgr.kernel.port import PCI_DEVICES, Kernel, list_or_empty, read_text
from vgpumgr.plans.step import Step
from vgpumgr.vgpu.sriov_steps import SetVfQuota

_IOV = ("prelim_iov", "iov")
_I915_NAMES = {
    "vram_bytes": "lmem_quota",
    "exec_quantum_ms": "exec_quantum_ms",
    "preempt_timeout_us": "preempt_timeout_us",
}
_XE_NAMES = _I915_NAMES | {"vram_bytes": "vram_quota"}


@dataclass(frozen=True, slots=True)
class VfShare:
    """What each VF shall get; ``None`` leaves it to the driver.

    ``vram_bytes`` of local memory, a time slice of ``exec_quantum_ms`` and a ``preempt_timeout_us``.
    """

    vram_bytes: int | None = None
    exec_quantum_ms: int | None = None
    preempt_timeout_us: int | None = None

    def values(self) -> dict[str, int]:
        """The fields that are set, by name."""
        named = {
            "vram_bytes": self.vram_bytes,
            "exec_quantum_ms": self.exec_quantum_ms,
            "preempt_timeout_us": self.preempt_timeout_us,
        }
        return {name: value for name, value in named.items() if value is not None}


def shares_supported(kernel: Kernel, address: str) -> bool:
    """True when the card's driver has a place for shares."""
    return _iov_folder(kernel, address) is not None or bool(list_or_empty(kernel, _xe_folder(address)))


def share_steps(kernel: Kernel, address: str, count: int, share: VfShare | None) -> list[Step]:
    """Steps that give ``count`` VFs their share; they are written before the VFs exist."""
    if share is None or not share.values():
        return []
    iov = _iov_folder(kernel, address)
    if iov is None:
        folders = [f"{_xe_folder(address)}/vf{number}/profile" for number in range(1, count + 1)]
        return [_quota(kernel, address, path, value) for path, value in _attributes(folders, share, _XE_NAMES)]
    steps = []
    automatic = f"{iov}/pf/auto_provisioning"
    if read_text(kernel, automatic) == "1":
        steps.append(_quota(kernel, address, automatic, 0))
    tiles = [f"{iov}/vf{number}/{tile}" for number in range(1, count + 1) for tile in _tiles(kernel, iov, number)]
    steps += [_quota(kernel, address, path, value) for path, value in _attributes(tiles, share, _I915_NAMES)]
    return steps


def _xe_folder(address: str) -> str:
    return f"{PCI_DEVICES}/{address}/sriov_admin"


def _iov_folder(kernel: Kernel, address: str) -> str | None:
    base = f"{PCI_DEVICES}/{address}/drm"
    for card in list_or_empty(kernel, base):
        for name in _IOV:
            if list_or_empty(kernel, f"{base}/{card}/{name}"):
                return f"{base}/{card}/{name}"
    return None


def _tiles(kernel: Kernel, iov: str, number: int) -> list[str]:
    """``gt``, or ``gt0`` and ``gt1``: as the tree has it."""
    return [name for name in list_or_empty(kernel, f"{iov}/vf{number}") if name.startswith("gt")]


def _attributes(folders: Iterable[str], share: VfShare, names: dict[str, str]) -> Iterable[tuple[str, int]]:
    for folder in folders:
        for name, value in share.values().items():
            yield f"{folder}/{names[name]}", value


def _quota(kernel: Kernel, address: str, path: str, value: int) -> Step:
    return SetVfQuota(address, path, str(value), read_text(kernel, path) or "")
