"""The application: all resources in one table, over one :class:`~vgpumgr.service.Service`."""

from __future__ import annotations

from threading import Lock

from flask import Response, jsonify, redirect, request
from flask.json.provider import DefaultJSONProvider
from flask_openapi3 import Info, OpenAPI
from werkzeug.wrappers import Response as BaseResponse

from vgpumgr import __version__
from vgpumgr.service import Service
from vgpumgr_api import (
    allocations,
    candidates,
    domain_checks,
    events,
    gpus,
    guards,
    health,
    host,
    iommu_groups,
    operations,
    problems,
    profiles,
    requests,
    vgpus,
    vms,
)
from vgpumgr_api.bodies import read_body
from vgpumgr_api.context import Context
from vgpumgr_api.document import complete, operation_id
from vgpumgr_api.pages import DOCUMENTATION, POLICY
from vgpumgr_api.principals import identify
from vgpumgr_api.streams import Streams
from vgpumgr_api.waiting import WaitingRoom

RESOURCES = (
    host,
    iommu_groups,
    gpus,
    vgpus,
    profiles,
    candidates,
    allocations,
    vms,
    operations,
    events,
    domain_checks,
    health,
)

_DESCRIPTION = """\
GPUs of one KVM host: see them, give them to VFIO and back, cut them into vGPUs, hand them to VMs.

Long work answers `202` with the operation's URL in `Location`; `?wait=seconds` waits for it. Errors are problem
details (RFC 9457) with a stable `code`. Every change has a dry run (`?dry_run=true`). Send an `Idempotency-Key`
with every POST that creates, and `If-Match` with every change of something you have read.
"""


_writing = Lock()


class _Json(DefaultJSONProvider):
    """Fields in the order of the contract, not of the alphabet."""

    sort_keys = False


class Application(OpenAPI):
    """flask-openapi3's application; its document is written when it is read for the first time."""

    json_provider_class = _Json

    def generate_spec_json(self) -> None:
        """See flask-openapi3; what it does not write into the document by itself is added."""
        with _writing:
            if self.spec_json:
                return
            for resource in RESOURCES:
                resource.api.describe()
                self.tags += resource.api.tags
                self.paths.update(resource.api.paths)
                self.components_schemas.update(resource.api.components_schemas)
            super().generate_spec_json()  # type: ignore[no-untyped-call]  # the library leaves it untyped
            complete(self.spec_json)


def create_app(service: Service | None, *, seats: int = 4, streams: int = 4, names: str = "") -> Application:
    """The application.

    ``seats``: how many requests may wait for operations at a time; ``streams``: how many may follow events.
    ``names``: host names it answers to on TCP beside loopback's, separated by commas. Without a ``service`` it only
    writes the OpenAPI document.
    """
    app = Application(
        "vgpumgr_api",
        info=Info(title="vgpumgr", version=__version__, description=_DESCRIPTION),
        operation_id_callback=operation_id,
        doc_prefix="/docs",
        doc_url="/openapi.json",
        validation_error_status=422,
        validation_error_model=problems.Problem,
        validation_error_callback=problems.from_validation,
        static_folder=None,
        security_schemes={},
    )
    app.config["OPENAPI_HTML_STRING"] = DOCUMENTATION
    app.url_map.merge_slashes = False  # A doubled slash is a mistake to name, not a page that redirects.
    if service is not None:
        app.extensions["vgpumgr"] = Context(service, WaitingRoom(service, seats), Streams(service, streams))
    requests.register(app)
    problems.register(app)
    for guard in (guards.own_names(names), identify, guards.acceptable, guards.named_once, read_body):
        app.before_request(guard)
    for resource in RESOURCES:
        app.register_blueprint(resource.api)
    app.add_url_rule("/openapi.json", view_func=lambda: jsonify(app.api_doc), endpoint="document")
    app.add_url_rule("/", view_func=_to_docs, endpoint="root")
    app.after_request(_wary)
    return app


def _to_docs() -> BaseResponse:
    return redirect("/docs/")


def _wary(response: Response) -> Response:
    """Nothing is cached, guessed at, framed, or loaded from elsewhere."""
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = POLICY
    response.headers.setdefault("Cache-Control", "no-store")
    if request.method == "OPTIONS" and response.status_code == 200:
        response.status_code = 204  # ``Allow`` is the answer: there is no page to it.
        del response.headers["Content-Type"]
    return response
