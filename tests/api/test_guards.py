"""What is turned away before anything is done: foreign names, other sites' pages, types we cannot give."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient

from tests.api.conftest import GPU
from vgpumgr.service import Service
from vgpumgr_api.app import create_app

BIND = f"/v1/gpus/{GPU}/bind"


@pytest.mark.parametrize("host", ["localhost", "localhost:8900", "127.0.0.1:8900", "[::1]:8900", "LOCALHOST"])
def test_loopback_goes_by_its_own_names(client: FlaskClient, host: str) -> None:
    assert client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "[::2]"])
def test_a_foreign_name_is_not_answered(client: FlaskClient, host: str) -> None:
    answer = client.get("/v1/gpus", headers={"Host": host})
    assert (answer.status_code, answer.get_json()["code"]) == (421, "host-not-allowed")


def test_the_name_of_a_proxy_can_be_configured(service: Service) -> None:
    client = create_app(service, names="gpu.example, other.example").test_client()
    assert client.get("/healthz", headers={"Host": "gpu.example"}).status_code == 200
    headers = {"Host": "localhost", "Origin": "https://gpu.example"}
    assert client.post("/v1/candidates", json={"vm": "a"}, headers=headers).status_code == 200


def test_on_the_unix_socket_the_name_means_nothing(client: FlaskClient) -> None:
    environment = {"REMOTE_ADDR": ""}
    assert client.get("/healthz", headers={"Host": "anything"}, environ_base=environment).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_of_another_site_changes_nothing(client: FlaskClient, headers: dict[str, str]) -> None:
    answer = client.post(BIND, headers=headers)
    assert (answer.status_code, answer.get_json()["code"]) == (403, "cross-site")
    assert client.get("/v1/operations").get_json()["items"] == []


def test_the_service_s_own_page_may_change_things(client: FlaskClient) -> None:
    headers = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert client.post(f"{BIND}?dry_run=true", json={}, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("path", "accept", "status"),
    [
        ("/v1/gpus", "application/json", 200),
        ("/v1/gpus", "application/*;q=0.5", 200),
        ("/v1/gpus", "*/*", 200),
        ("/v1/gpus", "text/html", 406),
        ("/v1/gpus", "application/json;q=0", 406),
        ("/v1/host/snapshot", "application/json", 406),
        ("/v1/host/snapshot", "application/x-tar", 200),
    ],
)
def test_an_answer_comes_in_a_type_that_is_taken(client: FlaskClient, path: str, accept: str, status: int) -> None:
    assert client.get(path, headers={"Accept": accept}).status_code == status


def test_what_cannot_be_answered_is_not_done(client: FlaskClient) -> None:
    assert client.post(BIND, json={}, headers={"Accept": "text/html"}).status_code == 406
    assert client.get("/v1/operations").get_json()["items"] == []


def test_the_documentation_loads_nothing_from_elsewhere(client: FlaskClient) -> None:
    page = client.get("/docs/")
    text = page.get_data(as_text=True)
    assert "://" not in text
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    for asset in ("css/swagger-ui.css", "js/swagger-ui-bundle.js"):
        assert f"/docs/swagger/{asset}" in text
        assert client.get(f"/docs/swagger/{asset}").status_code == 200
