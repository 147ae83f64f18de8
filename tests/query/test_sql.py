"""SQL in process: the tables of all models, points in time, and what a query may not do."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime, timedelta

import pytest

import fourfold
from fourfold.errors import (
    DeadlineExceeded,
    FourfoldError,
    HistoryTruncated,
    InvalidInput,
    LimitExceeded,
    NotFound,
    Refused,
)
from fourfold.models.streams import Producer
from fourfold.query.engine import QueryOptions, all_tables, run_query

A, B = "did:web:a.example", "did:web:b.example"


@pytest.fixture
def store():
    with fourfold.open(":memory:") as opened:
        yield opened


@pytest.fixture
def filled(store):
    """A store with two spaces, one of each history, and a stream."""
    for did, history in ((A, "revisions"), (B, "facts")):
        space = store.space(did, history)
        space.set("n1", {"title": "x", "n": 1})
        patches = [{"op": "increment", "path": "/n", "by": 2}]
        space.transact([{"op": "patch", "id": "n1", "patches": patches}])
        space.set("n2", {"a": 1})
        space.delete("n2")
    store.streams.create("orders", content_type="application/json")
    for number in range(3):
        store.streams.open("orders").append({"n": number})
    return store


def test_every_public_table_can_be_read_and_converted(filled):
    for model, tables in all_tables().items():
        for table in tables.public():
            result = filled.sql(f"select * from {model}_{table.name}")
            assert result.columns == tuple(c.name for c in table.columns if not c.hidden)
            assert result.to_arrow().num_rows == len(result)


def test_every_column_of_a_public_table_is_described():
    for tables in all_tables().values():
        for table in tables.public():
            assert table.identity
            for column in table.columns:
                assert column.description.endswith("."), (table.name, column.name)


def test_state_shows_folded_documents_of_both_histories(filled):
    rows = filled.sql("select space, id, seq, op, document from documents_state").rows
    assert rows == [
        (did, *row)
        for did in (A, B)
        for row in (
            ("n1", 2, "patch", '{"n":3,"title":"x"}'),
            ("n2", 4, "delete", None),
        )
    ]


def test_history_has_each_version(filled):
    rows = filled.space(B).sql("select id, seq, document from history").rows
    assert rows == [
        ("n1", 1, '{"n":1,"title":"x"}'),
        ("n1", 2, '{"n":3,"title":"x"}'),
        ("n2", 3, '{"a":1}'),
        ("n2", 4, None),
    ]


def test_models_join_in_one_query_over_one_cut(filled):
    result = filled.sql(
        "select s.id, r.text from documents_state s join streams_records r"
        " on r.offset = json_extract(s.document, '$.n') - 2 where s.space = ?",
        [A],
    )
    assert result.rows == [("n1", '{"n": 1}')] or result.rows == [("n1", '{"n":1}')]
    assert result.cut == {f"spaces/{A}": 4, f"spaces/{B}": 4, "streams": 3}


def test_at_is_time_for_all_logs_and_seq_for_one(filled):
    space = filled.space(A)
    assert space.sql("select id, document from state", at=1).rows == [("n1", '{"n":1,"title":"x"}')]
    early = datetime(2020, 1, 1, tzinfo=UTC)
    result = filled.sql("select count(*) from documents_state, streams_records", at=early)
    assert result.rows == [(0,)]
    assert set(result.cut.values()) == {0}
    with pytest.raises(InvalidInput, match="reads 2 logs"):
        filled.sql("select count(*) from documents_commits", at=1)
    with pytest.raises(InvalidInput, match="between 0 and 4"):
        space.sql("select 1 from commits", at=5)
    with pytest.raises(NotFound, match="unknown restore point"):
        filled.sql("select 1", at="nope")


def test_a_restore_point_is_a_point_in_time(filled):
    filled.publish()
    [point] = filled.points()
    filled.space(A).set("n9", {})
    assert filled.sql("select count(*) from documents_state where id = 'n9'").rows == [(1,)]
    at_point = filled.sql("select count(*) from documents_state where id = 'n9'", at=point.id)
    assert at_point.rows == [(0,)]


def test_published_records_are_named_in_a_warning(filled):
    for number in range(5):
        filled.streams.create(f"old/{number}", "application/json").append({"n": number})
    assert not filled.sql("select * from streams_records").truncated
    filled.archive.publish_all()
    filled.streams.create("new", "application/json").append({"n": 1})
    for table in ("records", "messages"):
        result = filled.sql(f"select stream from streams_{table}")
        assert result.rows == [("new",)]
        assert result.truncated
        [warning] = result.warnings
        assert warning.startswith(f"streams_{table}: published records of ")
        assert "and others are only in segments" in warning
    for query in ("select * from streams_streams", "select 1", "select * from documents_state"):
        result = filled.sql(query)
        assert not result.truncated
        assert result.warnings == ()
    with pytest.raises(HistoryTruncated):
        filled.sql("select * from streams_state")


def test_streams_that_were_created_later_are_not_in_the_past(store):
    store.streams.create("one", "application/json").append({"n": 1})
    middle = datetime.now(UTC)
    while datetime.now(UTC) < middle + timedelta(milliseconds=2):
        pass
    two = store.streams.create("two", "application/json")
    two.set_schema({"type": "object"})
    two.append({"n": 2}, producer=Producer("p", 0, 0))
    store.streams.create("empty", "application/json")
    for table, now in (
        ("streams", ["empty", "one", "two"]),
        ("schemas", ["two"]),
        ("producers", ["two"]),
    ):
        query = f"select stream from streams_{table} order by 1"
        assert [stream for (stream,) in store.sql(query).rows] == now
        for at, expected in ((middle, ["one"]), (middle - timedelta(days=1), [])):
            past = [stream for (stream,) in store.sql(query, at=at).rows]
            assert past == [stream for stream in now if stream in expected]


def test_two_points_are_compared_in_one_query(filled):
    query = (
        "select a.id, a.document, b.document from documents_state('', 1) a"
        " join documents_state('', 2) b using (id) where a.document is not b.document"
    )
    assert filled.space(A).sql(query).rows == [("n1", '{"n":1,"title":"x"}', '{"n":3,"title":"x"}')]
    with pytest.raises(InvalidInput, match="there are 2 spaces"):
        filled.sql(query)


def test_branches_are_selected(filled):
    space = filled.space(A)
    space.branches.create("draft")
    space.set("n1", {"draft": True}, branch="draft")
    count = "select branch, document from state where id = 'n1' order by 1"
    assert space.sql(count).rows == [("", '{"n":3,"title":"x"}')]
    assert space.sql(count, branch="draft").rows == [("draft", '{"draft":true}')]
    assert len(space.sql(count, branch="*")) == 2
    assert space.sql("select document from state('draft') where id = 'n1'").rows == [
        ('{"draft":true}',)
    ]
    with pytest.raises(NotFound, match="unknown branch"):
        space.sql(count, branch="other")


@pytest.mark.parametrize("after", [";", "; -- the end", ";\n/* the\n end */ ;", " -- the end"])
def test_comments_may_follow_a_statement(store, after):
    result = store.sql(f"select 1 as one{after}")
    assert (result.columns, result.rows) == (("one",), [(1,)])


@pytest.mark.parametrize(
    "after", ["; select 2", "; -- the end\nselect 2", "; /* */ x", "; /* ; */ *", "; /*"]
)
def test_second_statement_is_refused(store, after):
    with pytest.raises(InvalidInput, match="one statement"):
        store.sql(f"select 1{after}")


def test_lone_surrogates_are_not_text(store):
    with pytest.raises(InvalidInput, match="params: a lone surrogate"):
        store.sql("select ?", ["\ud800"])
    with pytest.raises(InvalidInput, match="params: a lone surrogate"):
        store.sql("select :name", {"name": "\ud800"})
    with pytest.raises(InvalidInput, match="query: a lone surrogate"):
        store.sql("select '\ud800'")


@pytest.mark.parametrize(
    ("expression", "value", "kind"),
    [
        ("time", None, "timestamp[us, tz=UTC]"),
        ("strftime('%H:%M', time, 'start of day') as time", "00:00", "string"),
        ("substr('2020-01-01T00:00:00Z', 1, 10) as time", "2020-01-01", "string"),
        ("'10000-01-01T00:00:00Z' as time", "10000-01-01T00:00:00Z", "string"),
        ("7 as seq", 7, "int64"),
        ("'x' as seq", "x", "string"),
    ],
)
def test_columns_of_arrow_have_the_type_of_their_values(filled, expression, value, kind):
    result = filled.sql(f"select {expression} from documents_commits limit 1")
    table = result.to_arrow()
    assert str(table.schema.field(0).type) == kind
    assert value is None or table.to_pylist() == [{result.columns[0]: value}]


def test_count_with_the_name_of_a_boolean_is_a_number(filled):
    columns = [
        (f"{model}_{table.name}", column.name)
        for model, tables in all_tables().items()
        for table in tables.public()
        for column in table.columns
        if column.type == "boolean" and not column.hidden
    ]
    assert columns
    for table, column in columns:
        result = filled.sql(f"select count(*) + 2 as {column} from {table}")
        assert result.to_arrow().column(0).to_pylist() == [result.rows[0][0]]


def test_limits_must_be_positive_numbers(store):
    for limits in (
        {"timeout_s": float("nan")},
        {"timeout_s": 0},
        {"max_rows": 0},
        {"max_bytes": 0},
    ):
        with pytest.raises(InvalidInput, match="must be positive"):
            store.sql("select 1", **limits)


def test_short_names_follow_the_model(filled):
    assert filled.sql("select count(*) from state", model="documents").rows == [(4,)]
    assert filled.sql("select count(*) from records", model="streams").rows == [(3,)]
    with pytest.raises(NotFound, match="unknown table 'state'"):
        filled.sql("select count(*) from state")
    with pytest.raises(NotFound, match="unknown model"):
        filled.sql("select 1", model="nope")


def test_hidden_columns_are_read_by_name(filled):
    filled.space(A).blobs.put(b"abc", content_type="text/plain")
    assert "data" not in filled.sql("select * from documents_blobs").columns
    assert filled.sql("select data from documents_blobs").rows == [(b"abc",)]
    [(root,)] = filled.sql("select distinct root from documents_state")
    assert root == str(filled.root)


def test_results_are_truncated_by_rows_and_bytes(filled):
    query = (
        "with recursive c(n) as (select 1 union all select n + 1 from c where n < 10)"
        " select n from c"
    )
    assert not filled.sql(query).truncated
    result = filled.sql(query, max_rows=3)
    assert (result.rows, result.truncated) == ([(1,), (2,), (3,)], True)
    assert filled.sql("select 'abc' union all select 'abcd'", max_bytes=5).rows == [("abc",)]


def test_more_spaces_than_can_be_attached_are_opened_in_turn(filled, monkeypatch):
    queries = [
        "select * from documents_state order by space, id",
        "select space, seq, branch, time from documents_commits order by space, seq",
        "select count(*) from documents_history where space = 'did:web:b.example'",
        "select data from documents_blobs",
    ]
    attached = [filled.sql(query) for query in queries]
    monkeypatch.setattr("fourfold.query.engine.ATTACHED_MAX", 1)
    in_turn = [filled.sql(query) for query in queries]
    assert [result.rows for result in in_turn] == [result.rows for result in attached]
    assert in_turn[0].cut == attached[0].cut


PREFIXED = {
    "documents": ("did:web:a",),
    "streams": ("ord",),
    "sessions": ("mine/",),
    "graphs": ("shop",),
}


@pytest.fixture
def shared(filled):
    """A store in which each model has names with and without a prefix."""
    filled.streams.create("secret", content_type="application/json")
    filled.streams.open("secret").append({"type": "t", "key": "k", "value": "hidden"})
    for sid in ("mine/1", "other/1"):
        filled.sessions.create({"id": sid})
        message = {"role": "user", "content": sid}
        filled.sessions.append_event(sid, {"type": "message/appended", "message": message})
    for slug in ("shop", "bank"):
        app = filled.graphs.create(slug, slug)
        note = app.register_type("parent", "note")
        app.insert("parent", [{"type_id": note, "owner_identity": 1}])
    return filled


def test_prefixes_restrict_every_table(shared):
    for model, tables in all_tables().items():
        for table in tables.public():
            only = QueryOptions(prefixes={model: PREFIXED[model]})
            query = f"select * from {model}_{table.name}"
            everything = run_query(shared.root, query).dicts()
            name = tables.name_column
            if name not in {column.name for column in table.columns}:
                with pytest.raises(NotFound):
                    run_query(shared.root, query, (), only)
                continue
            expected = [row for row in everything if row[name].startswith(PREFIXED[model])]
            assert run_query(shared.root, query, (), only).dicts() == expected, table.name
            if table.name in {"commits", "records", "streams", "events", "view", "parents", "apps"}:
                assert 0 < len(expected) < len(everything)
            for other in all_tables().keys() - {model}:
                with pytest.raises(NotFound):
                    run_query(shared.root, f"select 1 from {other}_files", (), only)


def test_several_prefixes_of_a_model_are_alternatives(shared):
    options = QueryOptions(prefixes={"streams": ("ord", "sec")})
    query = "select distinct stream from streams_records order by 1"
    assert run_query(shared.root, query, (), options).rows == [("orders",), ("secret",)]
    nothing = QueryOptions(prefixes={"streams": ("x'\0%_",)})
    assert run_query(shared.root, query, (), nothing).rows == []


@pytest.mark.parametrize("table", ["records", "messages"])
def test_conditions_are_not_evaluated_on_rows_outside_of_prefixes(shared, table):
    # A condition that fails for some rows only would reveal what they contain.
    only = QueryOptions(prefixes={"streams": ("ord",)})
    guess = "case when cast(payload as text) like '%hidden%' then json('{' || offset) end"
    failing = f"select 1 from streams_{table} where {guess} is not null"
    with pytest.raises(InvalidInput, match="malformed JSON"):
        run_query(shared.root, failing)
    assert run_query(shared.root, failing, (), only).rows == []


def test_remote_queries_show_no_paths(shared):
    for model, tables in all_tables().items():
        for table in tables.public():
            query = f"select *, root from {model}_{table.name}"
            rows = run_query(shared.root, query, (), QueryOptions(remote=True)).rows
            assert str(shared.root) not in str(rows)


def test_registry_types_reach_arrow(filled):
    schema = (
        filled.sql(
            "select time, seq, document, 1.5 as x from documents_revisions"
            " join documents_state using (space, id, seq)"
        )
        .to_arrow()
        .schema
    )
    types = [str(schema.field(name).type) for name in schema.names]
    assert types == ["timestamp[us, tz=UTC]", "int64", "string", "double"]
    assert "<table>" in filled.sql("select id from documents_state")._repr_html_()


def test_a_damaged_file_is_named(filled):
    (filled.root / "spaces" / "did:web:c.example.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(FourfoldError, match=r"did:web:c\.example"):
        filled.sql("select 1 from documents_state")


REFUSED = [
    "attach 'x.db' as y",
    "detach main",
    "pragma table_list",
    "select * from pragma_table_list",
    "select count(*) from pragma_database_list",
    "begin",
    "commit",
    "savepoint s",
    "create table x (a)",
    "create temp table x (a)",
    "create temp view x as select 1",
    "drop view documents_commits",
    "insert into documents_state values (1)",
    "delete from documents_commits",
    "update documents_commits set seq = 1",
    "analyze",
    "reindex",
    "vacuum",
    "vacuum into 'copy.db'",
    "select load_extension('x')",
    "select zeroblob(1000000000)",
    "select randomblob(1000000000)",
    "select readfile('/etc/passwd')",
    "select * from dbstat",
    "select count(*) from dbstat",
    "select * from sqlite_schema",
    "select count(*) from sqlite_schema",
    "select * from sqlite_temp_schema",
    "select * from temp.sqlite_schema",
    'select * from "commit"',
    'select count(*) from "commit"',
    "select * from wal_log",
    "select count(*) from wal_log",
    "select count(*) from main.wal_log",
    "with documents_commits as (select * from wal_log) select * from documents_commits",
    "with wal_log as (select 1) select (select count(*) from wal_log)",
    "select * from (select * from wal_log) as streams_records",
    "explain select * from documents_commits, streams_records",
    "select 1; select 2",
    "select 1; drop table x",
    "",
    "-- nothing",
    "select ?1",
    "select * from documents_commits where",
    "select sqlite_compileoption_get(1)",
    "select fts5(1)",
]


@pytest.mark.parametrize("query", REFUSED)
def test_queries_that_are_not_plain_reads_are_refused(filled, query):
    with pytest.raises((Refused, InvalidInput, NotFound)):
        filled.sql(f"{query} /* documents_commits streams_records documents_state */")


def test_endless_queries_end_at_the_deadline(filled):
    endless = "with recursive c(n) as (select 1 union all select n + 1 from c)"
    with pytest.raises(DeadlineExceeded):
        filled.sql(f"{endless} select count(*) from c", timeout_s=0.2)
    joined = " cross join ".join(f"documents_history h{number}" for number in range(12))
    with pytest.raises(DeadlineExceeded):
        filled.sql(f"select count(*) from {joined}", timeout_s=0.2)


def test_long_values_and_statements_are_refused(filled):
    with pytest.raises(LimitExceeded):
        filled.sql("select printf('%.*c', 20000000, 'x')")
    with pytest.raises((InvalidInput, LimitExceeded)):
        filled.sql("select " + "1 + " * 5_000 + "1")
    with pytest.raises((InvalidInput, LimitExceeded)):
        filled.sql(" union all ".join(["select 1"] * 1_000))
    with pytest.raises((InvalidInput, LimitExceeded)):
        filled.sql("select 1 " + " " * 300_000)
    for hostile in ("[", "a", "a ", "a(", '"', "a as ", "with a as (", "("):
        with pytest.raises((InvalidInput, LimitExceeded, NotFound)):
            filled.sql("select " + hostile * (250_000 // len(hostile)))


def test_common_table_expressions_can_be_counted(filled):
    for head in ("c as (", "c(n) as materialized(", '"c" AS NOT MATERIALIZED (', "[c]  as("):
        query = f"with {head}select 1 as n union all select 2) select count(*) from c"
        assert filled.sql(query).rows == [(2,)]


WORDS = """
    select from where and or not in exists ( ) , * 'x' 1 0 ? = < documents_state documents_commits
    streams_records wal_log head commit sqlite_schema pragma_table_list json_each with recursive c
    as union all limit order by group having join on using count max json_extract id seq space
    document attach detach pragma create temp view drop insert into values update set delete begin
    ; -- /* */ " [ ] explain query plan load_extension cast text abs over partition window
""".split()  # noqa: SIM905 - a list of words reads better


@pytest.mark.parametrize("seed", range(8))
def test_random_statements_change_nothing_and_raise_only_known_errors(filled, seed):
    rng = random.Random(seed)
    before = {path: path.read_bytes() for path in filled.root.rglob("*.sqlite")}
    for _ in range(150):
        middle = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 14)))
        query = rng.choice(("", "select ", "select * from documents_state where ")) + middle
        try:
            result = filled.sql(query, timeout_s=0.5, max_rows=100)
        except FourfoldError:
            continue
        assert len(result) <= 100
    assert {path: path.read_bytes() for path in filled.root.rglob("*.sqlite")} == before


def test_messages_do_not_contain_names_of_files(filled):
    for query in ('select * from "commit"', "select nothing from documents_commits"):
        with pytest.raises(FourfoldError) as caught:
            filled.sql(f"{query} /* documents_commits */")
        assert not re.search(r"[fv][0-9a-f]{16}", caught.value.message)


def test_a_query_sees_commits_of_the_open_writer(store):
    space = store.space(A)
    space.set("n1", {})
    assert store.sql("select count(*) from documents_state").rows == [(1,)]
    space.set("n2", {})
    assert store.sql("select count(*) from documents_state").rows == [(2,)]


def test_columns_of_text_hold_text_whatever_the_event_contains(store):
    session = store.sessions.create({"id": "s-1", "model": "any"})
    session.append({"type": "eval/added", "eval": {"name": 2, "status": 0.5}})
    assert store.sql("select name, status from sessions_evals").rows == [("2", "0.5")]
