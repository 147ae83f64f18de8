"""Latest activity in a store: the newest entries of all models, and their counts.

The cost does not grow with the logs: only their newest entries are read, and of many spaces only
those that changed last. At a time in the past, the newest entry by then is found by bisection.
Records of streams that are published and trimmed are not listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from fourfold.errors import FourfoldError
from fourfold.kernel.named_queries import load_queries
from fourfold.models.documents import LogEntry
from fourfold.models.model import all_models
from fourfold.models.sessions import SqliteLog
from fourfold.store import overview
from fourfold.store.log_times import ENTRIES, last_key, to_ms
from fourfold.store.store import Store
from fourfold.wire.documents import author_of
from fourfold.wire.store import Activity, RecentEntry

SQL: Final = load_queries("fourfold.store", "activity.sql")
ENTRIES_SAMPLED: Final = 2_000
"""Entries of a log whose times are counted."""
SPACES_READ: Final = 6
"""Spaces whose newest commits are listed."""
_KINDS: Final = {1: "object", 2: "attribute", 4: "edge", 8: "rating"}
"""What a transaction of a graph wrote, by its bit."""
RECORDS_GROUPED: Final = 200
"""Newest records that are listed, together for each stream."""
RECENT_MAX: Final = 12
MINUTES: Final = 60


def read_activity(store: Store, now_ms: int, until_ms: int | None = None) -> Activity:
    """Return the newest entries of all models, and their number by the minute of the last hour.

    Args:
        store: The store.
        now_ms: End of the hour.
        until_ms: Ignore what is newer, and count the hour before this time.
    """
    end_ms = now_ms if until_ms is None else until_ms
    minutes: dict[str, list[int]] = {}
    entries: list[RecentEntry] = []
    for model in overview.in_order(all_models()):
        files = overview.find_files(store.root / model.location.folder, model.location.file)
        read = _ACTIVITIES.get(model.name)
        if read is None or not files.databases:
            continue
        try:
            times, newest = read(store, files, until_ms)
        except FourfoldError:
            # The overview of the model reports it.
            continue
        minutes[model.name] = _by_minute(times, end_ms)
        entries += newest
    entries.sort(key=lambda entry: (entry.at_ms, entry.seq), reverse=True)
    return Activity(minutes=minutes, recent=entries[:RECENT_MAX])


def _by_minute(times_ms: Iterable[int], end_ms: int) -> list[int]:
    counts = [0] * MINUTES
    for time_ms in times_ms:
        minute = (end_ms - time_ms) // 60_000
        if 0 <= minute < MINUTES:
            counts[MINUTES - 1 - minute] += 1
    return counts


def _document_activity(
    store: Store, files: overview.Files, until_ms: int | None
) -> tuple[list[int], list[RecentEntry]]:
    times, spaces = [], []
    for _, path in files.newest:
        space = store.space(path.stem)
        with space.database.read() as reading:
            limit = ENTRIES_SAMPLED // overview.SPACES_SAMPLED
            seq = last_key(reading, ENTRIES.commit_before, until_ms)
            commits = [to_ms(row[0]) for row in reading.all(SQL.newest_commits, (limit, seq))]
        if commits:
            times += commits
            spaces.append((commits[0], space.did, seq))
    entries = []
    # By their commits: a file also changes without one, and keeps its time when it is copied.
    for _, did, seq in sorted(spaces, reverse=True)[:SPACES_READ]:
        log = store.space(did).log(after=max(0, seq - RECENT_MAX), until=seq)
        entries += [_commit_entry(did, entry) for entry in log]
    return times, entries


def _commit_entry(did: str, entry: LogEntry) -> RecentEntry:
    original = entry.original
    operations = original.get("operations", ())
    merged = original.get("merge")
    if "cmd" in original:
        change = f"{original['cmd'].replace('branch/', '')} branch {original.get('name', '')}"
    elif merged is not None:
        change = f"merge {merged.get('source', '')}"
    else:
        change = ", ".join(_operation_text(operation) for operation in operations[:3])
    if entry.branch and "cmd" not in original:
        change += f", on {entry.branch}"
    return RecentEntry(
        model="documents",
        at_ms=to_ms(entry.created_at),
        name=did,
        item=operations[0]["id"] if operations else "",
        change=change,
        seq=entry.seq,
        by=author_of(entry.session),
    )


def _operation_text(operation: dict[str, Any]) -> str:
    paths = " ".join(str(patch.get("path", "")) for patch in operation.get("patches", ())[:3])
    return f"{operation['op']} {paths}".strip()


def _stream_activity(
    store: Store, _files: overview.Files, until_ms: int | None
) -> tuple[list[int], list[RecentEntry]]:
    with store.streams.database.read() as reading:
        key = last_key(reading, ENTRIES.record_before, until_ms)
        rows = reading.all(SQL.newest_records, (ENTRIES_SAMPLED, key))
    by_stream: dict[str, list[Any]] = {}
    for row in rows[:RECORDS_GROUPED]:
        by_stream.setdefault(row[0], []).append(row)
    entries: list[RecentEntry] = []
    for name, records in by_stream.items():
        count = f"{len(records)} records" if len(records) > 1 else "1 record"
        is_shown = until_ms is None and len(entries) < RECENT_MAX
        entries.append(
            RecentEntry(
                model="streams",
                at_ms=records[0][1],
                name=name,
                item="",
                change=f"append {count}",
                seq=records[0][2],
                by=_newest_producer(store, name, records[0][1]) if is_shown else "",
            )
        )
    return [row[1] for row in rows], entries


def _newest_producer(store: Store, name: str, at_ms: int) -> str:
    """Return the id of the producer that appended the newest record; empty if none did."""
    producers = store.streams.open(name).producers()
    newest = max(producers, key=lambda producer: producer.updated_at_ms, default=None)
    return newest.id if newest is not None and newest.updated_at_ms >= at_ms else ""


def _graph_activity(
    store: Store, _files: overview.Files, until_ms: int | None
) -> tuple[list[int], list[RecentEntry]]:
    names = {app.app_id: app.slug for app in store.graphs.list_apps()}
    with store.graphs.database.read() as reading:
        key = last_key(reading, ENTRIES.envelope_before, until_ms)
        rows = reading.all(SQL.newest_envelopes, (ENTRIES_SAMPLED, key))
    entries = [
        RecentEntry(
            model="graphs",
            at_ms=to_ms(created_at),
            name=names.get(app_id, str(app_id)),
            item="",
            change=", ".join(name for bit, name in _KINDS.items() if kinds & bit),
            seq=seq,
            by="",
        )
        for seq, app_id, created_at, kinds in rows[:RECENT_MAX]
    ]
    return [to_ms(row[2]) for row in rows], entries


def _session_activity(
    store: Store, _files: overview.Files, until_ms: int | None
) -> tuple[list[int], list[RecentEntry]]:
    log = store.sessions.log
    assert isinstance(log, SqliteLog)
    with log.database.read() as reading:
        key = last_key(reading, ENTRIES.event_before, until_ms)
        rows = reading.all(SQL.newest_events, (ENTRIES_SAMPLED, key))
    entries = [
        RecentEntry(
            model="sessions",
            at_ms=to_ms(at),
            name=session,
            item="",
            change=kind.replace("_", " "),
            seq=event_id,
            by="",
        )
        for session, event_id, kind, at in rows[:RECENT_MAX]
    ]
    return [to_ms(row[3]) for row in rows], entries


_ACTIVITIES: Final[
    dict[str, Callable[[Store, overview.Files, int | None], tuple[list[int], list[RecentEntry]]]]
] = {
    "documents": _document_activity,
    "streams": _stream_activity,
    "graphs": _graph_activity,
    "sessions": _session_activity,
}
"""Readers of the newest entries, by model."""
