"""Restore drill: publish a store, restore it elsewhere from the objects alone, and compare.

The folder of the store counts as lost: the copy is made from the object store only, at the newest
restore point, and is read completely. Nothing of the store or of its objects changes, except that
the store is published first, unless another process does that.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import unquote, urlsplit

import msgspec

from fourfold.errors import NotFound, Refused
from fourfold.kernel import holder
from fourfold.models.streams import Streams
from fourfold.models.streams.model import MODEL as STREAMS
from fourfold.store import layout
from fourfold.store.database_files import subject_lent
from fourfold.store.fingerprint import fingerprint
from fourfold.store.publish import publish, read_status
from fourfold.store.restoration import RebuildReport, rebuild
from fourfold.store.store import Store, objects_url, open_store
from fourfold.store.table_archive import archive_of, list_points

if TYPE_CHECKING:
    from fourfold.store.publish import Progress

Outcome = Literal["equal", "ahead", "different"]
COMPARE_TRIES: Final = 3
STREAMS_PER_PAGE: Final = 1_000


class DrillComparison(msgspec.Struct, frozen=True):
    """The state of a database or a stream of the store, and that of its copy."""

    name: str
    outcome: Outcome
    """`ahead`: the store has newer changes, which a loss would lose; the copy is a part of it, for
    a stream, or was verified but not compared, for a database."""
    restored: int
    """Position of the copy."""
    newest: int
    """Position of the store."""
    detail: str = ""
    """The table that differs, or the first record."""


class DrillReport(msgspec.Struct, frozen=True):
    """Result of a restore drill."""

    point: str
    point_at: str
    published_by: str
    """`drill`, or the process that writes to the store."""
    publish_s: float
    restore_s: float
    verify_s: float
    compare_s: float
    databases: int
    streams: int
    rows: int
    records: int
    problems: list[str]
    comparisons: list[DrillComparison]
    folder: str
    """Folder of the copy; empty if it was deleted."""

    @property
    def ok(self) -> bool:
        """True if nothing differs and the copy is sound."""
        return not self.problems and all(row.outcome != "different" for row in self.comparisons)


def run_drill(
    root: str | Path, into: str | Path | None = None, progress: Progress | None = None
) -> DrillReport:
    """Publish the store in `root`, restore it into a new folder, and compare both.

    Args:
        root: A store that publishes to an object store outside of its folder.
        into: A new folder for the copy, which stays; by default a temporary one.
        progress: Called with the name of each part, its number and the total.

    Raises:
        Refused: The object store is inside the folder, and would be lost with it.
    """
    root = Path(root).absolute()
    with open_store(root, mode="r") as store:
        url = objects_url(root, store.settings)
        _refuse_inside(root, url)
    writers = _writers(root)
    if into is not None:
        target = Path(into).absolute()
        if target.exists() and any(target.iterdir()):
            raise Refused(f"{target} is not empty", hint="Use a new folder.")
        return _Drill(root, url, writers).run(target, progress, stays=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{root.name}.drill-", dir=root.parent))
    try:
        return _Drill(root, url, writers).run(folder, progress, stays=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _refuse_inside(root: Path, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"", "file"}:
        return
    path = Path(unquote(parts.path) if parts.scheme else url).absolute()
    if path.is_relative_to(root):
        raise Refused(
            f"the object store {path} is inside the store: both would be lost together",
            hint="Set objects.url to a bucket, or to a folder on another disk.",
        )


def _writers(root: Path) -> str:
    """Describe the process that writes to a store; empty if there is none."""
    owners = filter(None, map(holder, layout.databases(root)))
    return next((f"process {owner.get('pid')}" for owner in owners), "")


class _Drill:
    def __init__(self, root: Path, url: str, writer: str) -> None:
        self._root, self._url, self._writer = root, url, writer
        self._seconds: dict[str, float] = {}

    def run(self, target: Path, progress: Progress | None, *, stays: bool) -> DrillReport:
        with open_store(self._root, mode="r" if self._writer else "rw") as store:
            with self._timed("publish"):
                if not self._writer:
                    publish(store, progress=progress).raise_if_failed()
            archive_of(store).catalog.refresh()
            points = list_points(store)
            if not points:
                raise NotFound(
                    "the store has no restore point", hint="Publish it: `fourfold publish ROOT`."
                )
            settings = {"objects.url": self._url}
            with open_store(target, settings=settings) as copy:
                with self._timed("restore"):
                    report = rebuild(copy, at=points[-1].id, progress=progress)
                    for error in report.failures.values():
                        raise error
                with self._timed("verify"):
                    problems = [str(problem) for problem in copy.verify(progress).problems]
                with self._timed("compare"):
                    comparisons = [*_compare_databases(store, copy, report, progress)]
                    comparisons += _compare_streams(store, copy, progress)
        assert report.streams is not None
        return DrillReport(
            point=points[-1].id,
            point_at=points[-1].at,
            published_by=self._writer or "drill",
            **{f"{name}_s": round(seconds, 3) for name, seconds in self._seconds.items()},
            databases=len(report.restored),
            streams=len(report.streams.restored),
            rows=sum(database.rows for database in report.restored),
            records=report.streams.records,
            problems=problems,
            comparisons=comparisons,
            folder=str(target) if stays else "",
        )

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._seconds[name] = time.perf_counter() - started


def _compare_databases(
    store: Store, copy: Store, report: RebuildReport, progress: Progress | None
) -> Iterator[DrillComparison]:
    for number, restored in enumerate(report.restored):
        if progress is not None:
            progress(restored.name, number, len(report.restored))
        yield _compare_database(store, copy, restored.name, restored.position)


def _compare_database(store: Store, copy: Store, name: str, position: int) -> DrillComparison:
    for _ in range(COMPARE_TRIES):
        before = read_status(store, name)
        if before.changes or before.newest != position:
            return DrillComparison(name, "ahead", position, before.newest)
        with subject_lent(store, name) as subject:
            own = fingerprint(subject.database, subject.description)
        with subject_lent(copy, name) as subject:
            restored = fingerprint(subject.database, subject.description)
        if read_status(store, name) == before:
            tables = sorted(own.keys() | restored.keys())
            table = next((one for one in tables if own.get(one) != restored.get(one)), "")
            outcome: Outcome = "different" if table else "equal"
            return DrillComparison(name, outcome, position, before.newest, table)
    return DrillComparison(name, "ahead", position, read_status(store, name).newest)


def _compare_streams(
    store: Store, copy: Store, progress: Progress | None
) -> Iterator[DrillComparison]:
    if not STREAMS.location.names(copy.root):
        return
    after = ""
    for number in count():
        infos = copy.streams.list(after=after, limit=STREAMS_PER_PAGE)
        for info in infos:
            if progress is not None:
                progress(f"streams/{info.name}", number * STREAMS_PER_PAGE, 0)
            try:
                yield _compare_stream(store.streams, copy.streams, info.name, info.next_offset)
            except NotFound:
                # Deleted or expired since the point.
                yield DrillComparison(f"streams/{info.name}", "ahead", info.next_offset, 0)
        if len(infos) < STREAMS_PER_PAGE:
            return
        after = infos[-1].name


def _compare_stream(streams: Streams, copies: Streams, name: str, end: int) -> DrillComparison:
    info, copied = streams.info(name), copies.info(name)
    label, newest = f"streams/{name}", info.next_offset
    if info.incarnation_number != copied.incarnation_number:
        # Deleted and created again since the point.
        return DrillComparison(label, "ahead", end, newest)
    # Retention may have trimmed the store since the point.
    start = max(info.first_offset, copied.first_offset)
    own, restored = _records(streams, name, start, end), _records(copies, name, start, end)
    for record, other in zip_longest(own, restored):
        if record != other:
            offset = min(one[0] for one in (record, other) if one is not None)
            return DrillComparison(label, "different", end, newest, f"record {offset}")
    return DrillComparison(label, "ahead" if newest > end else "equal", end, newest)


def _records(streams: Streams, name: str, offset: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and a digest of each record from an offset until an end."""
    stream = streams.open(name)
    while offset < end:
        chunk = stream.read(offset)
        for record in chunk:
            if record.offset >= end:
                return
            encoded = msgspec.msgpack.encode((record.ts_ms, record.payload, record.headers))
            yield record.offset, hashlib.sha256(encoded).digest()
        if chunk.next_offset <= offset:
            return
        offset = chunk.next_offset
