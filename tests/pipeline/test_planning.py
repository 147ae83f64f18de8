"""Planning: large files are split, small ones packed, one is open at a time."""

from __future__ import annotations

import gc
import pickle
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import apsw
import pyarrow as pa
import pytest
import sample_store
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import fourfold
from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.pipeline import cut, plan, scan, store_files
from fourfold.pipeline.conditions import Condition, Conditions, parse
from fourfold.pipeline.file_facts import FileFacts, InspectedFile
from fourfold.pipeline.models import model_tables
from fourfold.pipeline.options import read_options
from fourfold.pipeline.scan import Piece
from fourfold.pipeline.source import FourfoldSource

MANY = 40
ROWS = 6


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Two stores with the same spaces: a folder of many small files each."""
    place = tmp_path_factory.mktemp("many")
    root = place / "one"
    with fourfold.open(root, settings={"documents.page_size": 4096}) as store:
        space = store.space("did:web:s0")
        for number in range(ROWS):
            space.set(f"e{number}", {"n": number})
    for number in range(1, MANY):
        shutil.copy(root / "spaces/did:web:s0.sqlite", root / f"spaces/did:web:s{number}.sqlite")
    shutil.copytree(root, place / "two", ignore=shutil.ignore_patterns("*.lock"))
    return place


def planned(options, *conditions):
    narrowed = replace(options, conditions=Conditions(conditions)) if conditions else options
    taken = cut.read_cut(narrowed)
    columns = narrowed.table.select_columns(narrowed.columns)
    return plan.plan(taken.bounds, narrowed, columns)


def open_files(folder):
    links = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return [link for link in links if link.startswith(str(folder)) and link.endswith(".sqlite")]


def test_small_files_are_packed_and_read_once(many):
    options = read_options(
        {"roots": f"{many}/*", "table": "revisions", "columns": "root,space,id"}
        | {"partition_bytes": str(limits.SOURCE_PARTITION_BYTES // 10)}
    )
    works = planned(options)
    assert 2 <= len(works) <= MANY / 10
    assert len({piece.path for work in works for piece in work.pieces}) == 2 * MANY
    assert sum(len(work.pieces) for work in works) == 2 * MANY
    actual = [
        row for work in works for batch in scan.read_batches(work) for row in batch.to_pylist()
    ]
    assert len(actual) == len({tuple(row.values()) for row in actual}) == 2 * MANY * ROWS


def test_task_opens_one_file_at_a_time(many):
    options = read_options({"root": f"{many}/one", "table": "revisions", "batch_rows": "1"})
    for work in planned(options)[:2]:
        seen = {len(open_files(many)) for _ in scan.read_batches(work)}
        assert seen <= {0, 1}
    assert not open_files(many)


def test_scan_joins_batches_of_small_files(many):
    options = read_options({"root": f"{many}/one", "table": "revisions"})
    batches = [batch.num_rows for work in planned(options) for batch in scan.read_batches(work)]
    assert len(batches) == len(planned(options))


@pytest.mark.parametrize("size", [1, 4, 6, 7, 1000])
def test_constant_columns_are_in_every_row(many, size):
    options = read_options(
        {"roots": f"{many}/*", "table": "revisions", "columns": "root,id,space,seq"}
        | {"batch_rows": str(size)}
    )
    works = planned(options)
    actual = [row for work in works for each in scan.read_batches(work) for row in each.to_pylist()]
    expected = [
        {"root": str(many / store), "id": f"e{row}", "space": f"did:web:s{number}", "seq": row + 1}
        for store in ("one", "two")
        for number in range(MANY)
        for row in range(ROWS)
    ]
    assert sorted(actual, key=lambda row: (row["root"], row["space"], row["seq"])) == sorted(
        expected, key=lambda row: (str(row["root"]), str(row["space"]), int(str(row["seq"])))
    )


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_text_stored_as_blob_is_read_as_text(tmp_path, size):
    with fourfold.open(tmp_path / "s") as store:
        space = store.space("did:web:s0")
        for number in range(ROWS):
            space.set(f"e{number}", {"n": "é"})
    [path] = (tmp_path / "s/spaces").glob("*.sqlite")
    options = read_options(
        {"root": str(tmp_path / "s"), "table": "revisions", "batch_rows": str(size)}
    )

    def texts():
        works = planned(options)
        actual = [each.column("data") for work in works for each in scan.read_batches(work)]
        assert {each.type for each in actual} == {pa.string()}
        return [bytes(text) for each in actual for text in each.cast(pa.binary()).to_pylist()]

    before = texts()
    assert len(before) == ROWS
    file = apsw.Connection(str(path))
    file.execute("UPDATE revision SET data = CAST(data AS BLOB) WHERE id IN ('e1', 'e4')")
    assert len(file.execute("SELECT 1 FROM revision WHERE typeof(data) = 'blob'").fetchall()) == 2
    assert texts() == before
    file.execute("UPDATE revision SET data = x'ff' WHERE id = 'e1'")
    file.close()
    assert texts() == [before[0], b"\xff", *before[2:]]


def test_scan_of_constants_reads_smallest_column(many):
    options = read_options({"root": f"{many}/one", "table": "revisions", "columns": "space"})
    works = planned(options)
    assert sum(batch.num_rows for work in works for batch in scan.read_batches(work)) == MANY * ROWS
    for piece in (piece for work in works for piece in work.pieces):
        assert '"seq"' in piece.sql.partition(" FROM ")[0]
        assert "TEXT" not in piece.sql.partition(" FROM ")[0]


def test_where_on_space_selects_files(many):
    where = "space in ('did:web:s3', 'did:web:s30')"
    options = read_options({"roots": f"{many}/*", "table": "revisions", "where": where})
    pieces = [piece for work in planned(options) for piece in work.pieces]
    assert {Path(piece.path).name for piece in pieces} == {
        "did:web:s3.sqlite",
        "did:web:s30.sqlite",
    }


def test_same_space_in_two_stores_is_folded_separately(many):
    options = read_options({"roots": f"{many}/*", "table": "state", "space": "did:web:s7"})
    actual = [
        row
        for work in planned(options)
        for each in scan.read_batches(work)
        for row in each.to_pylist()
    ]
    assert len(actual) == 2 * ROWS


@given(st.lists(st.integers(0, 100 * limits.MIB), max_size=60))
def test_pack_parts_keeps_order_and_fills_tasks(costs):
    pieces = [(cost, Piece(str(at), "", (), ())) for at, cost in enumerate(costs)]
    packed = list(plan.pack_parts(iter(pieces), limits.SOURCE_PARTITION_BYTES))
    assert [piece.path for group in packed for piece in group] == [
        str(at) for at in range(len(costs))
    ]
    by_path = {piece.path: cost + limits.SOURCE_FILE_COST_BYTES for cost, piece in pieces}
    sizes = [sum(by_path[piece.path] for piece in group) for group in packed]
    for group, size in zip(packed, sizes, strict=True):
        assert size <= limits.SOURCE_PARTITION_BYTES or len(group) == 1
    for before, after, group in zip(sizes, sizes[1:], packed[1:], strict=False):
        assert before + by_path[group[0].path] > limits.SOURCE_PARTITION_BYTES, after


def test_find_files_opens_no_file(many, tmp_path):
    tables = model_tables("documents")
    root = tmp_path / "store"
    shutil.copytree(many / "one", root, ignore=shutil.ignore_patterns("*.lock", "did:web:s1*"))
    for name in (
        ".hidden.sqlite",
        "did:web:x.sqlite-wal",
        "notes.txt",
        "did:web:y.sqlite.replaced-1",
    ):
        (root / "spaces" / name).write_bytes(b"")
    (root / "spaces" / "did:web:folder.sqlite").mkdir()
    actual = store_files.find_files(store_files.find_stores(str(root), None), tables)
    assert {file.space for file in actual} == {
        f"did:web:s{number}" for number in range(MANY) if not str(number).startswith("1")
    }


def conditions():
    names = st.sampled_from(["seq", "id", "branch", "space", "op"])
    signs = st.sampled_from(["=", ">", ">=", "<", "<="])

    def values(name):
        if name == "seq":
            return st.integers(-1, ROWS + 1)
        return st.sampled_from(["", "e1", "e3", "set", "it's", "a, b", "did:web:s3"])

    single = names.flatmap(
        lambda name: st.builds(
            lambda sign, value: Condition(name, sign, (value,)), signs, values(name)
        )
    )
    several = names.flatmap(
        lambda name: st.builds(
            lambda found: Condition(name, "in", tuple(found)),
            st.lists(values(name), min_size=1, max_size=3),
        )
    )
    return st.lists(single | several, min_size=1, max_size=3).map(
        lambda made: Conditions(tuple(made))
    )


@pytest.fixture(scope="module")
def one_space(many):
    return read_options({"root": f"{many}/one", "table": "revisions", "space": "did:web:s3"})


@given(wanted=conditions())
def test_where_returns_matching_rows(one_space, wanted):
    text = wanted.text()
    assert parse(text, one_space.table) == wanted
    narrowed = replace(one_space, conditions=parse(text, one_space.table))
    everything = [
        row
        for work in planned(one_space)
        for each in scan.read_batches(work)
        for row in each.to_pylist()
    ]
    actual = [
        row
        for work in planned(narrowed)
        for batch in scan.read_batches(work)
        for row in batch.to_pylist()
    ]
    assert actual == [row for row in everything if meets(row, wanted)]
    batch = pa.RecordBatch.from_pylist(everything, schema=one_space.table.schema())
    assert wanted.filtered(batch).to_pylist() == actual


COMPARE = {"=": "__eq__", ">": "__gt__", ">=": "__ge__", "<": "__lt__", "<=": "__le__"}


def meets(row, wanted):
    return all(
        row[each.column] in each.values
        if each.sign == "in"
        else getattr(row[each.column], COMPARE[each.sign])(each.values[0])
        for each in wanted.items
    )


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("id", "cannot parse"),
        ("id = 'a' or id = 'b'", "cannot parse .* at 'or'"),
        ("id = 'a' and", "cannot parse"),
        ("id = 'a", "cannot parse"),
        ("id <> 'a'", "cannot parse"),
        ("id in ()", "cannot parse"),
        ("id in ('a' 'b')", "cannot parse"),
        ("id like 'a'", "cannot parse .* at 'like'"),
        ("not id = 'a'", "unknown column 'not'"),
        ("id = 7", "id is a string, got 7"),
        ("seq = '7'", "seq is a bigint, got '7'"),
        ("seq = 99999999999999999999", "seq is a bigint"),
        ("data = 'x'", "cannot be filtered by 'data'"),
        ("time > '2026-01-01'", "cannot be filtered by 'time'"),
        ("nothing = 1", "unknown column 'nothing'"),
    ],
)
def test_where_refuses_unsupported_conditions(many, where, message):
    with pytest.raises(InvalidInput, match=message):
        read_options({"root": f"{many}/one", "table": "revisions", "where": where})


WORKER = """
import pickle, sys
sys.modules["apsw"] = None
reader, tasks = pickle.load(sys.stdin.buffer)
print(sum(batch.num_rows for task in tasks for batch in reader.read(task)))
assert not {"fourfold.kernel", "polars"} & set(sys.modules)
"""


@pytest.mark.parametrize("table", ["revisions", "state"])
def test_worker_imports_neither_kernel_nor_polars(many, table):
    source = FourfoldSource({"root": f"{many}/one", "table": table})
    source.schema()
    names = [column.name for column in model_tables("documents").table(table).select_columns()]
    types = {
        "string": StringType,
        "bigint": LongType,
        "int": IntegerType,
        "timestamp": TimestampType,
    }
    fields = [
        StructField(column.name, types[column.type]())
        for column in model_tables("documents").table(table).select_columns(names)
    ]
    reader = source.reader(StructType(fields))
    sent = pickle.dumps((reader, reader.partitions()))
    done = subprocess.run(
        [sys.executable, "-c", WORKER], input=sent, capture_output=True, check=False
    )
    assert done.stdout == f"{MANY * ROWS}\n".encode(), done.stderr.decode()
    # The reader is sent to every task, so it must be small for any number of files.
    assert len(pickle.dumps((source, reader))) < 4_000


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    root = tmp_path_factory.mktemp("both") / "store"
    sample_store.build(root)
    return root


@pytest.mark.parametrize("did", sample_store.SPACES)
@pytest.mark.parametrize("table", ["revisions", "operations"])
@pytest.mark.parametrize(
    "conditions",
    [
        [Condition("id", "=", ("note-1",))],
        [Condition("id", "in", ("note-1", "note-2"))],
        [Condition("branch", "=", ("draft",)), Condition("id", ">", ("note-1",))],
        [Condition("seq", ">", (28,))],
        [Condition("seq", "=", (3,))],
    ],
    ids=lambda conditions: " ".join(f"{each.column}{each.sign}" for each in conditions),
)
def test_where_on_entity_or_seq_uses_index(both, did, table, conditions):
    options = read_options({"root": str(both), "table": table, "space": did})
    [work] = planned(options, *conditions)
    [piece] = work.pieces
    connection = apsw.Connection(piece.path, flags=apsw.SQLITE_OPEN_READONLY)
    steps = [
        row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {piece.sql}", piece.parameters)
    ]
    connection.close()
    log = [
        step for step in steps if re.match(r"(SCAN|SEARCH) (revision|occurrence|r|o) ", f"{step} ")
    ]
    assert log
    assert all(step.startswith("SEARCH") for step in log), steps
    assert not any(step.endswith("(branch=?)") for step in log), steps


@pytest.mark.parametrize("partition_bytes", ["1000000", "30000"])
@pytest.mark.parametrize("table", ["revisions", "operations", "commits", "state", "history"])
def test_scan_stops_at_cut(tmp_path, table, partition_bytes):
    root = tmp_path / "store"
    sample_store.build(root)
    given = {"root": str(root), "table": table, "partition_bytes": partition_bytes}
    before = contents(planned(read_options(given)))
    token = cut.read_cut(read_options(given)).token()
    with fourfold.open(root) as store:
        for did in store.spaces():
            space = store.space(did)
            space.set("later", {"n": 1})
            space.patch("note-1", [{"op": "add", "path": "/later", "value": True}])
            space.set("note-0", {"n": 8})
    assert contents(planned(read_options(given | {"cut": token}))) == before
    assert contents(planned(read_options(given))) != before


def contents(works):
    return sorted(
        repr(row) for work in works for each in scan.read_batches(work) for row in each.to_pylist()
    )


@pytest.mark.parametrize(
    ("cost", "count"), [(0, 0), (10, 1), (11, 2), (20, 2), (21, 4), (45, 6), (60, 6)]
)
def test_large_file_has_even_number_of_parts(cost, count):
    assert plan.count_parts(cost, 10) == count


def test_gc_is_enabled_again_after_task(many):
    options = read_options({"root": f"{many}/one", "table": "revisions"})
    [work, *_] = planned(options)
    seen = [gc.isenabled() for _ in scan.read_batches(work)]
    assert seen
    assert not any(seen)
    assert gc.isenabled()
    unfinished = scan.read_batches(work)
    next(unfinished)
    unfinished.close()
    assert gc.isenabled()


def test_facts_are_those_that_were_saved_last(tmp_path):
    def facts(seq):
        return InspectedFile("state", "documents", seq, 1, "id", 0)

    one = FileFacts(tmp_path, "folder")
    one.put("a", facts(1))
    assert FileFacts(tmp_path, "folder").find("a", "state") is None
    one.save()
    other = FileFacts(tmp_path, "folder")
    assert other.find("a", "state") == facts(1)
    other.put("a", facts(2))
    assert FileFacts(tmp_path, "folder").find("a", "state") == facts(1), "it is not saved"
    other.save()
    assert FileFacts(tmp_path, "folder").find("a", "state") == facts(2)
    assert FileFacts(tmp_path, "folder").find("a", "other state") is None
