"""Conflicts by path: never one too few, and not many too many."""

from __future__ import annotations

import pytest
from drawn_documents import DOCUMENTS, fitting_patches, patches, paths
from hypothesis import given
from hypothesis import strategies as st

from fourfold.content.json_pointer import ABSENT, as_path
from fourfold.errors import InvalidInput
from fourfold.models.documents import patch
from fourfold.models.documents.fold import fold
from fourfold.models.documents.overlap import changed, conflicts
from fourfold.models.documents.records import State


def one(op, path, **fields):
    if "origin" in fields:
        fields["from"] = fields.pop("origin")
    return {"op": op, "path": path, **fields}


def both(made, path):
    """Whether a patch conflicts with a recursive read, and with a shape read."""
    read = as_path(path)
    return tuple(conflicts("patch", [made], read, shape=shape) for shape in (False, True))


@pytest.mark.parametrize("op", ["set", "delete"])
@pytest.mark.parametrize("path", [(), ("value",), ("value", "x", "0")])
@pytest.mark.parametrize("shape", [False, True])
def test_a_set_or_a_delete_conflicts_with_every_read(op, path, shape):
    assert conflicts(op, (), path, shape=shape)


@pytest.mark.parametrize(
    ("made", "path", "expected"),
    [
        # The path itself, above it, below it, beside it.
        (one("replace", "/value/a", value=1), "/value/a", (True, True)),
        (one("replace", "/value/a", value=1), "/value/a/b/c", (True, True)),
        (one("replace", "/value/a/b", value=1), "/value", (True, False)),
        (one("replace", "/value/a", value=1), "/value/b", (False, False)),
        (one("replace", "/value/a", value=1), "/value/ab", (False, False)),
        (one("replace", "/value/a", value=1), "/source", (False, False)),
        (one("replace", "", value={}), "/value/a", (True, True)),
        (one("replace", "/value/a", value=1), "", (True, False)),
        (one("replace", "/value", value=1), "", (True, True)),
        (one("increment", "/value/votes/alice", by=1), "/value/votes/bob", (False, False)),
        (one("increment", "/value/votes/alice", by=1), "/value/votes", (True, True)),
        (one("increment", "/value/votes/alice", by=1), "/value/votes/alice", (True, True)),
        # Keys are added and removed: a reader of the keys conflicts.
        (one("replace", "/value/new", value=1), "/value", (True, True)),
        (one("add", "/value/a", value=1), "/value", (True, True)),
        (one("add", "/value/a/b/c", value=1), "/value", (True, True)),
        (one("remove", "/value/a"), "/value", (True, True)),
        (one("remove", "/value/a/b"), "/value", (True, False)),
        (one("remove", "/value/a"), "/value/b", (False, False)),
        (one("move", "/x/y", origin="/value/a/b"), "/value/a", (True, True)),
        (one("move", "/x/y", origin="/value/a/b"), "/value", (True, False)),
        (one("move", "/x/y", origin="/value/a/b"), "/value/a/c", (False, False)),
        (one("move", "/x/y", origin="/value/a/b"), "/x", (True, True)),
        (one("move", "/x/y", origin="/value/a/b"), "/x/z", (False, False)),
        (one("move", "/x/y", origin="/value/a/b"), "/x/y/z", (True, True)),
        # Elements shift: an array is touched as a whole.
        (one("add", "/value/list/2", value=1), "/value/list/5", (True, True)),
        (one("add", "/value/list/-", value=1), "/value/list/5", (True, True)),
        (one("add", "/value/list/2", value=1), "/value/list", (True, True)),
        (one("add", "/value/list/2/x", value=1), "/value/list/5", (False, False)),
        (one("remove", "/value/list/2"), "/value/list/5/x", (True, True)),
        (one("remove", "/value/list/2"), "/value/other", (False, False)),
        (one("move", "/a/b", origin="/value/list/2"), "/value/list/5", (True, True)),
        (one("move", "/value/list/2", origin="/a/b"), "/value/list/5", (True, True)),
        (one("replace", "/value/list/2", value=1), "/value/list/5", (False, False)),
        (one("increment", "/value/list/2", by=1), "/value/list/5", (False, False)),
        (one("splice", "/value/list", index=9, remove=0, add=[]), "/value/list/5", (True, True)),
        (one("splice", "/value/list", index=9, remove=0, add=[]), "/value/list", (True, True)),
        (one("splice", "/value/list", index=9, remove=0, add=[]), "/value", (True, False)),
        (one("append", "/value/list", values=[]), "/value/list/5", (True, True)),
        (one("append", "/value/list", values=[]), "/value/other", (False, False)),
        (one("add-unique", "/value/list", values=[]), "/value/list/5", (True, True)),
        (one("remove-by-value", "/value/list", value=1), "/value/list/5", (True, True)),
        (one("remove-by-value", "/value/list", value=1), "/value", (True, False)),
        # The root is an object, so what looks like an index there is a key.
        (one("add", "/0", value=1), "/value", (False, False)),
        (one("add", "/0", value=1), "", (True, True)),
    ],
)
def test_a_patch_conflicts_with_reads_of_what_it_touches(made, path, expected):
    assert both(made, path) == expected


@pytest.mark.parametrize("hint", [{}, {"createsKey": True}, {"createsKey": False}])
def test_operation_that_may_create_key_conflicts_whatever_its_hint_says(hint):
    for made in (
        one("append", "/value/tags", values=[1]),
        one("add-unique", "/value/tags", values=[1]),
        one("increment", "/value/tags", by=1),
    ):
        assert both(made | hint, "/value") == (True, True)
        assert both(made | hint, "/value/other") == (False, False)


def test_any_patch_of_a_list_may_conflict():
    listed = [one("replace", "/a", value=1), one("replace", "/b", value=1)]
    assert conflicts("patch", listed, ("b",))
    assert conflicts("patch", patch.compile(listed), ("b", "x"))
    assert not conflicts("patch", listed, ("c",))
    assert not conflicts("patch", [], ("c",))


@pytest.mark.parametrize("listed", [[], [one("remove-by-value", "/a", value=1)]])
@pytest.mark.parametrize("shape", [False, True])
def test_patch_that_changes_nothing_still_brings_document_into_being(listed, shape):
    before = State(None, "delete", 1)
    after = fold(before, [(2, "patch", listed)])
    assert after.document == {}
    assert changed(ABSENT, after.document, (), shape=shape)
    assert conflicts("patch", listed, (), shape=shape)


@pytest.mark.parametrize(
    ("before", "after", "path", "expected"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "/a", (True, False)),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 1}}, "/a", (True, True)),
        ({"a": {"b": 1}}, {"a": {"c": 1}}, "/a", (True, True)),
        ({"a": [1, 2]}, {"a": [2, 1]}, "/a", (True, False)),
        ({"a": [1, 2]}, {"a": [1]}, "/a", (True, True)),
        ({"a": {}}, {"a": []}, "/a", (True, True)),
        ({"a": 1}, {"a": 2}, "/a", (True, True)),
        ({"a": 1}, {"a": 1.0}, "/a", (True, True)),
        ({"a": None}, {}, "/a", (True, True)),
        ({"a": 1}, {"a": 1, "b": 2}, "/a", (False, False)),
        ({"a": {"b": 1}}, {"a": {"b": 1}}, "/a", (False, False)),
        (ABSENT, {}, "", (True, True)),
        (ABSENT, {}, "/a", (False, False)),
    ],
)
def test_changed_looks_at_the_documents_themselves(before, after, path, expected):
    for one_way in ((before, after), (after, before)):
        read = as_path(path)
        assert tuple(changed(*one_way, read, shape=shape) for shape in (False, True)) == expected


def check(before, after, listed, path):
    for shape in (False, True):
        if changed(before, after, path, shape=shape):
            assert conflicts("patch", listed, path, shape=shape)


@given(st.data(), DOCUMENTS)
def test_no_patch_that_changes_what_was_read_goes_unnoticed(data, document):
    made = data.draw(patches(document))
    try:
        after = patch.apply(document, [made])
    except InvalidInput:
        return
    check(document, after, [made], data.draw(paths(document)))
    check(document, after, [made], data.draw(paths(after)))


@given(st.data(), st.none() | DOCUMENTS)
def test_every_patch_that_changes_a_read_is_detected(data, document):
    listed = data.draw(fitting_patches(document or {}))
    after = patch.apply(document or {}, listed)
    before = ABSENT if document is None else document
    for _ in range(3):
        where = data.draw(st.sampled_from([document or {}, after]))
        check(before, after, listed, data.draw(paths(where)))
