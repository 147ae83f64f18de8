"""Bad input: a typed error that names the thing, and nothing written."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from space_machine import DID

import fourfold
from fourfold import limits
from fourfold.errors import BranchEnded, ContentError, FourfoldError, InvalidInput, NotFound
from fourfold.models.documents import HISTORIES, ConfirmedRead, PendingRead, Reads
from fourfold.models.documents.validation import ENTITY_ID_BYTES_MAX


def cyclic():
    value = {}
    value["self"] = value
    return value


def nested(depth, kind=dict):
    value = {} if kind is dict else []
    for _ in range(depth - 1):
        value = {"a": value} if kind is dict else [value]
    return value


def everything(space):
    """Every row of every table, so that a trace of a refused request cannot hide."""
    with space.view() as view:
        tables = [
            row[0]
            for row in view.all("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        ]
        return {table: view.all(f'SELECT * FROM "{table}"') for table in tables}


@pytest.fixture(scope="module", params=sorted(HISTORIES))
def used(request, tmp_path_factory):
    """A space with an entity, a branch and a branch that has ended. What is refused leaves nothing,
    so all tests share it.
    """
    with fourfold.open(tmp_path_factory.mktemp("used") / "store") as store:
        yield _used(store.space(DID, history=request.param))


def _used(space):
    space.set("a", {"n": 1, "l": [1, 2]})
    space.branches.create("f")
    space.branches.create("dead")
    space.branches.delete("dead")
    space.transact([{"op": "set", "id": "b", "value": {}}], session="s", local_seq=1)
    return space


def refused(space, error, call):
    before = everything(space), space.seq(), space.read("a"), space.branches.list(deleted=True)
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, FourfoldError)
    assert caught.value.message
    assert caught.value.hint
    after = everything(space), space.seq(), space.read("a"), space.branches.list(deleted=True)
    assert after == before
    space.set("z", {"still": "writable"})


@pytest.mark.parametrize(
    "document",
    [
        None,
        5,
        "text",
        [],
        [{"n": 1}],
        True,
        {"n": math.nan},
        {"n": math.inf},
        {"n": [1, {"m": -math.inf}]},
        {"n": (1, 2)},
        {"n": {1, 2}},
        {"n": b"bytes"},
        {"n": datetime.now(UTC)},
        {"n": Decimal("1.5")},
        {"n": object()},
        {"n": print},
        {1: "a key that is no string"},
        {"n": {None: 1}},
        {"n": "lone \ud800"},
        {"lone \udc00": 1},
        cyclic(),
        nested(limits.CONTENT_DEPTH_MAX + 1),
        {"a": nested(limits.CONTENT_DEPTH_MAX, list)},
        nested(100_000, list) and {"a": nested(100_000, list)},
        {"n": 10**2_000},
        {"n": -(10**5_000)},
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_what_is_no_document_is_refused(used, document):
    refused(used, InvalidInput, lambda: used.set("a", document))


def test_the_deepest_document_that_is_taken_comes_back(space):
    document = nested(limits.CONTENT_DEPTH_MAX)
    space.set("a", document)
    assert space.read("a").document == document
    assert space.read("a", at=1).document == document


def test_a_large_document_of_ordinary_shape_is_no_extreme(space):
    document = {"rows": [{"n": number, "digits": "7" * 2_000} for number in range(1_000)]}
    space.set("a", document)
    assert space.read("a", at=1).document == document


def test_a_document_beyond_the_limit_is_refused_with_its_size(used, monkeypatch):
    monkeypatch.setattr(limits, "DOCUMENT_BYTES_MAX", 10_000)
    refused(used, ContentError, lambda: used.set("a", {"text": "x" * 10_000}))
    huge = [{"op": "add", "path": "/text", "value": "x" * 10_000}]
    refused(used, ContentError, lambda: used.patch("a", huge))


@pytest.mark.parametrize(
    "patches",
    [
        None,
        5,
        {},
        "replace",
        [None],
        [{}],
        [{"op": "test", "path": "/n", "value": 1}],
        [{"op": "copy", "from": "/n", "path": "/m"}],
        [{"op": "replace", "path": "n", "value": 1}],
        [{"op": "replace", "path": 5, "value": 1}],
        [{"op": "replace", "path": ["n"], "value": 1}],
        [{"op": "replace", "path": "/n"}],
        [{"op": "replace", "path": "/n", "value": 1, "extra": 1}],
        [{"op": "replace", "path": "/n", "value": math.nan}],
        [{"op": "replace", "path": "/n", "value": "\ud800"}],
        [{"op": "replace", "path": "/\ud800", "value": 1}],
        [{"op": "replace", "path": "/~2", "value": 1}],
        [{"op": "replace", "path": "/n/m", "value": 1}],
        [{"op": "replace", "path": "", "value": []}],
        [{"op": "remove", "path": ""}],
        [{"op": "remove", "path": "/nothing"}],
        [{"op": "remove", "path": "/l/01"}],
        [{"op": "add", "path": "/l/3", "value": 1}],
        [{"op": "move", "from": "/l", "path": "/l/0"}],
        [{"op": "splice", "path": "/l", "index": 9, "remove": 0, "add": []}],
        [{"op": "splice", "path": "/l", "index": True, "remove": 0, "add": []}],
        [{"op": "increment", "path": "/n", "by": 0}],
        [{"op": "increment", "path": "/l", "by": 1}],
        [{"op": "increment", "path": "/n", "by": math.inf}],
        [{"op": "append", "path": "/n", "values": [1]}],
        [{"op": "replace", "path": "/n", "value": 2}, {"op": "remove", "path": "/nothing"}],
        [{"op": "add", "path": "/n", "value": cyclic()}],
        [{"op": "add", "path": "/n", "value": nested(limits.CONTENT_DEPTH_MAX)}],
    ],
    ids=lambda value: f"{value!s:.60}".encode("ascii", "replace").decode(),
)
def test_patches_that_are_wrong_or_do_not_fit_are_refused(used, patches):
    refused(used, InvalidInput, lambda: used.patch("a", patches))


@pytest.mark.parametrize(
    "operations",
    [
        None,
        [],
        (),
        5,
        "set",
        {"op": "set", "id": "a", "value": {}},
        [None],
        ["set"],
        [{}],
        [{"op": "set"}],
        [{"op": "set", "id": "a"}],
        [{"op": "set", "id": "a", "value": {}, "extra": 1}],
        [{"op": "delete", "id": "a", "value": {}}],
        [{"op": "patch", "id": "a", "value": {}}],
        [{"op": "insert", "id": "a", "value": {}}],
        [{"op": ["set"], "id": "a", "value": {}}],
        [{"op": None, "id": "a"}],
        [{"op": "delete", "id": "a"}, {"op": "nonsense", "id": "a"}],
        {"op"},
        iter([{"op": "delete", "id": "a"}]),
    ],
    ids=lambda value: f"{value!s:.60}".partition(" object at")[0],
)
def test_operations_of_the_wrong_shape_are_refused(used, operations):
    refused(used, InvalidInput, lambda: used.transact(operations))


def test_more_operations_than_a_transaction_takes_are_refused(used, monkeypatch):
    monkeypatch.setattr("fourfold.models.documents.request.OPERATIONS_MAX", 10)
    refused(used, InvalidInput, lambda: used.transact([{"op": "delete", "id": "a"}] * 11))


@pytest.mark.parametrize(
    "entity",
    ["", None, 5, b"a", ["a"], "nul\x00", "\ud800", "x" * (ENTITY_ID_BYTES_MAX + 1)],
    ids=repr,
)
def test_what_is_no_id_of_an_entity_is_refused(used, entity):
    for call in (
        lambda: used.set(entity, {}),
        lambda: used.patch(entity, []),
        lambda: used.delete(entity),
        lambda: used.read(entity),
        lambda: used.read(entity, at=1),
        lambda: used.read_many(["a", entity]),
        lambda: used.history(entity),
        lambda: used.transact(
            [{"op": "delete", "id": "a"}], reads={"confirmed": [{"id": entity, "seq": 1}]}
        ),
        lambda: used.transact(
            [{"op": "delete", "id": "a"}], preconditions=[{"kind": "absent", "id": entity}]
        ),
    ):
        refused(used, InvalidInput, call)


@pytest.mark.parametrize(
    ("branch", "error"),
    [
        ("unknown", NotFound),
        ("F", NotFound),
        ("f ", NotFound),
        ("\ud800", NotFound),
        ("nul\x00", NotFound),
        (None, InvalidInput),
        (5, InvalidInput),
        (True, InvalidInput),
        (b"f", InvalidInput),
        (["f"], InvalidInput),
    ],
    ids=repr,
)
def test_a_branch_that_does_not_exist_is_named_and_refused(used, branch, error):
    for call in (
        lambda: used.set("a", {}, branch=branch),
        lambda: used.patch("a", [], branch=branch),
        lambda: used.delete("a", branch=branch),
        lambda: used.read("a", branch),
        lambda: used.read("a", branch, 1),
        lambda: used.read_many(["a"], branch),
        lambda: used.ids(branch),
        lambda: used.history("a", branch),
        lambda: used.branches.get(branch),
        lambda: used.branches.create("new", branch),
    ):
        refused(used, error, call)
    if branch:
        refused(used, error, lambda: used.branches.delete(branch))
    if branch is not None:
        reads = {"confirmed": [{"id": "a", "seq": 1, "branch": branch}]}
        operations = [{"op": "delete", "id": "a"}]
        refused(used, (NotFound, InvalidInput), lambda: used.transact(operations, reads=reads))


def test_a_branch_that_has_ended_cannot_be_written(used):
    refused(used, BranchEnded, lambda: used.set("a", {}, branch="dead"))
    refused(used, BranchEnded, lambda: used.patch("a", [], branch="dead"))
    refused(used, BranchEnded, lambda: used.delete("a", branch="dead"))
    assert used.read("a", "dead").document == {"n": 1, "l": [1, 2]}


@pytest.mark.parametrize(
    "name",
    ["", " ", "-f", "a b", "ä", "nul\x00", "\ud800", None, 5, b"f", "x" * 201, "a\n", "/a", ".."],
    ids=repr,
)
def test_what_cannot_be_the_name_of_a_branch_is_refused(used, name):
    refused(used, InvalidInput, lambda: used.branches.create(name))


@pytest.mark.parametrize(
    "at",
    [-1, 10**9, 10**30, True, False, 1.0, "1", [1], datetime(2026, 1, 1), math.nan],  # noqa: DTZ001
    ids=repr,
)
def test_a_point_that_is_not_in_history_is_refused(used, at):
    for call in (
        lambda: used.read("a", at=at),
        lambda: used.read_many(["a"], at=at),
        lambda: used.ids(at=at),
        lambda: used.history("a", at=at),
        lambda: used.branches.create("new", at=at),
    ):
        with pytest.raises(InvalidInput):
            call()
    refused(used, InvalidInput, lambda: used.read("a", at=at))


def test_moment_at_edge_of_calendar_is_refused_or_is_beginning(used):
    east = timezone(timedelta(hours=12))
    with pytest.raises(InvalidInput):
        used.read("a", at=datetime.min.replace(tzinfo=east))
    assert used.read("a", at=datetime(999, 1, 1, tzinfo=UTC)) is None
    assert used.read("a", at=datetime(9999, 1, 1, tzinfo=UTC)).seq == 1


@pytest.mark.parametrize(
    "reads",
    [
        5,
        [],
        "reads",
        {"confirmed": 5},
        {"confirmed": [5]},
        {"confirmed": [{}]},
        {"confirmed": [{"id": "a"}]},
        {"confirmed": [{"id": "a", "seq": "1"}]},
        {"confirmed": [{"id": "a", "seq": True}]},
        {"confirmed": [{"id": "a", "seq": 1.5}]},
        {"confirmed": [{"id": "a", "seq": -1}]},
        {"confirmed": [{"id": "a", "seq": 10**9}]},
        {"confirmed": [{"id": "a", "seq": 1, "path": "/n"}]},
        {"confirmed": [{"id": "a", "seq": 1, "path": [0]}]},
        {"confirmed": [{"id": "a", "seq": 1, "path": ["\ud800"]}]},
        {"confirmed": [{"id": "a", "seq": 1, "extra": 1}]},
        {"confirmed": [{"id": "a", "seq": 1, "shape": 1}]},
        {"unknown": []},
        {"pending": [{"id": "a", "local_seqs": [], "basis_seq": 1}]},
        {"pending": [{"id": "a", "local_seqs": [1], "basis_seq": -1}]},
        {"pending": [{"id": "a", "local_seqs": [1], "basis_seq": 10**9}]},
        {"pending": [{"id": "a", "local_seqs": [True], "basis_seq": 1}]},
        {"pending": [{"id": "a", "local_seqs": 1, "basis_seq": 1}]},
        {"pending": [{"id": "a", "local_seqs": [2**70], "basis_seq": 1}]},
        {"pending": [{"id": "a", "local_seqs": [1]}]},
        Reads(confirmed=[5]),
        Reads(confirmed=[ConfirmedRead(id="a", seq="1")]),
        Reads(confirmed=[ConfirmedRead(id="a", seq=True)]),
        Reads(confirmed=[ConfirmedRead(id=5, seq=1)]),
        Reads(confirmed=[ConfirmedRead(id="a", seq=1, path="/n")]),
        Reads(pending=[PendingRead(id="a", local_seqs=[None], basis_seq=1)]),
    ],
    ids=lambda value: f"{value!s:.90}".encode("ascii", "replace").decode(),
)
def test_reads_of_the_wrong_shape_are_refused(used, reads):
    operations = [{"op": "set", "id": "c", "value": {}}]
    refused(
        used,
        InvalidInput,
        lambda: used.transact(operations, reads=reads, session="s", local_seq=2),
    )


@pytest.mark.parametrize(
    "preconditions",
    [
        None,
        5,
        "absent",
        {"kind": "absent", "id": "x"},
        [None],
        ["absent"],
        [{}],
        [{"kind": "present", "id": "a"}],
        [{"kind": ["absent"], "id": "a"}],
        [{"kind": "absent"}],
        [{"kind": "absent", "id": "x", "extra": 1}],
        [{"kind": "seq", "id": "a"}],
        [{"kind": "seq", "id": "a", "seq": True}],
        [{"kind": "seq", "id": "a", "seq": "1"}],
        [{"kind": "seq", "id": "a", "seq": -1}],
        [{"kind": "committed"}],
        [{"kind": "committed", "local_seq": {}}],
        [{"kind": "committed", "local_seq": 2**70}],
        [{"kind": "absent", "id": math.nan}],
    ],
    ids=lambda value: f"{value!s:.60}",
)
def test_preconditions_of_the_wrong_shape_are_refused(used, preconditions):
    operations = [{"op": "set", "id": "c", "value": {}}]
    refused(used, InvalidInput, lambda: used.transact(operations, preconditions=preconditions))


@pytest.mark.parametrize(
    ("session", "local_seq"),
    [
        ("s", None),
        (None, 1),
        ("", 1),
        (5, 1),
        (b"s", 1),
        ("\ud800", 1),
        ("nul\x00", 1),
        ("s", -1),
        ("s", True),
        ("s", 1.0),
        ("s", "1"),
        ("s", 2**63),
    ],
    ids=repr,
)
def test_a_name_that_is_no_name_is_refused(used, session, local_seq):
    operations = [{"op": "set", "id": "c", "value": {}}]
    refused(
        used,
        InvalidInput,
        lambda: used.transact(operations, session=session, local_seq=local_seq),
    )


@pytest.mark.parametrize("number", [-1, True, 1.0, "1", None, 2**70], ids=repr)
def test_pages_of_history_have_whole_bounds(used, number):
    refused(used, InvalidInput, lambda: used.history("a", limit=number))
    refused(used, InvalidInput, lambda: used.log(limit=number))
    refused(used, InvalidInput, lambda: used.history("a", after=number))
    refused(used, InvalidInput, lambda: used.log(after=number))


def test_an_unknown_kind_of_history_is_refused(store):
    with pytest.raises(InvalidInput, match="blockchain"):
        store.space("did:key:z6MkOther", history="blockchain")
    assert store.spaces() == []


def test_odd_but_legal_names_and_values_come_back(space):
    document = {
        "": {"/": {"~": [None, True, 1, 1.0, -0.0, 2**70, "", "\x00", "é", "e\u0301", "😀"]}},
        "__proto__": {"constructor": 1},
    }
    for entity in (" ", "a/b", "é", "e\u0301", "😀", "'; DROP TABLE revision; --", "*", "%"):
        space.set(entity, document)
        assert json.dumps(space.read(entity).document) == json.dumps(dict(sorted(document.items())))
    assert len(space.ids()) == 8
