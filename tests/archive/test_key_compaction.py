"""Compaction by key: the state is the same before and after, wherever the records are."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from node import Node, keys

from fourfold.errors import (
    InvalidInput,
    OffsetGone,
    Refused,
    StreamClosed,
    StreamRecreated,
)
from fourfold.kernel import failpoints
from fourfold.models.streams import key_compaction
from fourfold.models.streams.archive import Policy
from fourfold.models.streams.archive.verify import object_problems
from fourfold.models.streams.record_headers import decode_headers
from fourfold.objects import MemoryStore
from support.properties import examples

POLICY = Policy(
    seal_bytes=100_000,
    seal_rows=5,
    seal_age_s=60.0,
    concurrency=1,
    compact_bytes=100_000,
    compact_rows=15,
    compact_segments=2,
    trim_rows=3,
)


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch):
    """Use small slices, so that a compaction has many transactions."""
    monkeypatch.setattr(key_compaction, "SCAN_RECORDS", 4)
    monkeypatch.setattr(key_compaction, "COPY_RECORDS", 2)
    monkeypatch.setattr("fourfold.limits.ARCHIVE_TRIM_ROWS", 3)


def change(key, value=None, *, operation="upsert", kind="user"):
    message = {"type": kind, "key": key, "headers": {"operation": operation}}
    return message if operation == "delete" else {**message, "value": value}


def connect(node):
    """Give the streams of a node its archive, as a store does."""
    node.streams._open_archive = lambda: node.archive
    return node


def create(node, name="users"):
    connect(node)
    stream = node.streams.create(name, "application/json")
    stream.set_profile("state-protocol")
    return stream


def publish(node):
    node.now += 100_000
    while node.archive.round(everything=True).published:
        pass


def state(node, name="users"):
    return node.streams.state(name)


def verify(node):
    assert node.streams.verify() == []
    with node.database.read() as snapshot:
        assert list(object_problems(snapshot, node.objects)) == []


def fill(stream):
    stream.append([change(f"old{at}", at) for at in range(7)])
    stream.append([change("old0", operation="delete"), change("old1", "new")])
    stream.append([change(f"hot{at % 3}", at) for at in range(12)])


@pytest.mark.parametrize("place", ["log", "sealed", "published", "both"])
def test_compaction_keeps_the_state_wherever_the_records_are(make, place, monkeypatch):
    node = make(policy=POLICY)
    stream = create(node)
    fill(stream)
    if place == "sealed":
        monkeypatch.setattr(node.archive, "_publish", lambda *_: None)
        node.archive.round(everything=True)
        assert len(stream.segments())
        monkeypatch.undo()
    elif place != "log":
        publish(node)
    if place == "both":
        stream.append([change("late", 1), change("old2", "late")])
    before, end = state(node), stream.info.next_offset
    result = stream.compact("now")
    assert result.complete
    assert (result.horizon.record, result.first_offset.record) == (end, end)
    assert state(node) == before
    assert (result.copied, result.removed) == (len(before), end)
    assert len(stream) == len(before)
    verify(node)
    # Every record was a newest one.
    again = stream.compact(result.horizon)
    assert (again.complete, again.copied, again.removed) == (True, 0, 0)
    with pytest.raises(OffsetGone):
        stream.read(end - 1)
    assert stream.read("-1").start_offset == end


def test_keys_that_changed_after_the_horizon_are_not_copied(make):
    node = make(policy=POLICY)
    stream = create(node)
    stream.append([change("a", 1), change("b", 1), change("c", 1), change("d", 1)])
    horizon = stream.position()
    stream.append([change("b", 2), change("c", operation="delete")])
    result = stream.compact(str(horizon))
    assert (result.copied, result.removed) == (2, 4)
    assert [record.value["key"] for record in stream] == ["b", "c", "a", "d"]
    assert state(node) == {("user", "a"): 1, ("user", "b"): 2, ("user", "d"): 1}


def test_horizon_by_time(make):
    node = make(policy=POLICY)
    stream = create(node)
    stream.append(change("a", 1))
    node.now += 1_000
    stream.append(change("b", 1))
    result = stream.compact(since=node.now)
    assert (result.horizon.record, result.removed) == (1, 1)
    assert state(node) == {("user", "a"): 1, ("user", "b"): 1}


def test_horizon_may_be_inside_of_a_published_segment(make):
    node = make(policy=POLICY)
    stream = create(node)
    stream.append([change(f"k{at}", at) for at in range(12)])
    publish(node)
    assert [row.first_offset for row in stream.segments()] == [0, 5, 10]
    before = state(node)
    result = stream.compact(8)
    assert (result.horizon.record, result.first_offset.record, result.copied) == (8, 8, 8)
    assert state(node) == before
    publish(node)
    node.archive.collect(grace_s=0)
    verify(node)
    # What is left in the archive has the whole state.
    other = connect(make("other", policy=POLICY))
    other.bootstrap()
    assert state(other) == before


def test_published_history_is_not_removed_before_copies_are_published(make):
    node = make(policy=POLICY)
    stream = create(node)
    stream.append([change(f"k{at}", at) for at in range(12)])
    publish(node)
    before = state(node)
    failpoints.arm("streams.compact.published", _stop, at=1)
    with pytest.raises(_Stopped):
        stream.compact("now")
    failpoints.disarm()
    # The disk is lost here, or after a manifest that nothing was sealed for.
    for name in ("first", "second"):
        other = connect(make(name, policy=POLICY))
        other.bootstrap()
        assert state(other) == before
        stream.compact(12)
        assert stream.info.first_offset == 12
        node.archive.upkeep.publish("users")


def test_copies_keep_headers_and_routing_keys(make):
    node = make(policy=POLICY)
    stream = create(node)
    stream.append(change("a", 1), key="red", headers={"trace": "1"})
    stream.append(change("b", 2), key="blue")
    stream.append(change("c", 3))
    for _ in range(2):
        stream.compact("now")
        assert [record.value["value"] for record in stream.read(key="red")] == [1]
        assert [record.value["value"] for record in stream.read(key="blue")] == [2]
        headers = {record.value["key"]: record.headers for record in stream}
        assert headers == {"a": {"trace": "1"}, "b": {}, "c": {}}
        publish(node)
    verify(node)


def test_copies_are_of_the_current_schema_version(make):
    node = make(policy=POLICY)
    stream = create(node)
    shape = {
        "type": "object",
        "properties": {
            "type": {"type": "string"},
            "key": {"type": "string"},
            "value": {
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "additionalProperties": False,
            },
            "headers": {"type": "object"},
        },
        "additionalProperties": False,
    }
    stream.set_schema(shape)
    stream.append([change("x", {"a": 1}), change("y", {"a": 2})])
    renamed = json.loads(json.dumps(shape).replace('"a"', '"b"'))
    ops = [{"op": "rename", "from": "a", "to": "b"}]
    lens = {"ops": [{"op": "in", "name": "value", "ops": ops}]}
    stream.set_schema(renamed, lens=lens)
    before = state(node)
    assert before == {("user", "x"): {"b": 1}, ("user", "y"): {"b": 2}}
    stream.compact("now")
    assert state(node) == before
    # They are stored like that, and not promoted again.
    with node.database.read() as snapshot:
        stored = snapshot.all("SELECT payload FROM wal ORDER BY offset")
    assert [json.loads(row[0])["value"] for row in stored] == [{"b": 1}, {"b": 2}]


def test_change_during_a_compaction_wins(make, monkeypatch):
    node = make(policy=POLICY)
    stream = create(node)
    stream.append([change(f"k{at}", at) for at in range(5)])
    read = key_compaction.KeyCompaction._read
    left = [change("k0", "new"), change("k1", operation="delete"), change("k4", "new")]

    def read_and_append(self):
        copies = read(self)
        if left:
            stream.append(left.pop(0))
        return copies

    monkeypatch.setattr(key_compaction.KeyCompaction, "_read", read_and_append)
    result = stream.compact("now")
    assert state(node) == {
        ("user", "k0"): "new",
        ("user", "k2"): 2,
        ("user", "k3"): 3,
        ("user", "k4"): "new",
    }
    # Of k4, no more than one transaction had been copied when it changed.
    assert (result.copied, result.removed) == (3, 5)
    assert len(stream) == 3 + 3


@pytest.mark.parametrize("published", [False, True])
def test_retention_during_a_compaction_removes_keys(make, monkeypatch, published):
    node = make(policy=POLICY)
    stream = create(node)
    stream.append([change(f"k{at}", at) for at in range(12)])
    if published:
        publish(node)
    read = key_compaction.KeyCompaction._read

    def trim_and_read(self):
        stream.configure(retention_bytes=400)
        node.streams.sweep()
        stream.configure(retention_bytes=None)
        return read(self)

    monkeypatch.setattr(key_compaction.KeyCompaction, "_read", trim_and_read)
    result = stream.compact("now")
    assert result.complete
    kept = state(node)
    assert 0 < len(kept) < 12
    assert all(kept["user", f"k{at}"] == at for at in range(12) if ("user", f"k{at}") in kept)
    publish(node)
    verify(node)


def test_compaction_continues_after_its_time_ran_out(make):
    node = make(policy=POLICY)
    stream = create(node)
    fill(stream)
    before, results = state(node), []
    while not results or not results[-1].complete:
        results.append(stream.compact(21, timeout_s=0.0))
        assert state(node) == before
        assert len(results) < 100, results
    assert len(results) > 5
    assert results[-1].first_offset.record == 21


def test_refused_compactions_change_nothing(make):
    node = make(policy=POLICY)
    plain = connect(node).streams.create("plain", "application/json")
    plain.append(change("a", 1))
    with pytest.raises(Refused, match="requires the profile"):
        plain.compact("now")
    stream = create(node)
    fill(stream)
    for horizon in (None, 22, -1):
        with pytest.raises(InvalidInput):
            stream.compact(horizon)
    with pytest.raises(InvalidInput):
        stream.compact("now", since=1)
    with pytest.raises(StreamRecreated):
        stream.compact("0000000000000005_0000000000000003")
    with pytest.raises(Refused, match="transaction"), node.database.write():
        stream.compact("now")
    stream.fork("copy", 3)
    with pytest.raises(Refused, match="forks"):
        stream.compact("now")
    fork = node.streams.open("copy")
    fork.append(change("own", 1))
    before = state(node, "copy")
    assert fork.compact(2).removed == 0
    assert fork.compact("now").complete
    assert state(node, "copy") == before
    node.streams.delete("copy")
    stream.close()
    with pytest.raises(StreamClosed):
        stream.compact("now")
    assert stream.info.first_offset == 0
    assert len(plain) == 1
    publish(node)
    verify(node)


def test_subscriptions_and_live_readers_see_copies(make):
    node = make(policy=POLICY)
    stream = create(node)
    stream.append([change("a", 1), change("b", 2)])
    end = stream.position()
    stream.compact("now")
    chunk = next(stream.follow(str(end), timeout=0))
    assert [record.value["key"] for record in chunk] == ["a", "b"]


class _Stopped(BaseException):
    pass


def _stop(_point):
    raise _Stopped


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize(
    "point",
    [
        "streams.compact.copied",
        "streams.compact.published",
        "streams.compact.trimmed",
        "kernel.commit.before",
        "kernel.commit.after",
        "archive.segment.built",
        "archive.seal.committed",
        "archive.upload.after",
        "archive.manifest.intended",
        "archive.manifest.uploaded",
        "archive.manifest.recorded",
    ],
)
def test_compaction_that_was_killed_is_completed_by_the_next(make, point, published):
    node = make(policy=POLICY)
    stream = create(node)
    fill(stream)
    if published:
        publish(node)
    before, hit = state(node), 0
    for at in range(1, 20):
        failpoints.arm(point, _stop, at=at)
        try:
            result = stream.compact(21)
        except _Stopped:
            hit += 1
        else:
            break
        finally:
            failpoints.disarm()
            node.open_archive()
            node.streams._compactions = key_compaction.Compactions(node.streams)
        assert state(node) == before
        assert node.streams.verify() == []
    assert result.complete
    assert hit or not published or "kernel" not in point
    assert state(node) == before
    assert stream.info.first_offset == 21
    publish(node)
    node.archive.collect(grace_s=0)
    verify(node)
    other = connect(make("other", policy=POLICY))
    other.bootstrap()
    assert state(other) == before


MESSAGES = st.lists(
    st.builds(
        change,
        st.sampled_from("abcdefgh"),
        st.integers(0, 9),
        operation=st.sampled_from(["insert", "update", "upsert", "delete"]),
        kind=st.sampled_from(["user", "order"]),
    ),
    min_size=1,
    max_size=6,
)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), MESSAGES),
        st.tuples(st.just("compact"), st.integers(0, 30)),
        st.tuples(st.just("begin"), st.integers(0, 30)),
        st.tuples(st.sampled_from(["publish", "merge", "index", "bootstrap"]), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=examples(60), deadline=None)
@given(actions=ACTIONS)
def test_state_is_that_of_all_changes_ever_made(tmp_path_factory, actions):
    folder, lives, made = tmp_path_factory.mktemp("lives"), 0, {}
    with MemoryStore() as objects:
        node = Node(folder / "0", objects, POLICY)
        try:
            stream = create(node)
            for action, argument in [("append", [change("a", 0)]), *actions]:
                if action == "append":
                    stream.append(argument)
                    for message in argument:
                        made.pop((message["type"], message["key"]), None)
                        if "value" in message:
                            made[message["type"], message["key"]] = message["value"]
                elif action in {"compact", "begin"}:
                    horizon = min(argument, stream.info.next_offset)
                    timeout_s = None if action == "compact" else 0.0
                    result = stream.compact(horizon, timeout_s=timeout_s)
                    if result.complete:
                        assert stream.info.first_offset >= result.horizon.record
                elif action == "publish":
                    publish(node)
                elif action == "merge":
                    node.archive.compact()
                elif action == "index":
                    node.archive.index()
                else:
                    publish(node)
                    lives += 1
                    node.close()
                    node = connect(Node(folder / str(lives), objects, POLICY))
                    node.bootstrap()
                    stream = node.streams.open("users")
                assert state(node) == made
                assert node.streams.verify() == []
            publish(node)
            node.archive.collect(grace_s=0)
            verify(node)
            assert len(keys(objects, ".parquet")) >= (1 if len(stream) else 0)
        finally:
            node.close()


def test_headers_of_copies_are_stored_as_they_were(make):
    node = make(policy=POLICY)
    stream = create(node)
    stream.append(change("a", 1), headers={"b": "2", "a": "é"})
    [before] = [record.encoded_headers for record in stream]
    stream.compact("now")
    [after] = [record.encoded_headers for record in stream]
    assert (after, decode_headers(after)) == (before, {"b": "2", "a": "é"})
