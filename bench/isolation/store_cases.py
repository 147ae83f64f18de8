"""Long operations in process, each beside small commits to the same database."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

import fourfold
from fourfold.models.documents import GcPolicy
from fourfold.store import Store

DID = "did:web:isolation.example"
_BATCH = 1_000


class Case(NamedTuple):
    """A task, and the small write that is timed beside it."""

    model: str
    task: Callable[[Store], object]
    write: Callable[[Store], object]


def prepare(root: Path, records: int, models: Collection[str]) -> None:
    """Write what the cases of these models work on."""
    with fourfold.open(root) as store:
        for model in models:
            _PREPARE[model](store, records)


def _prepare_documents(store: Store, records: int) -> None:
    space = store.space(DID)
    space.set("probe", {"n": 0})
    space.set("hot", {"a": 0, "b": 0})
    for first in range(0, records, _BATCH):
        space.transact(
            [
                {"op": "set", "id": f"entity-{number % (records // 10):07}", "value": {"n": number}}
                for number in range(first, first + _BATCH)
            ]
        )
    for _ in range(20_000):
        space.patch("hot", [{"op": "increment", "path": "/a", "by": 1}])
    space.branches.create("side")
    space.transact(
        [{"op": "set", "id": f"side-{number}", "value": {"n": number}} for number in range(_BATCH)],
        branch="side",
    )


def _prepare_sessions(store: Store, records: int) -> None:
    sessions = store.sessions
    for name in ("probe", "long", "deleted"):
        sessions.create_session({"id": name})
    for name in ("long", "deleted"):
        for first in range(0, records, _BATCH):
            events = [
                {"type": "app/note", "number": number} for number in range(first, first + _BATCH)
            ]
            sessions.append_events(name, events)
    sessions.delete_session("deleted")


def _prepare_graphs(store: Store, records: int) -> None:
    graphs = store.graphs
    app = graphs.register_app("isolation", "Isolation").app_id
    kind = graphs.register_type(app, "parent", "thing")
    row = {"type_id": kind, "owner_identity": 1, "sync_flags": 1}
    for _ in range(0, records, 10_000):
        graphs.insert_many_parents(app, [row] * 10_000)


_PREPARE: dict[str, Callable[[Store, int], None]] = {
    "documents": _prepare_documents,
    "sessions": _prepare_sessions,
    "graphs": _prepare_graphs,
}


def _page_ids(store: Store) -> None:
    after = ""
    while page := store.space(DID).ids(after=after, limit=1_000):
        after = page[-1]


def _collect_oldest(store: Store) -> None:
    """Remove 50,000 superseded rows, 1,000 of each commit; all of them would take many minutes."""
    space = store.space(DID)
    first_commits = len(space.ids(prefix="entity-")) // _BATCH
    space.gc(GcPolicy(keep_seqs=space.seq() - (2 + first_commits + 50)))


def _commit_after_old_read(store: Store) -> None:
    space = store.space(DID)
    reads = {"confirmed": [{"id": "hot", "path": ["b"], "seq": 2}]}
    patch = {"op": "patch", "id": "hot", "patches": [{"op": "increment", "path": "/a", "by": 1}]}
    for _ in range(20):
        space.transact([patch], reads=reads)


def _read_feed(store: Store) -> None:
    for page in store.graphs.feed(after=0, timeout=0):
        del page


def _read_events(store: Store) -> None:
    sessions = store.sessions
    last = 0
    while events := sessions.events_since("long", last, limit=1_000):
        last = events[-1].id


def _verify_graphs(store: Store) -> None:
    store.graphs.verify()


def _commit(store: Store) -> None:
    store.space(DID).set("probe", {"n": 1})


def _append(store: Store) -> None:
    store.sessions.append_event("probe", {"type": "app/note"})


def _insert(store: Store) -> None:
    graphs = store.graphs
    app = graphs.app("isolation").app_id
    graphs.insert_parent(app, {"type_id": graphs.list_types(app)[0].id, "owner_identity": 1})


CASES: dict[str, Case] = {
    "documents: nothing else": Case("documents", lambda _: time.sleep(4), _commit),
    "documents: ids() by pages": Case("documents", _page_ids, _commit),
    "documents: 20 commits with an old confirmed read": Case(
        "documents", _commit_after_old_read, _commit
    ),
    "documents: merge of 1,000 entities": Case(
        "documents", lambda store: store.space(DID).branches.merge("side"), _commit
    ),
    "documents: verify": Case("documents", lambda store: store.space(DID).verify(), _commit),
    "documents: gc of 50,000 rows": Case("documents", _collect_oldest, _commit),
    "sessions: nothing else": Case("sessions", lambda _: time.sleep(4), _append),
    "sessions: read all events": Case("sessions", _read_events, _append),
    "sessions: gc of a deleted session": Case(
        "sessions", lambda store: store.sessions.gc(grace_s=0), _append
    ),
    "sessions: verify": Case("sessions", lambda store: store.sessions.verify(), _append),
    "graphs: nothing else": Case("graphs", lambda _: time.sleep(4), _insert),
    "graphs: feed from the start": Case("graphs", _read_feed, _insert),
    "graphs: verify": Case("graphs", _verify_graphs, _insert),
}
