"""The Delta log on object stores: commits, conflicts, faults, checkpoints, truncation."""

from __future__ import annotations

import threading
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from delta_tables import NO_RETRIES, QUICK, SCHEMA, add_rows, created, txn
from hypothesis import given
from hypothesis import strategies as st

from fourfold.archive.delta_actions import (
    EMPTY,
    AddFile,
    DeltaProtocol,
    Metadata,
    RemoveFile,
    Snapshot,
    decode_commit,
    encode_commit,
    replay,
    table_actions,
)
from fourfold.archive.delta_checkpoint import decode_checkpoint, encode_checkpoint
from fourfold.archive.delta_log import CommitConflict, DeltaLog
from fourfold.errors import (
    CorruptData,
    FutureFormat,
    HistoryTruncated,
    NotFound,
    ObjectStoreError,
)
from fourfold.objects import FolderStore, MemoryStore
from fourfold.testing.faulty_store import Fault, FaultyStore, at, seeded
from support.s3_server import serve_s3

LATER = datetime.now(UTC) + timedelta(days=30)


def add(path, n=0, **options):
    return AddFile(path, n, 1, **options)


@pytest.fixture(params=["memory", "folder", "s3"])
def objects(request, tmp_path):
    with serve_s3() if request.param == "s3" else nullcontext() as server:
        stores = {
            "memory": MemoryStore,
            "folder": lambda: FolderStore(tmp_path / "objects"),
            "s3": lambda: server.store("shop"),
        }
        with stores[request.param]() as store:
            yield store


@pytest.fixture
def log(objects):
    return DeltaLog(objects, "tables/t")


def fill(log, versions):
    """Commit one file per version, and return every state."""
    states = []
    snapshot = EMPTY
    for version in range(versions):
        actions = [add(f"{version}.parquet", version), txn(version)]
        if version > 1:
            actions.append(snapshot.files[f"{version - 1}.parquet"].removed(version))
        log.commit(created(*actions) if version == 0 else actions, version)
        snapshot = log.update(snapshot)
        states.append(snapshot)
    return states


# Commits


def test_table_without_commits_is_empty(log):
    assert log.snapshot() == EMPTY
    assert log.update(EMPTY) == EMPTY
    assert not log.snapshot().exists
    with pytest.raises(NotFound):
        log.snapshot(0)
    with pytest.raises(NotFound):
        log.read_commit(0)


def test_snapshot_replays_commits(log):
    states = fill(log, 4)
    assert log.snapshot() == states[-1]
    assert list(states[-1].files) == ["0.parquet", "3.parquet"]
    assert states[-1].txns["app"].version == 3
    assert states[-1].schema == SCHEMA
    for version, state in enumerate(states):
        assert log.snapshot(version) == state
        assert log.read_commit(version).txn("app") == version
    with pytest.raises(NotFound, match="newest 3"):
        log.snapshot(4)


def test_commit_info_has_keys_of_the_writer(log):
    log.commit(created(), 0, {"operation": "PUBLISH", "tables": {"a": 3}})
    info = log.read_commit(0).info
    assert info["operation"] == "PUBLISH"
    assert info["tables"] == {"a": 3}


def test_conflict_has_the_other_commit(log):
    log.commit(created(txn(7)), 0)
    with pytest.raises(CommitConflict) as caught:
        log.commit(created(txn(8)), 0)
    assert caught.value.commit == log.read_commit(0)
    assert caught.value.commit.txn("app") == 7
    assert caught.value.commit.txn("other") is None


def test_commit_is_one_put(objects):
    puts = []

    class Counting(FaultyStore):
        def _decide(self, op, key, *, can_tear=False):
            puts.append((op, key))

    log = DeltaLog(Counting(objects, lambda call: None), "t")
    log.commit(created(add("a")), 0)
    assert puts == [("put", "t/_delta_log/00000000000000000000.json")]


def test_racing_writers_lose_no_commit(objects):
    """Every commit is there once, in the order of its writer, however the writers interleave."""
    DeltaLog(objects, "t").commit(created(), 0)
    failures = []

    def write(writer):
        log = DeltaLog(objects, "t")
        snapshot = log.snapshot()
        for number in range(8):
            while True:
                try:
                    actions = [add(f"{writer}-{number}"), txn(number, writer)]
                    log.commit(actions, snapshot.version + 1)
                    break
                except CommitConflict as conflict:
                    if conflict.commit.txn(writer) is not None:
                        failures.append(conflict)
                    snapshot = log.update(snapshot)
            snapshot = log.update(snapshot)
            if snapshot.txns[writer].version != number:
                failures.append((writer, number, snapshot.txns))

    writers = [threading.Thread(target=write, args=(name,)) for name in ("a", "b", "c")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not failures
    log = DeltaLog(objects, "t")
    snapshot = log.snapshot()
    assert snapshot.version == 24
    assert set(snapshot.files) == {f"{name}-{n}" for name in "abc" for n in range(8)}
    order = [log.read_commit(version).actions[1] for version in range(1, 25)]
    for name in "abc":
        assert [entry.version for entry in order if entry.app_id == name] == list(range(8))


# Faults


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("faults", [1, 2])
def test_commit_survives_a_fault(objects, fault, faults):
    """A lost response and a truncated object are recognized as the writer's own commit."""
    plan = at(dict.fromkeys(range(1, faults + 1), fault), op="put")
    log = DeltaLog(FaultyStore(objects, plan), "t", QUICK)
    log.commit(created(add("a")), 0)
    assert list(DeltaLog(objects, "t").snapshot().files) == ["a"]


def test_equal_commit_of_another_writer_is_a_conflict(log):
    actions = created(add("a"))
    log.commit(actions, 0)
    with pytest.raises(CommitConflict):
        log.commit(actions, 0)


def test_lost_response_is_not_taken_for_success_after_another_writer(objects):
    log = DeltaLog(FaultyStore(objects, at({1: Fault.FAIL}, op="put")), "t", NO_RETRIES)
    with pytest.raises(ObjectStoreError):
        log.commit(created(add("mine")), 0)
    DeltaLog(objects, "t").commit(created(add("theirs")), 0)
    with pytest.raises(CommitConflict):
        log.commit(created(add("mine")), 0)
    assert list(log.snapshot().files) == ["theirs"]


def test_truncated_newest_commit_counts_as_not_written():
    objects = MemoryStore()
    log = DeltaLog(objects, "t")
    states = fill(log, 2)
    whole = encode_commit([add("2"), add("3"), txn(2)], token="t")
    key = "t/_delta_log/00000000000000000002.json"
    for end in range(len(whole) - 1):
        objects.put(key, whole[:end])
        assert log.snapshot() == states[-1], end
        assert log.update(states[0]) == states[-1]
        with pytest.raises(NotFound):
            log.read_commit(2)
    log.commit([add("other")], 2)
    assert "other" in log.snapshot().files
    assert "2" not in log.snapshot().files


def test_truncated_commit_in_the_middle_is_corrupt():
    objects = MemoryStore()
    log = DeltaLog(objects, "t")
    fill(log, 3)
    key = "t/_delta_log/00000000000000000001.json"
    objects.put(key, objects.get(key).data[:-5])
    with pytest.raises(CorruptData, match="commit 1 is truncated"):
        log.snapshot()


def test_damaged_commit_is_corrupt():
    with pytest.raises(CorruptData, match="line 1"):
        decode_commit(3, b'{"add":\n{"txn":{"appId":"a","version":1}}\n')
    with pytest.raises(CorruptData, match="line 1"):
        decode_commit(3, b'{"add":{"path":1}}\n')


@given(st.integers(0, 10_000))
def test_random_faults_leave_a_readable_log(seed):
    """Commits that returned are there; one that failed is there or not, as a whole."""
    objects = MemoryStore()
    log = DeltaLog(FaultyStore(objects, seeded(seed, rate=0.3)), "t", QUICK)
    clean = DeltaLog(objects, "t")
    acknowledged = set()
    snapshot = EMPTY
    for number in range(8):
        actions = [add(f"{number}-a"), add(f"{number}-b")]
        try:
            version = snapshot.version + 1
            log.commit(created(*actions) if version == 0 else actions, version)
            acknowledged.add(number)
        except (ObjectStoreError, CommitConflict):
            pass
        snapshot = clean.update(snapshot)
        if number % 3 == 2 and snapshot.exists:
            with suppress(ObjectStoreError):
                log.checkpoint(snapshot)
        assert clean.snapshot() == snapshot
        present = {int(path.split("-")[0]) for path in snapshot.files}
        assert acknowledged <= present
        assert len(snapshot.files) == 2 * len(present)


# Checkpoints and truncation


def test_checkpoint_has_the_state(log):
    states = fill(log, 6)
    log.checkpoint(states[3])
    assert log.snapshot() == states[-1]
    for version, state in enumerate(states):
        assert log.snapshot(version) == state


def test_checkpoint_keeps_every_field():
    protocol, metadata = table_actions(SCHEMA, name="t", partition_columns=("name",))
    state = Snapshot(
        4,
        protocol,
        metadata,
        {
            "é %/a": add("é %/a", 9, partition_values={"name": None}, stats='{"numRecords":1}'),
            "b": add("b", 1, partition_values={"name": "x"}, tags={"level": "1"}),
        },
        {"c": RemoveFile("c", 5, data_change=False, size=3, partition_values={"name": "y"})},
        {"app": txn(3)},
    )
    assert decode_checkpoint(4, encode_checkpoint(state)) == state


def test_checkpoint_omits_forgotten_removals(log):
    states = fill(log, 6)
    assert len(states[-1].removed) == 4
    log.checkpoint(states[-1], forget_removed_before_ms=4)
    assert set(log.snapshot().removed) == {"3.parquet", "4.parquet"}


def test_damaged_checkpoint_is_passed_over():
    objects = MemoryStore()
    log = DeltaLog(objects, "t")
    states = fill(log, 5)
    log.checkpoint(states[2])
    log.checkpoint(states[4])
    key = "t/_delta_log/00000000000000000004.checkpoint.parquet"
    objects.put(key, objects.get(key).data[:-20])
    assert log.snapshot().files == states[4].files
    objects.put("t/_delta_log/_last_checkpoint", b'{"vers')
    assert log.snapshot().files == states[4].files
    assert log.update(states[1]).files == states[4].files


def test_truncated_log_is_readable_from_the_checkpoint(log):
    states = fill(log, 8)
    log.checkpoint(states[2])
    log.checkpoint(states[5])
    assert log.truncate(4, grace_s=0, now=LATER) == 2
    assert log.snapshot(2).files == states[2].files
    assert log.truncate(7, grace_s=0, now=LATER) == 5
    for version in range(5, 8):
        assert log.snapshot(version).files == states[version].files
    for version in range(5):
        with pytest.raises(HistoryTruncated):
            log.snapshot(version)
        with pytest.raises(HistoryTruncated):
            log.read_commit(version)
    assert log.snapshot().txns == states[-1].txns
    for state in (EMPTY, *states):
        assert log.update(state).files == states[-1].files


def test_truncate_needs_a_readable_checkpoint():
    objects = MemoryStore()
    log = DeltaLog(objects, "t")
    states = fill(log, 5)
    assert log.truncate(4, grace_s=0, now=LATER) == 0
    log.checkpoint(states[3])
    key = "t/_delta_log/00000000000000000003.checkpoint.parquet"
    objects.put(key, objects.get(key).data[:-20])
    assert log.truncate(4, grace_s=0, now=LATER) == 0
    assert log.snapshot(1) == states[1]


def test_truncate_keeps_young_entries(log):
    states = fill(log, 5)
    log.checkpoint(states[3])
    assert log.truncate(4, grace_s=3600) == 0
    assert log.snapshot(0) == states[0]


def test_reader_of_log_that_is_truncated_meanwhile_reads_newest_state():
    objects = MemoryStore()
    log = DeltaLog(objects, "t")
    states = fill(log, 8)
    log.checkpoint(states[1])

    class Truncating(FaultyStore):
        def list(self, prefix="", *, start_after=None):
            entries = list(super().list(prefix, start_after=start_after))
            if not done:
                done.append(True)
                log.checkpoint(states[6])
                log.truncate(7, grace_s=0, now=LATER)
            return iter(entries)

    done = []
    reader = DeltaLog(Truncating(objects, lambda call: None), "t")
    assert reader.snapshot().files == states[-1].files


# Formats of others


def test_unknown_actions_and_fields_are_ignored():
    lines = [
        b'{"commitInfo":{"actionCount":4,"x":[1]},"future":1}',
        b'{"domainMetadata":{"domain":"d"}}',
        (
            b'{"add":{"path":"a%20b","size":1,"modificationTime":2,"dataChange":true,'
            b'"partitionValues":{},"baseRowId":4,"deletionVector":null}}'
        ),
        b'{"remove":{"path":"c","dataChange":true}}',
        b"{}",
    ]
    commit = decode_commit(1, b"\n".join(lines))
    assert commit.actions == (AddFile("a b", 1, 2), RemoveFile("c"))
    assert commit.info["x"] == [1]


@pytest.mark.parametrize(
    "protocol",
    [
        DeltaProtocol(2, 5),
        DeltaProtocol(3, 7, ("deletionVectors",), ("deletionVectors",)),
        DeltaProtocol(4, 8),
    ],
)
def test_features_of_newer_tables_are_refused(protocol):
    commit = decode_commit(0, encode_commit([protocol], token="t"))
    with pytest.raises(FutureFormat, match="reader version"):
        replay(EMPTY, [commit])


def test_newer_writer_version_is_readable_but_not_writable():
    state = replay(EMPTY, [decode_commit(0, encode_commit([DeltaProtocol(1, 4)], token="t"))])
    with pytest.raises(FutureFormat, match="writer version 4"):
        state.check_writable()
    EMPTY.check_writable()


def test_table_without_metadata_is_corrupt():
    state = replay(EMPTY, [decode_commit(0, encode_commit([DeltaProtocol()], token="t"))])
    with pytest.raises(CorruptData, match="no metadata"):
        _ = state.schema


def test_commits_must_be_consecutive():
    with pytest.raises(CorruptData, match="expected commit 0, found 1"):
        EMPTY.apply(decode_commit(1, encode_commit([], token="t")))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
ACTIONS = st.one_of(
    st.builds(
        AddFile,
        TEXTS,
        st.integers(0, 2**62),
        st.integers(0, 2**62),
        st.booleans(),
        st.dictionaries(TEXTS, TEXTS | st.none(), max_size=2),
        st.none() | TEXTS,
        st.none() | st.dictionaries(TEXTS, TEXTS, max_size=2),
    ),
    st.builds(RemoveFile, TEXTS, st.none() | st.integers(0, 2**62), st.booleans()),
    st.builds(Metadata, TEXTS, TEXTS, st.none() | TEXTS),
    st.builds(txn, st.integers(0, 2**62), TEXTS),
    st.just(DeltaProtocol()),
)


@given(st.lists(ACTIONS, max_size=5))
def test_encoded_commit_decodes_to_its_actions(actions):
    commit = decode_commit(3, encode_commit(actions, {"a": 1}, token="t"))
    assert commit.actions == tuple(actions)
    assert commit.info["a"] == 1


def test_column_is_added_by_new_metadata(objects, log):
    log.commit(created(add_rows(log, objects, "a.parquet", [("x", 1)])), 0)
    snapshot = log.snapshot()
    wider = snapshot.schema.append(pa.field("extra", pa.string()))
    log.commit([snapshot.metadata_with(wider)], 1)
    assert log.snapshot().schema == wider
    assert log.snapshot().metadata.id == snapshot.metadata.id
    assert log.snapshot(0).schema == SCHEMA
