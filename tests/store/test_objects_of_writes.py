"""A write leaves no objects in the process: neither referenced, nor to the garbage collector."""

from __future__ import annotations

import gc

import pytest

import fourfold

WRITES = 300
FEW = 50
"""Objects that caches and counters may add."""


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        yield store


def set_document(store):
    space = store.space("did:web:a.example")
    return lambda: space.set("note", {"n": 1})


def patch_document(store):
    space = store.space("did:web:a.example")
    space.set("note", {"n": 1})
    return lambda: space.patch("note", [{"op": "increment", "path": "/n", "by": 1}])


def append_record(store):
    stream = store.streams.create("orders", "application/json")
    return lambda: stream.append({"n": 1})


def append_event(store):
    session = store.sessions.create({"id": "s", "model": "any"})
    return lambda: session.append({"type": "app/note"})


def insert_object(store):
    graph = store.graphs.create("people", "People")
    person = graph.register_type("parent", "person")
    return lambda: graph.insert("parent", [{"type_id": person, "owner_identity": 1}])


@pytest.mark.parametrize(
    "prepare", [set_document, patch_document, append_record, append_event, insert_object]
)
def test_write_leaves_no_objects(store, prepare):
    write = prepare(store)
    for _ in range(FEW):
        write()
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(WRITES):
            write()
        assert len(gc.get_objects()) - before < FEW
        assert gc.collect() < FEW
    finally:
        gc.enable()
