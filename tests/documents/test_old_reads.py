"""A commit that builds on an old read is checked mostly outside of the write transaction.

The result is that of the naive rule: the newest later revision that overlaps a read refuses it.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fourfold.errors import StaleRead
from fourfold.models.documents import GcPolicy, overlap, writer
from fourfold.models.documents import conflicts as conflicts_module
from fourfold.models.documents.history import HistoryReader
from support.properties import examples

ROWS = 8
OTHER = [{"op": "set", "id": "other", "value": {}}]


def replace(space, key, value, branch=""):
    return space.patch("e", [{"op": "replace", "path": f"/{key}", "value": value}], branch=branch)


def read_of(key, seq, **more):
    return {"confirmed": [{"id": "e", "seq": seq, "path": [key] if key else [], **more}]}


@pytest.fixture
def few_rows(monkeypatch):
    monkeypatch.setattr("fourfold.models.documents.space.STALE_CHECK_ROWS", ROWS)
    monkeypatch.setattr(conflicts_module, "LOOK_BACK_ROWS", ROWS - 5, raising=False)


@pytest.fixture
def looked_at(monkeypatch):
    """How many revisions each transaction looked at while it held the writer."""
    counts = []
    conflicts, commit = overlap.conflicts, writer.commit

    def counting(*args, **options):
        counts and counts.append(counts.pop() + 1)
        return conflicts(*args, **options)

    def committing(*args, **options):
        counts.append(0)
        try:
            return commit(*args, **options)
        finally:
            seen.append(counts.pop())

    seen = []
    monkeypatch.setattr(overlap, "conflicts", counting)
    monkeypatch.setattr(writer, "commit", committing)
    return seen


def test_writer_looks_at_few_revisions_however_old_the_read(space, few_rows, looked_at):
    first = space.set("e", {"a": 0, "b": 0}).seq
    for number in range(1, 10 * ROWS):
        replace(space, "a", number)
    looked_at.clear()
    space.transact(OTHER, reads=read_of("b", first))
    with pytest.raises(StaleRead):
        space.transact(OTHER, reads=read_of("a", first))
    newest = replace(space, "b", 1).seq
    for number in range(10 * ROWS):
        replace(space, "a", number)
    with pytest.raises(StaleRead) as caught:
        space.transact(OTHER, reads=read_of("b", first))
    assert caught.value.details["conflict_seq"] == newest
    assert max(looked_at) <= ROWS


def test_check_without_the_writer_reads_few_revisions_at_a_time(space, few_rows, monkeypatch):
    first = space.set("e", {"a": 0, "b": 0}).seq
    for number in range(10 * ROWS):
        replace(space, "a", number)
    # One commit with more operations than a page has rows.
    again = {"op": "patch", "id": "e", "patches": [{"op": "replace", "path": "/a", "value": 0}]}
    space.transact([again] * ROWS)
    for number in range(2 * ROWS):
        replace(space, "a", number)
    view, pauses, read = space.view, [], []

    class Counting(HistoryReader):
        def all(self, sql, params=()):
            rows = super().all(sql, params)
            read.extend([len(rows)] if sql == self.sql.later_revisions else [])
            return rows

    @contextmanager
    def counting():
        with view() as snapshot:
            yield Counting(snapshot.snapshot, snapshot.sql)

    monkeypatch.setattr(space, "view", counting)
    monkeypatch.setattr(space.database.pauses, "pause", lambda: pauses.append(1))
    space.transact(OTHER, reads=read_of("b", first))
    assert len(pauses) == 13 * ROWS
    # The rows of the seq that a page ended in are read again.
    assert max(read) <= 2 * ROWS, read
    assert len(read) > 10 * ROWS // (ROWS - 5)


def test_coroutine_looks_at_few_revisions_in_the_writer(space, few_rows, looked_at):
    first = space.set("e", {"a": 0, "b": 0}).seq
    for number in range(10 * ROWS):
        replace(space, "a", number)
    looked_at.clear()

    async def commit(key):
        return await space.transact_async(OTHER, reads=read_of(key, first))

    asyncio.run(commit("b"))
    with pytest.raises(StaleRead):
        asyncio.run(commit("a"))
    assert max(looked_at) <= ROWS


@pytest.mark.parametrize(("key", "refused"), [("a", False), ("b", True)])
def test_what_is_committed_during_the_check_counts(space, few_rows, monkeypatch, key, refused):
    first = space.set("e", {"a": 0, "b": 0}).seq
    for number in range(5 * ROWS):
        replace(space, "a", number)
    check_committed, rounds = conflicts_module.check_committed, []

    def interrupted(pages, request, looked):
        result = check_committed(pages, request, looked)
        if len(rounds) < 3:
            rounds.append(pages)
            for number in range(2 * ROWS):
                replace(space, key, number)
        return result

    monkeypatch.setattr(conflicts_module, "check_committed", interrupted)
    if refused:
        with pytest.raises(StaleRead):
            space.transact(OTHER, reads=read_of("b", first))
    else:
        assert space.transact(OTHER, reads=read_of("b", first)).seq == space.seq()
        assert len(rounds) == 3


def test_old_read_is_checked_inside_a_transaction(space, few_rows):
    first = space.set("e", {"a": 0, "b": 0}).seq
    with space.database.write():
        for number in range(5 * ROWS):
            replace(space, "a", number)
        space.transact(OTHER, reads=read_of("b", first))
        with pytest.raises(StaleRead):
            space.transact(OTHER, reads=read_of("a", first))
    assert space.read("other") is not None


def test_named_request_is_answered_again_whatever_its_read(space, few_rows):
    first = space.set("e", {"a": 0, "b": 0}).seq
    request = {"reads": read_of("a", first), "session": "s", "local_seq": 1}
    accepted = space.transact(OTHER, **request)
    for number in range(5 * ROWS):
        replace(space, "a", number)
    again = space.transact(OTHER, **request)
    assert (again.seq, again.replayed) == (accepted.seq, True)


NUMBERS = itertools.count()
KEYS = ("a", "b", "c")
CHANGES = st.one_of(
    st.tuples(st.just("replace"), st.sampled_from(KEYS)),
    st.tuples(st.just("patch both"), st.none()),
    st.tuples(st.just("set"), st.none()),
    st.tuples(st.just("delete"), st.none()),
    st.tuples(st.just("collect"), st.integers(1, 6)),
)


def change(space, kind, which, branch, number):
    if kind == "replace":
        space.patch("e", [{"op": "add", "path": f"/{which}/x", "value": number}], branch=branch)
    elif kind == "patch both":
        several = [{"op": "add", "path": f"/{key}", "value": {}} for key in KEYS[:2]]
        space.patch("e", several, branch=branch)
    elif kind == "set":
        space.set("e", {key: {} for key in KEYS}, branch=branch)
    elif kind == "delete":
        space.delete("e", branch=branch)
    else:
        space.gc(GcPolicy(keep_seqs=which))


def naive(space, read, branch, own):
    """The newest later revision that overlaps; every one that a reader of the branch sees."""
    found = None
    for each in space.history("e", branch, after=read["seq"]):
        if each.seq not in own and overlap.conflicts(
            each.op, each.data or (), read["path"], shape=read["shape"]
        ):
            found = each.seq
    return found


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=examples(60),
)
@given(data=st.data())
def test_verdict_is_that_of_the_naive_rule(store, history, data):
    steps = data.draw(st.lists(st.tuples(CHANGES, st.booleans()), min_size=1, max_size=25))
    fork = data.draw(st.integers(0, len(steps) - 1))
    with pytest.MonkeyPatch.context() as patcher:
        patcher.setattr(
            "fourfold.models.documents.space.STALE_CHECK_ROWS", data.draw(st.integers(0, 4))
        )
        space = store.space(f"did:key:z{next(NUMBERS)}", history=history)
        space.set("e", {key: {} for key in KEYS})
        for number, ((kind, which), child) in enumerate(steps):
            if number == fork:
                space.branches.create("f")
            change(space, kind, which, "f" if child and number >= fork else "", number)
        mine = space.transact(
            [{"op": "patch", "id": "e", "patches": [{"op": "add", "path": "/c", "value": {}}]}],
            session="s",
            local_seq=1,
        )
        for branch in ("", "f"):
            read = {
                "id": "e",
                "seq": data.draw(st.integers(space.horizon(), space.seq())),
                "path": data.draw(st.lists(st.sampled_from([*KEYS, "x"]), max_size=2)),
                "shape": data.draw(st.booleans()),
            }
            for pending in (False, True):
                reads = {"confirmed": [read]}
                if pending:
                    fields = {key: read[key] for key in ("id", "path", "shape")}
                    reads = {"pending": [{**fields, "local_seqs": [1], "basis_seq": read["seq"]}]}
                expected = naive(space, read, branch, {mine.seq} if pending else set())
                number = space.seq()
                try:
                    space.transact(OTHER, reads, "s", number, branch)
                    verdict = None
                except StaleRead as stale:
                    verdict = stale.details["conflict_seq"]
                assert verdict == expected, (branch, pending)
