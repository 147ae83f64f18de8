"""Whatever is given to whichever argument of whichever call of a space: the call does its work, or
it is refused with a typed error that names the thing, and has written nothing.
"""

from __future__ import annotations

import math
from datetime import datetime

import pytest
from space_machine import DID

import fourfold
from fourfold.content import content_id
from fourfold.errors import FourfoldError, InvalidInput
from fourfold.models.documents import HISTORIES, bundle

CYCLE = {}
CYCLE["self"] = CYCLE
GARBAGE = [
    None,
    5,
    -1,
    10**30,
    2**63,
    1.5,
    math.nan,
    True,
    "",
    "abc",
    "\ud800",
    "nul\x00",
    "x" * 5_000,
    b"bytes",
    bytearray(b"bytes"),
    [],
    ["a"],
    [None],
    [["a"]],
    [math.nan],
    [10**400],
    (),
    ("a",),
    {},
    {"a": 1},
    {1: 2},
    {"id": math.nan},
    {"a"},
    CYCLE,
    object(),
    print,
    datetime(2020, 1, 1),  # noqa: DTZ001
]
SET = [{"op": "set", "id": "new", "value": {}}]
BLOB = b"a blob"


CALLS = {
    "set entity": lambda space, it: space.set(it, {}),
    "set document": lambda space, it: space.set("new", it),
    "set branch": lambda space, it: space.set("new", {}, branch=it),
    "patch entity": lambda space, it: space.patch(it, []),
    "patch patches": lambda space, it: space.patch("a", it),
    "delete entity": lambda space, it: space.delete(it),
    "delete branch": lambda space, it: space.delete("a", branch=it),
    "transact operations": lambda space, it: space.transact(it),
    "transact operation": lambda space, it: space.transact([it]),
    "transact reads": lambda space, it: space.transact(SET, reads=it),
    "transact session": lambda space, it: space.transact(SET, session=it, local_seq=1),
    "transact local_seq": lambda space, it: space.transact(SET, session="s", local_seq=it),
    "transact preconditions": lambda space, it: space.transact(SET, preconditions=it),
    "read entity": lambda space, it: space.read(it),
    "read branch": lambda space, it: space.read("a", it),
    "read at": lambda space, it: space.read("a", at=it),
    "read_many entities": lambda space, it: space.read_many(it),
    "read_many branch": lambda space, it: space.read_many(["a"], it),
    "read_many at": lambda space, it: space.read_many(["a"], at=it),
    "ids branch": lambda space, it: space.ids(it),
    "ids at": lambda space, it: space.ids(at=it),
    "history entity": lambda space, it: space.history(it),
    "history branch": lambda space, it: space.history("a", it),
    "history after": lambda space, it: space.history("a", after=it),
    "history at": lambda space, it: space.history("a", at=it),
    "history limit": lambda space, it: space.history("a", limit=it),
    "log after": lambda space, it: space.log(after=it),
    "log until": lambda space, it: space.log(until=it),
    "log limit": lambda space, it: space.log(limit=it),
    "diff branch": lambda space, it: space.diff(it),
    "diff at1": lambda space, it: space.diff("", it),
    "diff at2": lambda space, it: space.diff("", 1, it),
    "watch ids": lambda space, it: space.watch(it, 0).next(timeout=0),
    "watch after": lambda space, it: space.watch(None, it).next(timeout=0),
    "watch branch": lambda space, it: space.watch(None, 0, it).next(timeout=0),
    "watch timeout": lambda space, it: space.watch(None, 0, timeout=it).next(),
    "next timeout": lambda space, it: space.watch(None, 0).next(timeout=it),
    "maintain retention": lambda space, it: space.maintain(it),
    "maintain pins": lambda space, it: space.maintain(pins=it),
    "branches.create name": lambda space, it: space.branches.create(it),
    "branches.create parent": lambda space, it: space.branches.create("new", it),
    "branches.create at": lambda space, it: space.branches.create("new", at=it),
    "branches.delete": lambda space, it: space.branches.delete(it),
    "branches.get": lambda space, it: space.branches.get(it),
    "branches.diff a": lambda space, it: space.branches.diff(it, ""),
    "branches.diff b": lambda space, it: space.branches.diff("", it),
    "branches.diff at": lambda space, it: space.branches.diff("", "f", it, it),
    "merge source": lambda space, it: space.branches.merge(it),
    "merge target": lambda space, it: space.branches.merge("f", it),
    "merge resolutions": lambda space, it: space.branches.merge("f", resolutions=it),
    "merge resolution": lambda space, it: space.branches.merge("f", resolutions={"a": it}),
    "merge session": lambda space, it: space.branches.merge("f", session=it, local_seq=1),
    "merge local_seq": lambda space, it: space.branches.merge("f", session="s", local_seq=it),
    "blobs.put data": lambda space, it: space.blobs.put(it),
    "blobs.put type": lambda space, it: space.blobs.put(b"new", it),
    "blobs.put metadata": lambda space, it: space.blobs.put(BLOB, metadata=it),
    "blobs.put branch": lambda space, it: space.blobs.put(BLOB, metadata={}, branch=it),
    "blobs.describe hash": lambda space, it: space.blobs.describe(it, {}),
    "blobs.describe metadata": lambda space, it: space.blobs.describe(content_id(BLOB), it),
    "blobs.get": lambda space, it: space.blobs.get(it),
    "blobs.has": lambda space, it: space.blobs.has(it),
    "blobs.stat": lambda space, it: space.blobs.stat(it),
    "blobs.meta": lambda space, it: space.blobs.meta(it),
    "export after": lambda space, it: list(bundle.export(space, after=it)),
    "replay lines": bundle.replay,
    "carry target": bundle.carry_over,
}


@pytest.fixture(scope="module", params=sorted(HISTORIES))
def space(request, tmp_path_factory):
    settings = {"documents.page_size": 4096}
    root = tmp_path_factory.mktemp("garbage") / "store"
    with fourfold.open(root, settings=settings) as store:
        space = store.space(DID, history=request.param)
        space.set("a", {"n": 1})
        space.branches.create("f")
        space.set("a", {"n": 2}, branch="f")
        space.blobs.put(BLOB)
        yield space


def content(space):
    with space.view() as view:
        tables = view.all("SELECT name FROM sqlite_schema WHERE type = 'table'")
        return {table: view.all(f'SELECT * FROM "{table}"') for (table,) in tables}


def refusal(call, space, garbage):
    """The typed error of a call; None if it did its work."""
    try:
        call(space, garbage)
    except FourfoldError as error:
        return error
    return None


@pytest.mark.parametrize("name", CALLS)
def test_garbage_is_refused_with_a_typed_error_and_writes_nothing(space, name):
    refused = 0
    before = content(space)
    for garbage in GARBAGE:
        error = refusal(CALLS[name], space, garbage)
        after = content(space)
        if error is not None:
            assert error.message
            assert error.hint
            assert len(error.message) < 500
            assert after == before, (garbage, error)
            refused += 1
        before = after
    assert refused > 5
    assert space.verify() == []


@pytest.mark.parametrize("ids", ["abc", "", b"abc", 5, None, print], ids=repr)
def test_a_text_is_no_list_of_ids(space, ids):
    with pytest.raises(InvalidInput, match="the ids to read are a list"):
        space.read_many(ids)
    if ids is not None:
        with pytest.raises(InvalidInput, match="the ids to watch are a list"):
            space.watch(ids)


def test_any_other_series_of_ids_is_fine(space):
    for ids in (["a"], ("a",), {"a"}, {"a": 1}, iter(["a"]), (each for each in "a")):
        assert list(space.read_many(ids)) == ["a"]


@pytest.mark.parametrize("name", ["blockchain", "", 5, [], {}, {"facts"}, b"facts"], ids=repr)
def test_what_is_no_kind_of_history_is_refused(store, name):
    with pytest.raises(InvalidInput, match="not a kind of history"):
        store.space("did:key:z6MkOther", history=name)
    assert store.spaces() == []
