"""Collects what a preflight finds, each finding once."""

from __future__ import annotations

from vgpumgr.domain.problems import PROBLEMS
from vgpumgr.model.domain import Problem


class Findings:
    """Problems in the order they were found."""

    def __init__(self) -> None:
        self._found: dict[Problem, None] = {}

    def error(self, code: str, message: str, *addresses: str) -> None:
        """Something that would stop the VM, or that would take from the host or another VM what they use."""
        self._add(code, "error", message, addresses)

    def warning(self, code: str, message: str, *addresses: str) -> None:
        """Something that would not stop the VM, and that somebody will regret."""
        self._add(code, "warning", message, addresses)

    def _add(self, code: str, severity: str, message: str, addresses: tuple[str, ...]) -> None:
        if code not in PROBLEMS:
            raise KeyError(f"{code} is not in the catalogue of problems")
        self._found[Problem(code, severity, message, _named(addresses))] = None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Errors first."""
        return tuple(sorted(self._found, key=lambda problem: problem.severity != "error"))


def _named(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Without those of devices that could not be read."""
    return tuple(address for address in addresses if address)
