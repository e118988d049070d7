"""The application: all resources in one table, over one :class:`~vgpumgr.service.Service`."""

from __future__ import annotations

from flask import Response, jsonify, redirect, request
from flask_openapi3 import Info, OpenAPI
from werkzeug.wrappers import Response as BaseResponse

from vgpumgr import __version__
from vgpumgr.errors import UsageError
from vgpumgr.service import Service
from vgpumgr_api import (
    allocations,
    candidates,
    domain_checks,
    gpus,
    host,
    iommu_groups,
    operations,
    profiles,
    vgpus,
    vms,
)
from vgpumgr_api.exchange import MAX_BODY, identify
from vgpumgr_api.problems import Problem, from_validation, register

RESOURCES = (host, iommu_groups, gpus, vgpus, profiles, candidates, allocations, vms, operations, domain_checks)

_DESCRIPTION = """
GPUs of one KVM host: see them, give them to VFIO and back, cut them into vGPUs, hand them to VMs.

Long work answers `202` with the operation's URL in `Location`; `?wait=seconds` waits for it. Errors are problem
details (RFC 9457) with a stable `code`. Every change has a dry run (`?dry_run=true`). Send an `Idempotency-Key`
with every POST that creates, and `If-Match` with every change of something you have read.
"""


class HostHeaderError(UsageError):
    """A request that came to loopback under a foreign name: a browser was lured here."""

    code = "host-not-allowed"
    http_status = 421


def create_app(service: Service | None, *, check_host: bool = True) -> OpenAPI:
    """The application. ``service`` ``None`` is for writing the OpenAPI document only."""
    app = OpenAPI(
        "vgpumgr_api",
        info=Info(title="vgpumgr", version=__version__, description=_DESCRIPTION),
        doc_prefix="/docs",
        doc_url="/openapi.json",
        validation_error_status=422,
        validation_error_model=Problem,
        validation_error_callback=from_validation,
        static_folder=None,
        security_schemes={},
    )
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY + 1
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.extensions["vgpumgr"] = service
    register(app)
    if check_host:
        app.before_request(_own_name)
    app.before_request(identify)
    for resource in RESOURCES:
        app.register_api(resource.api)
    app.add_url_rule("/openapi.json", view_func=lambda: jsonify(app.api_doc), endpoint="openapi-document")
    app.add_url_rule("/", view_func=_to_docs, endpoint="root")
    app.after_request(_no_sniffing)
    return app


_NAMES = ("localhost", "127.0.0.1", "[::1]", "::1")


def _own_name() -> None:
    """Answer only to loopback's own names: a page of another site must not reach us through its DNS."""
    name = request.host.rsplit(":", 1)[0] if not request.host.endswith("]") else request.host
    if name not in _NAMES:
        raise HostHeaderError(f"this service does not go by the name {name!r}", hint="use localhost")


def _to_docs() -> BaseResponse:
    return redirect("/docs")


def _no_sniffing(response: Response) -> Response:
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.setdefault("Cache-Control", "no-store")
    return response
