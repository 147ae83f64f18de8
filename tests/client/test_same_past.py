"""Lists of the past, on a folder and on a server: what a list showed at a time, it shows again."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from fourfold import errors

TICK = timedelta(milliseconds=2)
"""Times of sessions have milliseconds."""


def pause():
    """Return a time after all writes before it, and before all writes after it."""
    for _ in range(2):
        before = datetime.now(UTC)
        while datetime.now(UTC) < before + TICK:
            time.sleep(0.001)
    return before


@pytest.fixture
def did(name):
    return f"did:web:{name}.example"


def existing_spaces(store, did, at=None):
    """Return a space of the list without its size, which the past does not have."""
    return [
        msgspec.structs.replace(info, bytes=None)
        for info in store.documents.list(at=at)
        if info.did == did
    ]


def test_spaces_are_listed_as_they_were(store, did):
    shown = {pause(): existing_spaces(store, did)}
    space = store.space(did)
    shown[pause()] = existing_spaces(store, did)
    space.set("a", {"n": 1})
    shown[pause()] = existing_spaces(store, did)
    space.branches.create("draft")
    space.set("a", {"n": 2}, branch="draft")
    shown[pause()] = existing_spaces(store, did)
    space.branches.delete("draft")
    assert [len(infos) for infos in shown.values()] == [0, 1, 1, 1]
    assert [info.branches for infos in shown.values() for info in infos] == [1, 1, 2]
    for at, infos in shown.items():
        assert existing_spaces(store, did, at) == infos
    assert store.documents.list(at=pause())[0].bytes is None
    with pytest.raises(errors.InvalidInput, match="zone"):
        store.documents.list(at=datetime(2030, 1, 1))  # noqa: DTZ001


def test_branches_are_listed_as_they_were(store, did):
    space = store.space(did)
    branches = space.branches
    shown = {}

    def note():
        point = pause()
        shown[point] = shown[space.position()] = list(branches.list(deleted=True))

    note()
    space.set("a", {"n": 1})
    note()
    branches.create("draft")
    note()
    space.set("a", {"n": 2}, branch="draft")
    note()
    space.set("b", {"n": 3})
    branches.create("deep/er", "draft")
    note()
    branches.delete("draft")
    note()
    space.set("b", {"n": 4}, branch="deep/er")
    note()
    for at, rows in shown.items():
        assert branches.list(deleted=True, at=at) == rows
        assert branches.list(at=at) == [row for row in rows if row.active]
        for row in rows:
            assert branches.get(row.name, at=at) == row
    with pytest.raises(errors.NotFound, match="did not exist at seq 1"):
        branches.get("draft", at=1)
    with pytest.raises(errors.InvalidInput):
        branches.list(at=space.position() + 1)


def test_sessions_are_listed_as_they_were(store, name):
    sessions = store.sessions
    shown = {}

    def note():
        shown[pause()] = sessions.list(prefix=name)

    note()
    first = sessions.create({"id": f"{name}-1", "model": "a"})
    note()
    second = sessions.create({"id": f"{name}-2", "model": "b"})
    first.append({"type": "turn/started", "turn": {}})
    note()
    first.append({"type": "session/stopped"})
    note()
    second.delete()
    note()
    for at, infos in shown.items():
        past = sessions.list(prefix=name, at=at)
        assert [msgspec.structs.replace(info, deleted_at=None) for info in past] == infos
        newest = sessions.list(prefix=name, at=at, newest_first=True, limit=1)
        assert [info.id for info in newest] == [info.id for info in infos[-1:]]
        stopped = sessions.list(prefix=name, at=at, where={"status": "stopped"})
        assert [info.id for info in stopped] == [i.id for i in infos if i.status == "stopped"]
        for info in infos:
            if info.id == first.id:
                assert sessions.info(first.id, at) == sessions.info(first.id, info.events) == info
    before, created, *_ = shown
    # It was deleted later, which its record tells: it can no longer be read.
    assert sessions.list(prefix=second.id, at=[*shown][2])[0].deleted_at is not None
    assert sessions.list(prefix=name, deleted=True, at=created)[0].id == first.id
    with pytest.raises(errors.NotFound, match="did not exist at"):
        sessions.info(first.id, before)
    with pytest.raises(errors.NotFound):
        sessions.info(first.id, 99)


def test_lineage_is_shown_as_it_was(store, name):
    sessions = store.sessions
    before = pause()
    root = sessions.create({"id": f"{name}-root", "model": "any"})
    shown = {}

    def note():
        shown[pause()] = sessions.lineage_graph(root.id), sessions.lineage(root.id)

    note()
    head = root.publish_head({"kind": "turn-final"})
    note()
    fork = root.fork({"id": f"{name}-fork"}, at=head.id)
    note()
    fork.publish_head(events=[{"type": "turn/started", "turn": {}}])
    note()
    sizes = [(len(graph.heads), len(graph.edges)) for graph, _ in shown.values()]
    assert sizes[0] == (0, 0)
    assert sizes == sorted(set(sizes))
    for at, (graph, edges) in shown.items():
        assert sessions.lineage_graph(root.id, at=at) == graph
        assert sessions.lineage(root.id, at=at) == edges
    with pytest.raises(errors.NotFound, match="did not exist at"):
        sessions.lineage_graph(root.id, at=before)


def test_apps_are_listed_as_they_were(store):
    graphs = store.graphs
    apps = graphs.list_apps()
    before = pause()
    graphs.create("past-app", "Past")
    after = pause()
    assert graphs.list_apps(before) == apps
    assert graphs.list(after) == graphs.list()
    assert graphs.app("past-app", after) == graphs.app("past-app")
    with pytest.raises(errors.NotFound, match="did not exist at"):
        graphs.app("past-app", before)


def test_the_overview_counts_what_existed(store, did):
    def counts(at):
        overview = store.overview(at)
        assert overview.bytes is None
        return {model.model: model.count for model in overview.models}

    before = pause()
    store.space(did).set("a", {})
    with_space = pause()
    store.sessions.create({"id": did})
    with_session = pause()
    store.streams.create(did, "application/json").append([1])
    last = pause()
    expected = counts(before)
    for at, model in ((with_space, "documents"), (with_session, "sessions"), (last, "streams")):
        expected[model] += 1
        assert counts(at) == expected
    assert store.overview().bytes > 0
    assert store.activity(last).recent[0].name == did
    assert did not in {entry.name for entry in store.activity(before).recent}
    for wrong in (5, datetime(2030, 1, 1)):  # noqa: DTZ001
        with pytest.raises(errors.InvalidInput):
            store.overview(wrong)
    with pytest.raises(errors.NotFound):
        store.overview("20010101T000000.000Z-0000")
