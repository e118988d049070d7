"""What one command line said about where to look and how to print: the options every command takes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

    from vgpumgr.config import Config

FORMATS = ("table", "json", "yaml")


class Invocation:
    """The global options, as given before or after the noun and verb; ``None`` where not given."""

    def __init__(self) -> None:
        self.sysfs_root: str | None = None
        self.simulate: str | None = None
        self.socket: str | None = None
        self.config_file: str | None = None
        self.output: str = "table"
        self.no_color: bool = False
        self._config: Config | None = None

    @property
    def machine_readable(self) -> bool:
        """True for ``-o json`` and ``-o yaml``."""
        return self.output != "table"

    @property
    def color(self) -> bool:
        """Colours are for people at a terminal who did not ask for none (https://no-color.org)."""
        return not self.no_color and not os.environ.get("NO_COLOR") and sys.stdout.isatty()

    def config(self, listen: str | None = None) -> Config:
        """The settings with this command line's options on top. UsageError ``config-invalid``."""
        if self._config is None:
            from vgpumgr import config

            self._config = config.load(
                Path(self.config_file) if self.config_file else None,
                overrides={"socket": self.socket, "listen": listen, **self._source()},
            )
        return self._config

    def _source(self) -> dict[str, str | None]:
        """A source named here replaces the other kind where a file or the environment names one."""
        if self.sysfs_root is None and self.simulate is None:
            return {}
        return {"sysfs_root": self.sysfs_root or "", "simulate": self.simulate or ""}


def invocation_of(context: click.Context) -> Invocation:
    """The invocation that the whole command line shares."""
    return context.ensure_object(Invocation)
