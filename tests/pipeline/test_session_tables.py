"""Tables of sessions equal the store: views, lists and the log, at any position."""

from __future__ import annotations

import random

import pytest
import random_sessions
from random_sessions import entities, lives_of, same, state_row, view_of

import fourfold
from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.sessions import Payload
from fourfold.models.sessions.stamps import ENTITY_CODES
from fourfold.pipeline import sql, views
from fourfold.pipeline.models import model_tables
from fourfold.pipeline.spark import unwrap_error

pytestmark = pytest.mark.spark
TABLES = model_tables("sessions").tables


@pytest.fixture(autouse=True)
def frequent_snapshots(monkeypatch):
    """Let folds begin at snapshots even in short sessions."""
    monkeypatch.setattr("fourfold.models.sessions.writer.SESSION_SNAPSHOT_EVENTS_MIN", 3)
    monkeypatch.setattr(limits, "SESSION_SNAPSHOT_EVENTS_MAX", 7)


def rows_of(frame):
    return [row.asDict() for row in frame.collect()]


def compare(read, root, sessions, at):
    """Compare all tables at a position with the views of the store there."""
    options = {"model": "sessions", "at": at, "partition_bytes": 100_000}
    known = [each.id for each in all_sessions(sessions)]
    expected = {sid: view for sid in known if (view := view_of(sessions, sid, at)) is not None}
    shown = {row["session"]: row for row in rows_of(read(root, "view", **options))}
    assert shown.keys() == expected.keys()
    for sid, view in expected.items():
        assert state_row(shown[sid]) == view.state
        assert same(state_row(shown[sid]).session, view.session)
    for entity in ENTITY_CODES:
        result = entities(rows_of(read(root, f"{entity}s", **options)), entity)
        lists = {sid: list(getattr(view, f"{entity}s")) for sid, view in expected.items()}
        assert same(result, {sid: items for sid, items in lists.items() if items})
    for table, name in (("heads", "head"), ("edges", "edge")):
        result = {(row["session"], row[name]) for row in rows_of(read(root, table, **options))}
        expected_rows = {
            (sid, each.id) for sid, view in expected.items() for each in getattr(view, table)
        }
        assert result == expected_rows
    events = rows_of(read(root, "events", **options))
    assert sorted(row["position"] for row in events) == sorted(
        event.position for view in expected.values() for event in view.events
    )


def all_sessions(sessions):
    result, after = [], None
    while page := sessions.list_sessions(after=after):
        result += page
        after = page[-1].id
    return result


def compared(read, root, count, rounds, seed=None):
    with fourfold.open(root) as store:
        lives_of(store.sessions, count, seed)
        newest = store.sessions.position()
        points = [newest, *random.sample(range(newest), min(rounds, newest))]
        for at in points:
            compare(read, root, store.sessions, at)
        with store.sessions.log.database.read() as snapshot:
            assert snapshot.value("SELECT count(*) FROM snapshots") > 0


def test_spark_fold_equals_store_read(read, tmp_path):
    compared(read, tmp_path / "store", count=12, rounds=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_spark_fold_equals_store_read_for_many_lives(read, tmp_path, seed):
    compared(read, tmp_path / "store", count=60, rounds=4, seed=seed)


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store") as opened:
        sessions = opened.sessions
        for sid in ("a", "b", "gone"):
            sessions.create_session({"id": sid, "model": "any"})
            for number in range(5):
                turn = {"id": number + 1, "status": "final", "steps": 2}
                usage = {"input_tokens": 10, "output_tokens": number, "cost": 0.5}
                sessions.append_events(
                    sid,
                    [
                        {"type": "turn/started", "turn": {"status": "running"}},
                        {"type": "message/appended", "message": {"role": "user", "content": "hi"}},
                        {"type": "turn/put", "turn": {**turn, "usage": usage}},
                    ],
                )
        sessions.append_events(
            "b",
            [{"type": "turn/put", "turn": {"id": 5, "status": "error", "usage": {"tokens": 1}}}],
        )
        sessions.append_event(
            "a", {"type": "message/appended", "message": {"content": Payload("x" * 700)}}
        )
        sessions.delete_session("gone")
        yield opened


def test_turns_have_tokens_cost_and_outcome(store, spark):
    query = (
        "select outcome, count(*) n, sum(tokens) t, sum(cost) c from turns group by 1 order by 1"
    )
    frame, _ = sql(spark, query, store.root, model="sessions")
    assert [tuple(row) for row in frame.collect()] == [
        ("error", 1, 1.0, None),
        ("final", 9, 10 * 9 + 10 + 6, 4.5),
    ]


def test_views_cover_every_table_at_one_cut(store, spark):
    made = views(spark, store, model="sessions", prefix="s_")
    assert made.names == tuple(f"s_{name}" for name, table in TABLES.items() if table.public)
    store.sessions.append_event("a", {"type": "session/stopped"})
    for name in made.names:
        chosen = TABLES[name.removeprefix("s_")].select_columns()
        assert spark.table(name).columns == [column.name for column in chosen]
    assert spark.sql("select event_id from s_view where session = 'a'").collect() == [(17,)]
    assert spark.sql("select count(*) from s_events where session = 'a'").collect() == [(17,)]
    assert spark.sql("select count(*) from s_sessions where deleted is not null").collect() == [
        (1,)
    ]


def test_view_at_event_equals_store(store, read):
    rows = rows_of(read(store.root, "view", model="sessions", event=6))
    assert {row["session"]: state_row(row) for row in rows} == {
        sid: store.sessions.view_at(sid, 6).state for sid in ("a", "b")
    }


def test_since_shows_changed_sessions(store, read):
    before = store.sessions.position()
    store.sessions.append_event("b", {"type": "session/stopped"})
    rows = rows_of(read(store.root, "view", model="sessions", since=before))
    assert [(row["session"], row["status"]) for row in rows] == [("b", "stopped")]
    assert read(store.root, "turns", model="sessions", since=before).count() == 0


def test_time_maps_to_position_of_log(store, read):
    events = store.sessions.all_events_since(0)
    at = events[0].at
    rows = rows_of(read(store.root, "events", model="sessions", at=at))
    assert len(rows) == sum(event.at <= at for event in events)


def test_payloads_include_bytes_when_selected(store, read):
    [row] = rows_of(
        read(store.root, "payloads", model="sessions", columns="hash,size,is_file,data")
    )
    [ref] = {each["content"] for each in store.sessions.current_view("a").messages[5:]}
    assert (row["hash"], row["size"], row["is_file"]) == (ref.id, ref.size, False)
    assert bytes(row["data"]) == b'"' + b"x" * 700 + b'"'


def test_where_on_session_reaches_sqlite(store, read):
    frame = read(store.root, "events", model="sessions").where("session = 'a' and position > 3")
    assert frame.count() == 14
    assert "Filter (session" not in frame._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ("view", {"branch": "x"}, "of another model"),
        ("events", {"event": "3"}, "requires table view"),
        ("view", {"space": "did:web:a"}, "'space' is not supported"),
        ("state", {}, "unknown table 'state'"),
        ("view", {"event": "first"}, "positive integer"),
    ],
)
def test_sessions_refuse_unsupported_options(store, read, table, options, message):
    with pytest.raises(Exception, match=message) as caught:
        read(store.root, table, model="sessions", **options)
    assert unwrap_error(caught.value).kind in {InvalidInput.kind, "not_found"}


def test_store_without_sessions_has_empty_tables(read, tmp_path):
    fourfold.open(tmp_path / "empty").close()
    assert read(tmp_path / "empty", "view", model="sessions").count() == 0


def test_random_sessions_include_deletes_and_heads():
    """Without these, the tests above would prove little."""
    from fourfold.models.sessions import Sessions  # noqa: PLC0415

    lives = random_sessions.lives_of(Sessions(), 12)
    assert any(heads for life in lives for heads in life.heads.values())
