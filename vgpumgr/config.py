"""Settings: a TOML file, then environment variables, then flags; each overrides the one before.

Every setting has a default that works, is checked when it is read, and is documented in
``docs/reference/configuration.md``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vgpumgr.errors import UsageError

DEFAULT_FILE = Path("/etc/vgpumgr/config.toml")
DEFAULT_SOCKET = Path("/run/vgpumgr/vgpumgr.sock")
ENVIRONMENT_PREFIX = "VGPUMGR_"


class Config(NamedTuple):
    """Settings of one host.

    ``simulate`` names a host description (shipped, or a file) to run on instead of the real kernel;
    ``sysfs_root`` a recording. ``listen`` is ``host:port`` on loopback, empty for the unix socket only.
    """

    state_dir: Path = Path("/var/lib/vgpumgr")
    runtime_dir: Path = Path("/run/vgpumgr")
    socket: Path = DEFAULT_SOCKET
    socket_group: str = "vgpumgr"
    listen: str = ""
    server_names: str = ""
    """Host names the TCP listener answers to beside loopback's own, separated by commas."""
    database: str = ""
    """SQLAlchemy URL; empty: SQLite in ``state_dir``."""
    libvirt_uri: str = "qemu:///system"
    """Empty: no libvirt; GPUs are managed without virtual machines."""
    simulate: str = ""
    sysfs_root: str = ""
    template_dir: Path = Path("/etc/vgpumgr/xml_templates")
    host_id: str = ""
    """Empty: the machine id."""
    threads: int = 8
    write_deadline_seconds: float = 30.0
    log_level: str = "info"
    log_format: str = "text"

    @property
    def database_url(self) -> str:
        """The database to open."""
        return self.database or f"sqlite:///{self.state_dir / 'vgpumgr.db'}"


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Config:
    """Read the settings. ``file`` named but missing is an error; the default file may be absent.

    Raises :class:`UsageError` (``config-invalid``) naming the setting, the place it came from and what it must be.
    """
    config = Config()
    path = file or DEFAULT_FILE
    if file is not None or path.exists():
        config = _apply(config, _read(path), str(path))
    environment = os.environ if environment is None else environment
    from_environment = {
        key.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for key, value in environment.items()
        if key.startswith(ENVIRONMENT_PREFIX) and key.removeprefix(ENVIRONMENT_PREFIX).lower() in Config._fields
    }
    config = _apply(config, from_environment, "the environment")
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    return _apply(config, given, "the command line")


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _invalid(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _invalid(f"{path}: not valid TOML: {error}") from error


def _apply(config: Config, values: Mapping[str, Any], origin: str) -> Config:
    types = {name: type(value) for name, value in Config._field_defaults.items()}
    unknown = sorted(set(values) - set(types))
    if unknown:
        raise _invalid(f"{origin}: unknown setting {unknown[0]!r}; known: {', '.join(sorted(types))}")
    return config._replace(**{key: _convert(key, value, types[key], origin) for key, value in values.items()})


def _convert(key: str, value: Any, wanted: type, origin: str) -> Any:
    try:
        if isinstance(value, bool | list | dict) or (wanted is int and isinstance(value, float)):
            raise ValueError
        converted = wanted(value) if not isinstance(value, str) or wanted is not str else value
    except (TypeError, ValueError, OverflowError):
        raise _invalid(f"{origin}: {key} must be a {_NAMES.get(wanted, wanted.__name__)}, not {value!r}") from None
    if wanted in (int, float) and not 0 < float(converted) < math.inf:
        raise _invalid(f"{origin}: {key} must be above zero, not {value!r}")
    if key == "listen" and converted:
        _check_listen(str(converted), origin)
    if key in _CHOICES and converted not in _CHOICES[key]:
        raise _invalid(f"{origin}: {key} must be one of {', '.join(_CHOICES[key])}, not {value!r}")
    return converted


_NAMES = {str: "text", type(Path()): "path", int: "whole number", float: "number"}
_CHOICES = {"log_level": ("debug", "info", "warning", "error"), "log_format": ("text", "json")}


def _check_listen(listen: str, origin: str) -> None:
    """TCP is for loopback only: anything wider belongs behind a proxy that does TLS."""
    host, _, port = listen.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port[:6]) < 65536:
        raise _invalid(f"{origin}: listen must be address:port such as 127.0.0.1:8900, not {listen!r}")
    if not _is_loopback(host):
        raise _invalid(f"{origin}: listen must be a loopback address, not {host!r}; put a TLS proxy before it")


def _is_loopback(host: str) -> bool:
    """Of names, ``localhost`` alone: what another name stands for is not for us to tell."""
    if host in ("localhost", "[::1]"):
        return True
    parts = host.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(_is_octet(part) for part in parts)


def _is_octet(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 3 and int(text) < 256


def _invalid(message: str) -> UsageError:
    return UsageError(message, hint="see docs/reference/configuration.md", code="config-invalid")
