"""What is turned away before a resource sees it: foreign host names, other sites' pages, types we cannot give."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from flask import request

from vgpumgr.errors import UsageError

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_READING = ("GET", "HEAD", "OPTIONS")
_OWN_SITE = ("same-origin", "none")
EVENT_STREAM = "text/event-stream"
_JSON = "application/json"
_PRODUCES = {
    "allocations.show_xml": ("application/xml",),
    "host.take_snapshot": ("application/x-tar",),
    "events.list_events": (_JSON, EVENT_STREAM),
}
_LISTS = frozenset({"disks"})
"""What a query may name several times."""
_PAGES = ("openapi.", "swagger.", "root")


class HostHeaderError(UsageError):
    """A request that came to loopback under a foreign name: a browser was lured here."""

    code = "host-not-allowed"
    http_status = 421


class CrossSiteError(UsageError):
    """A change that a page of another site asked for."""

    code = "cross-site"
    http_status = 403


class NotAcceptableError(UsageError):
    """The caller takes no type that the resource comes in."""

    code = "not-acceptable"
    http_status = 406


def own_names(names: str) -> Callable[[], None]:
    """The guard that answers on TCP only to loopback's own names and those configured (``a.example,b.example``).

    A page of another site must not reach us through its own DNS name; nor may its scripts write here, whatever
    name they use. On the unix socket the name means nothing: who can open it is known.
    """
    configured = frozenset(name.strip().lower() for name in names.split(",") if name.strip())

    def check() -> None:
        if request.remote_addr and _name(request.host) not in _LOOPBACK | configured:
            raise HostHeaderError(
                f"this service does not go by the name {request.host!r}",
                hint="use localhost, or name it in the setting 'server_names'",
            )
        if request.method not in _READING and _from_elsewhere(configured):
            raise CrossSiteError("a page of another site asked for this change", hint="use the API from its own")

    return check


def _name(host: str) -> str:
    """The name in ``name:port``, ``[::1]:port``."""
    end = host.rfind("]") + 1
    return (host[:end] if end else host.partition(":")[0]).lower()


def _from_elsewhere(configured: frozenset[str]) -> bool:
    """Whether a browser says that another site's page sent it here."""
    if request.headers.get("Sec-Fetch-Site", "none") not in _OWN_SITE:
        return True
    origin = request.headers.get("Origin")
    if origin is None:
        return False
    place = urlsplit(origin).netloc.lower()
    return place != request.host.lower() and _name(place) not in configured


def named_once() -> None:
    """Refuse a query that says two things about one: whichever were taken, the other was meant as well."""
    for name, values in request.args.lists():
        if len(values) > 1 and name not in _LISTS:
            raise UsageError(f"the query names {name!r} twice", hint="name it once", code="malformed-request")


def acceptable() -> None:
    """Refuse, before anything is done, to answer in a type that the caller does not take."""
    endpoint = request.endpoint or ""
    if not request.accept_mimetypes or not endpoint or endpoint.startswith(_PAGES):
        return
    produced = _PRODUCES.get(endpoint, (_JSON,))
    if not any(request.accept_mimetypes.quality(kind) > 0 for kind in produced):
        raise NotAcceptableError(
            f"this resource comes as {' or '.join(produced)} only", hint=f"send Accept: {produced[0]}"
        )


def wants_stream() -> bool:
    """Whether the caller would rather have events as a stream than as a list."""
    return request.accept_mimetypes.best_match((_JSON, EVENT_STREAM), _JSON) == EVENT_STREAM
