"""The two-level index of the log: reads do not depend on the level of a record."""

from __future__ import annotations

import re

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fourfold
from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.kernel import Database, load_queries
from fourfold.models.streams import MIGRATIONS, PROFILE, Append, Streams
from fourfold.models.streams.validation import format_offset

SQL = load_queries("fourfold.models.streams")
ARCHIVE = load_queries("fourfold.models.streams.archive")
NAMES = [f"s{number}" for number in range(10)]


@pytest.fixture
def streams(tmp_path):
    profile = PROFILE.with_(synchronous="OFF")
    with Database.open(tmp_path / "s.sqlite", profile=profile, migrations=MIGRATIONS) as database:
        yield Streams(database)


@pytest.fixture
def levels(monkeypatch):
    """Use small levels: 20 recent positions, of which 8 move at a time."""
    monkeypatch.setattr("fourfold.models.streams.append.STREAM_RECENT_PLACES", 20)
    monkeypatch.setattr("fourfold.models.streams.append.STREAM_PLACES_MOVED", 8)


def together(streams, asked):
    requests = [(name, Append(records, None)) for name, records in asked]
    return streams.database.transact(lambda txn: streams._append_all(txn, requests))


def made(streams, names=NAMES):
    for name in names:
        streams.create(name, "text/plain")


def counts(streams):
    """Return the number of positions in `wal_index` and in `wal_recent`."""
    with streams.database.read() as snapshot:
        return tuple(
            snapshot.value(f"SELECT count(*) FROM {table}") for table in ("wal_index", "wal_recent")
        )


def stored(streams, name):
    return [record.payload for record in streams.read(name)[1].records]


def test_few_records_are_indexed_directly(streams):
    made(streams)
    streams.open("s0").append(b"alone")
    together(streams, [("s0", [b"a"]), ("s1", [b"b"]), ("s2", [b"c"])])
    assert counts(streams) == (4, 0)


def test_many_records_of_one_stream_are_indexed_directly(streams):
    made(streams)
    streams.open("s0").append([b"x"] * 50)
    together(streams, [("s0", [b"y"]), ("s0", [b"z"] * 3)])
    assert counts(streams) == (54, 0)


def test_records_of_many_streams_go_to_recent_level(streams):
    made(streams)
    together(streams, [(name, [b"x"]) for name in NAMES])
    assert counts(streams) == (0, 10)
    assert streams.verify() == []


def test_recent_positions_move_in_portions_over_all_streams(streams, levels):
    made(streams)
    for number in range(8):
        together(streams, [(name, [b"%d" % number]) for name in NAMES])
        large, small = counts(streams)
        assert large + small == 10 * (number + 1)
        assert small < 20
        assert streams.verify() == []
    assert counts(streams)[0] == 64
    with streams.database.read() as snapshot:
        turned = snapshot.value("SELECT count(DISTINCT sid) FROM wal_index")
    assert turned == 10
    for name in NAMES:
        assert stored(streams, name) == [b"%d" % number for number in range(8)]


@pytest.mark.parametrize("count", [1, 3])
def test_large_commit_keeps_recent_level_small(streams, levels, count):
    """The recent level stays small for any number of records and streams."""
    names = [f"many{number}" for number in range(60)]
    made(streams, names)
    for _ in range(4):
        together(streams, [(name, [b"x"] * count) for name in names])
        assert counts(streams)[1] < 20
    assert sum(counts(streams)) == 4 * 60 * count
    assert streams.verify() == []


def test_keyed_records_of_one_stream_are_indexed_directly(streams):
    made(streams)
    streams.open("s0").append([b"x"] * 50, key="k")
    assert counts(streams) == (50, 0)


def test_wrong_recent_count_is_corrected(streams, levels):
    made(streams)
    together(streams, [(name, [b"x"]) for name in NAMES])
    streams._appender._places._recent = 1_000
    together(streams, [(name, [b"x"]) for name in NAMES])
    assert sum(counts(streams)) == 20
    together(streams, [(name, [b"x"]) for name in NAMES])
    assert streams.verify() == []


def test_wal_view_finds_records_by_name_and_offset(streams):
    """The view uses an index on both levels, like the table of the specification."""
    made(streams)
    streams.open("s1").append(b"alone")
    together(streams, [(name, [b"x"]) for name in NAMES])
    with streams.database.read() as snapshot:
        found = snapshot.all("SELECT offset, payload FROM wal WHERE stream = 's1' ORDER BY offset")
        everything = snapshot.value("SELECT count(*) FROM wal")
        sql = "SELECT payload FROM wal WHERE stream = 's1' AND offset = 1"
        plan = [row[3] for row in snapshot.all("EXPLAIN QUERY PLAN " + sql)]
    assert found == [(0, b"alone"), (1, b"x")]
    assert everything == 11
    assert not [step for step in plan if step.startswith("SCAN")], plan


def test_stream_reads_equal_from_any_mix_of_levels(streams, levels):
    """Its records are in the index, in the recent level, and in the index again."""
    made(streams)
    wanted = []
    for number in range(12):
        one = [b"%d" % number]
        together(streams, [(name, one) for name in NAMES[: 4 + number % 7]])
        streams.open("s0").append(b"alone %d" % number)
        wanted += [*one, b"alone %d" % number]
    assert stored(streams, "s0") == wanted
    info = streams.info("s0")
    for start in range(0, 24, 5):
        piece, reached = streams.read_joined(info, start, 24)
        assert (piece, reached) == (b"".join(wanted[start:]), 24)
        found = streams.read("s0", format_offset(start))[1].records
        assert [record.payload for record in found] == wanted[start:]


def test_recent_count_is_refreshed_after_other_writes(streams, levels):
    made(streams)
    together(streams, [(name, [b"x"]) for name in NAMES])
    for name in NAMES[:5]:
        streams.delete(name)
    together(streams, [(name, [b"x"]) for name in NAMES[5:]])
    assert counts(streams) == (0, 10)
    assert streams._appender._places._recent == 10


def test_rolled_back_transaction_indexes_nothing(streams, levels):
    made(streams)
    together(streams, [(name, [b"x"]) for name in NAMES])
    requests = [(name, Append([b"y"], None)) for name in NAMES]

    def work(txn):
        streams._append_all(txn, requests)
        raise FourfoldError("no")

    with pytest.raises(FourfoldError, match="no"):
        streams.database.transact(work)
    together(streams, [(name, [b"z"]) for name in NAMES])
    assert sum(counts(streams)) == 20
    assert stored(streams, "s3") == [b"x", b"z"]
    assert streams.verify() == []


@pytest.mark.parametrize("gone", ["delete", "trim"])
def test_trimmed_records_leave_both_levels(streams, levels, gone):
    made(streams)
    for number in range(6):
        together(streams, [(name, [b"%d" % number * 9]) for name in NAMES])
    before = sum(counts(streams))
    if gone == "delete":
        streams.delete("s4")
        assert sum(counts(streams)) == before - 6
    else:
        streams.create("kept", "text/plain", retention_bytes=20)
        for number in range(6):
            together(streams, [(name, [b"%d" % number * 9]) for name in ("kept", *NAMES)])
        streams.sweep()
        left = streams.read("kept", format_offset(4))[1].records
        assert [record.payload for record in left] == [b"4" * 9, b"5" * 9]
    assert streams.verify() == []


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM wal_index WHERE sid = 1 AND offset = 0",
        "DELETE FROM wal_recent WHERE sid = 5",
        "UPDATE wal_recent SET id = id + 1 WHERE sid = 5",
        "INSERT INTO wal_index SELECT * FROM wal_recent WHERE sid = 5",
        "INSERT INTO wal_recent VALUES (1, 99, 99)",
        "INSERT INTO wal_index VALUES (1, 99, 99)",
        "DELETE FROM wal_log WHERE sid = 5",
    ],
)
def test_verify_finds_wrong_position(streams, damage):
    made(streams)
    streams.open("s0").append(b"alone")
    together(streams, [(name, [b"x"]) for name in NAMES])
    assert streams.verify() == []
    streams.database.transact(lambda txn: txn.execute(damage))
    assert any("not at its indexed position" in each.message for each in streams.verify())


def test_old_log_is_indexed_by_migration(tmp_path):
    path, profile = tmp_path / "s.sqlite", PROFILE.with_(synchronous="OFF")
    with Database.open(path, profile=profile, migrations=MIGRATIONS[:5]) as database:

        def work(txn):
            for sid in (2, 1):
                txn.execute(
                    "INSERT INTO streams (sid, stream, created_at_ms, updated_at_ms, next_offset, "
                    "last_segment_cut_ms, pending_rows, pending_bytes, wal_rows, wal_bytes, "
                    "logical_size_bytes, content_type, incarnation) "
                    "VALUES (?1, 's' || ?1, 0, 0, 3, 0, 3, 3, 3, 3, 3, 'text/plain', 'one')",
                    (sid,),
                )
            for offset in range(3):
                for sid in (2, 1):
                    txn.execute(
                        "INSERT INTO wal_log (sid, offset, ts_ms, payload, payload_len) "
                        "VALUES (?1, ?2, 0, CAST(?2 AS BLOB), 1)",
                        (sid, offset),
                    )

        database.transact(work)
    with Database.open(path, profile=profile, migrations=MIGRATIONS) as database:
        streams = Streams(database)
        assert streams.verify() == []
        assert counts(streams) == (6, 0)
        assert stored(streams, "s1") == stored(streams, "s2") == [b"0", b"1", b"2"]
        streams.open("s1").append(b"3")
        assert stored(streams, "s1") == [b"0", b"1", b"2", b"3"]


HOT = [
    *(
        (SQL, name)
        for name in (
            "records",
            "joined",
            "older_than",
        )
    ),
    *((SQL, name) for name in ("held_below", "trim_records", "has_rows")),
    *((SQL, name) for name in ("trim_places", "trim_recent_places", "place_last", "note_last")),
    *((SQL, name) for name in ("recent_end", "settle", "settled", "slice_of_rows", "slice")),
    *((ARCHIVE, name) for name in ("columns_to_seal", "keys_and_flags", "held_between")),
    *((ARCHIVE, name) for name in ("unsealed", "size_and_size_after")),
]


@pytest.mark.parametrize(("queries", "name"), HOT, ids=[name for _, name in HOT])
def test_no_statement_scans_a_level_or_sorts_records(streams, queries, name):
    sql = getattr(queries, name)
    wanted = len(set(re.findall(r"\?\d+", sql))) or sql.count("?")
    connection = apsw.Connection(str(streams.database.path))
    plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + sql, [None] * wanted)]
    connection.close()
    wrong = [each for each in plan if re.match(r"SCAN (wal_|w\b)", each) or "AUTOMATIC" in each]
    if name != "slice":
        wrong += [each for each in plan if "TEMP B-TREE" in each]
    assert not wrong, plan


@given(
    st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=9), min_size=1, max_size=6),
    st.integers(0, 60),
)
def test_retention_in_slices_keeps_the_newest_that_fit(batches, bytes_max):
    """Law: as many of the newest records stay as fit, however few one transaction trims."""
    with pytest.MonkeyPatch.context() as patch, fourfold.open(":memory:") as store:
        patch.setattr(limits, "ARCHIVE_TRIM_ROWS", 3)
        stream = store.streams.create("s", "text/plain", retention_bytes=bytes_max)
        for sizes in batches:
            stream.append_bytes([b"x" * size for size in sizes])
        store.streams.sweep()
        sizes = [size for batch in batches for size in batch]
        kept = len(sizes)
        while kept and sum(sizes[-kept:]) > bytes_max:
            kept -= 1
        info = store.streams.info("s")
        assert (info.first_offset, info.next_offset) == (len(sizes) - kept, len(sizes))
        assert store.streams.verify() == []
