"""The OpenAPI document: committed, complete, and kept by the service itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import checks

from tests.api.conftest import settings_in
from tests.databases import put_empty_database
from vgpumgr.assembly import open_service
from vgpumgr_api.app import Application, create_app
from vgpumgr_api.host_responses import StatusModel
from vgpumgr_api.openapi import document, render
from vgpumgr_api.resource import Resource

COMMITTED = Path(__file__).resolve().parents[2] / "api" / "openapi.yaml"
DOCUMENT = schemathesis.openapi.from_dict(document())
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
"""Everything that is said of answers. 500 and 503 are not met: the simulated host works, and libvirt answers."""


def test_the_committed_document_is_what_the_code_says() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == render(), "run 'make openapi'"


def test_a_resource_describes_itself_once_and_only_when_asked() -> None:
    things = Resource("things", __name__, "Things")

    @things.get("/v1/things", responses={200: StatusModel})
    def list_things() -> None:
        """All things."""

    assert not things.paths
    assert not things.components_schemas
    things.describe()
    described = things.paths["/v1/things"]
    assert described.get.summary == "All things."
    things.describe()
    assert things.paths == {"/v1/things": described}


def test_every_route_is_described() -> None:
    paths = document()["paths"]
    for rule in create_app(None).url_map.iter_rules():
        path = rule.rule.replace("<int:", "{").replace("<", "{").replace(">", "}")
        if path.startswith("/v1/"):
            assert path in paths, path


def test_every_operation_says_what_it_does_and_how_it_fails() -> None:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert operation.get("summary"), where
            if path.startswith("/v1/"):
                assert "422" in operation["responses"], where


def test_every_operation_has_a_name_of_its_own_for_generated_clients() -> None:
    names = [operation["operationId"] for methods in document()["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() for name in names)


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """One for all: whatever others did before, an answer keeps to the document."""
    folder = tmp_path_factory.mktemp("document")
    put_empty_database(folder)
    service = open_service(settings_in(folder))
    service.start()
    yield create_app(service)
    service.close()


@DOCUMENT.parametrize()
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_answers_keep_to_the_document(case: schemathesis.Case, application: Application) -> None:
    case.call_and_validate(app=application, checks=CHECKS)
