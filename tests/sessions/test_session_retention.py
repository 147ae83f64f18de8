"""Retention: old sessions are deleted, and never one that another session needs."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fourfold
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.sessions import Sessions, SqliteLog
from fourfold.server.session_upkeep import SessionUpkeep
from fourfold.testing.session_log_contract import message

START = datetime(2026, 3, 1, tzinfo=UTC)
HEAD = "sha256:" + "a" * 64


class Clock:
    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now

    def advance(self, days):
        self.now += timedelta(days=days)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "store"])
def sessions(request, tmp_path, clock):
    if request.param == "memory":
        opened = Sessions(clock=clock)
        yield opened
        assert opened.verify() == []
        opened.close()
    else:
        with fourfold.open(tmp_path / "store") as store:
            opened = Sessions(store.sessions.log, files=store.sessions.files, clock=clock)
            assert isinstance(opened.log, SqliteLog)
            yield opened
            assert opened.verify() == []


def days(number):
    return number * 86_400.0


def ids(sessions, prefix=""):
    return sorted(info.id for info in sessions.list(prefix=prefix))


def edge(sessions, log, from_session, to_session):
    content = {
        "type": "derivation",
        "from_session": from_session,
        "to_session": to_session,
        "to_head": HEAD,
    }
    if to_session in ids(sessions):
        content["to_head"] = sessions.publish_head(to_session, events=[message()]).id
    sessions.append_lineage_edge(log, content)


def one_per_day(sessions, clock, count, prefix="s-"):
    for index in range(count):
        sessions.create({"id": f"{prefix}{index}"})
        clock.advance(1)


def test_sessions_without_events_for_a_time_are_deleted(sessions, clock):
    one_per_day(sessions, clock, 5)
    sessions.append_event("s-0", message())
    report = sessions.apply_retention(max_age_s=days(2.5))
    assert (report.deleted, report.kept, report.next_after) == (2, 0, None)
    assert report.sessions == ["s-1", "s-2"]
    assert ids(sessions) == ["s-0", "s-3", "s-4"]
    with pytest.raises(NotFound, match="was deleted"):
        sessions.open("s-1")
    assert sessions.apply_retention(max_age_s=days(2.5)).deleted == 0


def test_newest_sessions_are_kept(sessions, clock):
    one_per_day(sessions, clock, 5)
    sessions.append_event("s-0", message())
    assert sessions.apply_retention(keep_latest=2).sessions == ["s-1", "s-2", "s-3"]
    assert ids(sessions) == ["s-0", "s-4"]


def test_session_is_deleted_if_it_exceeds_all_limits(sessions, clock):
    one_per_day(sessions, clock, 6)
    assert sessions.apply_retention(max_age_s=days(4.5), keep_latest=3).sessions == ["s-0", "s-1"]
    assert sessions.apply_retention(max_age_s=days(1.5), keep_latest=3).sessions == ["s-2"]


def test_retention_is_about_a_prefix(sessions, clock):
    one_per_day(sessions, clock, 3, "a/")
    one_per_day(sessions, clock, 3, "b/")
    assert sessions.apply_retention("a/", keep_latest=1).sessions == ["a/0", "a/1"]
    assert ids(sessions) == ["a/2", "b/0", "b/1", "b/2"]


def test_dry_run_deletes_nothing(sessions, clock):
    one_per_day(sessions, clock, 4)
    planned = sessions.apply_retention(keep_latest=1, dry_run=True)
    assert len(ids(sessions)) == 4
    assert sessions.apply_retention(keep_latest=1) == planned


def test_session_that_a_newer_one_derives_from_is_kept(sessions, clock):
    sessions.create({"id": "source"})
    sessions.append_event("source", message())
    sessions.create({"id": "other"})
    clock.advance(10)
    sessions.fork("source", {"id": "fork"})
    report = sessions.apply_retention(max_age_s=days(1))
    assert (report.sessions, report.kept) == (["other"], 1)
    clock.advance(10)
    assert sorted(sessions.apply_retention(max_age_s=days(1)).sessions) == ["fork", "source"]


def test_log_with_an_edge_between_others_is_connected_with_them(sessions, clock):
    for sid in ("a", "b", "log"):
        sessions.create({"id": sid})
    edge(sessions, "log", "a", "b")
    clock.advance(10)
    sessions.append_event("log", message())
    assert sessions.apply_retention(max_age_s=days(1)).deleted == 0
    clock.advance(10)
    assert sessions.apply_retention(max_age_s=days(1)).deleted == 3


def test_session_of_another_prefix_retains_connected_sessions(sessions, clock):
    sessions.create({"id": "a/1"})
    sessions.create({"id": "b/1"})
    edge(sessions, "a/1", "b/1", "a/1")
    clock.advance(10)
    assert sessions.apply_retention("a/", max_age_s=days(1)).kept == 1
    assert sessions.apply_retention(max_age_s=days(1)).deleted == 2


def test_sessions_of_one_id_are_deleted_together(sessions, clock):
    for sid in ("chat/1", "chat/1/inner", "chat/2"):
        sessions.create({"id": sid})
    clock.advance(10)
    sessions.append_event("chat/1/inner", message())
    assert sessions.apply_retention("chat/", max_age_s=days(1)).sessions == ["chat/2"]
    assert ids(sessions) == ["chat/1", "chat/1/inner"]


def test_session_with_a_lease_in_force_is_kept(sessions, clock):
    one_per_day(sessions, clock, 2)
    claim = sessions.claim("s-0", "worker", ttl_s=3_600)
    assert sessions.apply_retention(keep_latest=0).sessions == ["s-1"]
    sessions.release("s-0", claim.epoch)
    assert sessions.apply_retention(keep_latest=0).sessions == ["s-0"]


def test_parts_of_a_retention_delete_what_the_whole_deletes(sessions, clock):
    one_per_day(sessions, clock, 7)
    deleted, after = [], None
    for _ in range(4):
        report = sessions.apply_retention(keep_latest=2, after=after, limit=2)
        deleted += report.sessions
        after = report.next_after
    assert (deleted, after) == ([f"s-{index}" for index in range(5)], None)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"keep_latest": -1},
        {"keep_latest": 1.5},
        {"keep_latest": 10**6},
        {"max_age_s": -1},
        {"max_age_s": float("nan")},
        {"max_age_s": "1d"},
        {"max_age_s": 1, "limit": 0},
        {"max_age_s": 1, "after": "x"},
        {"max_age_s": 1, "prefix": "/a"},
    ],
)
def test_bad_input_is_refused_and_nothing_is_deleted(sessions, clock, options):
    one_per_day(sessions, clock, 2)
    with pytest.raises(InvalidInput):
        sessions.apply_retention(**options)
    assert len(ids(sessions)) == 2


def test_age_beyond_all_times_keeps_everything(sessions, clock):
    one_per_day(sessions, clock, 2)
    assert sessions.apply_retention(max_age_s=1e18).deleted == 0


@given(
    ages=st.lists(st.integers(0, 6), min_size=1, max_size=7),
    edges=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6)), max_size=5),
    max_age=st.none() | st.integers(0, 6),
    keep_latest=st.none() | st.integers(0, 4),
)
def test_retention_deletes_what_a_simple_model_deletes(ages, edges, max_age, keep_latest):
    """Groups of connected sessions are deleted if no member is young, newest, or used."""
    if max_age is None and keep_latest is None:
        keep_latest = 1
    clock = Clock()
    sessions = Sessions(clock=clock)
    names = [f"s-{index}" for index in range(len(ages))]
    for name in names:
        sessions.create({"id": name})
    links = [tuple(index % len(ages) for index in triple) for triple in edges]
    for log, first, second in links:
        edge(sessions, names[log], names[first], names[second])
    order = sorted(range(len(ages)), key=lambda index: -ages[index])
    for index in order:
        clock.now = START + timedelta(days=10 - ages[index], seconds=index)
        sessions.append_event(names[index], message())
    clock.now = START + timedelta(days=10, minutes=1)
    newest = set(sorted(order, key=lambda index: (ages[index], -index))[: keep_latest or 0])
    group = {index: {index} for index in range(len(ages))}
    for triple in links:
        for one, other in itertools.combinations(triple, 2):
            merged = group[one] | group[other]
            for member in merged:
                group[member] = merged
    due = {
        index
        for index in range(len(ages))
        if index not in newest and (max_age is None or ages[index] >= max_age)
    }
    expected = {names[index] for index in due if group[index] <= due}
    planned = sessions.apply_retention(
        max_age_s=None if max_age is None else days(max_age),
        keep_latest=keep_latest,
        dry_run=True,
    )
    report = sessions.apply_retention(
        max_age_s=None if max_age is None else days(max_age), keep_latest=keep_latest
    )
    assert set(report.sessions) == set(planned.sessions) == expected
    assert report.deleted == planned.deleted == len(expected)
    assert ids(sessions) == sorted(set(names) - expected)
    assert sessions.verify() == []
    sessions.close()


def test_stored_policies_are_applied_by_the_longest_prefix(sessions, clock):
    for sid in ("chat/old", "chat/vip/old", "chat/vip/older", "log", "logs"):
        sessions.create({"id": sid})
    sessions.set_retention("", max_age_s=days(100))
    sessions.set_retention("chat/", max_age_s=days(1))
    sessions.set_retention("chat/vip/", max_age_s=days(1), keep_latest=1)
    stored = sessions.set_retention("log", max_age_s=days(10))
    assert [policy.prefix for policy in sessions.list_retentions()] == [
        *("", "chat/", "chat/vip/", "log"),
    ]
    clock.advance(2)
    planned = sessions.apply_stored_retentions(dry_run=True)
    assert {prefix: report.sessions for prefix, report in planned.items()} == {
        "": [],
        "chat/": ["chat/old"],
        "log": [],
        "chat/vip/": ["chat/vip/old"],
    }
    assert len(ids(sessions)) == 5
    sessions.apply_stored_retentions()
    assert ids(sessions) == ["chat/vip/older", "log", "logs"]
    clock.advance(10)
    assert sessions.gc(dry_run=True).sessions == 2
    assert sessions.gc(retention=False).sessions == 2
    assert ids(sessions) == ["chat/vip/older", "log", "logs"]
    # Collecting applies them too.
    sessions.gc()
    assert ids(sessions) == ["chat/vip/older"]
    assert stored.updated_at == "2026-03-01T00:00:00.000Z"


def test_stored_policies_are_replaced_and_deleted(sessions):
    sessions.set_retention("a", max_age_s=1)
    sessions.set_retention("a", keep_latest=3)
    [policy] = sessions.list_retentions()
    assert (policy.prefix, policy.max_age_s, policy.keep_latest) == ("a", None, 3)
    sessions.delete_retention("a")
    assert sessions.list_retentions() == []
    with pytest.raises(NotFound, match="no retention policy has the prefix 'a'"):
        sessions.delete_retention("a")
    with pytest.raises(InvalidInput, match="needs max_age_s or keep_latest"):
        sessions.set_retention("a")


def test_stored_policies_outlive_the_process(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        store.sessions.set_retention("a/", keep_latest=1)
    with fourfold.open(tmp_path / "store", mode="r") as store:
        assert [policy.keep_latest for policy in store.sessions.list_retentions()] == [1]


def test_server_applies_stored_policies(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        for sid in ("a/1", "a/2", "b/1"):
            store.sessions.create({"id": sid})
        store.sessions.set_retention("a/", keep_latest=1)
        with SessionUpkeep(store, every_s=0.001) as upkeep:
            upkeep.wait_round(30)
        assert ids(store.sessions) == ["a/2", "b/1"]
