"""Where the service listens: its unix socket, loopback, or what systemd hands over."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from vgpumgr.config import Config
from vgpumgr.errors import PermissionDeniedError, UnavailableError
from vgpumgr_api import sockets


def settings(folder: Path, listen: str = "") -> Config:
    return Config(socket=folder / "s.sock", socket_group="", listen=listen)


def close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_socket_is_for_its_owner_and_group_only(tmp_path: Path) -> None:
    listeners, ours = sockets.open_all(settings(tmp_path / "new" / "folder"))
    mode = (tmp_path / "new" / "folder" / "s.sock").stat().st_mode
    close(listeners)
    assert ours
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o660


def test_a_dead_socket_is_replaced(tmp_path: Path) -> None:
    first, _ = sockets.open_all(settings(tmp_path))
    close(first)
    assert (tmp_path / "s.sock").exists()
    assert not sockets.answers(tmp_path / "s.sock")
    second, _ = sockets.open_all(settings(tmp_path))
    assert sockets.answers(tmp_path / "s.sock")
    close(second)


def test_a_live_socket_is_left_alone(tmp_path: Path) -> None:
    first, _ = sockets.open_all(settings(tmp_path))
    with pytest.raises(UnavailableError, match="is in use") as caught:
        sockets.open_all(settings(tmp_path))
    assert (caught.value.code, caught.value.exit_status) == ("address-in-use", 5)
    assert sockets.answers(tmp_path / "s.sock")
    close(first)


def test_a_file_that_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "s.sock").write_text("precious")
    with pytest.raises(PermissionDeniedError, match="cannot listen on"):
        sockets.open_all(settings(tmp_path))
    assert (tmp_path / "s.sock").read_text() == "precious"


def test_a_group_that_does_not_exist_keeps_nobody_from_starting(tmp_path: Path) -> None:
    config = Config(socket=tmp_path / "s.sock", socket_group="no-such-group")
    close(sockets.open_all(config)[0])


def test_a_port_in_use_leaves_no_socket_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UnavailableError, match=f"cannot listen on {listen}") as caught:
            sockets.open_all(settings(tmp_path, listen=listen))
    assert caught.value.code == "address-in-use"
    assert not (tmp_path / "s.sock").exists()


def test_an_address_that_is_not_this_host_s_is_told_apart_from_one_in_use(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as caught:
        sockets.open_all(settings(tmp_path, listen="192.0.2.1:8900"))
    assert caught.value.code == "address-unusable"


def test_sockets_of_systemd_are_taken_and_loopback_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", "2")
    monkeypatch.setenv("LISTEN_FDNAMES", "a:b")
    listeners, ours = sockets.open_all(settings(tmp_path, listen=f"127.0.0.1:{free_port()}"))
    close(listeners[2:])
    assert listeners[:2] == [3, 4]
    assert len(listeners) == 3
    assert not ours
    assert not (tmp_path / "s.sock").exists()
    assert not [name for name in os.environ if name.startswith("LISTEN_")]


def test_sockets_for_another_process_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_PID", "1")
    monkeypatch.setenv("LISTEN_FDS", "1")
    assert sockets.activated() == []
