"""Overview of the four models of a store: sizes, counts, newest activity and health.

The cost does not grow with the logs. Counted: the files of each model, streams, sessions, apps and
rows of graphs. Read from the newest entry of a log: the time of the newest activity. Sampled: the
spaces that were written last, for commits and health. Records of streams are counted as long as
there are few streams.
"""

from __future__ import annotations

import fnmatch
import heapq
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from fourfold import kernel, limits
from fourfold.errors import FourfoldError
from fourfold.kernel import inspection
from fourfold.kernel.named_queries import load_queries
from fourfold.models.model import Model, all_models
from fourfold.models.sessions import SqliteLog
from fourfold.store.store import Store, open_store

SQL: Final = load_queries("fourfold.store", "overview.sql")
SPACES_SAMPLED: Final = 20
COUNT_MAX: Final = 1_000_000
STREAMS_SUMMED_MAX: Final = 10_000
FILES_MAX: Final = 100_000


class Files(NamedTuple):
    """The files of a model: their size, and those that changed last."""

    bytes: int
    exact: bool
    databases: int
    newest: list[tuple[float, Path]]
    """Databases by the time of their last change, newest first; only some of them."""


class Facts(NamedTuple):
    """What a model holds."""

    unit: str
    total: int
    newest: str | None
    details: dict[str, Any]


def describe(root: Path) -> list[dict[str, Any]]:
    """Return an overview of each model of the store in `root`, which may be in use."""
    with open_store(root, mode="r") as store:
        return [_describe(store, model) for model in in_order(all_models())]


def in_order(models: Iterable[Model[Any]]) -> list[Model[Any]]:
    """Return models in the order of the documentation; others come last."""
    order = list(COUNTERS)
    return sorted(
        models, key=lambda model: order.index(model.name) if model.name in order else len(order)
    )


def _describe(store: Store, model: Model[Any]) -> dict[str, Any]:
    files = find_files(store.root / model.location.folder, model.location.file)
    count_facts = COUNTERS.get(model.name, _files_only)
    problems = [problem for _, path in files.newest for problem in _problems(store, path)]
    writers = (kernel.holder(path) for _, path in files.newest)
    facts = Facts("", 0, None, {})
    try:
        facts = count_facts(store, files)
    except FourfoldError as error:
        problems.append(("fail", error.message))
    newest = None
    if facts.newest is not None:
        newest = _time(datetime.fromisoformat(facts.newest))
    elif files.newest:
        newest = _time(datetime.fromtimestamp(files.newest[0][0], UTC))
    statuses = {status for status, _ in problems}
    return {
        "model": model.name,
        "unit": facts.unit,
        "count": min(facts.total, COUNT_MAX),
        "count_exact": facts.total <= COUNT_MAX,
        "bytes": files.bytes,
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
    total, seen, changed = 0, 0, dict[Path, float]()
    folders = [folder] if folder.is_dir() else []
    while folders and seen < FILES_MAX:
        current = folders.pop()
        with os.scandir(current) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                    continue
                seen += 1
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # A store in use removes files all the time.
                total += status.st_size
                name = entry.name.removesuffix("-wal")
                if current == folder and fnmatch.fnmatchcase(name, pattern):
                    changed[folder / name] = max(changed.get(folder / name, 0.0), status.st_mtime)
    newest = heapq.nlargest(SPACES_SAMPLED, ((at, path) for path, at in changed.items()))
    return Files(total, seen < FILES_MAX, len(changed), newest)


def _documents(store: Store, files: Files) -> Facts:
    commits, newest = 0, ""
    for _, path in files.newest:
        space = store.space(path.stem)
        seq = space.seq()
        commits += seq
        for entry in space.log(after=seq - 1, limit=1) if seq else ():
            newest = max(newest, entry.created_at)
    details = {"sampled_spaces": len(files.newest), "commits": commits}
    return Facts("space", files.databases, newest or None, details)


def _streams(store: Store, files: Files) -> Facts:
    if not files.databases:
        return Facts("stream", 0, None, {"records": 0})
    with store.streams.database.read() as reading:
        count = reading.value(SQL.streams, (COUNT_MAX + 1,))
        # The sum reads the row of every stream, so it is left out for many streams.
        records = reading.value(SQL.stream_records) if count <= STREAMS_SUMMED_MAX else None
        at_ms = reading.value(SQL.newest_record)
    newest = None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()
    return Facts("stream", count, newest, {"records": records})


def _graphs(store: Store, files: Files) -> Facts:
    if not files.databases:
        return Facts("app", 0, None, {"rows": 0, "global_seq": 0})
    graphs = store.graphs
    apps = graphs.list_apps()
    rows = sum(graphs.usage(app.app_id).rows for app in apps)
    with graphs.database.read() as reading:
        newest = reading.value(SQL.newest_envelope)
    return Facts("app", len(apps), newest, {"rows": rows, "global_seq": graphs.get_global_seq()})


def _sessions(store: Store, files: Files) -> Facts:
    if not files.databases:
        return Facts("session", 0, None, {"events": 0})
    log = store.sessions.log
    assert isinstance(log, SqliteLog)
    with log.database.read() as reading:
        count = reading.value(SQL.sessions, (COUNT_MAX + 1,))
        newest = reading.value(SQL.newest_event)
    return Facts("session", count, newest, {"events": store.sessions.position()})


def _files_only(_store: Store, files: Files) -> Facts:
    return Facts("database", files.databases, None, {})


COUNTERS: Final[dict[str, Callable[[Store, Files], Facts]]] = {
    "documents": _documents,
    "streams": _streams,
    "graphs": _graphs,
    "sessions": _sessions,
}
"""How to count what a model holds; of any other model the databases are counted."""


def _time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
