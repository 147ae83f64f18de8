"""Typed documents, in a folder and on a server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, TypedDict

import msgspec
import pydantic
import pytest

import fourfold
from fourfold import errors
from fourfold.client import AsyncRemoteStore
from fourfold.models.documents.document_type import DocumentType


class Author(msgspec.Struct):
    name: str


class Note(msgspec.Struct, omit_defaults=True):
    title: str
    stars: Annotated[int, msgspec.Meta(ge=0)] = 0
    authors: list[Author] = []
    at: datetime | None = None


class Task(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    title: str
    due: datetime | None = None
    steps: dict[str, int] = {}
    label: str = pydantic.Field(default="", alias="labelText")


@dataclass
class Point:
    x: int
    y: int


class Size(TypedDict):
    width: int


@pytest.fixture
def space(store):
    return store.space(f"did:web:typed.{uuid.uuid4().hex}")


def test_documents_are_instances_of_a_struct(space):
    notes = space.typed(Note, prefix="note-")
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    note = Note("Hello", 2, [Author("Ann")], noon)
    assert notes.set("note-1", note).seq == 1
    assert space["note-1"] == {
        "title": "Hello",
        "stars": 2,
        "authors": [{"name": "Ann"}],
        "at": "2026-01-01T12:00:00Z",
    }
    assert notes.get("note-1") == notes["note-1"] == note
    state = notes.read("note-1")
    assert (state.document, state.op, state.seq, state.deleted) == (note, "set", 1, False)
    notes.patch("note-1", [{"op": "increment", "path": "/stars", "by": 1}])
    assert (notes.get("note-1").stars, notes.get("note-1", at=1).stars) == (3, 2)
    notes.delete("note-1")
    assert notes.read("note-1").deleted
    assert notes.read("note-2") is None
    assert notes.read_many(["note-1", "note-2"], at=1) == {
        "note-1": notes.read("note-1", at=1),
        "note-2": None,
    }
    with pytest.raises(errors.NotFound):
        notes.get("note-1")


def test_documents_are_instances_of_other_models(space):
    tasks = space.typed(Task, prefix="task-")
    task = Task(title="Cook", due=datetime(2026, 1, 1, tzinfo=UTC), labelText="x")
    tasks.set("task-1", task)
    assert space["task-1"]["labelText"] == "x"
    assert tasks.get("task-1") == task
    points = space.typed(Point, prefix="point-")
    points.set("point-1", Point(1, 2))
    assert points.get("point-1") == Point(1, 2)
    sizes = space.typed(Size, prefix="size-")
    sizes.set("size-1", {"width": 3})
    assert sizes.get("size-1") == {"width": 3}


def test_invalid_documents_are_refused_with_path_before_anything_is_written(space):
    notes = space.typed(Note)
    wrong = Note("a", authors=[Author("Ann"), Author(5)])
    with pytest.raises(errors.InvalidInput) as caught:
        notes.set("n", wrong)
    assert caught.value.message == "Note 'n': /authors/1/name: Expected `str`, got `int`"
    assert caught.value.details["path"] == "/authors/1/name"
    notes.set("n", Note("a"))
    for patches in (
        [{"op": "add", "path": "/stars", "value": -1}],
        [{"op": "remove", "path": "/title"}],
        [{"op": "add", "path": "/authors", "value": {"name": "x"}}],
    ):
        with pytest.raises(errors.ContentError, match="Note 'n'"):
            notes.patch("n", patches)
    with pytest.raises(errors.ContentError, match="required field `title`"):
        notes.patch("missing", [{"op": "add", "path": "/stars", "value": 1}])
    with pytest.raises(errors.InvalidInput, match="must be of type Note, got dict"):
        notes.set("n", {"title": "a"})
    with pytest.raises(errors.InvalidInput, match="not JSON"):
        notes.set("n", Note("a", authors=[Author("\ud800")]))
    tasks = space.typed(Task)
    with pytest.raises(errors.InvalidInput) as caught:
        tasks.patch("n", [{"op": "add", "path": "/steps", "value": {"a~/b": "x"}}])
    assert caught.value.details["problems"][0]["path"] == "/steps/a~0~1b"
    with pytest.raises(errors.InvalidInput, match="/title"):
        tasks.set("n", Task.model_construct(title=1))
    assert (space.seq(), space["n"]) == (1, {"title": "a"})


def test_ids_are_restricted_by_prefix(space):
    notes, tasks = space.typed(Note, prefix="note-"), space.typed(Task, prefix="task-")
    for index in range(3):
        notes.set(f"note-{index}", Note("a"))
    tasks.set("task-1", Task(title="a"))
    calls = (
        lambda: notes.set("task-1", Note("a")),
        lambda: notes.patch("task-1", []),
        lambda: notes.delete("task-1"),
        lambda: notes.read("task-1"),
        lambda: notes.read_many(["note-1", "task-1"]),
        lambda: notes.history("task-1"),
    )
    for call in calls:
        with pytest.raises(errors.InvalidInput, match="must begin with 'note-', got 'task-1'"):
            call()
    assert notes.ids() == list(notes) == ["note-0", "note-1", "note-2"]
    assert notes.ids(after="note-0", limit=1) == ["note-1"]
    assert (len(notes), len(tasks), bool(space.typed(Size, prefix="-"))) == (3, 1, True)
    assert "note-1" in notes
    assert "task-1" not in notes


def test_history_has_the_state_after_each_commit(space):
    notes = space.typed(Note)
    notes.set("n", Note("a"))
    space.branches.create("draft")
    stars = [{"op": "increment", "path": "/stars", "by": 1}]
    notes.patch("n", stars, branch="draft")
    operations = [{"op": "patch", "id": "n", "patches": stars}] * 2
    space.transact(operations, branch="draft")
    notes.delete("n", branch="draft")
    expected = [(1, Note("a")), (3, Note("a", 1)), (4, Note("a", 3)), (5, None)]
    for after in range(6):
        states = notes.history("n", "draft", after=after)
        rows = [(state.seq, state.document) for state in states]
        assert rows == [row for row in expected if row[0] > after]
    assert [state.seq for state in notes.history("n")] == [1]


def test_find_returns_instances_of_one_type(space):
    notes = space.typed(Note, prefix="note-")
    for number in range(3):
        notes.set(f"note-{number}", Note("a", number))
    space.set("other", {"title": "a", "stars": 5})
    page = notes.find({"stars": {"$gte": 1}}, order_by="-stars")
    assert [(match.id, match.document, match.seq) for match in page] == [
        ("note-2", Note("a", 2), 3),
        ("note-1", Note("a", 1), 2),
    ]
    assert (page.next, page.seq, page.plan.access) == (None, 4, "scan")
    first = notes.find({"title": "a"}, limit=2)
    rest = notes.find({"title": "a"}, limit=2, after=first.next)
    assert [match.id for match in (*first, *rest)] == ["note-0", "note-1", "note-2"]
    with pytest.raises(errors.Refused):
        notes.find({"title": "a"}, scan=False)


def test_stored_documents_that_are_not_valid_raise_content_errors(space):
    space.set("n", {"title": 1})
    notes = space.typed(Note)
    for call in (notes.get, notes.read, notes.history):
        with pytest.raises(errors.ContentError, match="Note 'n': /title: Expected `str`"):
            call("n")
    assert notes.encode(Note("a")) == {"title": "a"}
    # A patch may repair it.
    notes.patch("n", [{"op": "replace", "path": "/title", "value": "b"}])
    assert notes.get("n") == Note("b")


def test_instances_belong_to_the_caller(space):
    notes = space.typed(Note)
    note = Note("a", authors=[Author("Ann")])
    notes.set("n", note)
    note.authors[0].name = "Bob"
    received = notes.get("n")
    assert received.authors[0].name == "Ann"
    received.authors.append(Author("Eve"))
    states = notes.history("n")
    states[0].document.authors.clear()
    assert len(notes.get("n").authors) == 1


@pytest.mark.parametrize("model", [int, list[int], dict, "Note", None, str | int])
def test_types_without_fields_are_refused(model):
    with pytest.raises(errors.InvalidInput, match="must be a class with fields"):
        DocumentType(model)


def test_patch_on_a_server_is_checked_again_after_another_writer(served):
    """The document is checked in this process, so the commit depends on its seq."""
    url = f"http://127.0.0.1:{served.port}"
    did = f"did:web:typed.{uuid.uuid4().hex}"
    with fourfold.connect(url) as store, fourfold.connect(url) as other:
        space, raced = store.space(did), other.space(did)
        notes = space.typed(Note)
        notes.set("n", Note("a", 1))
        read = space.read
        pending = [{"op": "replace", "path": "/stars", "value": 0}]

        def read_and_lose(*arguments):
            state = read(*arguments)
            if pending:
                raced.patch("n", [pending.pop()])
            return state

        space.read = read_and_lose
        with pytest.raises(errors.InvalidInput, match="/stars"):
            notes.patch("n", [{"op": "increment", "path": "/stars", "by": -1}])
        assert raced["n"] == {"title": "a", "stars": 0}


def test_typed_documents_of_coroutines(served):
    async def run():
        async with AsyncRemoteStore(f"http://127.0.0.1:{served.port}") as store:
            space = await store.documents.create(f"did:web:typed.{uuid.uuid4().hex}")
            notes = space.typed(Note, prefix="n")
            await notes.set("n", Note("a"))
            await notes.patch("n", [{"op": "increment", "path": "/stars", "by": 1}])
            assert await notes.get("n") == Note("a", 1)
            assert [entity async for entity in notes] == ["n"]
            assert [state.document.stars for state in await notes.history("n")] == [0, 1]

    asyncio.run(run())


def test_pydantic_is_not_imported_for_other_models(tmp_path):
    program = f"""
import sys
import msgspec, fourfold

class Note(msgspec.Struct):
    title: str

with fourfold.open({str(tmp_path / "store")!r}) as store:
    store.space("did:web:a").typed(Note).set("n", Note("a"))
print("pydantic" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"False\n"
