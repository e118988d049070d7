"""Domain templates: whole, valid libvirt domains that ship with the project or that an administrator wrote."""

from __future__ import annotations

import re
from pathlib import Path

from lxml import etree

from vgpumgr.domain.document import parse_domain
from vgpumgr.domain.parser import read_devices
from vgpumgr.errors import NotFoundError, UsageError
from vgpumgr.resources import directory

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""No slash and no leading dot: a name cannot leave its directory."""


class Templates:
    """Templates by name. One in ``own`` (an administrator's directory) hides a shipped one of the same name."""

    def __init__(self, own: Path | None = None) -> None:
        shipped = directory("xml_templates")
        self._folders = [folder for folder in (own, shipped) if folder is not None]

    def names(self) -> list[str]:
        """All names, sorted."""
        found = {path.stem for folder in self._folders if folder.is_dir() for path in folder.glob("*.xml")}
        return sorted(name for name in found if _NAME.fullmatch(name))

    def load(self, name: str) -> etree._Element:
        """A fresh copy of a template's root element.

        NotFoundError ``template-unknown`` naming those there are; UsageError ``template-invalid`` for a template
        that cannot be read, is no domain, or names host devices itself (a domain of ours holds what was
        allocated, no more).
        """
        path = self._path(name)
        root = _read(path)
        if root.tag != "domain" or root.find("devices") is None:
            raise _invalid(f"{path} is no libvirt domain with devices", "start from a copy of a shipped template")
        named = [item.device.key or item.way for item in read_devices(root)]
        if named:
            raise _invalid(
                f"{path} names host devices: {', '.join(named)}",
                "remove them: vgpumgr puts in what was allocated",
            )
        return root

    def _path(self, name: str) -> Path:
        if _NAME.fullmatch(name):
            for folder in self._folders:
                path = folder / f"{name}.xml"
                if path.is_file():
                    return path
        raise NotFoundError(
            f"there is no template {name!r}", hint=f"known: {', '.join(self.names())}", code="template-unknown"
        )


def _read(path: Path) -> etree._Element:
    try:
        return parse_domain(path.read_bytes())
    except OSError as error:
        raise _invalid(f"{path} cannot be read: {error.strerror}", "check its owner and mode") from error
    except UsageError as error:
        raise _invalid(f"{path}: {error.message}", error.hint) from error


def _invalid(message: str, hint: str) -> UsageError:
    return UsageError(f"the template {message}", hint=hint, code="template-invalid")
