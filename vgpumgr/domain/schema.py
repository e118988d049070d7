"""libvirt's own schema: what it would say of a domain before it reads its meaning."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from lxml import etree

from vgpumgr.errors import UnavailableError

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")


@cache
def _relaxng(path: Path) -> etree.RelaxNG:
    try:
        return etree.RelaxNG(etree.parse(str(path)))
    except (OSError, etree.LxmlError) as error:
        raise UnavailableError(
            f"libvirt's schema cannot be loaded: {error}",
            hint="apt-get install libvirt-common (Debian 13) or libvirt0 (Debian 12)",
            code="schema-missing",
        ) from error


def validate(root: etree._Element, path: Path = SCHEMA) -> list[str]:
    """What libvirt's schema has against a domain; empty when it is valid. UnavailableError ``schema-missing``."""
    schema = _relaxng(path)
    if schema.validate(root):
        return []
    return [f"line {entry.line}: {entry.message}" for entry in schema.error_log]


def schema_errors(root: etree._Element, path: Path = SCHEMA) -> list[str]:
    """The same for whole domains where the schema is installed; pieces of domains have none of their own."""
    try:
        return validate(root, path) if root.tag == "domain" else []
    except UnavailableError:
        return []
