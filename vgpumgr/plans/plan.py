"""A plan: steps in order, or a refusal that says why there are none."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vgpumgr.errors import Reason, RefusedError
from vgpumgr.model.json import JsonObject
from vgpumgr.plans.step import Step


class AfterCrash(StrEnum):
    """What to do with a plan that was cut short: finish it, or take it back."""

    FORWARD = "forward"
    BACK = "back"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a plan must not be carried out; the rule's stable code and every device it is about."""

    code: str
    message: str
    reasons: tuple[Reason, ...] = ()
    hint: str = ""

    def to_json(self) -> JsonObject:
        """``{"code", "message", "reasons", "hint"}``."""
        return {
            "code": self.code,
            "message": self.message,
            "reasons": [reason.to_json() for reason in self.reasons],
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps that take a host from here to there. ``kind`` and ``subject`` name the intent (``bind``, an address).

    No steps and no refusal means: the host is already as wanted.
    """

    kind: str
    subject: str
    steps: tuple[Step, ...] = ()
    refusal: Refusal | None = None
    after_crash: AfterCrash = AfterCrash.BACK
    warnings: tuple[Reason, ...] = ()

    def require(self) -> None:
        """Raise :class:`RefusedError` when the plan is a refusal."""
        if self.refusal is not None:
            raise RefusedError(
                self.refusal.message,
                hint=self.refusal.hint,
                reasons=self.refusal.reasons,
                code=self.refusal.code,
            )

    def to_json(self) -> JsonObject:
        """``{"steps": [...], "refusal": null | {...}}`` of DESIGN §6, plus kind, subject and warnings."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "steps": [step.to_json() for step in self.steps],
            "refusal": self.refusal.to_json() if self.refusal else None,
            "warnings": [warning.to_json() for warning in self.warnings],
        }


def join(kind: str, subject: str, *plans: Plan, after_crash: AfterCrash = AfterCrash.BACK) -> Plan:
    """Several plans as one, in order; the first refusal refuses the whole."""
    refusal = next((plan.refusal for plan in plans if plan.refusal), None)
    steps = () if refusal else tuple(step for plan in plans for step in plan.steps)
    warnings = tuple(warning for plan in plans for warning in plan.warnings)
    return Plan(kind, subject, steps, refusal, after_crash, warnings)
