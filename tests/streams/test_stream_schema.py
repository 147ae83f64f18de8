"""Tables, columns and views of the specification, and their query plans."""

from __future__ import annotations

import re

import apsw
import pytest

import fourfold
from fourfold.kernel import load_queries
from fourfold.models.streams import Fork
from fourfold.models.streams.verify import problems
from fourfold.models.streams.writer import SQL

ARCHIVE = load_queries("fourfold.models.streams.archive")
COLUMNS = {
    "schema_version": "version",
    "streams": "stream created_at_ms updated_at_ms next_offset sealed_through uploaded_through "
    "uploaded_segment_count pending_rows pending_bytes last_segment_cut_ms segment_in_progress "
    "content_type profile stream_seq closed closed_producer_id closed_producer_epoch "
    "closed_producer_seq ttl_seconds expires_at_ms stream_flags logical_size_bytes wal_rows "
    "wal_bytes",
    "wal": "id stream offset ts_ms payload payload_len routing_key content_type flags",
    "producer_state": "stream producer_id epoch last_seq updated_at_ms",
    "segments": "segment_id stream start_offset end_offset size_bytes local_path created_at_ms "
    "uploaded_at_ms r2_etag",
    "stream_segment_meta": "stream segment_count segment_offsets segment_blocks segment_last_ts",
    "manifests": "stream generation uploaded_generation last_uploaded_at_ms last_uploaded_etag "
    "last_uploaded_size_bytes",
    "objectstore_request_counts": "stream_hash artifact op count bytes updated_at_ms",
    "index_state": "stream index_secret indexed_through updated_at_ms",
    "index_runs": "run_id stream level start_segment end_segment object_key size_bytes filter_len "
    "record_count retired_gen retired_at_ms",
    "secondary_index_state": "stream index_name index_secret indexed_through updated_at_ms",
    "secondary_index_runs": "run_id stream index_name level start_segment end_segment object_key "
    "size_bytes filter_len record_count retired_gen retired_at_ms",
    "search_companion_plans": "stream generation plan_hash plan_json updated_at_ms",
    "search_segment_companions": "stream segment_index object_key plan_generation sections_json "
    "section_sizes_json size_bytes primary_timestamp_min_ms primary_timestamp_max_ms "
    "updated_at_ms",
    "schemas": "stream schema_json updated_at_ms uploaded_size_bytes",
    "stream_profiles": "stream profile_json updated_at_ms",
    "stream_touch_state": "stream processed_through updated_at_ms",
    "live_templates": "stream template_id entity fields_json encodings_json state created_at_ms "
    "last_seen_at_ms inactivity_ttl_ms active_from_source_offset retired_at_ms retired_reason",
}


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store") as opened:
        yield opened


@pytest.mark.parametrize(("table", "columns"), COLUMNS.items())
def test_every_column_of_the_specification_exists(store, table, columns):
    with store.streams.database.read() as snapshot:
        found = {row[0] for row in snapshot.all("SELECT name FROM pragma_table_info(?)", (table,))}
    assert set(columns.split()) <= found


def test_there_is_one_schema_version(store):
    with store.streams.database.read() as snapshot:
        assert snapshot.all("SELECT version FROM schema_version") == [(14,)]


def test_wal_view_has_names_and_counters_are_exact(store):
    orders = store.streams.create("orders", "text/plain", body=b"first")
    orders.append([b"a", b"bc"])
    with store.streams.database.read() as snapshot:
        rows = snapshot.all("SELECT stream, offset, payload, payload_len FROM wal ORDER BY offset")
        row = snapshot.one(
            "SELECT sealed_through, uploaded_through, pending_rows, pending_bytes, wal_rows, "
            "wal_bytes, logical_size_bytes FROM streams"
        )
    assert rows == [("orders", 0, b"first", 5), ("orders", 1, b"a", 1), ("orders", 2, b"bc", 2)]
    assert row == (-1, -1, 3, 8, 3, 8, 8)


def test_candidates_have_enough_pending_bytes(store):
    for name, count in (("a", 1), ("b", 500), ("c", 3)):
        store.streams.create(name, "text/plain").append([b"x"] * count)
    assert store.streams.candidates(3) == (("b", 500, 500), ("c", 3, 3))
    assert store.streams.candidates(3, limit=1) == (("b", 500, 500),)
    assert store.streams.candidates(501) == ()


@pytest.mark.parametrize("size", [1, 255, 256, 1023, 1024, 4096, 16383, 16384, 65536, 200_000])
def test_candidates_include_every_stream_with_enough_bytes(store, size):
    """The bucket of a size never hides a stream with enough pending bytes."""
    store.streams.create("full", "text/plain").append(b"x" * size)
    store.streams.create("less", "text/plain").append(b"x" * max(1, size - 1))
    found = [name for name, _, _ in store.streams.candidates(size)]
    assert sorted(found) == (["full", "less"] if size == 1 else ["full"])
    assert store.streams.verify() == []


def test_append_writes_three_pages(store):
    """The record, its position, and the row of its stream, but no index of pending bytes."""
    stream = store.streams.create("orders", "text/plain", body=b"first")
    database = store.streams.database
    stream.append(b"second")
    database.checkpoint("TRUNCATE")
    stream.append(b"third")
    assert database.checkpoint("PASSIVE").log_pages == 3


def test_verify_names_damaged_counter_or_record(store):
    stream = store.streams.create("orders", "text/plain", body=b"first")
    store.streams.create("fork", fork=Fork("orders"))
    stream.append(b"more")
    for damage, reason in (
        ("UPDATE streams SET pending_bytes = 1 WHERE stream = 'orders'", "'orders'"),
        ("UPDATE streams SET next_offset = 9 WHERE stream = 'orders'", "'orders'"),
        ("UPDATE streams SET pending_level = 7 WHERE stream = 'orders'", "'orders'"),
        ("UPDATE streams SET forks = 0", "'orders'"),
        ("DELETE FROM wal_log WHERE offset = 0", "'orders'"),
        ("UPDATE wal_log SET payload_len = 9", "record"),
        (
            "INSERT INTO wal_log VALUES (99, 9, 0, 0, x'', 0, NULL, 0, NULL)",
            "9",
        ),
        ("UPDATE wal_log SET headers = x'7b7d'", "'orders' has headers"),
        ("INSERT INTO feed_trail VALUES (1, 1, 0, 1)", "feed_trail"),
        ("UPDATE feed_state SET trail_rows = 1", "feed_trail"),
        ("INSERT INTO stream_keys VALUES (1, x'61', 0)", "stream_keys"),
        ("INSERT INTO stream_key_gaps VALUES (9, 1)", "stream_keys"),
        ("UPDATE streams SET fork_offset = 7 WHERE stream = 'fork'", "'fork'"),
    ):
        with pytest.raises(ZeroDivisionError), store.streams.database.write() as txn:
            damage_and_verify(txn, damage, reason)
    assert store.streams.verify() == []


def damage_and_verify(txn, damage, reason):
    txn.execute(damage)
    assert reason in " ".join(problems(txn))
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "name",
    [
        "stream_by_name",
        "stream_by_sid",
        "producer",
        "records",
        "expired",
        "candidates",
        "older_than",
        "keyed_records",
    ],
)
def test_no_read_scans_or_sorts_a_table(store, name):
    store.streams.create("orders")
    path = store.streams.database.path
    store.close()
    connection = apsw.Connection(str(path))
    sql = getattr(SQL, name)
    wanted = len(set(re.findall(r"\?\d+", sql))) or sql.count("?")
    plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + sql, [None] * wanted)]
    connection.close()
    # The rows of a subquery are those that an index found.
    plan = [step for step in plan if step != "SCAN (subquery-1)"]
    assert not [step for step in plan if "TEMP B-TREE" in step or step.startswith("SCAN")], plan


@pytest.mark.parametrize(
    ("queries", "name", "most"),
    [
        (SQL, "candidates", 16 << 20),
        (ARCHIVE, "due_by_bytes", 16 << 20),
        (ARCHIVE, "due_by_rows", 50_000),
    ],
)
def test_candidates_do_not_scan_streams_that_are_not_due(store, queries, name, most):
    """The index scan starts at the requested level, not at the first pending stream."""
    for number in range(300):
        store.streams.create(f"s{number}", "text/plain", body=b"x" * 300)
    path = store.streams.database.path
    store.close()
    connection = apsw.Connection(str(path))
    # The schema is read with the first statement.
    connection.execute("SELECT count(*) FROM streams").fetchall()
    steps = []
    connection.set_progress_handler(lambda: steps.append(1) and False, 100)
    assert connection.execute(getattr(queries, name), (most, 32)).fetchall() == []
    connection.close()
    assert len(steps) < 5
