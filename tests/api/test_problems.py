"""Errors as problems: one shape for all, names for fields, no word of our inside."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from flask.testing import FlaskClient
from gunicorn.http.errors import InvalidResponseHeader

from vgpumgr.service import Service
from vgpumgr_api import framing
from vgpumgr_api.problems import Problem

MEMBERS = set(Problem.model_fields)


@pytest.mark.parametrize(
    ("method", "path", "options", "status"),
    [
        ("GET", "/nothing", {}, 404),
        ("PATCH", "/v1/gpus", {"json": {}}, 405),
        ("GET", "/v1/gpus", {"headers": {"Accept": "text/html"}}, 406),
        ("POST", "/v1/candidates", {"data": "x", "content_type": "text/plain"}, 415),
        ("POST", "/v1/candidates", {"data": "{", "content_type": "application/json"}, 400),
        ("POST", "/v1/candidates", {"json": {}}, 422),
        ("GET", "/v1/gpus/zzz", {}, 400),
        ("DELETE", "/v1/vms/test", {}, 409),
        ("GET", "/v1/iommu-groups/99999999999", {}, 422),
    ],
)
def test_every_error_is_a_whole_problem(
    client: FlaskClient, method: str, path: str, options: dict[str, Any], status: int
) -> None:
    answer = client.open(path, method=method, **options)
    body = answer.get_json()
    assert (answer.status_code, answer.mimetype) == (status, "application/problem+json")
    assert set(body) == MEMBERS
    assert body["status"] == status
    assert body["type"] == f"urn:vgpumgr:problem:{body['code']}"
    assert body["title"]
    assert body["detail"]
    assert body["hint"]
    assert body["request_id"] == answer.headers["X-Request-Id"]


def test_a_wrong_field_is_pointed_at(client: FlaskClient) -> None:
    answer = client.post("/v1/vms", json={"allocation_id": "a", "disks": ["/a", 1], "a/b": 0})
    errors = {item["field"]: item["pointer"] for item in answer.get_json()["errors"]}
    assert errors == {"body.disks.1": "#/disks/1", "body.a/b": "#/a~1b"}


@pytest.mark.parametrize(
    ("path", "headers", "field"),
    [
        ("/v1/candidates?x=1", {}, "query.x"),
        ("/v1/allocations?wait=301", {}, "query.wait"),
        ("/v1/allocations?wait=nan", {}, "query.wait"),
        ("/v1/allocations", {"Idempotency-Key": "k" * 256}, "header.Idempotency-Key"),
    ],
)
def test_what_is_no_field_of_the_body_has_no_pointer(
    client: FlaskClient, path: str, headers: dict[str, str], field: str
) -> None:
    errors = client.post(path, json={"vm": "a"}, headers=headers).get_json()["errors"]
    assert [(item["field"], item["pointer"]) for item in errors] == [(field, None)]


def test_a_field_that_stands_twice_is_refused(client: FlaskClient) -> None:
    answer = client.post("/v1/candidates", data='{"vm": "a", "vm": "b"}', content_type="application/json")
    assert (answer.status_code, answer.get_json()["code"]) == (400, "malformed-json")


def test_a_fault_of_ours_goes_to_the_log_only(
    client: FlaskClient, service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(service, "inventory", broken)
    with caplog.at_level(logging.ERROR):
        answer = client.get("/v1/gpus", headers={"X-Request-Id": "mine-1"})
    assert (answer.status_code, answer.get_json()["code"]) == (500, "internal")
    assert "secret" not in answer.get_data(as_text=True)
    assert answer.get_json()["request_id"] == "mine-1"
    assert "mine-1" in caplog.text
    assert "ZeroDivisionError: secret" in caplog.text


def test_a_request_id_that_would_break_the_log_is_replaced(client: FlaskClient) -> None:
    answer = client.get("/healthz", headers={"X-Request-Id": "a b;c"})
    assert answer.headers["X-Request-Id"].isalnum()


def test_changes_are_logged_and_reads_are_not(client: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="vgpumgr.requests"):
        client.get("/v1/gpus")
        client.post("/v1/candidates%0aX", json={})
    assert [record.getMessage().split()[1:4] for record in caplog.records] == [
        ["POST", "/v1/candidates%0AX", "404"]
    ]


def test_a_fault_outside_the_application_is_not_blamed_on_the_client() -> None:
    assert framing.refusal(InvalidResponseHeader("X: y"), "r1") is None
    assert framing.refusal(OSError(), "r1") is None
    head, _, body = framing.fault("r1").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    problem = json.loads(body)
    assert (problem["status"], problem["code"], problem["request_id"]) == (500, "internal", "r1")
