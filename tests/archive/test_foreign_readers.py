"""Polars, DuckDB and pandas read the rows of a store from its archive, at every point."""

from __future__ import annotations

import json

import deltalake
import duckdb
import polars as pl
import pytest

import fourfold
from fourfold.models.documents import GcPolicy
from fourfold.store import retention, table_maintenance

ADA, BOB, FACTS = "did:key:ada", "did:key:bob", "did:key:facts"
REVISIONS = "select space, branch, id, seq, op_index, {} from documents_revisions where {}"
TABLES = {
    "documents.revision": (
        ("space", "branch", "id", "seq", "op_index", "op", "data"),
        REVISIONS.format("op, data", "fact is null"),
    ),
    "documents.facts.occurrence": (
        ("space", "branch", "id", "seq", "op_index", "fact_hash"),
        REVISIONS.format("fact", "fact is not null"),
    ),
    "documents.commit": (
        ("space", "seq", "branch", "session_id", "local_seq", "resolution"),
        (
            "select space, seq, branch, session, local_seq, resolution from documents_commits "
            "where hash is null"
        ),
    ),
    "documents.facts.fact": (
        ("space", "hash", "id", "value_ref"),
        "select space, hash, id, value_ref from documents_facts",
    ),
    "sessions.events": (
        ("position", "event_id", "type", "body"),
        "select position, event_id, type, body from sessions_events",
    ),
    "sessions.sessions": (("session_id",), "select session from sessions_sessions"),
    "graphs.attr": (
        ("_table", "id", "global_seq", "object_id", "version", "value_text"),
        (
            "select 'app_' || app_id || '_attr', id, global_seq, object_id, version, value_text "
            "from graphs_attrs"
        ),
    ),
    "graphs.envelopes": (
        ("global_seq", "app_id", "trace_id"),
        "select global_seq, app_id, trace_id from graphs_envelopes",
    ),
    "graphs.parent": (
        ("_table", "id", "global_seq", "sync_flags"),
        "select 'app_' || app_id || '_parent', id, global_seq, sync_flags from graphs_parents",
    ),
}
"""Columns of archive tables, and the query of the store that has the same rows."""


def expected_rows(store):
    return {table: sorted(store.sql(query).rows) for table, (_, query) in TABLES.items()}


def publish(store):
    report = store.publish()
    report.raise_if_failed()
    return report.point


def objects(store):
    return store.root / "objects"


def point_versions(store):
    """Return the version of each table at each point, by the number of the point."""
    versions = {}
    for path in sorted((objects(store) / "catalog+" / "_delta_log").glob("*.json")):
        for line in path.read_text().splitlines():
            info = json.loads(line).get("commitInfo", {})
            if "tables" in info:
                versions[int(path.stem)] = info["tables"]
    return versions


def intervals_at(store, point):
    """Return the rows of the catalog that bound what counts at a point."""
    catalog = pl.read_delta(str(objects(store) / "catalog+"))
    rows = catalog.filter((pl.col("kind") == "database") & (pl.col("version") <= point))
    newest = rows.sort("version").group_by("name").last()
    return newest.filter(~pl.col("absent")).select("file_id", "base", pl.col("point").alias("last"))


def key_of(table):
    return [*table.metadata().configuration["fourfold.key"].split(","), "file_id"] + (
        ["_table"] if table.metadata().configuration["fourfold.table"] == "true" else []
    )


def by_polars(uri, version, key, columns, intervals):
    rows = pl.read_delta(uri, version=version).join(intervals, on="file_id")
    rows = rows.filter(pl.col("_point").is_between(pl.col("base"), pl.col("last")))
    newest = rows.sort("_point").group_by(key).last()
    return newest.filter(pl.col("_op") == "put").select(columns).rows()


def by_duckdb(uri, version, key, columns, intervals):
    table = deltalake.DeltaTable(uri, version=version)
    files = table.file_uris()
    keys = ", ".join(f'r."{name}"' for name in key)
    names = ", ".join(f'"{name}"' for name in columns)
    with duckdb.connect() as connection:
        connection.register("intervals", intervals.to_arrow())
        query = (
            f"select {names} from (select r.*, row_number() over (partition by {keys} "
            "order by _point desc) as age from read_parquet($files, union_by_name => true) r "
            "join intervals i on i.file_id = r.file_id and _point between i.base and i.last) "
            "where age = 1 and _op = 'put'"
        )
        return connection.execute(query, {"files": files}).fetchall()


def by_pandas(uri, version, key, columns, intervals):
    rows = deltalake.DeltaTable(uri, version=version).to_pandas()
    rows = rows.merge(intervals.to_pandas(), on="file_id")
    rows = rows[(rows["_point"] >= rows["base"]) & (rows["_point"] <= rows["last"])]
    newest = rows.sort_values("_point").groupby(key, dropna=False).tail(1)
    put = newest[newest["_op"] == "put"][list(columns)]
    return list(put.astype(object).where(put.notna(), None).itertuples(index=False, name=None))


READERS = {"polars": by_polars, "duckdb": by_duckdb, "pandas": by_pandas}


def check(store, expected):
    """Assert that every reader has the rows of each point, in `expected` by its number."""
    assert all(rows for tables in expected.values() for rows in tables.values())
    versions = point_versions(store)
    for point, tables in expected.items():
        intervals = intervals_at(store, point)
        for name, rows in tables.items():
            uri, version = str(objects(store) / "tables+" / f"{name}+"), versions[point][name]
            key, columns = key_of(deltalake.DeltaTable(uri)), TABLES[name][0]
            for reader, read in READERS.items():
                found = sorted(map(tuple, read(uri, version, key, columns, intervals)))
                assert found == rows, (reader, name, point)


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store") as opened:
        yield opened


def live(store, number):
    """Write into all models."""
    for did, history in ((ADA, "revisions"), (BOB, "revisions"), (FACTS, "facts")):
        space = store.space(did, history=history)
        space.set(f"e{number}", {"n": number, "text": "é'\n"})
        space.patch(f"e{number}", [{"op": "add", "path": "/m", "value": [number]}])
        space.delete(f"e{number - 1}")
    agent = fourfold.Runtime(store.sessions, lambda turn: fourfold.Final("done"))
    agent.start({"id": f"s-{number}", "model": "any"})
    agent.run_turn(f"s-{number}", "Hello.")
    app = store.graphs.register_app("notes", "Notes").app_id
    note = store.graphs.register_type(app, "parent", "note")
    store.graphs.insert_many_parents(app, [{"type_id": note, "owner_identity": 1}] * 2)
    words = store.graphs.register_type(app, "attr", "words")
    row = {"type_id": words, "owner_identity": 1, "parent_id": 1, "value_text": f"ü {number}"}
    made = store.graphs.insert_attr(app, row)
    store.graphs.update(app, "attr", made, {"value_text": "later"})
    for name in ("orders", f"new/{number}"):
        stream = store.streams.create(name, "text/plain")
        stream.append([f"é {number}".encode(), b"x"])
    return app


def test_readers_have_the_rows_of_every_point(store):
    expected = {}

    def point():
        publish(store)
        expected[max(point_versions(store))] = expected_rows(store)

    for number in range(1, 4):
        app = live(store, number)
        point()
    store.graphs.update_sync_flags(app, "parent", [1, 2], 5)
    store.space(BOB).gc(GcPolicy(keep_seqs=1))
    point()
    check(store, expected)
    assert not retention.merge(store).failures
    live(store, 4)
    point()
    check(store, expected)


def test_readers_have_rows_of_store_after_purge_and_retention(store):
    for number in (1, 2):
        live(store, number)
        publish(store)
    store.sessions.delete_session("s-1")
    store.sessions.gc(0)
    publish(store)
    table_maintenance.purge(store)
    retention.collect(store, keep=retention.Keep(points=1))
    live(store, 3)
    publish(store)
    check(store, {max(point_versions(store)): expected_rows(store)})


def records_by(reader, store, version):
    """Return the rows of `streams.records` at a version."""
    uri = str(objects(store) / "streams+")
    if reader == "polars":
        return pl.read_delta(uri, version=version).select(RECORD).rows()
    table = deltalake.DeltaTable(uri, version=version)
    if reader == "pandas":
        return list(table.to_pandas()[list(RECORD)].itertuples(index=False, name=None))
    names = ", ".join(f'"{name}"' for name in RECORD)
    with duckdb.connect() as connection:
        query = f"select {names} from read_parquet($files, union_by_name => true)"
        return connection.execute(query, {"files": table.file_uris()}).fetchall()


RECORD = ("stream", "offset", "payload")


def test_readers_have_records_of_streams_at_every_point(store):
    expected = {}
    for number in range(4):
        live(store, number)
        if number == 2:
            store.streams.delete("orders")
            store.streams.create("orders", "text/plain").append(b"another incarnation")
        publish(store)
        if number == 1:
            assert not store.archive.compact().failures
        expected[max(point_versions(store))] = sorted(
            (info.name, record.offset, record.payload)
            for info in store.streams.list()
            for record in store.streams.open(info.name).read(limit=1_000).records
        )
    versions = point_versions(store)
    assert len(expected) == 4
    for point, rows in expected.items():
        for reader in READERS:
            found = records_by(reader, store, versions[point]["streams.records"])
            assert sorted(map(tuple, found)) == rows, (reader, point)
