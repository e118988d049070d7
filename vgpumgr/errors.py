"""Every error a user can meet: its stable code, its exit status and its HTTP status, in one catalogue.

An error says *what* is wrong, *why*, and *what to do* (``hint``). Codes are never changed once published;
programs match on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

EXIT_OK = 0
EXIT_INTERNAL = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_FAILED = 4
EXIT_UNAVAILABLE = 5


class Reason(NamedTuple):
    """One reason of a refusal: a stable code, a sentence, and the PCI addresses (or UUIDs) it is about."""

    code: str
    message: str
    addresses: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The shape of DESIGN §6: ``{"code", "message", "addresses"}``."""
        return {"code": self.code, "message": self.message, "addresses": list(self.addresses)}


def counted(count: int, one: str, many: str) -> str:
    """The subject of a message with its verb: ``1 vGPU lives``, ``3 vGPUs live``."""
    return f"{count} {one if count == 1 else many}"


class VgpumgrError(Exception):
    """Base of all errors that a user sees.

    ``code`` is stable, ``hint`` says what to do, ``reasons`` carries the details of a refusal.
    """

    code = "internal"
    http_status = 500
    exit_status = EXIT_INTERNAL

    def __init__(
        self, message: str, *, hint: str = "", reasons: Sequence[Reason] = (), code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.reasons = tuple(reasons)
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def to_json(self) -> dict[str, object]:
        """``{"code", "message", "hint", "reasons"}``."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "reasons": [reason.to_json() for reason in self.reasons],
        }


class UsageError(VgpumgrError):
    """The caller asked for something that makes no sense, whatever the host's state."""

    code = "usage"
    http_status = 400
    exit_status = EXIT_USAGE


class AddressError(UsageError):
    """A text that is no PCI address."""

    code = "address-invalid"

    def __init__(self, text: str) -> None:
        super().__init__(
            f"{text!r} is not a PCI address", hint="write it as 0000:3b:00.0; 'vgpumgr gpu list' shows the GPUs"
        )


class NotFoundError(VgpumgrError):
    """A named thing that does not exist."""

    code = "not-found"
    http_status = 404
    exit_status = EXIT_USAGE


class ConflictError(VgpumgrError):
    """The request is fine but contradicts the present state of a stored thing."""

    code = "conflict"
    http_status = 409
    exit_status = EXIT_REFUSED


class RefusedError(VgpumgrError):
    """A rule forbids what was asked; ``reasons`` says which, about which devices."""

    code = "refused"
    http_status = 409
    exit_status = EXIT_REFUSED


class FailedError(VgpumgrError):
    """A change was tried and failed; what had been done was undone, or is named in ``reasons``."""

    code = "failed"
    http_status = 500
    exit_status = EXIT_FAILED


class DeadlineError(FailedError):
    """A write to the kernel did not come back in time."""

    code = "deadline-exceeded"
    http_status = 504


class NoCapacityError(FailedError):
    """What was free when the plan was made was taken when its turn came: the host's state, no fault of ours."""

    code = "no-capacity"
    http_status = 409


class UnavailableError(VgpumgrError):
    """Something this needs (the service, libvirt, the database, root) is not there."""

    code = "unavailable"
    http_status = 503
    exit_status = EXIT_UNAVAILABLE


class PermissionDeniedError(UnavailableError):
    """The caller lacks the rights; usually: not root."""

    code = "permission-denied"
    http_status = 403


class SourceError(UsageError):
    """A ``--sysfs-root`` or host description that is not what it should be."""

    code = "source-invalid"
