"""Turns a problem (RFC 9457) that the service answered into the error it was on the other side."""

from __future__ import annotations

from typing import Any, NoReturn

from vgpumgr.errors import (
    ConflictError,
    DeadlineError,
    FailedError,
    NotFoundError,
    PermissionDeniedError,
    Reason,
    RefusedError,
    UnavailableError,
    UsageError,
    VgpumgrError,
)

BY_STATUS: dict[int, type[VgpumgrError]] = {
    403: PermissionDeniedError,
    404: NotFoundError,
    409: RefusedError,
    412: ConflictError,
    500: FailedError,
    503: UnavailableError,
    504: DeadlineError,
}
"""Everything else below 500 is a request that makes no sense: a UsageError."""


def raise_problem(status: int, content: bytes) -> NoReturn:
    """Raise the error a problem stands for."""
    import json

    try:
        problem = json.loads(content)
    except ValueError:
        problem = {}
    if not isinstance(problem, dict) or "code" not in problem:
        problem = {"code": "internal", "detail": f"the service answered {status} and no problem details"}
        raise_error(problem, VgpumgrError)
    raise_error(problem, BY_STATUS.get(status, UsageError if status < 500 else FailedError))


def raise_error(problem: dict[str, Any], kind: type[VgpumgrError] = FailedError) -> NoReturn:
    """Raise ``kind`` with the message, hint, reasons and code that an error's JSON carries."""
    message = str(problem.get("message") or problem.get("detail") or problem.get("title") or "failed")
    fields = [f"{item.get('field', 'body')}: {item.get('message')}" for item in problem.get("errors") or []]
    raise kind(
        "; ".join([message, *fields]),
        hint=str(problem.get("hint") or ""),
        reasons=[
            Reason(str(item["code"]), str(item["message"]), tuple(item.get("addresses") or ()))
            for item in problem.get("reasons") or []
        ],
        code=str(problem["code"]),
    )
