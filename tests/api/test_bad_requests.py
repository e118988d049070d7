"""Requests that make no sense: each one line saying what and what to do, never a trace, never a change."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.conftest import GPU

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
FIELDS = st.sampled_from(["vm", "tenant", "profile", "count", "gpu", "vendor_id", "model", "numa_node", "x"])


@pytest.mark.parametrize(
    ("body", "media_type", "status", "code"),
    [
        (b"{", "application/json", 400, "malformed-json"),
        (b"[]", "application/json", 400, "malformed-json"),
        (b'"{}"', "application/json", 400, "malformed-json"),
        (b"\xff\xfe", "application/json", 400, "malformed-json"),
        (b'{"vm": "a", "count": NaN}', "application/json", 400, "malformed-json"),
        (b"[" * 100_000, "application/json", 400, "malformed-json"),
        (b"vm=a", "application/x-www-form-urlencoded", 415, "media-type-unsupported"),
        (b"{}", "text/plain", 415, "media-type-unsupported"),
        (b'{"vm": "' + b"a" * (1 << 20) + b'"}', "application/json", 413, "body-too-large"),
        (b"{}", "application/json", 422, "validation-failed"),
        (b'{"vm": "a", "count": "1"}', "application/json", 422, "validation-failed"),
        (b'{"vm": "a", "extra": 1}', "application/json", 422, "validation-failed"),
        (b'{"vm": "../a"}', "application/json", 422, "validation-failed"),
        (b'{"vm": "a", "gpu": "nonsense"}', "application/json", 400, "address-invalid"),
    ],
)
def test_a_bad_body_is_refused(client: FlaskClient, body: bytes, media_type: str, status: int, code: str) -> None:
    answer = client.post("/v1/allocations", data=body, content_type=media_type)
    problem = answer.get_json()
    assert (answer.status_code, problem["code"]) == (status, code)
    assert answer.mimetype == "application/problem+json"
    assert problem["detail"]
    assert client.get("/v1/allocations").get_json()["items"] == []


def test_each_wrong_field_is_named(client: FlaskClient) -> None:
    answer = client.post("/v1/candidates", json={"vm": 1, "count": 0, "x": 2})
    assert {item["field"] for item in answer.get_json()["errors"]} == {"body.vm", "body.count", "body.x"}


@pytest.mark.parametrize(
    "path", ["/v1/gpus?limit=0", "/v1/gpus?x=1", "/v1/gpus?assignable=maybe", "/v1/operations?limit=9999"]
)
def test_a_bad_query_is_refused(client: FlaskClient, path: str) -> None:
    assert client.get(path).status_code == 422


@pytest.mark.parametrize("path", ["/v1/gpus?cursor=x", "/v1/allocations?cursor=!!!", "/v1/operations?cursor=YQ=="])
def test_a_bad_cursor_is_refused(client: FlaskClient, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.get_json()["code"]) == (400, "cursor-invalid")


def test_a_query_that_names_something_twice_is_refused(client: FlaskClient) -> None:
    answer = client.get("/v1/gpus?limit=1&limit=2")
    assert (answer.status_code, answer.get_json()["code"]) == (400, "malformed-request")
    assert "'limit'" in answer.get_json()["detail"]


def test_a_query_may_name_each_of_several_disks(client: FlaskClient, allocate: Any) -> None:
    answer = client.get(f"/v1/allocations/{allocate('vm1')['id']}/xml?disks=/a&disks=/b")
    assert answer.status_code == 200
    assert answer.get_data(as_text=True).count("<disk ") == 2


def test_a_body_that_is_packed_is_not_guessed_at(client: FlaskClient) -> None:
    for encoding, status in (("gzip", 415), ("identity", 200)):
        answer = client.post("/v1/candidates", json={"vm": "a"}, headers={"Content-Encoding": encoding})
        assert answer.status_code == status
    assert client.get("/v1/gpus", headers={"Content-Encoding": "gzip"}).status_code == 200


def test_a_wrong_method_names_the_right_ones(client: FlaskClient) -> None:
    answer = client.put("/v1/gpus", json={})
    assert answer.status_code == 405
    assert {method.strip() for method in answer.headers["Allow"].split(",")} == {"GET", "HEAD", "OPTIONS"}
    assert answer.get_json()["detail"] == "/v1/gpus does not take PUT"


def test_a_resource_that_is_not_there_is_named(client: FlaskClient) -> None:
    assert client.get("/v1/cards%0A").get_json()["detail"] == "there is no resource /v1/cards%0A"


@pytest.mark.parametrize("path", ["//v1/gpus", "/v1//gpus", "/v1/gpus//"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_doubled_slash_is_no_page_that_redirects(client: FlaskClient, method: str, path: str) -> None:
    answer = client.open(f"http://localhost{path}", method=method, json={})
    assert (answer.status_code, answer.mimetype) == (404, "application/problem+json")


def test_options_answer_what_a_resource_takes_and_no_page(client: FlaskClient) -> None:
    answer = client.options("/v1/allocations")
    assert (answer.status_code, answer.get_data()) == (204, b"")
    assert "Content-Type" not in answer.headers
    assert {method.strip() for method in answer.headers["Allow"].split(",")} == {"GET", "HEAD", "OPTIONS", "POST"}


def test_an_unknown_template_names_those_there_are(client: FlaskClient, allocate: Any) -> None:
    allocation = allocate("vm1")
    for name in ("nothing", "..%2F..%2Fetc%2Fpasswd"):
        answer = client.get(f"/v1/allocations/{allocation['id']}/xml?template={name}")
        assert (answer.status_code, answer.get_json()["code"]) == (404, "template-unknown")
        assert "linux-compute" in answer.get_json()["hint"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.dictionaries(FIELDS, JSON, max_size=5), path=st.sampled_from(["/v1/candidates", "/v1/domain-checks"])
)
def test_no_json_makes_the_service_fail(client: FlaskClient, body: dict[str, Any], path: str) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code < 500


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()),
    media_type=st.sampled_from(
        ["application/json", "application/json; charset=utf-16", "application/xml", "a/b", ""]
    ),
    path=st.sampled_from(["/v1/allocations", "/v1/vms", f"/v1/gpus/{GPU}/bind", "/v1/domain-checks", "/v1/vgpus"]),
)
def test_no_bytes_make_the_service_fail(client: FlaskClient, content: bytes, media_type: str, path: str) -> None:
    answer = client.post(f"{path}?dry_run=true", data=content, content_type=media_type)
    assert answer.status_code < 500


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.text(min_size=1, max_size=20),
    path=st.sampled_from(["/v1/gpus/", "/v1/allocations/", "/v1/vms/", "/v1/operations/", "/v1/iommu-groups/"]),
)
def test_no_name_makes_the_service_fail(client: FlaskClient, name: str, path: str) -> None:
    answer = client.get(path + quote(name, safe="", errors="replace"))
    assert answer.status_code < 500
