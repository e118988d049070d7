"""A service on a simulated host in a temporary folder, for as long as the demo lasts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

import click

from vgpumgr.cli.client import Client
from vgpumgr.config import ENVIRONMENT_PREFIX
from vgpumgr.errors import UnavailableError, UsageError, VgpumgrError

START_SECONDS = 60.0
STOP_SECONDS = 20.0
LOG_LINES = 15
_USUAL_PORT = 8900


@dataclass(frozen=True, slots=True)
class DemoService:
    """A running service: its socket, its host, and where its log goes."""

    host: str
    socket: Path
    log: Path
    process: subprocess.Popen[bytes]


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the demo as Ctrl-C does, so that the service is stopped and the folder removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)


@contextmanager
def running_service(host: str, listen: str = "") -> Iterator[DemoService]:
    """Start ``vgpumgr serve``, wait until it is ready, stop it in the end.

    Raises UnavailableError with the last lines of the log when it does not come up.
    """
    with _terminable(), TemporaryDirectory(prefix="vgpumgr-demo-") as place:
        folder = Path(place)
        settings = folder / "config.toml"
        settings.write_text(_settings(folder, host, listen), encoding="utf-8")
        log = folder / "service.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "vgpumgr.cli", "--config", str(settings), "serve"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=_environment(),
                start_new_session=True,
            )
        service = DemoService(host, folder / "vgpumgr.sock", log, process)
        try:
            _wait_until_ready(service)
            yield service
        finally:
            _stop(process)


def _environment() -> dict[str, str]:
    """Ours, without settings that would point the demo's service at something real."""
    return {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}


def _settings(folder: Path, host: str, listen: str) -> str:
    """The settings as TOML; JSON's strings are TOML's."""
    values = {
        "state_dir": str(folder),
        "runtime_dir": str(folder),
        "socket": str(folder / "vgpumgr.sock"),
        "socket_group": "",
        "listen": listen,
        "simulate": str(Path(host).resolve()) if Path(host).is_file() else host,
        "libvirt_uri": "test:///default",
        "host_id": "demo",
    }
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def _wait_until_ready(service: DemoService) -> None:
    end = monotonic() + START_SECONDS
    while monotonic() < end:
        if service.process.poll() is not None:
            break
        client = Client(service.socket)
        try:
            client.get("/readyz")
        except VgpumgrError:
            sleep(0.1)
        else:
            return
        finally:
            client.close()
    tail = service.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
    click.echo("\n".join(tail), err=True)
    raise UnavailableError(
        f"the demo's service on {service.host} did not come up", hint="the end of its log stands above"
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask it to stop; kill what is left of it."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port(wanted: int | None) -> int:
    """The port that was asked for; without one the usual port, else any that is free."""
    for port in (wanted,) if wanted else (_USUAL_PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    message = f"another program has port {wanted} on 127.0.0.1" if wanted else "no free port on 127.0.0.1"
    raise UsageError(message, hint="choose another with --port", code="port-in-use")


def program_name() -> str:
    """How this program is called here: by name where it is on the path, else by its place in the environment."""
    return "vgpumgr" if shutil.which("vgpumgr") else os.path.relpath(Path(sys.executable).with_name("vgpumgr"))


def stay(service: DemoService, listen: str) -> None:
    """Say where everything is, then wait for Ctrl-C or for the service to end."""
    command = f"{program_name()} --socket {service.socket}"
    click.echo(
        f"""The service runs on the simulated host {service.host}, with libvirt's test driver. Nothing is real.

  API documentation   http://{listen}/docs
  OpenAPI             http://{listen}/openapi.json
  REST                curl -s http://{listen}/v1/gpus
  command line        {command} gpu list
                      {command} alloc create --vm desk-1 --profile "NVIDIA A40-8Q"
  log                 {service.log}

Ctrl-C stops it."""
    )
    try:
        status = service.process.wait()
    except KeyboardInterrupt:
        click.echo("\nstopping")
        return
    raise UnavailableError(f"the service ended by itself, with status {status}", hint="see its log")
