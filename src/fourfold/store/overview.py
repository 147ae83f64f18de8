"""Overview of the four models of a store: sizes, counts, newest activity and health.

At a time in the past, counts and the newest activity are those of that time. Sizes are not known
then; health is that of now, and streams that were deleted since are not counted.

The cost does not grow with the logs. Counted: the files of each model, streams, sessions, apps and
rows of graphs. Read from the newest entry of a log: the time of the newest activity. Sampled: the
spaces that were written last, for commits and health. Records of streams are counted as long as
there are few streams.
"""

from __future__ import annotations

import fnmatch
import heapq
import os
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from fourfold import kernel, limits
from fourfold.errors import FourfoldError
from fourfold.kernel import inspection
from fourfold.kernel.named_queries import load_queries
from fourfold.models.documents.ancestry import seq_of
from fourfold.models.model import Model, all_models
from fourfold.models.sessions import SqliteLog
from fourfold.models.sessions.request import check_time
from fourfold.store.log_times import ENTRIES, last_key, last_time
from fourfold.store.store import Store, open_store
from fourfold.wire.store import ModelOverview, StoreOverview

SQL: Final = load_queries("fourfold.store", "overview.sql")
SPACES_SAMPLED: Final = 20
COUNT_MAX: Final = 1_000_000
STREAMS_SUMMED_MAX: Final = 10_000
FILES_MAX: Final = 100_000
SPACES_OPENED_MAX: Final = 1_000
"""Spaces that are opened to find out whether they existed at a time."""


class Files(NamedTuple):
    """The files of a model: their size, and those that changed last."""

    bytes: int
    exact: bool
    databases: int
    newest: list[tuple[int, Path]]
    """Databases by their last change in nanoseconds, newest first; only some of them."""
    changed: dict[str, int]
    """When each database changed last, by the name of its file."""


class Facts(NamedTuple):
    """Counts of the contents of a model."""

    unit: str
    total: int
    newest: str | None
    details: dict[str, Any]
    exact: bool = True


def describe(root: Path, at: datetime | None = None) -> list[dict[str, Any]]:
    """Return an overview of each model of the store in `root`, now or at a time.

    The store may be in use.
    """
    with open_store(root, mode="r") as store:
        return [_describe(store, model, at) for model in in_order(all_models())]


def summarize(rows: Iterable[dict[str, Any]]) -> StoreOverview:
    """Return the overviews of all models as one."""
    fields = ModelOverview.__struct_fields__
    models = [ModelOverview(**{name: row[name] for name in fields}) for row in rows]
    sizes = [model.bytes for model in models if model.bytes is not None]
    return StoreOverview(bytes=sum(sizes) if len(sizes) == len(models) else None, models=models)


def in_order(models: Iterable[Model[Any]]) -> list[Model[Any]]:
    """Return models in the order of the documentation; others come last."""
    order = list(COUNTERS)
    return sorted(
        models, key=lambda model: order.index(model.name) if model.name in order else len(order)
    )


def _describe(store: Store, model: Model[Any], at: datetime | None) -> dict[str, Any]:
    files = find_files(store.root / model.location.folder, model.location.file)
    count_facts = COUNTERS.get(model.name, _files_only)
    problems = [problem for _, path in files.newest for problem in _problems(store, path)]
    writers = (kernel.holder(path) for _, path in files.newest)
    facts = Facts("", 0, None, {})
    try:
        facts = count_facts(store, files, at)
    except FourfoldError as error:
        problems.append(("fail", error.message))
    newest = None
    if facts.newest is not None:
        newest = _time(datetime.fromisoformat(facts.newest))
    elif files.newest and at is None:
        newest = _time(datetime.fromtimestamp(files.newest[0][0] / 1e9, UTC))
    statuses = {status for status, _ in problems}
    return {
        "model": model.name,
        "unit": facts.unit,
        "count": min(facts.total, COUNT_MAX),
        "count_exact": facts.exact and facts.total <= COUNT_MAX,
        "bytes": files.bytes if at is None else None,
        "bytes_exact": files.exact,
        "newest": newest,
        "health": next((status for status in ("fail", "warn") if status in statuses), "ok"),
        "problems": list(dict.fromkeys(text for _, text in problems)),
        "writer": next((writer.get("pid") for writer in writers if writer is not None), None),
        "details": facts.details,
    }


def _problems(store: Store, path: Path) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a database as far as opening it shows, each with a status."""
    try:
        held = inspection.inspect(path).wal_size_bytes
    except FourfoldError as error:
        yield "fail", error.message
        return
    health = store.settings.health
    if held >= health.wal_degraded_bytes:
        name = path.relative_to(store.root)
        status = "fail" if held >= health.wal_failed_bytes else "warn"
        yield status, f"{name}: the write-ahead log has {held / limits.MIB:.1f} MiB"


def find_files(folder: Path, pattern: str) -> Files:
    """Return the files below a folder, up to a limit; links are not followed.

    Databases of the model are those directly in the folder whose names match `pattern`.
    """
    total, seen, changed = 0, 0, dict[str, int]()
    # A path object or a match of a pattern for each of 10,000 files takes as long as the files.
    top = str(folder)
    is_database = re.compile(fnmatch.translate(pattern)).match
    folders = [top] if folder.is_dir() else []
    while folders and seen < FILES_MAX:
        current = folders.pop()
        with os.scandir(current) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                    continue
                seen += 1
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # A store in use removes files all the time.
                total += status.st_size
                if current != top:
                    continue
                name = entry.name.removesuffix("-wal")
                # A reader creates an empty log.
                changed_ns = status.st_mtime_ns if name == entry.name or status.st_size else 0
                if is_database(name):
                    changed[name] = max(changed.get(name, 0), changed_ns)
    newest = heapq.nlargest(SPACES_SAMPLED, ((at_ns, name) for name, at_ns in changed.items()))
    paths = [(at_ns, folder / name) for at_ns, name in newest]
    return Files(total, seen < FILES_MAX, len(changed), paths, changed)


def _documents(store: Store, files: Files, at: datetime | None) -> Facts:
    commits, newest, sampled = 0, "", 0
    for _, path in files.newest:
        space = store.space(path.stem)
        if at is not None and not space.existed_at(at):
            continue
        sampled += 1
        with space.view() as view:
            seq = seq_of(view, at)
        commits += seq
        for entry in space.log(after=seq - 1, limit=1) if seq else ():
            newest = max(newest, entry.created_at)
    total, exact = (files.databases, True) if at is None else _count_spaces(store, files, at)
    details = {"sampled_spaces": sampled, "commits": commits}
    return Facts("space", total, newest or None, details, exact)


def _count_spaces(store: Store, files: Files, at: datetime) -> tuple[int, bool]:
    """Return how many spaces existed at a time, and whether all were counted.

    A file that did not change since existed then; the others are opened, up to a limit.
    """
    at_ns = at.timestamp() * 1_000_000_000
    later = [name for name, changed_ns in files.changed.items() if changed_ns >= at_ns]
    opened = sorted(later)[:SPACES_OPENED_MAX]
    existed = sum(store.documents.changed_at(Path(name).stem, at) is not None for name in opened)
    return files.databases - len(later) + existed, len(opened) == len(later)


def _streams(store: Store, files: Files, at: datetime | None) -> Facts:
    if not files.databases:
        return Facts("stream", 0, None, {"records": 0})
    until_ms = _ms(at)
    with store.streams.database.read() as reading:
        if until_ms is None:
            count = reading.value(SQL.streams, (COUNT_MAX + 1,))
        else:
            count = reading.value(SQL.streams_until, (COUNT_MAX + 1, until_ms))
        # The sum reads the row of every stream, so it is left out for many streams.
        counted = until_ms is None and count <= STREAMS_SUMMED_MAX
        records = reading.value(SQL.stream_records) if counted else None
        newest = last_time(reading, ENTRIES.record_before, until_ms)
    return Facts("stream", count, newest, {"records": records})


def _graphs(store: Store, files: Files, at: datetime | None) -> Facts:
    if not files.databases:
        return Facts("app", 0, None, {"rows": 0, "global_seq": 0})
    graphs = store.graphs
    apps = graphs.list_apps(at)
    rows = None if at is not None else sum(graphs.usage(app.app_id).rows for app in apps)
    seq = graphs.get_global_seq() if at is None else graphs.seq_at(at)
    with graphs.database.read() as reading:
        newest = last_time(reading, ENTRIES.envelope_before, _ms(at))
    return Facts("app", len(apps), newest, {"rows": rows, "global_seq": seq})


def _sessions(store: Store, files: Files, at: datetime | None) -> Facts:
    if not files.databases:
        return Facts("session", 0, None, {"events": 0})
    log = store.sessions.log
    assert isinstance(log, SqliteLog)
    with log.database.read() as reading:
        if at is None:
            count = reading.value(SQL.sessions, (COUNT_MAX + 1,))
        else:
            count = reading.value(SQL.sessions_until, (COUNT_MAX + 1, check_time(at)))
        newest = last_time(reading, ENTRIES.event_before, _ms(at))
        events = last_key(reading, ENTRIES.event_before, _ms(at))
    return Facts("session", count, newest, {"events": events})


def _files_only(_store: Store, files: Files, at: datetime | None) -> Facts:
    return Facts("database", files.databases, None, {}, exact=at is None)


def _ms(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp() * 1_000)


COUNTERS: Final[dict[str, Callable[[Store, Files, datetime | None], Facts]]] = {
    "documents": _documents,
    "streams": _streams,
    "graphs": _graphs,
    "sessions": _sessions,
}
"""Functions that count the contents, by model; for other models, databases are counted."""


def _time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
