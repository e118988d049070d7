"""Events in the store: in one transaction with what they tell, in order, the newest kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text

from tests.databases import put_empty_database
from tests.unit.test_store import GPU, claim
from vgpumgr.allocations.states import sources
from vgpumgr.errors import ConflictError, UsageError
from vgpumgr.model.allocation import AllocationState
from vgpumgr.model.event import EVERYTHING, MAX_ID, EventType, Happening, Wanted
from vgpumgr.plans.journal import OperationState
from vgpumgr.store import events, migrations
from vgpumgr.store.events import add_event
from vgpumgr.store.store import Store, open_store

State = AllocationState


@pytest.fixture
def url(tmp_path: Path) -> str:
    return put_empty_database(tmp_path)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url, "host")
    yield opened
    opened.close()


def ended(number: int, tenant: str | None = None) -> Happening:
    return Happening(EventType.OPERATION_SUCCEEDED, f"gpu-{number}", f"gpu-{number} is done", {"n": number}, tenant)


def write(store: Store, *happenings: Happening) -> None:
    sessions = store.events._sessions
    with sessions.transaction() as session:
        for happening in happenings:
            add_event(session, sessions, happening)


def told(store: Store, after: int = 0, **filters: str) -> list[tuple[int, str, str]]:
    stretch = store.events.follow(Wanted(**filters), after=after)
    return [(item.id, str(item.what.type), item.what.subject) for item in stretch.events]


def test_events_come_back_as_they_were_written(store: Store) -> None:
    write(store, ended(1), ended(2))
    second, first = store.events.list().items
    assert store.events.follow(after=0).events == [first, second]
    assert (first.what, second.what) == (ended(1), ended(2))
    assert (first.id, second.id) == (1, 2)
    assert first.to_json() == {
        "id": 1,
        "time": first.time,
        "type": "operation.succeeded",
        "subject": "gpu-1",
        "message": "gpu-1 is done",
        "tenant": None,
        "allocation_id": None,
        "data": {"n": 1},
    }


def test_a_transition_and_its_event_are_one_transaction(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    claim(store, "a1")
    assert told(store) == [(1, "allocation.reserved", "a1")]
    store.allocations.change("a1", State.PREPARING, sources(State.PREPARING))
    assert told(store, after=1) == [(2, "allocation.preparing", "a1")]
    with pytest.raises(ConflictError):
        store.allocations.change("a1", State.ATTACHED, sources(State.ATTACHED))
    with pytest.raises(ConflictError):
        claim(store, "a2")
    assert len(told(store)) == 2

    def full(*_: object) -> None:
        raise OSError("no room for the event")

    monkeypatch.setattr("vgpumgr.store.allocations.add_event", full)
    with pytest.raises(OSError, match="no room"):
        store.allocations.change("a1", State.READY, sources(State.READY))
    assert store.allocations.get("a1").state is State.PREPARING


def test_a_change_of_devices_is_no_transition(store: Store) -> None:
    claim(store, "a1")
    store.allocations.change("a1", State.RESERVED, [State.RESERVED], devices=[])
    assert len(told(store)) == 1


def test_an_event_says_whose_allocation_it_is_and_what_went_wrong(store: Store) -> None:
    claim(store, "a1")
    store.operations.fail("op-a1", {"code": "left-behind", "message": "it broke", "reasons": [{"code": "x"}]})
    store.allocations.change("a1", State.FAILED, sources(State.FAILED), error={"code": "c", "message": "so it is"})
    operation, allocation = (item.what for item in store.events.follow(after=1).events)
    assert (operation.type, operation.subject, operation.allocation_id) == ("operation.failed", "a1", "a1")
    assert (operation.tenant, allocation.tenant) == ("default", "default")
    assert operation.data == {"operation_id": "op-a1", "kind": "allocation-prepare", "error": "left-behind"}
    assert operation.message.endswith("failed: it broke")
    assert allocation.message == "the allocation of vm-a1 is failed: so it is"
    assert allocation.data["error"] == "c"


@pytest.mark.parametrize("state", [state for state in OperationState if state.final])
def test_an_operation_ends_with_its_event_and_only_once(store: Store, state: OperationState) -> None:
    store.operations.create("o1", "bind", GPU)
    store.operations.end("o1", state)
    store.operations.fail("o1", {"code": "late"})
    assert told(store) == [(1, f"operation.{state}", GPU)]


def test_there_is_a_type_for_every_state() -> None:
    for allocation in State:
        assert EventType(f"allocation.{allocation}")
    for operation in OperationState:
        if operation.final:
            assert EventType(f"operation.{operation}")


def test_the_newest_are_kept_and_ids_go_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEPT", 3)
    write(store, *(ended(number) for number in range(1, 6)))
    assert [key for key, _, _ in told(store)] == [3, 4, 5]


def test_filters_pages_and_tenants(store: Store) -> None:
    write(store, *(ended(number, "red" if number % 2 else "blue") for number in range(1, 8)))
    store.operations.create("o1", "bind", "gpu-1")
    store.operations.end("o1", OperationState.FAILED)
    assert [key for key, _, _ in told(store, type="operation.failed")] == [8]
    assert [key for key, _, _ in told(store, subject="gpu-1")] == [1, 8]
    assert [key for key, _, _ in told(store, tenant="blue")] == [2, 4, 6]
    red = Wanted(tenant="red")
    page = store.events.list(red, after=1, limit=2)
    assert ([item.id for item in page.items], page.next_cursor) == ([7, 5], "5")
    rest = store.events.list(red, after=1, limit=2, cursor=page.next_cursor)
    assert ([item.id for item in rest.items], rest.next_cursor) == ([3], None)


def test_following_reads_on_past_what_is_not_wanted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.events.follow(after=0) == ([], 1, 0, 0)
    assert store.events.follow(after=9).read_to == 9
    monkeypatch.setattr(events, "KEPT", 6)
    write(store, *(ended(number, "red" if number % 2 else "blue") for number in range(1, 9)))
    found, *ends = store.events.follow(Wanted(tenant="red"), after=0, limit=2)
    assert ([item.id for item in found], ends) == ([3, 5], [3, 8, 5])
    found, *ends = store.events.follow(Wanted(tenant="red"), after=5, limit=2)
    assert ([item.id for item in found], ends) == ([7], [3, 8, 8])
    assert store.events.follow(EVERYTHING, after=8).events == []


def test_what_was_told_missing_is_the_last_word_on_each_device(store: Store) -> None:
    def say(kind: EventType, key: str, device: str) -> Happening:
        return Happening(kind, key, "", {"device": device}, "default", key)

    missing, back = EventType.DEVICE_MISSING, EventType.DEVICE_BACK
    store.events.append([say(missing, "a1", "x"), say(missing, "a1", "y"), say(back, "a1", "x")])
    store.events.append([say(missing, "a2", "x"), say(back, "a2", "x")])
    store.events.append([])
    assert store.events.told_missing() == {"a1": {"y"}, "a2": frozenset()}


def test_what_was_seen_of_an_allocation_that_changed_meanwhile_is_no_news(store: Store) -> None:
    claim(store, "a1")
    seen = Happening(EventType.DEVICE_MISSING, "a1", "gone", {"device": GPU}, "default", "a1")
    store.allocations.change("a1", State.RELEASING, sources(State.RELEASING))
    assert not store.events.append_of_allocation("a1", 1, [seen])
    assert not store.events.append_of_allocation("a2", 1, [seen])
    assert told(store, type="allocation.device-missing") == []
    assert store.events.append_of_allocation("a1", 2, [seen])
    assert told(store, type="allocation.device-missing") == [(3, "allocation.device-missing", "a1")]


def test_the_bell_is_rung_when_there_is_something_to_read(store: Store) -> None:
    bell = store.events.bell
    seen: list[int] = []

    def follow() -> None:
        bell.wait(0, 30)
        seen.extend(key for key, _, _ in told(store))

    follower = threading.Thread(target=follow)
    follower.start()
    store.operations.create("o1", "bind", GPU)
    assert bell.strokes == 0, "that was no event"
    write(store, ended(1), ended(2))
    follower.join(30)
    assert seen == [1, 2]
    assert bell.strokes == 1
    assert bell.wait(0, 30) == 1, "a stroke before the wait counts"
    assert bell.wait(1, 0.01) == 1
    claim(store, "a1")
    with pytest.raises(ConflictError):
        claim(store, "a1")
    assert bell.strokes == 2, "what was taken back is nothing to read"


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "９", str(MAX_ID + 1), "9" * 40])
def test_a_cursor_that_is_none_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(UsageError) as caught:
        store.events.list(cursor=cursor)
    assert caught.value.code == "cursor-invalid"


def test_hosts_count_for_themselves(url: str) -> None:
    one, other = open_store(url, "one"), open_store(url, "other")
    write(one, ended(1), ended(2))
    write(other, ended(3))
    assert told(one) == [(1, "operation.succeeded", "gpu-1"), (2, "operation.succeeded", "gpu-2")]
    assert told(other) == [(1, "operation.succeeded", "gpu-3")]


def test_ids_have_no_gaps_whoever_writes(store: Store, url: str) -> None:
    claim(store, "a1")

    def ask(number: int) -> None:
        with pytest.raises(ConflictError):
            claim(store, f"b{number}")  # takes its event back
        write(open_store(url, "host"), ended(number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(12)))
    assert [key for key, _, _ in told(store)] == list(range(1, 14))


@pytest.mark.parametrize("version", ["0002", "0003"])
def test_a_database_of_an_earlier_release_keeps_its_rows(tmp_path: Path, version: str) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    with create_engine(url).begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, version)
        connection.execute(
            text(
                "INSERT INTO operations (id, host_id, kind, subject, state, after_crash, created_at, updated_at)"
                " VALUES ('o1', 'host', 'bind', 'gpu', 'running', 'back', 't', 't')"
            )
        )
    store = open_store(url, "host")
    assert told(store) == []
    store.operations.end("o1", OperationState.STUCK)
    assert told(store) == [(1, "operation.stuck", "gpu")]
