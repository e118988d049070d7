"""The sockets the service listens on, opened before anything else, so that "in use" is said at once."""

from __future__ import annotations

import errno
import grp
import logging
import os
import socket
import stat
from pathlib import Path

from vgpumgr.config import Config
from vgpumgr.errors import PermissionDeniedError, UnavailableError

BACKLOG = 128
MODE = 0o660
_FIRST_OF_SYSTEMD = 3
"""systemd hands sockets over from this file descriptor on (``sd_listen_fds(3)``)."""

log = logging.getLogger(__name__)


def open_all(config: Config) -> tuple[list[int], bool]:
    """File descriptors to listen on, and whether the unix socket is ours to remove in the end.

    systemd's sockets where it hands some over, else our own unix socket; and TCP on loopback if configured.
    Raises UnavailableError ``address-in-use``, PermissionDeniedError.
    """
    listeners = activated()
    own_socket = not listeners
    if own_socket:
        listeners = [_unix(config.socket, config.socket_group).detach()]
    if config.listen:
        try:
            listeners.append(_tcp(config.listen).detach())
        except UnavailableError:
            if own_socket:
                remove(config.socket)
            raise
    return listeners, own_socket


def activated() -> list[int]:
    """The sockets that systemd opened for this process. Taken out of the environment: no child has them."""
    process, count = os.environ.pop("LISTEN_PID", ""), os.environ.pop("LISTEN_FDS", "")
    os.environ.pop("LISTEN_FDNAMES", None)
    if process != str(os.getpid()) or not count.isdecimal():
        return []
    return list(range(_FIRST_OF_SYSTEMD, _FIRST_OF_SYSTEMD + int(count)))


def _unix(path: Path, group: str) -> socket.socket:
    """A unix socket for root and one group. A dead one in its place is removed, a live one is not."""
    if answers(path):
        raise UnavailableError(
            f"the socket {path} is in use: another vgpumgr is running",
            hint="stop it, or choose another with --socket",
            code="address-in-use",
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o777 & ~MODE)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        remove(path)
        listener.bind(str(path))
        _give_to(path, group)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise PermissionDeniedError(
            f"cannot listen on {path}: {error.strerror or error}",
            hint="run as root, or choose another with --socket",
        ) from error
    finally:
        os.umask(old)
    return listener


def answers(path: Path) -> bool:
    """Whether somebody listens on a unix socket. One whose queue is full is busy, not dead."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        try:
            probe.connect(str(path))
        except TimeoutError:
            return True
        except OSError as error:
            return error.errno == errno.EAGAIN
        return True


def remove(path: Path) -> None:
    """Remove a socket; what is no socket stays (and binding to its name then says so)."""
    try:
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
    except FileNotFoundError:
        return


def _give_to(path: Path, group: str) -> None:
    """The group whose members may use the service; without such a group, root alone may."""
    if not group:
        return
    try:
        os.chown(path, -1, grp.getgrnam(group).gr_gid)
    except KeyError:
        log.info("there is no group %s: %s is for its owner only", group, path)
    except PermissionError:
        log.warning("%s could not be given to the group %s: it is for its owner only", path, group)


def _tcp(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), int(port)))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            message, code = f"cannot listen on {listen}: another program has that port", "address-in-use"
        else:
            message, code = f"cannot listen on {listen}: {error.strerror or error}", "address-unusable"
        raise UnavailableError(message, hint="choose another with --listen", code=code) from error
    return listener
