"""What a user writes, with the types that a checker must infer. Checked, never run."""

# pyright: strict

from __future__ import annotations

from typing import Literal, assert_type

import msgspec

import fourfold
from fourfold.client import AsyncRemoteStore, RemoteStore


class Note(msgspec.Struct):
    title: str


with fourfold.open("store") as store:
    assert_type(store, fourfold.Store)

    space = store.space("did:web:notes.example")
    assert_type(space, fourfold.Space)
    assert_type(space.set("a", {"n": 1}), fourfold.Commit)
    assert_type(space.read("a"), fourfold.State | None)
    assert_type(space.seq(), int)
    assert_type(space.branches.merge("draft"), fourfold.MergeResult)
    assert_type(space.verify(), list[fourfold.Problem])

    notes = space.typed(Note, prefix="note-")
    assert_type(notes.get("note-1"), Note)
    assert_type(notes.set("note-1", Note("Hello")), fourfold.Commit)
    typed_state = notes.read("note-1", at=1)
    assert typed_state is not None
    assert_type(typed_state.document, Note | None)
    for match in notes.find({"title": "Hello"}):
        assert_type(match.document, Note)
    for hit in space.search("hello"):
        assert_type(hit.score, float)
    for old in notes.history("note-1"):
        assert_type(old.document, Note | None)
    for matched in space.follow(where={"title": "Hello"}):
        assert_type(matched.changes[0].kind, Literal["enter", "change", "leave"])
    for plain in space.follow():
        assert_type(plain, fourfold.Commit)

    streams = store.streams
    assert_type(streams, fourfold.Streams)
    stream = streams.create("clicks", "application/json")
    assert_type(stream, fourfold.Stream)
    assert_type(stream.append(b'{"id": 1}'), fourfold.AppendResult)
    chunk = stream.read()
    assert_type(chunk, fourfold.Chunk)
    assert_type(chunk.records, tuple[fourfold.Record, ...])

    assert_type(store.graphs, fourfold.Graphs)
    sessions = store.sessions
    assert_type(sessions, fourfold.Sessions)
    assert_type(sessions.create_session({"id": "s"}), fourfold.Session)
    assert_type(sessions.current_view("s"), fourfold.SessionView)

with fourfold.connect("http://127.0.0.1:4437", "secret") as remote:
    assert_type(remote, RemoteStore)
    far_space = remote.space("did:web:notes.example")
    assert_type(far_space.set("a", {"n": 1}), fourfold.Commit)
    assert_type(far_space.read("a", at=1), fourfold.State | None)
    assert_type(far_space.ids(), list[str])
    assert_type(far_space.branches.merge("draft"), fourfold.MergeResult)
    for commit in far_space.follow(after=0):
        assert_type(commit, fourfold.Commit)
    for far_match in far_space.follow(where={}):
        assert_type(far_match.seq, int)
    assert_type(far_space.typed(Note)["note-1"], Note)
    assert_type(far_space.typed(Note).find().items[0].document, Note)
    far = remote.streams.create("clicks", "application/json")
    assert_type(far.append({"id": 1}), fourfold.AppendResult)
    assert_type(far.info, fourfold.StreamInfo)
    assert_type(far.read(), fourfold.Chunk)
    for part in far.follow(timeout=1.0):
        assert_type(part, fourfold.Chunk)


async def count_far() -> int:
    async with AsyncRemoteStore("http://127.0.0.1:4437") as store:
        far_notes = await store.documents.open("did:web:notes.example")
        assert_type(await far_notes.typed(Note).get("note-1"), Note)
        clicks = await store.streams.open("clicks")
        assert_type(await clicks.read(), fourfold.Chunk)
        async for part in clicks.follow():
            assert_type(part, fourfold.Chunk)
        return (await clicks.info).next_offset


def run_anywhere(store: fourfold.Store | RemoteStore) -> fourfold.AppendResult:
    space = store.space("did:web:notes.example")
    assert_type(space.transact([{"op": "delete", "id": "a"}]), fourfold.Commit)
    for branch in space.branches.list():
        assert_type(branch, fourfold.Branch)
    return store.streams.create("clicks", "application/json").append({"id": 1})


try:
    fourfold.open("elsewhere")
except fourfold.FourfoldError as error:
    assert_type(error.kind, str)
    assert_type(error.hint, str)
