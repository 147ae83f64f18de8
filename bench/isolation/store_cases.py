"""Long operations in process, each beside small commits to the same database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, cast

import fourfold
from fourfold.kernel import Database
from fourfold.models.documents import GcPolicy, Space
from fourfold.models.sessions.sqlite_log import SqliteLog
from fourfold.store import Store

DID = "did:web:isolation.example"
FACTS_DID = "did:web:facts.example"
BUNDLE_EVENTS = 100_000
_BATCH = 1_000
_numbers = count()


class TaskStoppedError(Exception):
    """A task ran for as long as it may."""


class Case(NamedTuple):
    """A task, and the small write that is timed beside it."""

    model: str
    task: Callable[[Store, StopWatch], object]
    write: Callable[[Store], object]
    once: bool = False
    """The task cannot be repeated on the same store."""


class StopWatch:
    """Stops a task between its steps, after a time.

    Args:
        clock: Returns the time in seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = clock() + seconds
        self.stopped = False

    def check(self) -> None:
        """Raise TaskStoppedError once the time is over."""
        if self._clock() >= self._until:
            self.stopped = True
            raise TaskStoppedError

    @contextmanager
    def limiting(self, database: Database) -> Iterator[None]:
        """Let long work of this thread on a database end when the time is over.

        Such work pauses outside of write transactions only, so that is where it ends.
        """
        thread, pause = threading.get_ident(), database.pauses.pause

        def check_and_pause() -> None:
            if threading.get_ident() == thread:
                self.check()
            pause()

        database.pauses.pause = check_and_pause  # type: ignore[method-assign]
        try:
            with suppress(TaskStoppedError):
                yield
        finally:
            database.pauses.pause = pause  # type: ignore[method-assign]


def database_of(store: Store, model: str) -> Database:
    """Return the database that the cases of a model work on."""
    if model == "sessions":
        return cast("SqliteLog", store.sessions.log).database
    if model == "graphs":
        return store.graphs.database
    return store.space(DID if model == "documents" else FACTS_DID).database


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
    for _ in range(min(20_000, records)):
        space.patch("hot", [{"op": "increment", "path": "/a", "by": 1}])


def _prepare_facts(store: Store, records: int) -> None:
    space = store.space(FACTS_DID, history="facts")
    space.set("probe", {"n": 0})
    for first in range(0, records, _BATCH):
        space.transact(
            [
                {"op": "set", "id": f"entity-{number % (records // 10):07}", "value": {"n": number}}
                for number in range(first, first + _BATCH)
            ]
        )


def _prepare_sessions(store: Store, records: int) -> None:
    sessions = store.sessions
    for name in ("probe", "long", "other", "deleted"):
        sessions.create_session({"id": name})
    for name in ("long", "deleted"):
        for first in range(0, records, _BATCH):
            events = [
                {"type": "app/note", "number": number} for number in range(first, first + _BATCH)
            ]
            sessions.append_events(name, events)
    sessions.delete_session("deleted")
    _bundle(store).write_bytes(write_bundle("imported", min(records, BUNDLE_EVENTS)))


def write_bundle(sid: str, events: int) -> bytes:
    """Return the bundle of a session with a number of events."""
    with TemporaryDirectory() as place, fourfold.open(Path(place)) as store:
        store.sessions.create_session({"id": sid})
        for first in range(0, events, _BATCH):
            batch = [{"type": "app/note", "number": first + n} for n in range(_BATCH)]
            store.sessions.append_events(sid, batch)
        return b"".join(store.sessions.export_bundle(sid))


def _bundle(store: Store) -> Path:
    return store.root.with_name(f"{store.root.name}-bundle.jsonl")


def _prepare_graphs(store: Store, records: int) -> None:
    graphs = store.graphs
    app = graphs.register_app("isolation", "Isolation").app_id
    kind = graphs.register_type(app, "parent", "thing")
    row = {"type_id": kind, "owner_identity": 1, "sync_flags": 1}
    for _ in range(0, records, 10_000):
        graphs.insert_many_parents(app, [row] * 10_000)


_PREPARE: dict[str, Callable[[Store, int], None]] = {
    "documents": _prepare_documents,
    "facts": _prepare_facts,
    "sessions": _prepare_sessions,
    "graphs": _prepare_graphs,
}


def _page_ids(store: Store, _: StopWatch) -> None:
    after = ""
    while page := store.space(DID).ids(after=after, limit=1_000):
        after = page[-1]


def _collect_oldest(space: Space) -> None:
    """Remove 50,000 superseded rows, 1,000 of each commit; all of them would take many minutes."""
    first_commits = len(space.ids(prefix="entity-")) // _BATCH
    space.gc(GcPolicy(keep_seqs=max(space.seq() - (2 + first_commits + 50), 1)))


def _index(store: Store, _: StopWatch) -> None:
    """Declare an index, wait until it is built, and drop it."""
    name = f"by_n_{next(_numbers)}"
    indexes = store.space(DID).indexes
    indexes.create(name, "/n")
    indexes.drop(name)


def _branch_and_merge(store: Store, _: StopWatch) -> None:
    """Fork a branch, write 1,000 entities there, and merge it."""
    space = store.space(DID)
    name = f"branch-{next(_numbers)}"
    space.branches.create(name)
    space.transact(
        [{"op": "set", "id": f"side-{number}", "value": {"n": number}} for number in range(_BATCH)],
        branch=name,
    )
    space.branches.merge(name)


def _commit_after_old_read(store: Store, _: StopWatch) -> None:
    space = store.space(DID)
    reads = {"confirmed": [{"id": "hot", "path": ["b"], "seq": 2}]}
    patch = {"op": "patch", "id": "hot", "patches": [{"op": "increment", "path": "/a", "by": 1}]}
    for _number in range(20):
        space.transact([patch], reads=reads)


def _read_feed(store: Store, watch: StopWatch) -> None:
    for page in store.graphs.feed(after=0, timeout=0):
        del page
        watch.check()


def _import(store: Store, _: StopWatch) -> None:
    store.sessions.import_bundle(_bundle(store))


def _export(store: Store, watch: StopWatch) -> None:
    for line in store.sessions.export_bundle("long"):
        del line
        watch.check()


def _read_events(store: Store, watch: StopWatch) -> None:
    sessions = store.sessions
    last = 0
    while events := sessions.events_since("long", last, limit=1_000):
        last = events[-1].id
        watch.check()


def _verify_graphs(store: Store, _: StopWatch) -> None:
    store.graphs.verify()


def _commit(store: Store) -> None:
    store.space(DID).set("probe", {"n": 1})


def _commit_fact(store: Store) -> None:
    store.space(FACTS_DID).set("probe", {"n": 1})


def _append(store: Store) -> None:
    store.sessions.append_event("probe", {"type": "app/note"})


def _insert(store: Store) -> None:
    graphs = store.graphs
    app = graphs.app("isolation").app_id
    graphs.insert_parent(app, {"type_id": graphs.list_types(app)[0].id, "owner_identity": 1})


CASES: dict[str, Case] = {
    "documents: nothing else": Case("documents", lambda *_: time.sleep(4), _commit),
    "documents: ids() by pages": Case("documents", _page_ids, _commit),
    "documents: 20 commits with an old confirmed read": Case(
        "documents", _commit_after_old_read, _commit
    ),
    "documents: fork, write and merge 1,000 entities": Case(
        "documents", _branch_and_merge, _commit
    ),
    "documents: indexes.create": Case("documents", _index, _commit),
    "documents: verify": Case("documents", lambda store, _: store.space(DID).verify(), _commit),
    "documents: gc of 50,000 rows": Case(
        "documents", lambda store, _: _collect_oldest(store.space(DID)), _commit, once=True
    ),
    "facts: nothing else": Case("facts", lambda *_: time.sleep(4), _commit_fact),
    "facts: first gc, of 50,000 rows": Case(
        "facts", lambda store, _: _collect_oldest(store.space(FACTS_DID)), _commit_fact, once=True
    ),
    "sessions: nothing else": Case("sessions", lambda *_: time.sleep(4), _append),
    "sessions: read all events": Case("sessions", _read_events, _append),
    "sessions: export of all events": Case("sessions", _export, _append),
    "sessions: import of 100,000 events": Case("sessions", _import, _append, once=True),
    "sessions: gc of a deleted session": Case(
        "sessions", lambda store, _: store.sessions.gc(grace_s=0), _append, once=True
    ),
    "sessions: verify": Case("sessions", lambda store, _: store.sessions.verify(), _append),
    "graphs: nothing else": Case("graphs", lambda *_: time.sleep(4), _insert),
    "graphs: feed from the start": Case("graphs", _read_feed, _insert),
    "graphs: verify": Case("graphs", _verify_graphs, _insert),
}
