"""Rows as a task of the sink receives them, and a store for them."""

from __future__ import annotations

import json

import pyarrow as pa

from fourfold.pipeline.documents import staging
from fourfold.pipeline.documents.ingest import ingest
from fourfold.pipeline.documents.staging import Batch

A, B = "did:web:a.example", "did:web:b.example"
COLUMNS = {
    "space": pa.string(),
    "branch": pa.string(),
    "id": pa.string(),
    "op": pa.string(),
    "data": pa.string(),
    "seq": pa.int64(),
}


def row(entity, document=None, *, space=A, branch="", op="set", seq=0):
    data = document if document is None or isinstance(document, str) else json.dumps(document)
    return {"space": space, "branch": branch, "id": entity, "op": op, "data": data, "seq": seq}


def patched(entity, key, value, **given):
    return row(entity, [{"op": "add", "path": f"/{key}", "value": value}], op="patch", **given)


def staged(folder, *tasks, order=("seq",), batch_rows=3):
    """Stage lists of rows as tasks do, in small record batches."""
    types = {name: kind for name, kind in COLUMNS.items() if name != "seq" or order}
    shape = staging.shape_of(
        [(name, "bigint" if name == "seq" else "string") for name in types],
        space=None,
        order=list(order) or None,
    )
    left = []
    for number, rows in enumerate(tasks):
        batches = [
            pa.RecordBatch.from_pydict(
                {name: [each[name] for each in rows[start : start + batch_rows]] for name in types},
                schema=pa.schema(list(types.items())),
            )
            for start in range(0, len(rows), batch_rows)
        ]
        left.append(staging.stage(batches, shape, folder, number))
    return left


def put(root, *tasks, number=0, session="query:test", **given):
    """Stage and commit rows."""
    folder = root / ".pipeline" / "staging" / "test"
    order = given.pop("order", ("seq",))
    return ingest(
        root, staged(folder, *tasks, order=order), Batch(session, number, wait_s=0, **given)
    )
