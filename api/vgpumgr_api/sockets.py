"""The sockets the service listens on, opened before anything else, so that "in use" is said at once."""

from __future__ import annotations

import errno
import grp
import os
import socket
from pathlib import Path

from vgpumgr.config import Config
from vgpumgr.errors import PermissionDeniedError, UnavailableError

BACKLOG = 128
MODE = 0o660


def open_sockets(config: Config) -> list[socket.socket]:
    """The unix socket, and TCP on loopback if configured. Raises UnavailableError ``address-in-use``."""
    sockets = [_unix(config.socket, config.socket_group)]
    if config.listen:
        sockets.append(_tcp(config.listen))
    return sockets


def _unix(path: Path, group: str) -> socket.socket:
    """A unix socket for root and one group. A dead one in its place is removed, a live one is not."""
    if answers(path):
        raise UnavailableError(
            f"the socket {path} is in use: another vgpumgr is running",
            hint="stop it, or choose another with --socket",
            code="address-in-use",
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o117)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        path.chmod(MODE)
        _give_to(path, group)
    except OSError as error:
        listener.close()
        raise PermissionDeniedError(
            f"cannot listen on {path}: {error.strerror or error}",
            hint="run as root, or choose another with --socket",
        ) from error
    finally:
        os.umask(old)
    listener.listen(BACKLOG)
    return listener


def answers(path: Path) -> bool:
    """Whether somebody listens on a unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        try:
            probe.connect(str(path))
        except OSError as error:
            return error.errno in (errno.EAGAIN, errno.ETIMEDOUT)
        return True


def _give_to(path: Path, group: str) -> None:
    """The group whose members may use the service; without such a group, root alone may."""
    try:
        number = grp.getgrnam(group).gr_gid
    except KeyError:
        return
    if os.geteuid() == 0:
        os.chown(path, -1, number)


def _tcp(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), int(port)))
    except OSError as error:
        listener.close()
        raise UnavailableError(
            f"cannot listen on {listen}: {error.strerror}",
            hint="choose another port with --listen",
            code="address-in-use",
        ) from error
    listener.listen(BACKLOG)
    return listener
