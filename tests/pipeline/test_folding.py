"""The fold over Arrow batches equals the fold of one entity, wherever batches end."""

from __future__ import annotations

import json
import tracemalloc
from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourfold.errors import CorruptData, InvalidInput
from fourfold.models.documents import fold
from fourfold.models.documents.encoding import decode, trusted
from fourfold.pipeline.documents.fold import (
    KEY,
    fold_history,
    fold_state,
    folded_ddl,
    folded_schema,
)

SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in KEY),
        ("seq", pa.int64()),
        ("op_index", pa.int32()),
        ("op", pa.string()),
        ("data", pa.string()),
    ]
)
LAST = 2**31 - 1


def batches_of(rows, sizes=(10_000,)):
    """Yield the rows in batches of these sizes, repeating the last size."""
    table = pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA
    )
    at, sizes = 0, list(sizes)
    while at < table.num_rows:
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        yield from table.slice(at, size).combine_chunks().to_batches() or ()
        at += size


def rows_of(batches):
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def patch(by):
    return trusted([{"op": "increment", "path": "/n", "by": by}])


ENTITIES = st.sampled_from([("s", "", "a"), ("s", "", "b"), ("s", "x", "a"), ("t", "", "a")])
OPERATIONS = st.one_of(
    st.tuples(st.just("set"), st.integers(0, 3).map(lambda n: trusted({"n": n}))),
    st.tuples(st.just("patch"), st.integers(1, 3).map(patch)),
    st.tuples(st.just("delete"), st.none()),
)


@st.composite
def logs(draw):
    """Generate rows in order, some with several operations in one commit, some with snapshots."""
    rows = []
    written = defaultdict(list)
    drawn = draw(st.lists(st.tuples(ENTITIES, OPERATIONS, st.booleans()), max_size=40))
    for number, (entity, (op, data), again) in enumerate(drawn):
        seq = 2 * number + 1
        written[entity].append((seq, 0, op, data))
        if again:
            written[entity].append((seq, 1, "patch", patch(5)))
    for entity in sorted(written):
        rows += [(*entity, *row) for row in written[entity]]
    return rows


def folded(rows):
    """Return the expected rows: each entity folded by the fold of the model."""
    entities = defaultdict(list)
    for *key, seq, _, op, data in rows:
        entities[tuple(key)].append((seq, op, None if data is None else decode(data)))
    return entities


def shown(key, state):
    document = None if state.document is None else trusted(state.document)
    return (*key, state.seq, state.op, document)


SIZES = st.lists(st.sampled_from([1, 2, 3, 4, 9, 40]), min_size=1, max_size=5)


@given(logs(), SIZES, st.sampled_from([1, 2, 1000]))
def test_fold_does_not_depend_on_batch_bounds(rows, sizes, waiting):
    """Nor on the number of pending patches."""
    expected = [shown(key, fold.fold(None, log)) for key, log in folded(rows).items()]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fourfold.query.documents.row_fold.FOLD_WAITING_ROWS_MAX", waiting)
        assert rows_of(fold_state(batches_of(rows, sizes))) == expected


@given(logs(), SIZES)
def test_fold_history_yields_state_after_each_commit(rows, sizes):
    expected = []
    for key, log in folded(rows).items():
        states = {state.seq: state for state in fold.states(None, log)}
        expected += [shown(key, state) for state in states.values()]
    assert rows_of(fold_history(batches_of(rows, sizes))) == expected


@given(logs(), st.data())
def test_snapshot_replaces_earlier_rows(rows, data):
    """A snapshot changes nothing, whether the earlier rows exist or not."""
    places = [at for at, row in enumerate(rows) if row[5] == "patch"]
    if not places:
        return
    at = data.draw(st.sampled_from(places))
    key, seq = rows[at][:3], rows[at][3]
    log = [row for row in folded(rows)[key] if row[0] <= seq]
    state = fold.fold(None, log)
    if state.op != "patch":
        return
    snapshot = (*key, seq, LAST, "snapshot", trusted(state.document))
    later = [row for row in rows if row[:3] != key or row[3] > seq]
    cut = sorted([*later, snapshot], key=lambda row: row[:5])
    whole = sorted([*rows, snapshot], key=lambda row: row[:5])
    expected = rows_of(fold_state(batches_of(rows)))
    assert rows_of(fold_state(batches_of(whole))) == expected
    assert rows_of(fold_state(batches_of(cut))) == expected
    versions = rows_of(fold_history(batches_of(rows)))
    assert rows_of(fold_history(batches_of(whole))) == versions
    assert rows_of(fold_history(batches_of(cut))) == [
        row for row in versions if row[:3] != key or row[3] >= seq
    ]


def test_fold_passes_unpatched_document_unchanged():
    text = '{"b":1,   "a":1.50}'
    rows = [("s", "", "a", 1, 0, "patch", "no JSON at all"), ("s", "", "a", 2, 0, "set", text)]
    assert rows_of(fold_state(batches_of(rows))) == [("s", "", "a", 2, "set", text)]


@pytest.mark.parametrize(
    ("op", "data", "said"),
    [
        ("patch", "[{", "not valid JSON"),
        ("patch", '[{"op":"remove","path":"/x"}]', "does not fit"),
        ("patch", None, "does not fit"),
        ("set", None, "holds null"),
        ("set", "[]", "holds an array"),
        ("snapshot", "[]", "is not a document"),
        ("delete", "{}", "holds an object"),
        ("merge", "{}", "not an operation"),
    ],
)
@pytest.mark.parametrize("folding", [fold_state, fold_history])
@pytest.mark.parametrize("more", [0, 3])
def test_fold_error_names_damaged_row(folding, more, op, data, said):
    """Also if it is not the last entity of its batch."""
    rows = [
        ("did:s", "b", "urn:a", 1, 0, op, data),
        ("did:s", "b", "urn:a", 2, 0, "patch", patch(1)),
        *(("did:s", "b", f"urn:b{at}", 1, 0, "set", "{}") for at in range(more)),
    ]
    with pytest.raises(CorruptData, match=rf"did:s: 'urn:a' on branch 'b': .*{said}"):
        rows_of(folding(batches_of(rows)))


@pytest.mark.parametrize(("op", "data"), [("set", None), ("delete", "{}"), ("merge", "{}")])
def test_fold_error_names_damaged_newest_row(op, data):
    rows = [
        ("did:s", "b", "urn:a", 1, 0, op, data),
        ("did:s", "b", "urn:b", 1, 0, "set", "{}"),
        ("did:s", "b", "urn:c", 1, 0, "set", "{}"),
    ]
    with pytest.raises(CorruptData, match="'urn:a' on branch 'b'"):
        rows_of(fold_state(batches_of(rows)))


def test_fold_refuses_rows_out_of_order():
    rows = [
        ("s", "", "a", 5, 0, "set", "{}"),
        ("s", "", "a", 4, 0, "patch", patch(1)),
        ("s", "", "b", 1, 0, "set", "{}"),
    ]
    with pytest.raises(InvalidInput, match="not in order"):
        rows_of(fold_state(batches_of(rows)))


def test_cached_patches_do_not_leak_between_entities():
    """A patch is parsed once, but applied to each entity independently."""
    put = trusted([{"op": "add", "path": "/v", "value": {"n": 1, "list": [1]}}])
    more = trusted(
        [
            {"op": "increment", "path": "/v/n", "by": 1},
            {"op": "append", "path": "/v/list", "values": [2]},
        ]
    )
    rows = [
        ("s", "", f"{at:02}", seq, 0, op, data)
        for at in range(20)
        for seq, op, data in ((1, "set", "{}"), (2, "patch", put), (3, "patch", more))
    ]
    actual = [json.loads(row[-1]) for row in rows_of(fold_state(batches_of(rows)))]
    assert actual == [{"v": {"n": 2, "list": [1, 2]}}] * 20


def long_log(count):
    document = trusted({"n": 0, "text": "x" * 1000})
    yield pa.RecordBatch.from_pylist(
        [dict(zip(SCHEMA.names, ("s", "", "hot", 1, 0, "set", document), strict=True))], SCHEMA
    )
    size = 1_000
    for start in range(0, count, size):
        yield pa.RecordBatch.from_arrays(
            [
                *(pa.repeat(pa.scalar(value), size) for value in ("s", "", "hot")),
                pa.array(range(start + 2, start + 2 + size), pa.int64()),
                pa.repeat(pa.scalar(0, pa.int32()), size),
                pa.repeat(pa.scalar("patch"), size),
                pa.repeat(pa.scalar(patch(1)), size),
            ],
            schema=SCHEMA,
        )


def peak_of(count):
    tracemalloc.start()
    try:
        [row] = rows_of(fold_state(long_log(count)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert json.loads(row[-1])["n"] == count
    return peak


def test_fold_memory_does_not_grow_with_log():
    peak_of(1_000)  # the first fold imports modules
    assert peak_of(12_000) < 1.2 * peak_of(2_000)


def test_fold_yields_large_documents_in_small_batches(monkeypatch):
    monkeypatch.setattr("fourfold.pipeline.documents.fold.FOLD_BATCH_CHARS", 1_000)
    rows = [("s", "", f"{at:03}", 1, 0, "set", trusted({"text": "x" * 300})) for at in range(20)]
    actual = list(fold_state(batches_of(rows)))
    assert max(batch.num_rows for batch in actual) == 4
    assert sum(batch.num_rows for batch in actual) == 20


def test_arrow_and_spark_schemas_of_states_agree():
    names = [column.split()[0] for column in folded_ddl().split(", ")]
    assert names == folded_schema().names
