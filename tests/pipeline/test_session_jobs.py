"""Jobs and streams over sessions: streaming, verify, gc, materialize, lineage."""

from __future__ import annotations

import json
import random
import shutil

import apsw
import pytest
from random_sessions import lives_of
from stream_driver import follow

import fourfold
from fourfold import limits
from fourfold.errors import CorruptData, InvalidInput, NotFound
from fourfold.models.sessions import Payload
from fourfold.pipeline import jobs, store_files, verify_tasks
from fourfold.pipeline.models import model_tables
from fourfold.pipeline.sessions import verify
from fourfold.store.verification import database_problems
from fourfold.testing.session_log_contract import SCRIPT, edge, message

pytestmark = pytest.mark.spark
LARGE = "x" * 70_000


def lived_in(root, names=("s", "t", "gone", "purged")):
    """A store with sessions of every kind."""
    with fourfold.open(root) as store:
        sessions = store.sessions
        for name in names:
            sessions.create_session({"id": name, "model": "m"})
            sessions.append_events(name, SCRIPT, key="k")
            sessions.append_events(name, [message(Payload("y" * 600)), message(Payload(LARGE))])
            head = sessions.publish_head(name, {"turn_id": 1})
            sessions.append_events(name, SCRIPT * 3)
            sessions.publish_head(name, {"vars_ref": Payload(["z" * 600], "vars")})
            sessions.append_lineage_edge(name, edge(name, "far", from_head=head.id))
        if "purged" in names:
            sessions.delete_session("purged")
            sessions.gc(0)
            sessions.delete_session("gone")
    return root


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return lived_in(tmp_path_factory.mktemp("sound") / "store")


@pytest.fixture
def home(tmp_path):
    """A store that records the runs."""
    root = tmp_path / "home"
    fourfold.open(root).close()
    return root


# Streams


def logged(*stores):
    return sorted(
        (event.session, event.id, event.position)
        for store in stores
        for event in store.sessions.all_events_since(0)
    )


def test_stream_reads_events_once_including_later_stores(tmp_path):
    columns = "session string, event_id long, position long"
    options = {"model": "sessions", "table": "events", "roots": f"{tmp_path}/stores/*"}
    with fourfold.open(tmp_path / "stores/one") as one:
        one.sessions.create_session({"id": "a"})
        one.sessions.append_events("a", SCRIPT * 2)
        before, sizes, end = follow(columns, max_rows=10, **options)
        assert before == logged(one)
        assert max(sizes) <= 10
        one.sessions.append_events("a", SCRIPT)
        with fourfold.open(tmp_path / "stores/two") as two:
            two.sessions.create_session({"id": "late"})
            two.sessions.append_events("late", SCRIPT * 2)
            rows, sizes, end = follow(columns, end, **options)
            assert sorted(before + rows) == logged(one, two)
            assert sum(sizes) == 3 * len(SCRIPT)
            assert follow(columns, end, **options) == ([], [], end)


def test_tables_with_changing_rows_cannot_be_streamed(sound):
    tables = model_tables("sessions").tables
    streamed = {name for name, table in tables.items() if table.count_query}
    assert streamed == {"events", "messages", "evals", "heads", "edges"}
    with pytest.raises(Exception, match="cannot be streamed"):
        follow("session string", root=sound, model="sessions", table="turns")


# Verify

COLUMNS = {
    "sessions": ("session_key", "session_id", "created_at", "purged", "seal"),
    "events": (
        "position",
        "event_id",
        "type",
        "at",
        "entity_id",
        "body",
        "digest",
        "position_check",
    ),
    "heads": ("head_id", "session_key", "event_id", "basis"),
    "edges": ("edge_id", "event_id", "to_session", "from_head", "to_head"),
    "snapshots": ("event_id", "state"),
    "payloads": ("hash", "size", "data"),
}


def damage(path, chance):
    """Change one value of one row, or delete the row."""
    table = chance.choice(sorted(COLUMNS))
    column = chance.choice(COLUMNS[table])
    connection = apsw.Connection(str(path))
    connection.pragma("foreign_keys", "OFF")
    rows = list(
        connection.execute(f"SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL")
    )
    rowid, value = chance.choice(rows)
    if table == "events" and chance.random() < 0.2:
        last = connection.execute("SELECT max(event_id) FROM events WHERE session_key = 1").get
        sql = "DELETE FROM events WHERE session_key = 1 AND event_id < ? AND event_id = ?"
        connection.execute(sql, (last, chance.randrange(1, last)))
    elif isinstance(value, int):
        connection.execute(
            f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?", (value ^ 1, rowid)
        )
    else:
        raw = bytearray(value.encode() if isinstance(value, str) else value)
        raw[chance.randrange(len(raw))] ^= 1
        new = bytes(raw).decode() if isinstance(value, str) else bytes(raw)
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, rowid))
    changed = connection.changes()
    connection.close()
    return changed


def every_damage_is_found(spark, home, sound, tmp_path, count, seed):
    chance = random.Random(seed)
    damaged = {}
    for number in range(count):
        root = tmp_path / "many" / f"store{number:03}"
        shutil.copytree(sound, root)
        path = root / "sessions" / "events.db"
        if number % 4 and damage(path, chance):
            damaged[str(path)] = set(map(str, database_problems(path)))
    into = tmp_path / "faults.ndjson"
    options = {"model": "sessions", "roots": f"{tmp_path}/many/*", "into": into}
    done = jobs.run("verify", home, options, spark=spark)
    result = {}
    for each in map(json.loads, into.read_text().splitlines()):
        result.setdefault(each["file"], set()).add(each["problem"])
    assert done.report["files"] == count
    assert result.keys() == damaged.keys()
    for path, problems in result.items():
        assert problems <= damaged[path]
    assert isinstance(jobs.get_job("verify").verdict(done.report), CorruptData)


def test_verify_finds_seeded_damage(spark, home, sound, tmp_path):
    every_damage_is_found(spark, home, sound, tmp_path, count=12, seed=7)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_verify_finds_many_seeded_damages(spark, home, sound, tmp_path, seed):
    every_damage_is_found(spark, home, sound, tmp_path, count=90, seed=seed)


def test_verify_of_parts_equals_whole_file(sound, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "VERIFY_PART_BYTES", 40_000)
    shutil.copytree(sound, tmp_path / "copy")
    path = tmp_path / "copy/sessions/events.db"
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE events SET body = '{}' WHERE event_id = 4")
    connection.execute("DELETE FROM payloads WHERE size < 1000")
    connection.execute("DELETE FROM sessions WHERE session_id = 'gone'")
    connection.close()
    [file] = store_files.find_files([tmp_path / "copy"], model_tables("sessions"))
    parts = verify.units(file)
    assert len(parts) > 3
    actual = {each.problem for unit in parts for each in verify_tasks.iter_problems(unit)}
    whole = verify_tasks.Unit(file.path, file.space, file.bytes, model="sessions")
    assert actual == {each.problem for each in verify_tasks.iter_problems(whole)}
    assert len(actual) >= 6


# Gc, stats, materialize


def test_gc_removes_exactly_marked_sessions(spark, sound, tmp_path):
    root = tmp_path / "store"
    shutil.copytree(sound, root)
    with fourfold.open(root) as store:
        orphan = store.sessions.intern_payload("o" * 900)
    options = {"model": "sessions", "grace": 0}
    planned = jobs.run("gc", root, options, spark=spark, dry_run=True)
    done = jobs.run("gc", root, options, spark=spark)
    assert done.report["taken"] == planned.report["marked"]
    assert done.report["taken"]["sessions"] == 1
    assert done.report["taken"]["payloads"] == 1
    assert done.report["bytes"] == orphan.size
    with fourfold.open(root) as store:
        assert store.sessions.verify() == []
        assert len(store.sessions.list_sessions()) == 2
    again = jobs.run("gc", root, options, spark=spark)
    assert not any(again.report["taken"].values())
    young = jobs.run("gc", root, {"model": "sessions"}, spark=spark)
    assert not any(young.report["marked"].values())


def test_stats_equal_store(spark, sound):
    figures = jobs.run("stats", sound, {"model": "sessions", "top": 1}, spark=spark).report
    with fourfold.open(sound, mode="r") as store:
        views = [store.sessions.current_view(sid) for sid in ("s", "t")]
        assert figures["sessions"] == 2
        assert figures["deleted"] == 2
        assert figures["events"]["count"] == sum(view.counters.event for view in views)
        assert figures["heads"] == 4
        assert sum(each["count"] for each in figures["turns"]) == sum(
            view.counters.turn for view in views
        )
    assert figures["hot"] == [{"session": "s", "events": views[0].counters.event}]


def published(spark, into, table):
    rows = spark.read.parquet(str(into / "current" / table)).collect()
    return sorted(map(repr, rows))


def test_materialized_tables_track_log(spark, read, tmp_path):
    root, into = lived_in(tmp_path / "store", ("s", "t", "u")), tmp_path / "tables"
    options = {"model": "sessions", "into": into}
    tables = ("view", "turns", "steps", "messages", "evals", "heads", "edges")

    def same(tables):
        for table in tables:
            rows = sorted(map(repr, read(root, table, model="sessions").collect()))
            assert published(spark, into, table) == rows, table

    first = jobs.run("materialize", root, options, spark=spark)
    assert jobs.run("materialize", root, options, spark=spark).outcome == "nothing"
    with fourfold.open(root) as store:
        store.sessions.append_events("t", [*SCRIPT, *SCRIPT])
    second = jobs.run("materialize", root, options, spark=spark)
    same(("view", "messages"))
    assert second.report["files_kept"] >= 4
    assert second.report["rows"]["view"] == first.report["rows"]["view"] == 3
    with fourfold.open(root) as store:
        store.sessions.delete_session("u")
    third = jobs.run("materialize", root, options, spark=spark)
    same(tables)
    assert third.report["rows"]["view"] == 2
    assert third.report["files_kept"] == 0


# Lineage


def scattered(folder, chance, stores=3, rounds=25):
    """Create sessions in several stores with edges within and between them; return their heads."""
    opened = [fourfold.open(folder / f"part{number}") for number in range(stores)]
    heads = []
    for number in range(rounds):
        store = chance.choice(opened)
        sid = f"{store.root.name}-{chance.randrange(3)}"
        store.sessions.create_session({"id": sid})
        store.sessions.append_event(sid, message(str(number)))
        head = store.sessions.publish_head(sid)
        if heads and chance.random() < 0.7:
            before = chance.choice(heads)
            link = {"type": "derivation", "from_session": before.session, "from_head": before.id}
            store.sessions.append_lineage_edge(sid, {**link, "to_session": sid, "to_head": head.id})
        heads.append(head)
    return opened, heads


def united(opened, root, folder):
    """Create one store with the sessions of all stores."""
    with fourfold.open(root) as union:
        for store in opened:
            for info in store.sessions.list_sessions():
                path = folder / "bundle.ndjson"
                path.write_bytes(b"".join(store.sessions.export_bundle(info.id)))
                union.sessions.import_bundle(path)


def closures_equal(spark, home, tmp_path, chance, asked, **size):
    opened, heads = scattered(tmp_path / "parts", chance, **size)
    united(opened, tmp_path / "union", tmp_path)
    chosen = chance.sample(heads, asked)
    options = {"roots": f"{tmp_path}/parts/*", "into": tmp_path / "closure"}
    options["head"] = [head.id for head in chosen]
    done = jobs.run("lineage", home, options, spark=spark)
    rows = spark.read.parquet(str(tmp_path / "closure/current/lineage")).collect()
    result = {(row.origin, row.relation, row.head) for row in rows}
    assert len(result) == len(rows) == done.rows_out
    with fourfold.open(tmp_path / "union") as union:
        expected = {
            (head.id, relation, other)
            for head in chosen
            for relation, walk in (
                ("ancestor", union.sessions.ancestors),
                ("descendant", union.sessions.descendants),
            )
            for other in walk(head.id)
        }
    assert result == expected
    sessions = {head.id: head.session for head in heads}
    assert all(row.session == sessions[row.head] and row.stores == 1 for row in rows)
    for store in opened:
        store.close()
    return done


def test_lineage_over_stores_equals_single_store(spark, home, tmp_path):
    done = closures_equal(spark, home, tmp_path, random.Random(3), asked=3)
    assert done.report["rounds"] > 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_larger_lineage_over_stores_equals_single_store(spark, home, tmp_path, seed):
    closures_equal(spark, home, tmp_path, random.Random(seed), asked=6, stores=5, rounds=120)


def test_lineage_ends_on_cycle(spark, tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        store.sessions.create_session({"id": "s"})
        heads = []
        for number in range(4):
            store.sessions.append_event("s", message(str(number)))
            heads.append(store.sessions.publish_head("s").id)
    connection = apsw.Connection(str(tmp_path / "store/sessions/events.db"))
    connection.execute("UPDATE heads SET basis = ? WHERE head_id = ?", (heads[3], heads[0]))
    connection.close()
    done = jobs.run("lineage", tmp_path / "store", {"head": [heads[1]]}, spark=spark)
    assert (done.report["ancestor"], done.report["descendant"]) == (3, 3)


def test_lineage_of_one_store_takes_one_round(spark, tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        store.sessions.create_session({"id": "s"})
        for number in range(60):
            store.sessions.append_event("s", message(str(number)))
            head = store.sessions.publish_head("s").id
    done = jobs.run(
        "lineage", tmp_path / "store", {"head": [head], "direction": "ancestors"}, spark=spark
    )
    assert (done.report["ancestor"], done.report["rounds"]) == (59, 2)


def test_lineage_refuses_unknown_head(spark, sound):
    with pytest.raises(NotFound, match="unknown head"):
        jobs.run("lineage", sound, {"head": ["sha256:" + "0" * 64]}, spark=spark)
    with pytest.raises(InvalidInput, match="invalid head id"):
        jobs.run("lineage", sound, {"head": ["main"]}, spark=spark)


def test_jobs_refuse_options_not_for_sessions(spark, sound, tmp_path):
    with pytest.raises(InvalidInput, match="--space is not supported"):
        jobs.run("verify", sound, {"model": "sessions", "space": "did:web:a"}, spark=spark)
    options = {"model": "sessions", "into": tmp_path / "x", "branch": "draft"}
    with pytest.raises(InvalidInput, match="requires model 'documents'"):
        jobs.run("materialize", sound, options, spark=spark)


def test_random_sessions_are_valid(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        lives_of(store.sessions, 5)
        assert store.sessions.verify() == []
