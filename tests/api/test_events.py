"""Events by REST: a list like all lists, and a stream that goes on where it was left."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.api.conftest import GPU
from vgpumgr.service import Service
from vgpumgr_api import principals, streams
from vgpumgr_api.app import create_app
from vgpumgr_api.principals import Principal

Allocate = Callable[..., dict[str, Any]]
STREAM = {"Accept": "text/event-stream"}


@contextmanager
def follow(client: FlaskClient, query: str = "", **headers: str) -> Iterator[Iterator[dict[str, str]]]:
    """The frames of a stream, without the first one, which only says when to come back."""
    answer = client.get(f"/v1/events{query}", headers={**STREAM, **headers}, buffered=False)
    assert (answer.status_code, answer.mimetype) == (200, "text/event-stream"), answer.get_data(as_text=True)
    frames = map(fields, answer.iter_encoded())
    assert set(next(frames)) == {"retry", "id"}
    try:
        yield frames
    finally:
        answer.close()


def fields(frame: bytes) -> dict[str, str]:
    assert frame.endswith(b"\n\n")
    return dict(line.split(": ", 1) for line in frame.decode().splitlines() if line and line[0] != ":")


def types(items: list[dict[str, Any]]) -> list[str]:
    return [item["type"] for item in items]


@pytest.fixture
def tenants(client: FlaskClient, allocate: Allocate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of the host and of two tenants; who asks next is the tenant red."""
    client.post(f"/v1/gpus/{GPU}/bind?wait=30", json={})
    allocate("vm-red", tenant="red")
    allocate("vm-blue", tenant="blue")
    monkeypatch.setattr(principals, "Principal", lambda: Principal("somebody", "red"))


def test_the_list_is_newest_first_and_paged(client: FlaskClient, allocate: Allocate) -> None:
    assert client.get("/v1/events").get_json() == {"items": [], "next_cursor": None}
    allocation = allocate("vm1")
    items = client.get("/v1/events").get_json()["items"]
    assert types(items) == [
        "allocation.ready",
        "operation.succeeded",
        "allocation.preparing",
        "allocation.reserved",
    ]
    assert {item["allocation_id"] for item in items} == {allocation["id"]}
    first = client.get("/v1/events?limit=3")
    cursor = first.get_json()["next_cursor"]
    assert 'rel="next"' in first.headers["Link"]
    assert client.get(f"/v1/events?limit=3&cursor={cursor}").get_json() == {"items": items[3:], "next_cursor": None}
    assert client.get("/v1/events?after=2").get_json()["items"] == items[:2]


def test_filters_are_exact_and_a_type_that_does_not_exist_is_refused(
    client: FlaskClient, allocate: Allocate
) -> None:
    allocation = allocate("vm1")
    allocate("vm2")
    found = client.get(f"/v1/events?type=allocation.ready&subject={allocation['id']}").get_json()["items"]
    assert [item["data"]["vm"] for item in found] == ["vm1"]
    assert client.get("/v1/events?type=allocation.gone").status_code == 422
    assert client.get("/v1/events?after=-1").status_code == 422
    assert client.get("/v1/events?cursor=x").get_json()["code"] == "cursor-invalid"


@pytest.mark.usefixtures("tenants")
def test_a_tenant_sees_its_own_events_only_whatever_it_asks_for(client: FlaskClient) -> None:
    for query in ("", "?tenant=blue"):
        items = client.get(f"/v1/events{query}").get_json()["items"]
        assert len(items) == 4
        assert {item["tenant"] for item in items} == {"red"}
        with follow(client, f"{query or '?'}&after=0") as stream:
            assert [json.loads(next(stream)["data"]) for _ in items] == items[::-1]


def test_a_stream_says_what_happens_from_now_on(client: FlaskClient, allocate: Allocate) -> None:
    allocate("vm1")
    with follow(client) as stream:
        allocation = allocate("vm2")
        frames = [next(stream) for _ in range(4)]
    assert [frame["id"] for frame in frames] == ["5", "6", "7", "8"]
    assert frames[-1]["event"] == "allocation.ready"
    event = json.loads(frames[-1]["data"])
    assert event == client.get("/v1/events").get_json()["items"][0]
    assert event["subject"] == allocation["id"]


def test_a_stream_goes_on_where_another_ended(client: FlaskClient, allocate: Allocate) -> None:
    allocate("vm1")
    for query, headers, first in (
        ("?after=0", {}, "1"),
        ("?after=2", {}, "3"),
        ("?after=0", {"Last-Event-ID": "3"}, "4"),
        ("?after=0&type=allocation.ready", {}, "4"),
    ):
        with follow(client, query, **headers) as stream:
            assert next(stream)["id"] == first
    assert client.get("/v1/events", headers={**STREAM, "Last-Event-ID": "x"}).status_code == 422


def test_events_come_in_whole_pages_and_none_twice(
    client: FlaskClient, service: Service, allocate: Allocate, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate("vm1")
    monkeypatch.setattr(service.events, "follow", partial(service.events.follow, limit=2))
    with follow(client, "?after=0") as stream:
        assert [next(stream)["id"] for _ in range(4)] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("after", [1, 9])
def test_who_has_missed_something_is_told_so_and_gets_the_rest(
    client: FlaskClient, allocate: Allocate, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr("vgpumgr.store.events.KEPT", 2)
    allocate("vm1")
    with follow(client, **{"Last-Event-ID": str(after)}) as stream:
        lost = next(stream)
        assert lost == {"id": "2", "event": "events.lost", "data": lost["data"]}
        assert json.loads(lost["data"]) == {"after": after, "oldest": 3, "newest": 4}
        assert [next(stream)["id"] for _ in range(2)] == ["3", "4"]


def test_a_silent_stream_says_that_it_lives_and_how_far_it_has_read(
    client: FlaskClient, allocate: Allocate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "KEEP_ALIVE_SECONDS", 0.01)
    allocate("vm1")
    with follow(client, "?after=0&type=operation.failed") as stream:
        assert next(stream) == {"id": "4"}


def test_only_so_many_may_follow_and_a_seat_is_free_again_after_a_stream(service: Service) -> None:
    client = create_app(service, streams=1).test_client()
    for _ in range(3):
        with follow(client):
            refused = client.get("/v1/events", headers=STREAM)
            assert (refused.status_code, refused.get_json()["code"]) == (503, "streams-full")
            assert int(refused.headers["Retry-After"]) > 0
            assert client.get("/v1/events").status_code == 200


def test_to_ask_for_the_head_takes_no_seat(service: Service) -> None:
    client = create_app(service, streams=1).test_client()
    for _ in range(3):
        answer = client.head("/v1/events", headers=STREAM)
        assert (answer.status_code, answer.mimetype) == (200, "text/event-stream")
    assert client.head("/v1/events").mimetype == "application/json"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "application/json"),
        ("text/*", "text/event-stream"),
        ("application/json, text/event-stream;q=0.5", "application/json"),
        ("text/event-stream, */*;q=0.1", "text/event-stream"),
        ("text/html", "application/problem+json"),
    ],
)
def test_the_caller_chooses_the_form(client: FlaskClient, accept: str, kind: str) -> None:
    answer = client.head("/v1/events", headers={"Accept": accept})
    assert answer.mimetype == kind
    assert (answer.status_code == 406) == (kind == "application/problem+json")


def test_a_stream_says_first_where_it_begins(client: FlaskClient, allocate: Allocate) -> None:
    allocate("vm1")
    answer = client.get("/v1/events", headers=STREAM, buffered=False)
    assert fields(next(answer.iter_encoded())) == {"retry": "3000", "id": "4"}
    answer.close()


def test_streams_end_when_the_service_stops(client: FlaskClient) -> None:
    with follow(client) as stream:
        client.application.extensions["vgpumgr"].close()
        assert list(stream) == []
