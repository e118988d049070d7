"""Host descriptions: where they come from, and what must be in one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgpumgr.errors import SourceError
from vgpumgr.kernel.simulated.build import build
from vgpumgr.kernel.simulated.description import HINT
from vgpumgr.kernel.simulated.machine import SimulatedKernel
from vgpumgr.kernel.simulated.replay import machine_from_recording

_SHIPPED = Path(__file__).resolve().parents[1] / "hosts"


def shipped_hosts() -> list[str]:
    """The names of the host descriptions that come with the project."""
    return sorted(path.stem for path in _SHIPPED.glob("*.yaml"))


def open_simulation(source: str) -> SimulatedKernel:
    """A simulation of a shipped host (by name), of a described one (a ``.yaml`` file), or of a recording.

    Raises :class:`SourceError` saying what is wrong with the description, and where.
    """
    path = _SHIPPED / f"{source}.yaml" if "/" not in source and source in shipped_hosts() else Path(source)
    if path.suffix in (".yaml", ".yml"):
        return build(source, _load(path))
    if not path.exists():
        known = ", ".join(shipped_hosts())
        raise SourceError(
            f"there is no host description {source!r}", hint=f"shipped: {known}; or give a .yaml file"
        )
    return SimulatedKernel(source, machine_from_recording(str(path)))


def _load(path: Path) -> Mapping[str, Any]:
    import yaml

    from vgpumgr.kernel.simulated.once import LoaderOfKeysOnce, where

    try:
        loaded = yaml.load(path.read_text(encoding="utf-8"), LoaderOfKeysOnce)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}", hint="give a host description in YAML") from error
    except yaml.MarkedYAMLError as error:
        raise SourceError(f"{path} is not valid YAML: {where(error)}", hint=HINT) from error
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise SourceError(f"{path} is not valid YAML: {error}", hint=HINT) from error
    except RecursionError as error:
        raise SourceError(f"{path} is nested too deep to be a host description", hint=HINT) from error
    if not isinstance(loaded, dict):
        raise SourceError(f"{path} describes no host: it must be a mapping", hint=HINT)
    return loaded
