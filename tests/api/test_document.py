"""The OpenAPI document: committed, complete, and kept by the service itself."""

from __future__ import annotations

from pathlib import Path

import schemathesis
from hypothesis import HealthCheck, settings

from vgpumgr_api.app import create_app
from vgpumgr_api.openapi import document, render

COMMITTED = Path(__file__).resolve().parents[2] / "api" / "openapi.yaml"
READING = schemathesis.openapi.from_dict(document()).include(method="GET")


def test_the_committed_document_is_what_the_code_says() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == render(), "run 'make openapi'"


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


@READING.parametrize()
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_answers_keep_to_the_document(case: schemathesis.Case, client: object) -> None:
    response = case.call(app=client.application)  # type: ignore[attr-defined]
    assert response.status_code < 500 or response.status_code == 503
