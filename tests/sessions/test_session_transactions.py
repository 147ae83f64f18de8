"""What a transaction leaves when it fails, and what shares one."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

import pytest

import fourfold
from fourfold.errors import Closed, Conflict, FourfoldError, InvalidInput, NotFound, StorageError
from fourfold.kernel import failpoints
from fourfold.models.sessions import UNSET, Payload, Sessions, SqliteLog, writer
from fourfold.testing.session_log_contract import message, turn


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store") as opened:
        opened.sessions.create_session({"id": "s", "model": "m"})
        yield opened


@pytest.fixture
def sessions(store):
    return store.sessions


@pytest.fixture(autouse=True)
def disarmed():
    yield
    failpoints.disarm()


BLOCKER = (
    "INSERT INTO events VALUES (900, 1, ?, 'a/b', '', NULL, NULL, NULL, '{}', zeroblob(32), 0)"
)


@pytest.mark.parametrize("blocked", [2, 3])
def test_row_in_way_makes_append_fail_and_moves_nothing(sessions, blocked):
    """The log is written before the view moves; a write without the store is found."""
    database = sessions.log.database
    database.transact(lambda txn: txn.execute(BLOCKER, (blocked,)))
    before = sessions.current_view("s").state
    with pytest.raises(Conflict):
        sessions.append_events("s", [turn(), turn()])
    assert sessions.current_view("s").state == before
    assert sessions.peek_next_id("s", "turn") == 1
    database.transact(lambda txn: txn.execute("DELETE FROM events WHERE position = 900"))
    assert [event.id for event in sessions.append_events("s", [turn(), turn()])] == [2, 3]


POINTS = (
    "kernel.begin.after",
    "kernel.statement.before",
    "kernel.statement.after",
    "kernel.commit.before",
)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("action", ["raise", "full"])
def test_a_failure_at_any_point_leaves_the_state_before(sessions, point, at, action):
    state = sessions.current_view("s").state
    calls = [
        lambda: sessions.append_events("s", [turn(), message(Payload("x" * 600))]),
        lambda: sessions.publish_head("s", {"vars_ref": Payload(["y" * 600], "vars")}),
        lambda: sessions.create_session({"id": "t", "model": "m"}),
    ]
    for call in calls:
        failpoints.arm(point, action, at=at, repeat=True)
        failed = False
        try:
            call()
        except StorageError:
            failed = True
        failpoints.disarm()
        if failed:
            assert sessions.current_view("s").state == state
            assert sessions.position() == state.counters.event + len(sessions.list_sessions()) - 1
        state = sessions.current_view("s").state
    assert sessions.verify() == []
    assert sessions.append_event("s", turn()).id == state.counters.event + 1


def test_one_bad_request_does_not_fail_those_beside_it(sessions):
    async def together():
        calls = [
            sessions.append_event_async("s", turn()),
            sessions.append_event_async("s", {"type": "turn/put", "turn": {"id": 99}}),
            sessions.append_event_async("unknown", turn()),
            sessions.append_events_async("s", [turn(), message()]),
            sessions.publish_head_async("s", expected_basis="sha256:" + "0" * 64),
            sessions.create_session_async({"id": "t", "model": "m"}),
            sessions.append_event_async("t", turn()),
            sessions.publish_head_async("s"),
            sessions.append_event_async("s", turn(), expected_last_id=1),
        ]
        return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(together())
    bad = [number for number, each in enumerate(found) if isinstance(each, FourfoldError)]
    assert bad == [1, 2, 4, 8]
    assert [found[0].id, found[3][0].id, found[3][1].id] == [2, 3, 4]
    assert found[7].event_range == (1, 4)
    assert sessions.current_view("t").counters.event == 2
    assert sessions.verify() == []


def test_coroutines_share_their_commits(sessions):
    database = sessions.log.database
    before = database.metrics().counters

    async def many():
        return await asyncio.gather(*(sessions.append_event_async("s", turn()) for _ in range(200)))

    assert [event.id for event in asyncio.run(many())] == list(range(2, 202))
    after = database.metrics().counters
    assert after["requests"] - before["requests"] == 200
    assert after["transactions"] - before["transactions"] <= 20


def test_appends_inside_transaction_of_caller_are_undone_with_it(sessions):
    database = sessions.log.database

    def two_and_an_error():
        with database.write():
            sessions.append_event("s", turn())
            sessions.append_event("s", turn())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        two_and_an_error()
    assert sessions.current_view("s").counters.event == 1
    with database.write():
        assert sessions.append_event("s", turn()).id == 2
        with pytest.raises(NotFound):
            sessions.append_event("s", {"type": "turn/put", "turn": {"id": 9}})
        assert sessions.append_event("s", turn()).id == 3
    assert sessions.current_view("s").counters.event == 3
    assert sessions.verify() == []


def test_what_one_transaction_deletes_it_cannot_write(sessions):
    sessions.append_event("s", turn())
    with sessions.log.database.write():
        sessions.append_event("s", turn())
        sessions.delete_session("s")
        with pytest.raises(NotFound, match="was deleted"):
            sessions.append_event("s", turn())
        with pytest.raises(NotFound, match="was deleted"):
            sessions.publish_head("s")
    with pytest.raises(NotFound, match="was deleted"):
        sessions.current_view("s")
    assert sessions.verify() == []


def test_a_step_that_is_undone_leaves_the_steps_before_it(sessions):
    """What the step knew of the transaction is forgotten with it, and must be read again."""
    database = sessions.log.database

    def undone():
        with database.write():
            assert sessions.append_event("s", message()).id == 3
            raise ZeroDivisionError

    with database.write():
        assert sessions.append_event("s", turn()).id == 2
        with pytest.raises(ZeroDivisionError):
            undone()
        again = sessions.append_event("s", turn())
        assert (again.id, again.entity_id, again.position) == (3, 2, 3)
    assert sessions.current_view("s").counters.event == 3
    assert sessions.verify() == []


def test_a_cancelled_coroutine_appends_all_or_nothing(sessions):
    async def cancel():
        task = asyncio.create_task(sessions.append_events_async("s", [turn(), turn()]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert sessions.read_state("s").counters.event in {1, 3}
    assert sessions.append_event("s", turn()).id in {2, 4}
    assert sessions.verify() == []


def test_a_closed_store_says_so(tmp_path):
    store = fourfold.open(tmp_path / "store")
    sessions = store.sessions
    made = sessions.create_session({"id": "s", "model": "m"})
    view = made.view()
    store.close()
    for call in (
        lambda: sessions.current_view("s"),
        lambda: sessions.append_event("s", turn()),
        lambda: list(view.events),
        lambda: store.sessions,
    ):
        with pytest.raises(Closed):
            call()
    memory = Sessions()
    memory.close()
    with pytest.raises(Closed):
        memory.create_session()


def test_subscribers_get_what_is_there_when_the_store_closes(tmp_path):
    heard = []
    with fourfold.open(tmp_path / "store") as store:
        store.sessions.create_session({"id": "s"})
        stop = store.sessions.subscribe("s", heard.append)
        store.sessions.append_events("s", [turn()] * 600)
        store.sessions.append_event("s", {"type": "session/stopped"})
    assert [item.id for item in heard] == list(range(1, 602))
    assert not stop.active
    assert stop.error is None


def test_a_reading_store_sees_what_another_appends_and_writes_nothing(store, tmp_path):
    with fourfold.open(tmp_path / "store", mode="r") as reading:
        other = reading.sessions
        assert other.current_view("s").counters.event == 1
        store.sessions.append_events("s", [turn()] * 3)
        assert other.current_view("s").counters.event == 4
        assert other.peek_next_id("s") == 5
        assert other.current_view("s") == store.sessions.current_view("s").materialize()
        store.sessions.create_session({"id": "t"})
        store.sessions.delete_session("s")
        with pytest.raises(NotFound):
            other.current_view("s")
        for call in (
            lambda: other.append_event("t", turn()),
            other.create_session,
            lambda: other.publish_head("t"),
            lambda: other.intern_payload("x"),
            lambda: other.delete_session("t"),
            other.gc,
        ):
            with pytest.raises(fourfold.Refused):
                call()


def test_collection_spares_what_is_stored_again_or_used_meanwhile(sessions):
    """A payload that is stored again becomes young, also when it was old and unused."""
    ref = sessions.intern_payload("x" * 600)
    database = sessions.log.database
    database.transact(lambda txn: txn.execute("UPDATE payloads SET touched = 1000"))
    assert sessions.intern_payload("x" * 600) == ref
    assert sessions.gc(3600.0).payloads == 0
    database.transact(lambda txn: txn.execute("UPDATE payloads SET touched = 1000"))
    sessions.append_event("s", message(ref))
    assert sessions.gc(0).payloads == 0
    assert sessions.read_payload(ref) == "x" * 600


class Meddling(SqliteLog):
    """A log where another caller acts right before a transaction."""

    meddle = None

    def transact_alone(self, work):
        self.meddle_once()
        return super().transact_alone(work)

    def transact(self, work, size=0):
        self.meddle_once()
        return super().transact(work, size)

    def meddle_once(self):
        if self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            meddle()


def test_collection_spares_what_comes_into_use_while_it_looks(sessions):
    """An old unused payload is used after the collection has looked."""
    log = Meddling(sessions.log.database)
    meddled = Sessions(log, files=sessions.files)
    for size in (600, 70_000):
        inner = meddled.intern_payload("x" * size)
        outer = meddled.intern_payload({"inner": inner, "more": "y" * 600}, "vars")
        log.meddle = lambda outer=outer: meddled.append_event("s", message(outer))
        assert meddled.gc(0).payloads == 0
        assert meddled.read_payload(meddled.read_payload(outer)["inner"]) == "x" * size
    assert meddled.verify() == []


@pytest.mark.parametrize("size", [600, 70_000])
def test_collection_right_before_event_removes_no_payload_of_it(sessions, size):
    """The file of a large payload is written first; without its row it looks like an orphan."""
    log = Meddling(sessions.log.database)
    meddled = Sessions(log, files=sessions.files)
    for call in (
        lambda value: meddled.append_event("s", message(Payload(value))),
        lambda value: meddled.append_event("s", message(meddled.intern_payload(value))),
    ):
        value = "x" * (size + len(meddled.events_since("s", 0)))
        log.meddle = lambda: sessions.gc(0)
        event = call(value)
        assert meddled.read_payload(event.data["message"]["content"]) == value
    assert meddled.verify() == []


def test_a_transaction_that_fails_after_it_wrote_leaves_nothing(sessions):
    for each in (sessions, Sessions()):
        each.create_session({"id": "s"})
        first = each.append_event("s", turn())
        before = (each.current_view("s").materialize(), each.position())
        request = each._preparing.appending(
            "s", [turn(), message(Payload("x" * 600)), message()], UNSET, "key"
        )
        edge = {"type": "invocation", "to_session": "t", "to_head": "sha256:" + "0" * 64}

        def work(txn, each=each, request=request, edge=edge):
            writer.append(txn, each._slots, request)
            writer.publish_head(
                txn, each._slots, each._preparing.publishing("s", {}, UNSET, None, None)
            )
            writer.append_edge(txn, each._slots, each._preparing.joining("s", edge))
            writer.create(txn, each._slots, each._preparing.creation({"id": "u", "model": "m"}))
            writer.delete(txn, each._slots, "s", "now")
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            each.log.transact(work)
        assert (each.current_view("s").materialize(), each.position()) == before
        assert each.verify() == []
        with pytest.raises(NotFound):
            each.open_session("u")
        assert each.append_event("s", turn(), key="key").id == first.id + 1


def test_files_without_a_row_are_removed_when_they_are_old(sessions):
    """What a writer leaves that died between the file and its row."""
    name = sessions.files.put(b'"' + b"y" * 70_000 + b'"')
    assert sessions.gc(3600.0).payloads == 0
    assert sessions.files.has(name)
    sessions.gc(0)
    assert not sessions.files.has(name)


@pytest.mark.parametrize("grace", [-1, float("nan"), float("inf"), 1e300, "x", None, True])
def test_a_bad_grace_age_is_refused(sessions, grace):
    with pytest.raises(InvalidInput):
        sessions.gc(grace)


def test_collection_removes_a_deleted_session_in_slices(sessions, monkeypatch):
    monkeypatch.setattr("fourfold.models.sessions.payloads.SESSION_PURGE_EVENTS", 10)
    for sid in ("gone", "other"):
        sessions.create_session({"id": sid})
    head = sessions.publish_head("other", events=[{"type": "a/b"}])
    for _ in range(7):
        sessions.append_events("gone", [{"type": "turn/started", "turn": {}}] * 5)
        sessions.publish_head("gone")
        edge = {"type": "derivation", "to_session": "other", "to_head": head.id}
        sessions.append_lineage_edge("gone", {**edge, "n": _})
    sessions.delete_session("gone")
    transact, slices = sessions.log.transact, []

    def sliced(work, size=0):
        before = len(positions(sessions))
        done = transact(work, size)
        slices.append(before - len(positions(sessions)))
        monkeypatch.setattr(sessions.log, "transact", transact)
        assert sessions.verify() == []
        sessions.append_event("other", {"type": "a/b"})
        monkeypatch.setattr(sessions.log, "transact", sliced)
        return done

    monkeypatch.setattr(sessions.log, "transact", sliced)
    collected = sessions.gc(0)
    assert (collected.sessions, collected.events) == (1, 49)
    # After the slices the collection indexes words; it does not wait until nothing is appended.
    assert slices == [10, 10, 10, 10, 9, 0]
    assert sessions.current_view("other").counters.event == 2 + len(slices)
    assert sessions.gc(0).events == 0
    assert sessions.verify() == []


def test_collection_may_pause_after_each_slice(sessions, monkeypatch):
    monkeypatch.setattr("fourfold.models.sessions.payloads.SESSION_PURGE_EVENTS", 10)
    sessions.create_session({"id": "gone"})
    sessions.append_events("gone", [{"type": "a/b"}] * 24)
    sessions.delete_session("gone")
    paced, blocks = sessions.log.paced, []

    @contextmanager
    def counted():
        before = len(positions(sessions))
        with paced() as end_step:
            yield end_step
        blocks.append(before - len(positions(sessions)))

    monkeypatch.setattr(sessions.log, "paced", counted)
    collected = sessions.gc(0)
    assert sum(blocks) == collected.events
    assert max(blocks) == 10


def test_page_of_events_may_pause_after_each_event(sessions, monkeypatch):
    sessions.create_session({"id": "s"})
    sessions.append_events("s", [{"type": "a/b"}] * 24)
    steps = []

    @contextmanager
    def counted():
        yield lambda: steps.append(1)

    monkeypatch.setattr(sessions.log, "paced", counted)
    assert len(sessions.events_since("s", limit=20)) == 20
    assert len(steps) == 20


def positions(sessions):
    with sessions.log.audit() as audit:
        return [row[0] for key, *_ in audit.sessions() for row in audit.events(key)]
