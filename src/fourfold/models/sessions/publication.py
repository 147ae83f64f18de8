"""Publication of the sessions, and the derived data that a restore rebuilds.

The log is the events, the rows of the sessions and the payloads; leases are published when they
are claimed or released, and not each time they are renewed. A session that was purged has no
events any more; its row says so, and what was published of it before is left out of a restore, and
erased from the files of the archive.
Heads, edges, snapshots of the folded state and the index of sessions are rebuilt from the events.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fourfold import limits
from fourfold.archive.publication import (
    ChangedRows,
    Content,
    Description,
    PublicationTable,
    Purge,
)
from fourfold.kernel import Database, Transaction, load_queries
from fourfold.models.sessions.fold import FoldState, advance
from fourfold.models.sessions.log import LogWriter, SessionRow
from fourfold.models.sessions.reader import state_at
from fourfold.models.sessions.records import Event, edge_of, head_of
from fourfold.models.sessions.sqlite_log import SQL as _LOG
from fourfold.models.sessions.sqlite_log import SqliteLog, SqliteLogWriter
from fourfold.models.sessions.stamps import event_of, state_text
from fourfold.models.sessions.writer import edge_row, head_row

_SQL = load_queries("fourfold.models.sessions", "publication.sql")
_PAGE = limits.SESSION_PAGE_EVENTS


def rebuild(database: Database) -> None:
    """Make heads, edges, snapshots and the index from the events of every session."""
    log = SqliteLog(database)
    after = 0
    while True:
        with log.read() as reading:
            rows = reading.sessions(after, _PAGE, deleted=True)
        if not rows:
            return
        for row in rows:
            _derive(log, row)
        after = rows[-1].key


def _derive(log: SqliteLog, row: SessionRow) -> None:
    state, at, snapshot_at = FoldState(), 0, 0
    while True:
        with log.read() as reading:
            rows = reading.events(row.key, at, (1 << 63) - 1, _PAGE)
        if not rows:
            log.transact_alone(lambda writing: writing.index_session(row.key))
            return
        events = [event_of(row.id, event) for event in rows]
        state = advance(state, *events)
        at = rows[-1].event_id
        text = None
        if at - snapshot_at >= limits.SESSION_SNAPSHOT_EVENTS_MAX:
            snapshot_at, text = at, state_text(state)
        log.transact_alone(partial(_write, key=row.key, events=events, text=text))


def _write(writing: LogWriter, key: int, events: Sequence[Event], text: str | None) -> None:
    for event in events:
        if event.type == "head/published":
            writing.insert_head(key, head_row(event, head_of(event.data["head"])))
        elif event.type == "lineage/edge-added":
            writing.insert_edge(key, edge_row(event, edge_of(event.data["edge"])))
    if text is not None:
        writing.insert_snapshot(key, events[-1].id, text)


def _advance(txn: Transaction, changes: Sequence[ChangedRows]) -> bool:
    """Derive heads, edges, snapshots and the index from new rows; a purge needs more than that."""
    first: dict[int, int] = {}
    keys: set[int] = set()
    for change in changes:
        if change.table == "sessions" and any(purged for (purged,) in change.values("purged")):
            return False
        if change.table == "sessions":
            keys.update(key for (key,) in change.values("session_key"))
        if change.table == "events":
            for key, event_id in change.values("session_key", "event_id"):
                first[key] = min(event_id, first.get(key, event_id))
    writing = SqliteLogWriter(txn)
    for key, event_id in sorted(first.items()):
        row = writing.session_by_key(key)
        assert row is not None
        _derive_after(writing, row, event_id - 1)
    for key in sorted(keys.union(first)):
        writing.index_session(key)
    return True


def _derive_after(writing: LogWriter, row: SessionRow, after: int) -> None:
    _, state, snapshot_at, _ = state_at(writing, row, after)
    while rows := writing.events(row.key, after, (1 << 63) - 1, _PAGE):
        events = [event_of(row.id, event) for event in rows]
        state = advance(state, *events)
        after = rows[-1].event_id
        text = None
        if after - snapshot_at >= limits.SESSION_SNAPSHOT_EVENTS_MAX:
            snapshot_at, text = after, state_text(state)
        _write(writing, row.key, events, text)


PUBLICATION = Description(
    (
        PublicationTable("sessions", ("session_key",), position="session_key", watch=("update",)),
        PublicationTable("events", ("position",), position="position"),
        PublicationTable(
            "payloads",
            ("hash",),
            watch=("insert", "update of size", "delete"),
            content=Content("hash", "data"),
            erase=True,
        ),
        PublicationTable("leases", ("session_key",), watch=("insert", "update of epoch, holder")),
        PublicationTable("retention_policies", ("prefix",), watch=("insert", "update", "delete")),
    ),
    newest=_LOG.last_position,
    unsettled=(_SQL.forget_purged,),
    purges=(Purge("sessions", "purged", "events", "session_key"),),
    rebuild=rebuild,
    advance=_advance,
)
