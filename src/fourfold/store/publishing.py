"""Publishing a whole store: every space, the sessions, the graphs, the streams, and a point that
names what they were at.

One database after the other; one that fails is told, and does not stop the others. Each publication
is a consistent state of its database; a point holds the states of all of them, which lie as far
apart in time as it took to publish them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fourfold.archive import checking
from fourfold.archive.points import Place, Point, PointInfo, Points
from fourfold.archive.publishing import (
    DatabasePublisher,
    Moment,
    Published,
    Standing,
    Subject,
    standing,
)
from fourfold.blobs import FolderBlobs
from fourfold.content.hashes import PREFIX
from fourfold.errors import FourfoldError, InvalidInput, ReadOnly
from fourfold.kernel import Database
from fourfold.models.documents.publication import PUBLICATIONS
from fourfold.models.graphs import MIGRATIONS as GRAPH_STEPS
from fourfold.models.graphs.publication import PUBLICATION as GRAPHS
from fourfold.models.sessions import MIGRATIONS as SESSION_STEPS
from fourfold.models.sessions import TableLog
from fourfold.models.sessions.publication import PUBLICATION as SESSIONS
from fourfold.models.streams.publication import Moved, moved_since
from fourfold.objects import ObjectStore
from fourfold.store import layout

if TYPE_CHECKING:
    from fourfold.models.streams.archive import Round
    from fourfold.store.store import Store

MODELS = ("documents", "sessions", "graphs", "streams")
Progress = Callable[[str, int, int], None]
"""Called with what is being worked on, steps done, and steps in all."""


@dataclass(slots=True)
class PublishReport:
    """What one run published."""

    point: PointInfo | None = None
    """The point that it made; None when nothing was new."""
    published: list[Published] = field(default_factory=list)
    unchanged: int = 0
    streams: Round | None = None
    failures: dict[str, FourfoldError] = field(default_factory=dict)
    """Why databases and streams were not published, by name."""

    def raise_if_failed(self) -> None:
        for error in self.failures.values():
            raise error


def publish(
    store: Store,
    models: Sequence[str] | None = None,
    progress: Progress | None = None,
    *,
    release: bool = False,
) -> PublishReport:
    """Publish everything of a store that is new, or of some of its models. With `release` spaces
    are closed again, which suits a caller that has the store to itself.
    """
    models = _check_models(models)
    if store.mode != "rw":
        raise ReadOnly(f"{store.root}: is open for reading; nothing is published")
    with store.publishing:
        return _publish(store, models, progress, release=release)


def _publish(
    store: Store, models: Sequence[str], progress: Progress | None, *, release: bool
) -> PublishReport:
    points, report = Points(store.objects), PublishReport()
    before = points.newest()
    started_ms = _now_ms()
    moment = Moment(points.next_id(datetime.now(UTC)), now())
    names = list(_names(store, models))
    for number, name in enumerate(names):
        if progress is not None:
            progress(name, number, len(names))
        _publish_one(store, name, store.objects, moment, report)
        _release(store, name, release=release)
    shutil.rmtree(scratch_of(store.root), ignore_errors=True)
    streams: dict[str, Place] = {}
    if "streams" in models and layout.streams_path(store.root).exists():
        _publish_streams(store, report, progress)
    if report.streams is not None:
        # A clock may have gone back since.
        since = 0 if before is None else min(before.started_ms, started_ms)
        with store.streams.database.read() as snapshot:
            streams = {each.name: _place(each) for each in moved_since(snapshot, since)}
        if before is not None and streams:
            known = points.read(before).streams
            streams = {name: at for name, at in streams.items() if known.get(name) != at}
    if report.published or streams:
        databases = {each.name: Place(each.generation, each.position) for each in report.published}
        report.point = points.add(Point(moment.point, now(), started_ms, databases, streams))
    return report


def standings(
    store: Store, models: Sequence[str] | None = None, *, release: bool = False
) -> list[Standing]:
    """How far each database is published, and how far it is; what lies between would be lost with
    the disk.
    """
    found = []
    for name in _names(store, _check_models(models)):
        found.append(standing(subject_of(store, name)))
        _release(store, name, release=release)
    return found


def object_problems(
    store: Store, progress: Progress | None = None
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What is wrong in the object store with each database of the store that is published."""
    names = list(_names(store, MODELS))
    checked: set[str] = set()
    for number, name in enumerate(names):
        if progress is not None:
            progress(name, number, len(names))
        subject = subject_of(store, name)
        if standing(subject).generation:
            yield name, tuple(checking.object_problems(subject, store.objects, checked))


def _release(store: Store, name: str, *, release: bool) -> None:
    if release and name not in {name_of_sessions(), name_of_graphs()}:
        store.release(did_of(name))


def subject_of(store: Store, name: str) -> Subject:
    """What publishing must know of a database of the store."""
    scratch = scratch_of(store.root) / name
    if name == name_of_sessions():
        blobs = FolderBlobs(layout.session_blobs(store.root))
        return Subject(
            name,
            "sessions",
            len(SESSION_STEPS),
            _session_log(store),
            SESSIONS,
            scratch,
            lambda digest: blobs.chunks(f"{PREFIX}{digest}"),
        )
    if name == name_of_graphs():
        database = store.graphs.database
        return Subject(name, "graphs", len(GRAPH_STEPS), database, GRAPHS, scratch)
    space = store.space(did_of(name))
    kind = space.history_kind
    return Subject(
        name, kind.name, len(kind.migrations), space.database, PUBLICATIONS[kind.name], scratch
    )


def _session_log(store: Store) -> Database:
    log = store.sessions.log
    assert isinstance(log, TableLog)
    return log.database


def _place(moved: Moved) -> Place:
    return Place(moved.generation, moved.uploaded_through, moved.incarnation)


def name_of_space(did: str) -> str:
    return f"spaces/{did}"


def did_of(name: str) -> str:
    return name.removeprefix("spaces/")


def name_of_sessions() -> str:
    return "sessions"


def name_of_graphs() -> str:
    return "graphs"


def scratch_of(root: Path) -> Path:
    return root / ".publishing"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _names(store: Store, models: Sequence[str]) -> Iterator[str]:
    if "documents" in models:
        yield from map(name_of_space, store.spaces())
    if "sessions" in models and layout.sessions_path(store.root).exists():
        yield name_of_sessions()
    if "graphs" in models and layout.graphs_path(store.root).exists():
        yield name_of_graphs()


def _publish_one(
    store: Store, name: str, objects: ObjectStore, moment: Moment, report: PublishReport
) -> None:
    try:
        done = DatabasePublisher(subject_of(store, name), objects).publish(moment)
    except FourfoldError as error:
        report.failures[name] = error
        return
    if done is None:
        report.unchanged += 1
    else:
        report.published.append(done)


def _publish_streams(store: Store, report: PublishReport, progress: Progress | None) -> None:
    count = 0

    def tell(done: Round) -> None:
        nonlocal count
        count += len(done.published)
        if progress is not None:
            progress("streams", count, 0)

    try:
        report.streams = store.archive.publish_all(tell)
    except FourfoldError as error:
        report.failures["streams"] = error
        return
    report.failures |= {f"streams/{name}": each for name, each in report.streams.failures.items()}


def _check_models(models: Sequence[str] | None) -> Sequence[str]:
    if models is None:
        return MODELS
    unknown = sorted(set(models) - set(MODELS))
    if unknown or not models:
        raise InvalidInput(
            f"{', '.join(unknown) or 'nothing'}: is no model that is published",
            hint=f"One of: {', '.join(MODELS)}.",
        )
    return models
