"""Bulk inserts store what a plain loop stores, for every shape, and refuse what does not fit."""

# ruff: noqa: PT012  (a block that ends in an exception undoes what the test wrote)

from __future__ import annotations

import random

import ledger
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourfold.errors import Conflict, InvalidInput
from fourfold.kernel import Database, Migration, bulk_insert
from fourfold.kernel.bulk_insert import BULK_VARIABLES_MAX
from support.properties import examples

VALUES = (
    None,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    0.5,
    -1e300,
    "",
    "text",
    "a\x00b",
    "é😀",
    b"",
    b"\x00\xff",
)

WIDTHS = range(1, 41)


def wide(width):
    return tuple(f"c{n}" for n in range(width))


def some_rows(width, length, seed=0):
    chosen = random.Random(seed + 1000 * width + length)
    return [tuple(chosen.choice(VALUES) for _ in range(width)) for _ in range(length)]


@pytest.fixture(scope="module")
def wide_tables(tmp_path_factory):
    """Two tables of each width: one is filled in bulk, the other by a plain loop."""
    sql = ";".join(
        f"CREATE TABLE {name}_{width} (id INTEGER PRIMARY KEY, {', '.join(wide(width))})"
        for width in WIDTHS
        for name in ("bulk", "loop")
    )
    path = tmp_path_factory.mktemp("bulk") / "wide.db"
    with Database.open(path, profile=ledger.QUICK, migrations=[Migration(1, "w", sql)]) as db:
        yield db


def stored(txn, table):
    """Every row with the type of every value, in the order of insertion."""
    columns = [row[0] for row in txn.all(f"SELECT name FROM pragma_table_info('{table}')")][1:]
    picks = ", ".join(f"{column}, typeof({column})" for column in columns)
    return txn.all(f"SELECT {picks} FROM {table} ORDER BY id")


def same_in_both_ways(db, width, lengths):
    columns = wide(width)
    marks = ", ".join("?" * width)
    names = ", ".join(columns)
    with pytest.raises(ZeroDivisionError), db.write() as txn:
        for length in lengths:
            rows = some_rows(width, length)
            txn.execute(f"DELETE FROM bulk_{width}")
            txn.execute(f"DELETE FROM loop_{width}")
            txn.insert_many(f"bulk_{width}", columns, rows)
            for row in rows:
                txn.execute(f"INSERT INTO loop_{width} ({names}) VALUES ({marks})", row)
            found = stored(txn, f"bulk_{width}")
            assert found == stored(txn, f"loop_{width}"), length
            assert [row[0::2] for row in found] == rows
        raise ZeroDivisionError


@pytest.mark.parametrize("part", range(6))
def test_rows_of_any_count_equal_a_plain_loop(wide_tables, part):
    same_in_both_ways(wide_tables, 3, range(part * 100, part * 100 + 101))


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_of_any_width_equal_a_plain_loop(wide_tables, width):
    same_in_both_ways(wide_tables, width, [0, 1, 2, 3, 50, 51, 127, 128, 129, 200])


@pytest.mark.parametrize("width", [1, 3, 16, 17, 100, 2048])
def test_statement_binds_limited_variables(width):
    texts = set()
    for length in (1, 5, 127, 128, 129, 1000):
        made = list(bulk_insert.row_statements("t", wide(width), [(0,) * width] * length))
        assert sum(len(params) for _, params in made) == length * width
        assert all(len(params) <= BULK_VARIABLES_MAX for _, params in made)
        texts |= {sql for sql, _ in made}
    # A handful of texts serves every length, so that each is parsed once.
    assert len(texts) <= 9


def wrong(rows):
    def work(txn):
        txn.insert_many("entry", ("seq", "body"), rows)

    return work


@pytest.mark.parametrize("position", [0, 1, 130, 299])
@pytest.mark.parametrize("bad", [(), (1,), (1, 2, 3)])
def test_row_of_wrong_width_rejects_whole_batch(db, position, bad):
    rows = [(n, "x") for n in range(1, 300)]
    rows.insert(position, bad)
    with pytest.raises(InvalidInput, match="each row must have 2 values: seq, body"):
        db.transact(wrong(rows))
    with pytest.raises(InvalidInput), db.write() as txn:
        wrong(rows)(txn)
    assert ledger.entries(db) == []


@pytest.mark.parametrize(
    "rows", [[(1, "a", 2), ("b",)], [(1,), ("a", 2, "b")], [(1, "a", 2, "b"), ()]]
)
def test_rows_whose_wrong_widths_add_up_are_refused(db, rows):
    with pytest.raises(InvalidInput, match="each row must have 2 values"):
        db.transact(wrong(rows))
    assert ledger.entries(db) == []


def test_constraint_violation_rejects_whole_batch(db):
    rows = [(n, "x") for n in range(1, 300)] + [(7, "again")]
    with pytest.raises(Conflict, match="UNIQUE"):
        db.transact(wrong(rows))
    assert ledger.entries(db) == []


def test_verb_decides_about_existing_rows(db):
    with db.write() as txn:
        txn.insert_many("entry", ("seq", "body"), [(1, "old"), (2, "old")])
        txn.insert_many("entry", ("seq", "body"), [(2, "new"), (3, "new")], verb="INSERT OR IGNORE")
        assert txn.all("SELECT * FROM entry") == [(1, "old"), (2, "old"), (3, "new")]
        txn.insert_many("entry", ("seq", "body"), [(1, "newer")], verb="INSERT OR REPLACE")
        assert txn.value("SELECT body FROM entry WHERE seq = 1") == "newer"
        with pytest.raises(InvalidInput, match="verb must be one of"):
            txn.insert_many("entry", ("seq", "body"), [(9, "x")], verb="DELETE")


def test_names_are_quoted_against_sql_injection(db):
    odd = 'odd "name"; DROP TABLE entry; --'
    with db.write() as txn:
        quoted = odd.replace('"', '""')
        txn.execute(f'CREATE TABLE "{quoted}" ("{quoted}", n, l)')
        txn.insert_many(odd, (odd,), [(1,), (2,)])
        txn.insert_series(odd, fixed={odd: "s"}, counter=("n", 1), values=("l", ["x"]))
        assert txn.value(f'SELECT count(*) FROM "{quoted}"') == 3
        for name in ("", "a\x00b"):
            with pytest.raises(InvalidInput, match="invalid name"):
                txn.insert_many(name, ("a",), [(1,)])
        with pytest.raises(InvalidInput, match="columns, got 0"):
            txn.insert_many("entry", (), [()])
        with pytest.raises(InvalidInput, match="no such table"):
            txn.insert_many("nowhere", ("a",), [(1,)])
    assert ledger.entries(db) == []


SERIES = Migration(
    1,
    "series",
    "CREATE TABLE fast (stream, kind, seq, value, size, PRIMARY KEY (stream, seq)) WITHOUT ROWID;"
    "CREATE TABLE slow (stream, kind, seq, value, size, PRIMARY KEY (stream, seq)) WITHOUT ROWID",
)


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    path = tmp_path_factory.mktemp("series") / "series.db"
    with Database.open(path, profile=ledger.QUICK, migrations=[SERIES]) as db:
        yield db


@settings(max_examples=examples(60), deadline=None)
@given(
    values=st.one_of(
        st.lists(st.binary(max_size=40), max_size=60),
        st.lists(st.text(max_size=20), max_size=60),
        st.lists(st.text(alphabet="a\x00é", max_size=4), max_size=60),
    ),
    start=st.integers(-(2**40), 2**40),
    fixed=st.tuples(st.integers(-5, 5), st.one_of(st.none(), st.text(), st.binary(), st.floats())),
)
def test_series_equals_a_plain_loop(series, values, start, fixed):
    def ask(txn, table):
        return txn.all(
            "SELECT stream, kind, typeof(kind), seq, typeof(seq), value, typeof(value), size"
            f" FROM {table} ORDER BY stream, seq"
        )

    with pytest.raises(ZeroDivisionError), series.write() as txn:
        txn.insert_series(
            "fast",
            fixed={"stream": fixed[0], "kind": fixed[1]},
            counter=("seq", start),
            values=("value", values),
            lengths="size",
        )
        for n, value in enumerate(values):
            size = len(value if isinstance(value, bytes) else value.encode())
            txn.execute("INSERT INTO slow VALUES (?, ?, ?, ?, ?)", (*fixed, start + n, value, size))
        assert repr(ask(txn, "fast")) == repr(ask(txn, "slow"))
        raise ZeroDivisionError


def test_series_keeps_text_as_text_and_blobs_as_blobs(series):
    with pytest.raises(ZeroDivisionError), series.write() as txn:
        for stream, values in enumerate((["1", "2.5", "é"], [b"1", b"2.5", b"\xff"])):
            txn.insert_series(
                "fast",
                fixed={"stream": stream},
                counter=("seq", 1),
                values=("value", tuple(values)),
                lengths="size",
            )
        assert txn.all("SELECT typeof(value), size FROM fast ORDER BY stream, seq") == [
            ("text", 1),
            ("text", 3),
            ("text", 2),
            ("blob", 1),
            ("blob", 3),
            ("blob", 1),
        ]
        raise ZeroDivisionError


def test_series_without_a_column_for_lengths_leaves_it_null(series):
    with pytest.raises(ZeroDivisionError), series.write() as txn:
        txn.insert_series("fast", fixed={"stream": 1}, counter=("seq", 1), values=("value", ["x"]))
        assert txn.all("SELECT seq, value, size FROM fast") == [(1, "x", None)]
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "values",
    [[1, 2], [0.5], [None], ["a", b"b"], [b"b", "a"], ["a", None], ["\ud800"], b"bytes", [["a"]]],
    ids=repr,
)
def test_series_of_anything_but_bytes_or_text_is_refused(series, values):
    def work(txn):
        txn.insert_series("fast", fixed={"stream": 1}, counter=("seq", 1), values=("value", values))

    with pytest.raises(InvalidInput):
        series.transact(work)
    with series.read() as snapshot:
        assert snapshot.value("SELECT count(*) FROM fast") == 0


def test_series_with_used_number_inserts_nothing(series):
    def work(txn):
        for start in (5, 1):
            txn.insert_series(
                "fast", fixed={"stream": 1}, counter=("seq", start), values=("value", ["x"] * 5)
            )

    with pytest.raises(Conflict, match="UNIQUE"):
        series.transact(work)
    with series.read() as snapshot:
        assert snapshot.value("SELECT count(*) FROM fast") == 0


def test_execute_many_accepts_any_iterable_and_counts_changes(db):
    with db.write() as txn:
        txn.execute_many("INSERT INTO entry VALUES (?, ?)", ((n, "x") for n in range(1, 11)))
        txn.execute("UPDATE entry SET body = 'y' WHERE seq > 4")
        assert txn.changes == 6
    assert len(ledger.entries(db)) == 10


@settings(max_examples=examples(60), deadline=None)
@given(
    fixed=st.lists(st.sampled_from(VALUES), max_size=4),
    starts=st.lists(st.integers(-5, 10**12), max_size=2),
    varying=st.integers(0, 4),
    count=st.sampled_from([0, 1, 2, 3, 50, 127, 128, 129, 300]),
)
def test_similar_rows_equal_a_plain_loop(wide_tables, fixed, starts, varying, count):
    width = len(fixed) + 2 * len(starts) + varying
    if not width:
        return
    names = wide(width)
    groups = [names[len(fixed) + 2 * n : len(fixed) + 2 * n + 2] for n in range(len(starts))]
    own = names[len(fixed) + 2 * len(starts) :]
    values = some_rows(varying, count) if varying else [()] * count
    rows = [
        (*fixed, *(start + at for start in starts for _ in range(2)), *values[at])
        for at in range(count)
    ]
    with pytest.raises(ZeroDivisionError), wide_tables.write() as txn:
        txn.insert_alike(
            f"bulk_{width}",
            count,
            fixed=dict(zip(names, fixed, strict=False)),
            counted=dict(zip(groups, starts, strict=True)),
            varying={name: [row[n] for row in values] for n, name in enumerate(own)},
        )
        assert [row[0::2] for row in stored(txn, f"bulk_{width}")] == rows
        raise ZeroDivisionError


def test_similar_rows_need_one_value_per_row(wide_tables):
    with pytest.raises(InvalidInput, match="3 values"), wide_tables.write() as txn:
        txn.insert_alike("bulk_1", 3, fixed={}, counted={}, varying={"c0": [1, 2]})


@pytest.mark.parametrize(
    ("own", "rows"), [(0, 1000), (1, 1000), (15, 1000), (100, 1000), (2000, 10)]
)
def test_statement_of_similar_rows_binds_limited_variables(own, rows):
    varying = {f"v{n}": list(range(rows)) for n in range(own)}
    made = list(bulk_insert.alike_statements("t", {"a": 1, "b": 2}, {("c", "d"): 1}, varying, rows))
    assert max(len(params) for _, params in made) <= BULK_VARIABLES_MAX
    assert len({text for text, _ in made}) <= 12


# Statements with rows in them


ADD = (
    "WITH given (id, more) AS (VALUES {rows}) UPDATE bulk_1 SET c0 = c0 + more * ? "
    "FROM given WHERE bulk_1.id = given.id"
)


@pytest.mark.parametrize("count", [0, 1, 2, 127, 128, 129, 1000])
def test_template_accepts_any_number_of_rows(wide_tables, count):
    with pytest.raises(ZeroDivisionError), wide_tables.write() as txn:
        txn.insert_many("bulk_1", ("id", "c0"), [(key, 0) for key in range(1000)])
        txn.execute_rows(ADD, [(key, key) for key in range(count)], (2,))
        found = [row[0] for row in txn.all("SELECT c0 FROM bulk_1 ORDER BY id")]
        assert found == [2 * key if key < count else 0 for key in range(1000)]
        raise ZeroDivisionError


def test_rows_of_two_widths_are_refused(wide_tables):
    with pytest.raises(InvalidInput, match="each row must have 2"), wide_tables.write() as txn:
        txn.execute_rows(ADD, [(1, 2), (3,), (4, 5, 6)], (2,))
