"""Who asks. The one place where authentication plugs in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from flask import g


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. Today the mode of the unix socket (and loopback) says: an administrator of this host.

    Authentication makes another one here (:func:`identify`); everything else asks only :func:`principal`.
    """

    name: str = "administrator"
    tenant: str | None = None
    """``None``: may act for any tenant, and see all."""


def identify() -> None:
    """Before each request: find out who asks."""
    g.principal = Principal()


def principal() -> Principal:
    """Who asks."""
    return cast(Principal, g.principal)
