"""What a user writes, with the types that a checker must infer. Checked, never run."""

# pyright: strict

from __future__ import annotations

from typing import assert_type

import fourfold
from fourfold.client import AsyncRemoteStore

with fourfold.open("store") as store:
    assert_type(store, fourfold.Store)

    space = store.space("did:web:notes.example")
    assert_type(space, fourfold.Space)
    assert_type(space.set("a", {"n": 1}), fourfold.Commit)
    assert_type(space.read("a"), fourfold.State | None)
    assert_type(space.seq(), int)
    assert_type(space.branches.merge("draft"), fourfold.MergeResult)
    assert_type(space.verify(), list[fourfold.Problem])

    streams = store.streams
    assert_type(streams, fourfold.Streams)
    stream = streams.create("clicks", "application/json")
    assert_type(stream, fourfold.Stream)
    assert_type(stream.append(b'{"id": 1}'), fourfold.Appended)
    chunk = stream.read()
    assert_type(chunk, fourfold.Chunk)
    assert_type(chunk.records, tuple[fourfold.Record, ...])

    assert_type(store.graphs, fourfold.Graphs)
    sessions = store.sessions
    assert_type(sessions, fourfold.Sessions)
    assert_type(sessions.create_session({"id": "s"}), fourfold.Session)
    assert_type(sessions.current_view("s"), fourfold.SessionView)

with fourfold.connect("http://127.0.0.1:4437", "secret") as remote:
    assert_type(remote, fourfold.RemoteStore)
    far_space = remote.space("did:web:notes.example")
    assert_type(far_space.set("a", {"n": 1}), fourfold.Commit)
    assert_type(far_space.read("a", at=1), fourfold.State | None)
    assert_type(far_space.ids(), list[str])
    assert_type(far_space.branches.merge("draft"), fourfold.MergeResult)
    for commit in far_space.follow(after=0):
        assert_type(commit, fourfold.Commit)
    far = remote.streams.create("clicks", "application/json")
    assert_type(far.append({"id": 1}), fourfold.Appended)
    assert_type(far.info, fourfold.StreamInfo)
    assert_type(far.read(), fourfold.Chunk)
    for part in far.follow(timeout=1.0):
        assert_type(part, fourfold.Chunk)


async def count_far() -> int:
    async with AsyncRemoteStore("http://127.0.0.1:4437") as store:
        clicks = await store.streams.open("clicks")
        assert_type(await clicks.read(), fourfold.Chunk)
        async for part in clicks.follow():
            assert_type(part, fourfold.Chunk)
        return (await clicks.info).next_offset


def run_anywhere(store: fourfold.Store | fourfold.RemoteStore) -> fourfold.Appended:
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
