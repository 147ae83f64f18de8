"""Publishing a store without a pause: whatever is new in a space, in the sessions or in the graphs
is in the object store a few seconds later, and each time there is a point to restore to.

    with Continuous(store).running() as backup:
        ...                       # backup.state() tells how far it is
    backup.left                   # what was not published in the end, and why

A few databases are published at a time. One that fails is left alone for a while, then longer, and
keeps no other waiting. One that another node publishes is left alone for good. One that another
process writes is not published from here: it is named, and looked at again; that process may
publish it. A database whose files have not changed is not opened at all, so others may write it;
one that has is held for as long as it takes to publish it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fourfold import limits
from fourfold.errors import FourfoldError, PublisherFenced, StorageError, WriterLocked
from fourfold.store import layout, publish, published_databases, retention
from fourfold.store.publish import STREAMS, PublishReport
from fourfold.store.published_databases import path_of

if TYPE_CHECKING:
    from pathlib import Path

    from fourfold.store.store import Store

DATABASES = tuple(model for model in published_databases.MODELS if model != "streams")
_SETTLED_NS = 1_000_000_000
"""A file that changed less than a second ago may change again without looking any different."""
_Look = tuple[tuple[int, int], ...]


class _Rest(NamedTuple):
    until: float
    failures: int
    error: FourfoldError


@dataclass(slots=True)
class PublisherState:
    """How far publishing is, for whoever watches it."""

    databases: int = 0
    """That the store has."""
    publications: int = 0
    objects: int = 0
    bytes: int = 0
    points: int = 0
    merges: int = 0
    deleted: int = 0
    """Objects that nothing needed any more."""
    last_point: str | None = None
    last_round_ms: int | None = None
    """When everything that was due was looked at; what is newer may not be published."""
    failures: int = 0
    """Databases that cannot be published at the moment."""


class Continuous:
    """Publishes the databases of one store, which this process has open for writing. Streams are
    published by `store.archive`; points tell how far they are, too.
    """

    def __init__(self, store: Store, *, streams: bool | None = None) -> None:
        publish.refuse_reader(store)
        self._store = store
        self._streams = (
            layout.streams_path(store.root).exists if streams is None else lambda: streams
        )
        self._resting: dict[str, _Rest] = {}
        self._looks: dict[str, _Look] = {}
        self._state = PublisherState()
        self._collected = time.monotonic()
        self.left: dict[str, FourfoldError] = {}
        """What was not published when it ended, and why."""

    @property
    def failures(self) -> dict[str, FourfoldError]:
        """Why databases are not published at the moment, by name."""
        return {name: rest.error for name, rest in list(self._resting.items())}

    def state(self) -> PublisherState:
        self._state.failures = len(self._resting)
        return self._state

    # Rounds

    def round(self, *, everything: bool = False, streams: bool = False) -> PublishReport:
        """Publish what is new in every database that is not left alone at the moment; with
        `everything`, of all but those of other nodes. With `streams` all streams too.
        """
        store = self._store
        names = list(published_databases.names(store, DATABASES))
        looks = {name: self._look(name) for name in names}
        due = [name for name in names if self._is_due(name, looks[name], everything=everything)]
        with store.publishing:
            report = publish.publish_some(
                store, due, streams=streams, moved=not streams and self._streams()
            )
        for name in due:
            self._gather(name, report.failures.get(name))
        new = {each.name for each in report.published}
        for name in due:
            # Only what was looked at and found to be published needs no other look.
            if name not in new and name not in report.failures:
                self._settle(name, looks[name])
        self._count(report, len(names))
        self._gather(STREAMS, report.failures.get(STREAMS))
        for name in set(self._resting) - set(names) - {"", STREAMS}:
            del self._resting[name]
        return report

    def _is_due(self, name: str, look: _Look, *, everything: bool) -> bool:
        rest = self._resting.get(name)
        if rest is not None:
            return rest.until < float("inf") and (everything or rest.until <= time.monotonic())
        return self._looks.get(name) != look

    def _settle(self, name: str, before: _Look) -> None:
        """A look at the files is remembered, if nothing was going on in them."""
        if before == self._look(name) and all(
            time.time_ns() - changed > _SETTLED_NS for changed, _ in before
        ):
            self._looks[name] = before
        else:
            self._looks.pop(name, None)

    def _look(self, name: str) -> _Look:
        """What the files of a database look like from outside; a log without content is none."""
        path = path_of(self._store, name)
        found = [_times(path), _times(path.with_name(path.name + "-wal"))]
        return tuple(each for each in found if each is not None and each[1])

    def _gather(self, name: str, error: FourfoldError | None) -> None:
        if error is None:
            self._resting.pop(name, None)
            return
        before = self._resting.get(name)
        failures = 1 if before is None else before.failures + 1
        first = (
            limits.PUBLISH_BUSY_S if isinstance(error, WriterLocked) else limits.ARCHIVE_BACKOFF_S
        )
        pause = min(first * 2.0 ** (failures - 1), limits.ARCHIVE_BACKOFF_MAX_S)
        fenced = isinstance(error, PublisherFenced)
        until = float("inf") if fenced else time.monotonic() + pause
        self._resting[name] = _Rest(until, failures, error)

    def _count(self, report: PublishReport, databases: int) -> None:
        state = self._state
        state.databases = databases
        state.publications += len(report.published)
        state.objects += sum(each.objects for each in report.published)
        state.bytes += sum(each.bytes for each in report.published)
        state.merges += len(report.merged)
        state.last_round_ms = publish.now_ms()
        if report.point is not None:
            state.points += 1
            state.last_point = report.point.id

    # The background

    @contextmanager
    def running(self, every_s: float | None = None) -> Iterator[Continuous]:
        """Rounds in the background, until the end of the `with` block; then a last one, of
        everything. `left` tells what could not be published.
        """
        every = self._store.settings.archive.publish_s if every_s is None else every_s
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(every):
                self._try(self.round)
                self._keep_up()

        thread = threading.Thread(target=run, name="fourfold-publishing", daemon=True)
        if every:
            thread.start()
        try:
            yield self
        finally:
            stop.set()
            if every:
                thread.join()
                self._try(self._last_round)
                self.left = {**self.failures, **self.left}

    def _last_round(self) -> None:
        """Publish everything; streams that cannot be published are noted one by one in `left`."""
        report = self.round(everything=True, streams=self._streams())
        self.left = {
            name: error for name, error in report.failures.items() if name.startswith(f"{STREAMS}/")
        }

    def _try(self, work: Callable[[], object]) -> None:
        self._resting.pop("", None)
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the next round may succeed
            # It is told by `failures`, under no name, until then.
            failure = error if isinstance(error, FourfoldError) else None
            told = failure or StorageError(f"publishing failed: {error!r}")
            self._resting[""] = _Rest(0.0, 1, told)

    def _keep_up(self) -> None:
        """Now and then, give up old points and delete what nothing needs."""
        if time.monotonic() - self._collected < limits.PUBLISH_COLLECT_S:
            return
        self._collected = time.monotonic()
        self._try(self.collect)

    def collect(self) -> None:
        """Give up points that the settings do not keep, and delete what nothing needs."""
        done = retention.collect(self._store, seldom=True)
        self._state.deleted += len(done.deleted)
        for name, error in done.failures.items():
            if not isinstance(error, WriterLocked):
                self._gather(name, error)
        if self._streams() and STREAMS not in self._resting:
            self._state.deleted += len(self._store.archive.collect())


def _times(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size
