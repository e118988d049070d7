"""Domain templates: whole, valid libvirt domains that ship with the project or that an administrator wrote."""

from __future__ import annotations

import re
from pathlib import Path

from lxml import etree

from vgpumgr.domain.parser import hostdevs, parse_domain
from vgpumgr.errors import NotFoundError, UsageError
from vgpumgr.resources import directory

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


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
        that is no domain, or that names host devices itself (a domain of ours holds what was allocated, no more).
        """
        root = parse_domain(self._path(name).read_bytes())
        if root.tag != "domain" or root.find("devices") is None:
            raise UsageError(f"template {name!r} is no libvirt domain with devices", code="template-invalid")
        if hostdevs(root):
            raise UsageError(
                f"template {name!r} names host devices",
                hint="remove its <hostdev> elements: vgpumgr puts in what was allocated",
                code="template-invalid",
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
