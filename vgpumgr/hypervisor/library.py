"""Loads libvirt's Python module, which is there only where libvirt is: late, and with words for its absence."""

from __future__ import annotations

from types import ModuleType

from vgpumgr.errors import UnavailableError


def load() -> ModuleType:
    """The ``libvirt`` module. UnavailableError ``libvirt-missing`` without it, or the C library under it."""
    try:
        import libvirt
    except ImportError as error:
        raise UnavailableError(
            f"the libvirt library cannot be used: {error}",
            hint="apt-get install libvirt0 libvirt-daemon-system, then install libvirt-python (make setup)",
            code="libvirt-missing",
        ) from error
    # libvirt prints its errors on stderr by itself; they reach the user through exceptions here.
    libvirt.registerErrorHandler(_silent, None)
    module: ModuleType = libvirt
    return module


def _silent(_context: object, _error: object) -> None:
    """Take libvirt's own printing away."""
