"""What stands between a GPU and a VM, and what to do about it, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vgpumgr.model.host import PassthroughState
from vgpumgr.model.json import JsonObject


class Severity(StrEnum):
    """``blocking``: no VM can have it; ``warning``: it works, at a risk; ``info``: the next step, or a fact."""

    BLOCKING = "blocking"
    WARNING = "warning"
    INFO = "info"


class RemedyKind(StrEnum):
    """What has to be changed."""

    FIRMWARE = "firmware-setting"
    KERNEL_PARAMETER = "kernel-parameter"
    MODULE = "module"
    GROUP_MEMBER = "group-member"
    HOLDER = "holder"
    COMMAND = "command"
    HARDWARE = "hardware"
    PRIVILEGE = "privilege"


@dataclass(frozen=True, slots=True)
class Remedy:
    """One thing to do. ``text`` is for people; ``value`` the exact setting, parameter, module, address or command.

    ``undo`` is true when ``value`` is to be taken away (a kernel parameter to remove).
    """

    kind: RemedyKind
    text: str
    value: str
    undo: bool = False

    def to_json(self) -> JsonObject:
        """``{"kind", "text", "value", "undo"}``."""
        return {"kind": str(self.kind), "text": self.text, "value": self.value, "undo": self.undo}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found, with the remedies to try in this order (none: a fact of this hardware)."""

    code: str
    severity: Severity
    message: str
    addresses: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()

    @property
    def remedy(self) -> Remedy | None:
        """The first remedy."""
        return self.remedies[0] if self.remedies else None

    def to_json(self) -> JsonObject:
        """``{"code", "severity", "message", "addresses", "remedy": {...}|null, "remedies": [...]}``."""
        return {
            "code": self.code,
            "severity": str(self.severity),
            "message": self.message,
            "addresses": list(self.addresses),
            "remedy": self.remedy.to_json() if self.remedy else None,
            "remedies": [remedy.to_json() for remedy in self.remedies],
        }


@dataclass(frozen=True, slots=True)
class GpuDiagnosis:
    """Everything about one GPU. ``assignable`` as in the inventory: nothing blocks it."""

    address: str
    name: str
    assignable: bool
    state: PassthroughState
    findings: tuple[Finding, ...]

    def to_json(self) -> JsonObject:
        """``{"address", "name", "assignable", "state", "findings"}``."""
        return {
            "address": self.address,
            "name": self.name,
            "assignable": self.assignable,
            "state": str(self.state),
            "findings": [finding.to_json() for finding in self.findings],
        }


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The doctor's report: what concerns the whole host, then GPU by GPU."""

    host: tuple[Finding, ...]
    gpus: tuple[GpuDiagnosis, ...]

    @property
    def blocked(self) -> bool:
        """True when something keeps every GPU of the host from VMs."""
        return any(finding.severity is Severity.BLOCKING for finding in self.host)

    def to_json(self) -> JsonObject:
        """``{"host": {"findings"}, "gpus": [...]}``."""
        return {
            "host": {"findings": [finding.to_json() for finding in self.host]},
            "gpus": [gpu.to_json() for gpu in self.gpus],
        }
