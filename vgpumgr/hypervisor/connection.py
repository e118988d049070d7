"""One connection to libvirt, shared by all threads, opened when it is first needed and again when it was lost.

libvirt's own calls are thread-safe and have no deadline: a libvirtd that hangs hangs its callers. So every call
runs aside; when its time is up the caller gets an error, and the connection is left behind and opened anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from vgpumgr.errors import PermissionDeniedError, UnavailableError, VgpumgrError

T = TypeVar("T")

OPEN_DEADLINE = 15.0
"""Seconds libvirtd has to take a connection."""
CALL_DEADLINE = 60.0
"""Seconds libvirtd has to answer a call."""


class Connection:
    """A connection by URI. ``library`` gives the ``libvirt`` module, when it is first needed."""

    def __init__(
        self,
        uri: str,
        library: Callable[[], ModuleType],
        *,
        open_deadline: float = OPEN_DEADLINE,
        call_deadline: float = CALL_DEADLINE,
    ) -> None:
        self.uri = uri
        self._library = library
        self._open_deadline = open_deadline
        self._call_deadline = call_deadline
        self._connection: Any = None
        self._guard = threading.Lock()
        self._failures = 0
        self._failure: UnavailableError | None = None
        self._opening: threading.Thread | None = None

    def call(self, action: Callable[[Any], T], *, deadline: float | None = None) -> T:
        """Do something with the ``virConnect``; once more when the connection turns out to be lost.

        So ``action`` must bear being repeated. Raises ``libvirtError`` as libvirt does, and UnavailableError when
        libvirt cannot be reached or does not answer in time.
        """
        connection = self._connected()
        try:
            return self._ask(connection, action, deadline)
        except self._library().libvirtError as error:
            if not self._lost(connection, error):
                raise
        self._leave(connection)
        return self._ask(self._connected(), action, deadline)

    def close(self) -> None:
        """Let the connection go; a libvirtd that hangs is not waited for."""
        with self._guard:
            connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            self._aside(connection.close, self._open_deadline)
        except (TimeoutError, self._library().libvirtError):
            return  # Lost or hung: there is nothing left to close.

    # -- opening --------------------------------------------------------------------------------------
    def _connected(self) -> Any:
        failures = self._failures
        with self._guard:
            if self._failure is not None and self._failures != failures:
                raise self._failure  # Failed while this thread was waiting: it need not wait as long again.
            if self._failure is not None and self._opening is not None and self._opening.is_alive():
                raise self._failure  # libvirtd lets an earlier caller wait still: one is enough.
            if self._connection is not None and not self._alive(self._connection):
                self._connection = None
            if self._connection is None:
                self._connection = self._opened()
            return self._connection

    def _opened(self) -> Any:
        try:
            return self._open()
        except UnavailableError as error:
            self._failure, self._failures = error, self._failures + 1
            raise

    def _open(self) -> Any:
        library = self._library()

        def open_it() -> Any:
            self._opening = threading.current_thread()
            return library.open(self.uri)

        try:
            return self._aside(open_it, self._open_deadline)
        except TimeoutError as error:
            raise self.unavailable(str(error)) from error
        except library.libvirtError as error:
            if "ermission denied" in str(error) or "uthentication" in str(error):
                raise PermissionDeniedError(
                    f"libvirt ({self.uri}) does not let this user in: {error}",
                    hint="run as root, or join the group 'libvirt'",
                    code="libvirt-denied",
                ) from error
            raise self.unavailable(str(error)) from error

    def _alive(self, connection: Any) -> bool:
        try:
            return bool(connection.isAlive())
        except self._library().libvirtError:
            return False

    def _lost(self, connection: Any, error: Any) -> bool:
        """libvirtd went away: its socket tells only when it is used."""
        library = self._library()
        gone = (library.VIR_ERR_RPC, library.VIR_ERR_NO_CONNECT, library.VIR_ERR_INVALID_CONN)
        return error.get_error_code() in gone or not self._alive(connection)

    def _leave(self, connection: Any) -> None:
        with self._guard:
            if self._connection is connection:
                self._connection = None

    # -- deadlines ------------------------------------------------------------------------------------
    def _ask(self, connection: Any, action: Callable[[Any], T], deadline: float | None) -> T:
        try:
            return self._aside(lambda: action(connection), deadline or self._call_deadline)
        except TimeoutError as error:
            self._leave(connection)
            raise self.unavailable(str(error)) from error

    def _aside(self, action: Callable[[], T], seconds: float) -> T:
        results: list[T] = []
        errors: list[Exception] = []
        libvirt_error = self._library().libvirtError

        def work() -> None:
            try:
                results.append(action())
            except (libvirt_error, VgpumgrError) as error:
                errors.append(error)

        thread = threading.Thread(target=work, name="libvirt", daemon=True)
        thread.start()
        thread.join(seconds)
        if errors:
            raise errors[0]
        if not results:
            raise TimeoutError(f"no answer within {seconds:g} s")
        return results[0]

    def unavailable(self, why: str) -> UnavailableError:
        """libvirt does not answer, with what to look at."""
        return UnavailableError(
            f"libvirt ({self.uri}) is not available: {why}",
            hint="systemctl status libvirtd virtqemud; 'libvirt_uri' in the configuration names the one to use",
            code="libvirt-unavailable",
        )
