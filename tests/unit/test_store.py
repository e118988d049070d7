"""The store: one GPU never to two, transitions one at a time, errors that say what to do, a schema that fits."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import String, create_engine, text

from tests.databases import put_empty_database
from vgpumgr.allocations.states import TRANSITIONS, sources
from vgpumgr.errors import ConflictError, UnavailableError, UsageError, VgpumgrError
from vgpumgr.model.allocation import AllocatedDevice, Allocation, AllocationRequest, AllocationState, DeviceKind
from vgpumgr.model.records import Binding, VgpuRecord
from vgpumgr.store import migrations
from vgpumgr.store.allocations import Claim
from vgpumgr.store.idempotency import Answer, KeyReusedError, Made, working_for
from vgpumgr.store.models import Base
from vgpumgr.store.store import Store, open_store

GPU = "0000:3b:00.0"
State = AllocationState


@pytest.fixture
def url(tmp_path: Path) -> str:
    return put_empty_database(tmp_path)


@pytest.fixture
def store(url: str) -> Store:
    return open_store(url, "host")


def allocation(store: Store, key: str, vm: str | None = None) -> Allocation:
    device = AllocatedDevice(DeviceKind.GPU, GPU, GPU, companions=("0000:3b:00.1",))
    return Allocation(
        id=key,
        host_id=store.host_id,
        tenant="default",
        vm=vm or f"vm-{key}",
        state=State.RESERVED,
        generation=1,
        request=AllocationRequest(vm or f"vm-{key}"),
        devices=(device,),
        created_at=store.now(),
        updated_at=store.now(),
        operation_id=f"op-{key}",
    )


def claim(store: Store, key: str, vm: str | None = None, gpu: str = GPU) -> None:
    store.allocations.add(allocation(store, key, vm), [Claim(gpu, gpu, key)], "allocation-prepare")


def _race(url: str, key: str) -> str:
    try:
        claim(open_store(url, "host"), key)
    except ConflictError as error:
        return error.code
    return "won"


def test_of_many_threads_one_gets_the_gpu(store: Store) -> None:
    def ask(number: int) -> str:
        try:
            claim(store, f"a{number}")
        except ConflictError as error:
            return error.code
        return "won"

    with ThreadPoolExecutor(8) as pool:
        outcomes = sorted(pool.map(ask, range(16)))
    assert outcomes == ["already-claimed"] * 15 + ["won"]
    assert len(store.allocations.claims()) == 1


def test_of_several_processes_one_gets_the_gpu(store: Store, url: str) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        outcomes = sorted(pool.starmap(_race, [(url, f"p{number}") for number in range(6)]))
    assert outcomes == ["already-claimed"] * 5 + ["won"]
    assert len(store.allocations.claims()) == 1


def test_a_lost_race_leaves_nothing_behind(store: Store) -> None:
    claim(store, "a1")
    with pytest.raises(ConflictError):
        claim(store, "a2")
    assert [item.id for item in store.allocations.list().items] == ["a1"]
    assert [
        item.subject for item in store.operations.list(state=None, subject=None, limit=9, cursor=None).items
    ] == ["a1"]


def test_a_vm_has_one_live_allocation_and_may_have_another_later(store: Store) -> None:
    claim(store, "a1", vm="desktop")
    with pytest.raises(ConflictError) as caught:
        claim(store, "a2", vm="desktop", gpu="0000:5e:00.0")
    assert caught.value.code == "vm-has-allocation"
    store.allocations.change("a1", State.RELEASING, sources(State.RELEASING))
    store.allocations.change("a1", State.RELEASED, sources(State.RELEASED))
    claim(store, "a3", vm="desktop")


def test_hosts_in_one_database_do_not_meet(url: str) -> None:
    one, other = open_store(url, "one"), open_store(url, "other")
    claim(one, "a1")
    claim(other, "a2")
    with pytest.raises(VgpumgrError):
        other.allocations.get("a1")
    assert [item.id for item in one.allocations.list().items] == ["a1"]


@pytest.mark.parametrize("before", list(State))
@pytest.mark.parametrize("after", list(State))
def test_only_transitions_of_the_table_are_made(store: Store, before: State, after: State) -> None:
    claim(store, "a1")
    store.allocations.change("a1", before, list(State))
    if after in TRANSITIONS[before]:
        assert store.allocations.change("a1", after, sources(after)).state is after
    else:
        with pytest.raises(ConflictError) as caught:
            store.allocations.change("a1", after, sources(after))
        assert caught.value.code == "state-conflict"
        assert store.allocations.get("a1").state is before


def test_every_state_is_in_the_table_and_can_be_reached() -> None:
    assert set(TRANSITIONS) == set(State)
    reached = {State.REQUESTED}
    while more := {after for before in reached for after in TRANSITIONS[before]} - reached:
        reached |= more
    assert reached == set(State)


def test_a_change_on_an_old_generation_is_refused(store: Store) -> None:
    claim(store, "a1")
    store.allocations.change("a1", State.PREPARING, sources(State.PREPARING), generation=1)
    with pytest.raises(ConflictError) as caught:
        store.allocations.change("a1", State.READY, sources(State.READY), generation=1)
    assert caught.value.code == "generation-mismatch"


def test_failed_allocations_keep_their_claims_only_while_something_is_left(store: Store) -> None:
    claim(store, "a1")
    store.allocations.change("a1", State.FAILED, sources(State.FAILED))
    assert len(store.allocations.claims()) == 1
    store.allocations.change("a1", State.RELEASING, sources(State.RELEASING))
    store.allocations.change("a1", State.FAILED, sources(State.FAILED), drop_claims=True)
    assert store.allocations.claims() == []


def test_bindings_and_vgpus_come_back_as_they_were_put(store: Store, url: str) -> None:
    binding = Binding(GPU, "10de:2235", "auto", {GPU: "nvidia", "0000:3b:00.1": None})
    record = VgpuRecord("uuid", GPU, "10de:2235", "0000:3b:00.4", "mdev", "nvidia-558", "A40-2Q", {"x": "1"}, "a1")
    store.bindings.put(binding)
    store.bindings.put(binding)
    store.vgpus.put(record)
    again = open_store(url, "host")
    assert list(again.bindings.all()) == [binding]
    assert list(again.vgpus.all()) == [record]
    again.bindings.remove(GPU)
    again.bindings.remove(GPU)
    assert again.bindings.get(GPU) is None


def test_an_idempotency_key_remembers_its_answer_and_refuses_another_request(store: Store) -> None:
    keys = store.idempotency
    assert keys.begin("t", "k", "hash") is None
    with pytest.raises(ConflictError) as caught:
        keys.begin("t", "k", "hash")
    assert caught.value.code == "request-in-progress"
    keys.finish("t", "k", Answer(201, {"id": "a1"}, {}))
    assert keys.begin("t", "k", "hash") == Answer(201, {"id": "a1"}, {})
    with pytest.raises(KeyReusedError):
        keys.begin("t", "k", "other")
    assert keys.begin("another tenant", "k", "other") is None


def unanswered(store: Store, operation_id: str | None) -> None:
    """A key whose request recorded an operation (or none) and came to no answer."""
    assert store.idempotency.begin("t", "k", "hash") is None
    if operation_id is not None:
        with working_for("t", "k"):
            store.operations.create(operation_id, "bind", GPU)


def test_a_key_whose_answer_got_lost_names_what_was_made(store: Store) -> None:
    unanswered(store, "o1")
    store.operations.create("o2", "bind", GPU)
    assert store.idempotency.begin("t", "k", "hash") == Made(("o1",))
    store.idempotency.forget("t", "k")
    store.idempotency.expire(before="")
    assert store.idempotency.begin("t", "k", "hash") == Made(("o1",))
    with pytest.raises(KeyReusedError):
        store.idempotency.begin("t", "k", "other")


def test_a_key_is_free_again_once_nothing_is_left_of_its_work(store: Store) -> None:
    unanswered(store, "o1")
    store.operations.fail("o1", {})
    store.idempotency.forget("t", "k")
    unanswered(store, None)
    store.idempotency.forget("t", "k")
    unanswered(store, None)


@pytest.mark.parametrize("operation_id", [None, "o1"], ids=["before", "after"])
def test_a_key_left_by_a_crash_before_anything_was_made_is_free(
    store: Store, url: str, operation_id: str | None
) -> None:
    unanswered(store, operation_id)
    if operation_id is not None:
        store.operations.fail(operation_id, {})
    for expiring in (False, True):
        again = open_store(url, "host")
        if expiring:
            again.idempotency.expire(before="")
        assert again.idempotency.begin("t", "k", "hash") is None


def _other_type(_context: object, _old: object, _new: object, old: object, new: object) -> bool | None:
    """SQLite keeps texts of any length: what a column allows elsewhere is no difference."""
    return False if isinstance(old, String) and isinstance(new, String) else None


def test_the_schema_is_what_the_models_say(url: str) -> None:
    with create_engine(url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": _other_type})
        differences = compare_metadata(context, Base.metadata)
    assert differences == []


def test_head_names_the_newest_version() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    assert ScriptDirectory.from_config(config).get_current_head() == migrations.HEAD


def test_a_database_of_a_later_release_is_left_alone(url: str) -> None:
    with create_engine(url).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(UnavailableError) as caught:
        open_store(url, "host")
    assert caught.value.code == "store-too-new"


def test_the_database_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    open_store(f"sqlite:///{folder / 'vgpumgr.db'}", "host")
    assert (folder / "vgpumgr.db").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda folder: "nonsense", "database-invalid"),
        (lambda folder: f"sqlite:///{folder}/missing/../file/x.db", "store-unavailable"),
        (lambda folder: f"sqlite:///{folder}/garbage.db", "store-corrupt"),
    ],
)
def test_a_database_that_cannot_be_used_says_why(tmp_path: Path, make: object, code: str) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "garbage.db").write_bytes(os.urandom(4096))
    assert callable(make)
    with pytest.raises((UsageError, UnavailableError)) as caught:
        open_store(make(tmp_path), "host")
    assert caught.value.code == code
    assert caught.value.hint


def test_a_full_disk_loses_nothing_that_was_written(store: Store, url: str) -> None:
    claim(store, "a1")
    with store._sessions.engine.connect() as connection:
        pages = connection.execute(text("PRAGMA page_count")).scalar()
        connection.rollback()
    assert isinstance(pages, int)
    limited = open_store(url, "host")
    with pytest.raises(UnavailableError) as caught:
        _fill(limited, pages)
    assert caught.value.code == "store-full"
    assert caught.value.hint
    assert open_store(url, "host").allocations.get("a1").vm == "vm-a1"


def _fill(store: Store, pages: int) -> None:
    """Write until SQLite, held to a few pages more, says that the disk is full."""
    from sqlalchemy import event

    def hold(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(f"PRAGMA max_page_count={pages + 4}")

    event.listen(store._sessions.engine, "connect", hold)
    store._sessions.engine.dispose()
    for number in range(200):
        claim(store, f"f{number}", gpu=f"gpu-{number}")
