"""Random sessions, listed in both orders with all filters, beside a naive list of what was done."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

import fourfold
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.sessions import Sessions, SqliteLog
from fourfold.models.sessions.sqlite_log import SQL

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
KINDS = (None, "chat", "child", 7)
STATUS_EVENTS = {"session/stopped": "stopped", "session/error": "error"}


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> datetime:
        return self.now


class NaiveSession:
    """Facts of a session, as the test knows them."""

    def __init__(self, key, sid, kind, status, updated):
        self.key, self.id, self.kind, self.status, self.updated = key, sid, kind, status, updated


@pytest.fixture(params=["memory", "store"])
def clock_and_sessions(request, tmp_path):
    clock = Clock()
    if request.param == "memory":
        yield clock, Sessions(clock=clock)
        return
    with fourfold.open(tmp_path / "store") as store:
        yield clock, Sessions(SqliteLog(store.sessions.log.database), clock=clock)


def fill(rng, clock, sessions):
    """Create, append to and delete sessions; return those that exist."""
    known: dict[str, NaiveSession] = {}
    key = 0
    for _ in range(120):
        clock.now += timedelta(milliseconds=rng.choice((0, 1, 300, 900, 2500)))
        action = rng.random()
        if action < 0.4 or not known:
            key += 1
            sid, kind = f"{rng.choice('ab')}/{key}", rng.choice(KINDS)
            fields = {"id": sid} if kind is None else {"id": sid, "kind": kind}
            sessions.create(fields)
            status = None if kind is None else "running"
            text = kind if isinstance(kind, str) else None
            known[sid] = NaiveSession(key, sid, text, status, clock.now)
            continue
        naive = known[rng.choice(sorted(known))]
        if action < 0.5:
            sessions.delete_session(naive.id)
            del known[naive.id]
            continue
        event = {"type": "message/appended", "message": {"content": "x"}}
        if action < 0.7:
            kind = rng.choice(sorted(STATUS_EVENTS))
            event = {"type": kind, "error": "e"} if kind == "session/error" else {"type": kind}
            naive.status = STATUS_EVENTS[kind]
        sessions.append_events(naive.id, [event] * rng.choice((1, 3)))
        naive.updated = clock.now
    return list(known.values())


def expected(known, *, order, newest_first, prefix, status, kind, since):
    rows = [
        naive
        for naive in known
        if naive.id.startswith(prefix)
        and status in {None, naive.status}
        and kind in {None, naive.kind}
        and (since is None or naive.updated >= since)
    ]
    second = {row.id: row.updated.replace(microsecond=0) for row in rows}
    rows.sort(
        key=lambda row: (second[row.id] if order == "updated" else BEGIN, row.key),
        reverse=newest_first,
    )
    return [row.id for row in rows]


@pytest.mark.parametrize("seed", range(4))
def test_lists_equal_those_of_a_naive_model(clock_and_sessions, seed):
    clock, sessions = clock_and_sessions
    rng = random.Random(seed)
    known = fill(rng, clock, sessions)
    for _ in range(60):
        since = rng.choice((None, None, rng.choice(known).updated, clock.now))
        options = {
            "order": rng.choice(("created", "updated")),
            "newest_first": rng.random() < 0.5,
            "prefix": rng.choice(("", "", "a/", "b/1")),
            "status": rng.choice((None, None, "running", "stopped", "error")),
            "kind": rng.choice((None, None, "chat", "child")),
            "since": since,
        }
        limit = rng.choice((1, 2, 7, 500))
        listed, after = [], None
        while page := sessions.list(limit=limit, after=after, **options):
            listed += page
            after = page[-1]
        assert [info.id for info in listed] == expected(known, **options), options
        facts = {naive.id: (naive.kind, naive.status) for naive in known}
        assert all((info.kind, info.status) == facts[info.id] for info in listed)
    assert sessions.verify() == []


def test_page_continues_where_when_its_last_session_is_updated(clock_and_sessions):
    clock, sessions = clock_and_sessions
    for sid in "abcd":
        clock.now += timedelta(seconds=5)
        sessions.create({"id": sid})
    options = {"order": "updated", "newest_first": True}
    page = sessions.list(limit=2, **options)
    assert [info.id for info in page] == ["d", "c"]
    clock.now += timedelta(seconds=5)
    sessions.append_event("c", {"type": "session/stopped"})
    assert [info.id for info in sessions.list(after=page[-1], **options)] == ["b", "a"]
    assert [info.id for info in sessions.list(after="c", **options)] == ["d", "b", "a"]


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (InvalidInput, {"order": "name"}),
        (InvalidInput, {"order": "updated", "deleted": True}),
        (InvalidInput, {"order": "updated", "at": BEGIN}),
        (InvalidInput, {"since": datetime(2030, 1, 1)}),  # noqa: DTZ001 - what is refused
        (InvalidInput, {"limit": 0, "order": "updated"}),
        (NotFound, {"order": "updated", "after": "missing"}),
    ],
)
def test_malformed_lists_are_refused(clock_and_sessions, error, options):
    _, sessions = clock_and_sessions
    with pytest.raises(error):
        sessions.list(**options)


def test_verify_names_a_session_whose_index_differs(tmp_path):
    with fourfold.open(tmp_path) as store:
        store.sessions.create({"id": "s", "kind": "chat"})
        with store.sessions.log.database.write() as txn:
            txn.execute("UPDATE session_index SET kind = 'other'")
        problems = [str(problem) for problem in store.sessions.verify()]
    assert problems == ["session 's': its row of the index differs from its events"]


def test_a_page_of_an_indexed_list_reads_only_its_rows(tmp_path):
    with fourfold.open(tmp_path) as store:
        for sid in "abc":
            store.sessions.create({"id": sid, "kind": "chat"})
        database = store.sessions.log.database
        for name in ("update", "status", "kind"):
            for direction in ("", "newest_"):
                sql = getattr(SQL, f"{direction}sessions_by_{name}")
                params = ("~", 9, 1, "") + (() if name == "update" else ("chat",))
                with database.read() as snapshot:
                    plan = [row[3] for row in snapshot.all(f"EXPLAIN QUERY PLAN {sql}", params)]
                assert plan[0].startswith("SEARCH i USING COVERING INDEX"), plan
                assert plan[1].startswith("SEARCH s USING INTEGER PRIMARY KEY"), plan
                assert len(plan) == 2, plan
