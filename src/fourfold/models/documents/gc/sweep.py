"""Garbage collection of a space: `space.gc(policy)`, and `space.maintain()` with a stored policy.

A collection first moves the horizon and records which earlier points stay readable, so no later
read needs what is about to be removed. It then sweeps the log, the requests, the snapshots, the
values and the blobs in short transactions, between which others write. A collection that is stopped
or killed leaves a consistent space, and the next one completes it. Seqs, commits, heads and the
newest state of every entity on every branch always stay.

The rows to remove are chosen from a snapshot. The choice stays valid, because states before the
horizon never change and only a collection removes rows. Every transaction leaves a consistent
space: it writes the document that a remaining row needs before it removes the rows that led to it,
it removes the newest row of a run first, since older rows may have snapshots that depend on
earlier ones, and it removes snapshots together with their rows.

A blob is removed if its metadata entity is deleted or was never written, and nothing readable
mentions it. It is mentioned wherever its 64 hexadecimal digits occur in a document, a patch or an
entity id that the log or a snapshot still holds: `{"$blob": ...}` and any other notation are found.
The search reads the whole remaining log, so it runs only if there are candidates that are old
enough, and ends when all of them were found.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from fourfold import limits
from fourfold.content import content_id
from fourfold.errors import CorruptData, Refused
from fourfold.kernel import Database, Transaction
from fourfold.kernel.index_build import build_index
from fourfold.models.documents import reader, snapshots
from fourfold.models.documents.ancestry import BranchLink, chain, last_seq
from fourfold.models.documents.blobs import META_PREFIX
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.gc import commit_digests, plan, policy
from fourfold.models.documents.gc.commit_digests import Seals
from fourfold.models.documents.gc.horizon import horizon
from fourfold.models.documents.gc.plan import EntityRow, Place, Points, RowRun, Window, runs
from fourfold.models.documents.gc.policy import GcPolicy
from fourfold.models.documents.gc.records import GcReport, Tally
from fourfold.models.documents.history import History, HistoryReader, Row
from fourfold.models.documents.indexes.trim import trim

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space

GC_VIEW_ENTITIES: Final = 32
"""Entities whose rows are inspected in one snapshot."""


class SweepState(msgspec.Struct):
    """A running gc, as the space stores it until it is finished."""

    horizon: int
    requests: bool
    windows: list[Window]

    def spelled(self) -> str:
        """The state as text."""
        return trusted(self)


class SweepRun(NamedTuple):
    """The rows of an entity between two places, and the base that the next row needs."""

    branch: str
    entity: str
    after: Place
    until: Place
    base: str | None
    rows: int

    @property
    def place(self) -> tuple[str, str, int, int, int, int]:
        """The parameters of the queries for its rows."""
        return (self.branch, self.entity, *self.after, *self.until)


class _SweepResult(NamedTuple):
    tally: Tally
    left: list[SweepRun]


def sweep(space: Space, state: SweepState, points: Points, tally: Tally) -> None:
    """Remove what no reader needs from every window.

    In batches: many small runs to a transaction, or many transactions to a long run.
    """
    waiting: list[SweepRun] = []
    rows = size = since_note = 0
    for doomed in _doomed(space, state, points):
        waiting.append(doomed)
        rows += doomed.rows
        size += len(doomed.base or "")
        if rows >= limits.GC_BATCH_ROWS or size >= limits.GC_BATCH_BYTES:
            # To write down what is left costs the number of windows. A collection that is stopped
            # does again what it did since, and finds nothing there.
            since_note += rows
            noted = since_note >= len(state.windows)
            _take(space, waiting, tally, state if noted else None)
            waiting, rows, size, since_note = [], 0, 0, 0 if noted else since_note
    _take(space, waiting, tally, state)


def _doomed(space: Space, state: SweepState, points: Points) -> Iterator[SweepRun]:
    """Yield what goes out of every window. A window leaves the state once all of it was yielded."""
    while state.windows:
        window = state.windows[-1]
        done: set[str] = set()
        retained = [*points.get(window.branch, ()), state.horizon]
        place = (window.after, "\U0010ffff")
        while True:
            with space.background_view() as view:
                page = view.all(
                    view.sql.window_page,
                    (window.branch, *place, window.until, limits.MAINTENANCE_PAGE_ROWS),
                )
            if len(done) > limits.GC_ENTITIES_REMEMBERED:
                done.clear()
            entities = dict.fromkeys(entity for _, entity in page if entity not in done)
            done.update(entities)
            yield from doomed_in(space, window.branch, entities, retained)
            if len(page) < limits.MAINTENANCE_PAGE_ROWS:
                break
            place = page[-1]
            state.windows[-1] = msgspec.structs.replace(window, after=max(place[0] - 1, 0))
        state.windows.pop()


def doomed_in(
    space: Space, branch: str, entities: dict[str, None], points: list[int]
) -> Iterator[SweepRun]:
    """Yield what gc removes from the logs of some entities on a branch. Only reads."""
    waiting = list(reversed(entities))
    while waiting:
        result: list[SweepRun] = []
        size = 0
        with space.background_view() as view:
            # A snapshot is held only for a short while, pauses included, or the log of the database
            # would grow: writers then take longer for each commit.
            until = len(waiting) - GC_VIEW_ENTITIES
            while waiting and len(waiting) > until and size < limits.GC_BATCH_BYTES:
                entity = waiting.pop()
                rows = view.rows(view.sql.entity_rows, (branch, entity, points[-1]))
                for run in runs((EntityRow(*row) for row in rows), points):
                    doomed = _decided(view, branch, entity, run)
                    if doomed is not None:
                        result.append(doomed)
                        size += len(doomed.base or "")
        yield from result


def _decided(view: HistoryReader, branch: str, entity: str, run: RowRun) -> SweepRun | None:
    """Return what is removed of a run, and the base that the next row needs instead."""
    if not run.leading:
        return SweepRun(branch, entity, run.after, run.until, None, run.rows)
    seq = run.until[0]
    entry = reader.entry(view, [BranchLink(branch, seq), *chain(view, branch, seq)[1:]], entity)
    assert entry is not None
    assert entry.document is not None
    text = trusted(entry.document)
    if len(text.encode()) <= run.leading:
        return SweepRun(branch, entity, run.after, run.until, text, run.rows)
    if not run.rest:
        return None
    return SweepRun(branch, entity, run.after, run.leading_from, None, run.rest)


def _take(space: Space, waiting: list[SweepRun], tally: Tally, state: SweepState | None) -> None:
    """Delete a batch of rows; after the last one, store the state if there is one."""
    history = space.history_kind
    unsealed: dict[int, int] = {}
    while waiting:
        batch = waiting
        seqs = [seq for seq in _seqs_of_next(space, batch) if seq not in unsealed]
        unsealed |= commit_digests.digests_of_unsealed(space, seqs)

        work = partial(_taken, history, batch, unsealed, state)
        done = space.database.transact(work, size=sum(len(run.base or "") for run in batch))
        tally.join(done.tally)
        waiting = done.left
        space.database.pauses.pause()


def _seqs_of_next(space: Space, batch: list[SweepRun]) -> Iterable[int]:
    """Return the commits of the rows that the next transaction removes at most."""
    seqs: dict[int, None] = {}
    most = limits.GC_BATCH_ROWS
    with space.background_view() as view:
        for doomed in batch:
            found = view.all(view.sql.doomed_seqs, (*doomed.place, most))
            seqs.update((seq, None) for (seq,) in found)
            most -= len(found)
            if most <= 0:
                break
    return seqs


def _taken(
    history: History,
    batch: list[SweepRun],
    unsealed: Mapping[int, int],
    state: SweepState | None,
    txn: Transaction,
) -> _SweepResult:
    """Delete rows for a limited time; store the state if none are left."""
    taking = _SweepTransaction(txn, history, unsealed)
    left = list(batch)
    while left and not taking.full:
        doomed = left.pop(0)
        count = taking.take(doomed)
        if 0 < count < doomed.rows:
            left.insert(0, doomed._replace(rows=doomed.rows - count))
    taking.seals.write()
    if state is not None and not left:
        txn.execute(history.sql.note_run, (state.spelled(),))
    return _SweepResult(taking.tally, left)


class _SweepTransaction:
    """One transaction of a collection."""

    def __init__(self, txn: Transaction, history: History, unsealed: Mapping[int, int]) -> None:
        self.seals = Seals(txn, history, unsealed)
        self.tally = Tally()
        self._txn = txn
        self._history = history
        self._rows = 0
        self._size = 0
        self._until = time.perf_counter() + limits.GC_TRANSACTION_S

    @property
    def full(self) -> bool:
        return (
            time.perf_counter() >= self._until
            or self._rows >= limits.GC_BATCH_ROWS
            or self._size >= limits.GC_BATCH_BYTES
        )

    def take(self, doomed: SweepRun) -> int:
        """Take the newest of the doomed rows, as many as still fit, and return their number."""
        rows = []
        for row in self._newest(doomed):
            self.seals.take(row[2], row)
            rows.append(row)
            if self.full:
                break
        if not rows:
            return 0
        txn, sql, key = self._txn, self._history.sql, (doomed.branch, doomed.entity)
        newest, oldest, stays = rows[0][2], rows[-1][2], doomed.until[0]
        if doomed.base is not None:
            self._history.keep_snapshot(txn, *key, stays, doomed.base)
            txn.execute(sql.insert_base, (*key, stays, content_id(doomed.base.encode())))
        txn.execute(sql.insert_gap, (*key, *doomed.until, newest))
        txn.execute_many(sql.delete_gap, [(*key, row[2], row[3]) for row in rows])
        snapshots = [
            row for row in txn.all(sql.snapshots_between, (*key, oldest, newest)) if row[0] != stays
        ]
        for seq, size, _ in snapshots:
            txn.execute(sql.delete_base, (*key, seq))
            txn.execute(sql.remove_snapshot, (*key, seq))
            self.tally.note("snapshots", 1, size)
        collecting = self._history.collecting
        self.tally.join(collecting.remove(txn, *key, rows))
        self.tally.join(collecting.release(txn, [ref for _, _, ref in snapshots]))
        return len(rows)

    def _newest(self, doomed: SweepRun) -> Iterator[Row]:
        most = limits.GC_BATCH_ROWS - self._rows
        for row in self._txn.rows(self._history.sql.doomed_rows, (*doomed.place, most)):
            self._rows += 1
            self._size += sum(len(value) for value in row if isinstance(value, bytes))
            yield row


_DIGITS = re.compile(r"(?=([0-9a-f]{64}))")


def sweep_blobs(space: Space, age_s: float, tally: Tally) -> None:
    """Remove blobs that no revision refers to and that are older than `age_s`."""
    moment = time_before(age_s)
    with space.background_view() as view:
        scanned = last_seq(view)
    listed = list_unreferenced(space, moment)
    for start in range(0, len(listed), limits.MAINTENANCE_PAGE_ROWS):
        batch = listed[start : start + limits.MAINTENANCE_PAGE_ROWS]

        def work(txn: Transaction, batch: list[str] = batch) -> Tally:
            return _removed(txn, space, batch, moment, scanned)

        tally.join(space.database.transact(work))


def time_before(age_s: float) -> str:
    """Return the time `seconds` ago, as the table of blobs stores it."""
    before = datetime.fromtimestamp(max(time.time() - age_s, 0.0), UTC)
    return before.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def list_unreferenced(space: Space, moment: str) -> list[str]:
    """Return blobs stored before a time that no readable revision mentions; write nothing."""
    candidates = _candidates(space, moment)
    _strike_mentioned(space, candidates)
    return sorted(candidates)


def _candidates(space: Space, moment: str) -> set[str]:
    """Return the blobs that are old enough and have no metadata."""
    entities: set[str] = set()
    last = ""
    while True:
        with space.background_view() as view:
            page = view.all(view.sql.blobs_page, (last, moment, limits.MAINTENANCE_PAGE_ROWS))
            entities.update(digits for (digits,) in page if not _described(view, digits))
        if len(page) < limits.MAINTENANCE_PAGE_ROWS:
            return entities
        last = page[-1][0]


def _described(view: HistoryReader, digits: str) -> bool:
    entity = f"{META_PREFIX}{digits}"
    return any(
        view.value(view.sql.says_something, (branch, entity))
        for branch, *_ in view.all(view.sql.branches)
    )


def _strike_mentioned(space: Space, candidates: set[str]) -> None:
    size = limits.MAINTENANCE_PAGE_ROWS
    for query, place in (("texts_page", ("", "", 0, -1)), ("snapshots_page", ("", "", 0))):
        last: Row = place
        while candidates:
            with space.background_view() as view:
                page = view.all(getattr(view.sql, query), (*last, size))
            for row in page:
                _strike(candidates, (row[1], row[-1]))
            if len(page) < size:
                break
            last = page[-1][:-1]


def _strike(candidates: set[str], texts: Iterable[str | None]) -> None:
    for text in texts:
        for match in _DIGITS.finditer(text or ""):
            candidates.discard(match[1])


def _removed(txn: Transaction, space: Space, batch: list[str], moment: str, scanned: int) -> Tally:
    """Delete the blobs that have not changed since they were marked."""
    view, tally = space.history_kind.view(txn), Tally()
    left = set(batch)
    for (seq,) in view.all(view.sql.seqs_since, (scanned,)):
        for row in view.rows(view.sql.revisions_of_commit, (seq,)):
            _strike(left, (row[1], row[5]))
    for digits in sorted(left):
        size = view.value(view.sql.old_blob, (digits, moment))
        if size is not None:
            txn.execute(view.sql.delete_blob, (digits,))
            tally.note("blobs", 1, size)
    return tally


def collect(
    space: Space,
    requested: GcPolicy | None,
    *,
    pins: tuple[int, ...] = (),
    dry_run: bool = False,
) -> GcReport:
    """Collect what `requested` allows or, if it is None, what the policy of the space allows."""
    if requested is not None:
        requested = policy.checked(requested)
    if dry_run:
        return _on_a_copy(space, requested, pins)
    with space.upkeep:
        with space.background_view() as view:
            stored, before = policy.stored(view), horizon(view)
        chosen = requested or stored
        if chosen is None:
            raise Refused(
                f"{space.did}: has no policy for gc",
                hint="Set a policy: `fourfold space gc ROOT DID --keep 1000`, or "
                "`space.gc(GcPolicy(keep_seqs=1000))`.",
            )
        # A caller with another policy may not know the pins of the stored one.
        pinned = tuple({*chosen.pins, *(stored.pins if stored else ()), *pins})
        tally = Tally()
        _finish(space, tally)
        _begin(space, chosen, pinned)
        _finish(space, tally)
        if chosen.snapshots != "all":
            _drop_snapshots(space, chosen.snapshots, pinned, tally)
        _orphans(space, tally)
        if chosen.blobs:
            sweep_blobs(space, chosen.blob_age_s, tally)
        with space.background_view() as view:
            point_count = sum(map(len, plan.stored_points(view).values()))
            report = tally.report(horizon(view), before, point_count)
        if tally:
            space.database.drop_migration_backups()
        return report


def keep_policy(space: Space, asked: GcPolicy | None) -> None:
    """Store a policy in the space, if it can be applied to the current state."""
    chosen = None if asked is None else policy.checked(asked)
    kind = space.history_kind

    def work(txn: Transaction) -> None:
        view = kind.view(txn)
        if chosen is not None:
            plan.make_plan(view, chosen, chosen.pins)
        policy.store(txn, view, chosen)

    space.database.transact(work)


def _on_a_copy(space: Space, policy: GcPolicy | None, pins: tuple[int, ...]) -> GcReport:
    """Report what gc would remove, by running it on a copy.

    Only that counts shared facts and values exactly, and the space, open for reading, cannot
    change.
    """
    kind = space.history_kind
    opened = {"profile": kind.profile, "migrations": kind.migrations, "sequences": (kind.seq,)}
    with tempfile.TemporaryDirectory(prefix="fourfold-gc-") as folder:
        copy = Path(folder) / "copy.sqlite"
        with Database.open(space.database.path, mode="r", **opened) as source:  # type: ignore[arg-type]
            source.backup(copy)
        with Database.open(copy, **opened) as database:  # type: ignore[arg-type]
            done = collect(type(space)(space.did, database, kind), policy, pins=pins)
    return msgspec.structs.replace(done, dry_run=True)


def _begin(space: Space, chosen: GcPolicy, pins: tuple[int, ...]) -> None:
    """Move the horizon, and store the points that stay.

    The rows that these need are determined without the writer lock, and again in the transaction
    after a concurrent fork or merge.
    """
    kind = space.history_kind
    with space.background_view() as view:
        planned = plan.make_plan(view, chosen, pins)
        _, shortened, _, _ = view.all(view.sql.gc_state)[0]
    requests = chosen.requests and shortened < planned.horizon
    if not planned.windows and not requests:
        return
    _prepare(space)

    def work(txn: Transaction) -> None:
        view = kind.view(txn)
        new_plan = planned if plan.is_current(view, planned) else plan.make_plan(view, chosen, pins)
        txn.execute(view.sql.forget_points)
        rows = [(branch, seq) for branch, seqs in new_plan.points.items() for seq in seqs]
        txn.execute_many(view.sql.insert_point, rows)
        state = SweepState(new_plan.horizon, requests, new_plan.windows)
        txn.execute(view.sql.begin_run, (new_plan.horizon, state.spelled()))

    space.database.transact(work)


def _prepare(space: Space) -> None:
    """Build the indexes that gc needs, in slices."""
    for index in space.history_kind.collecting.indexes:
        build_index(space.database, index)


def _finish(space: Space, tally: Tally) -> None:
    """Do what a collection that has begun still has to do; nothing if there is none."""
    with space.background_view() as view:
        _, shortened, _, run = view.all(view.sql.gc_state)[0]
        points = plan.stored_points(view)
    if run is None:
        return
    try:
        state = msgspec.json.decode(run, type=SweepState)
    except msgspec.MsgspecError as error:
        raise CorruptData(f"the collection that is under way cannot be read: {error}") from error
    sweep(space, state, points, tally)
    if state.requests:
        commit_digests.shorten(space, shortened, state.horizon, tally)
    trim(space)
    space.database.transact(lambda txn: txn.execute(space.history_kind.sql.note_run, (None,)))


# Snapshots and values


def _drop_snapshots(
    space: Space, keep: snapshots.Retention, pins: tuple[int, ...], tally: Tally
) -> None:
    kind = space.history_kind
    for doomed in snapshots.superfluous(space, keep, pins):

        def work(txn: Transaction, doomed: list[snapshots.Key] = doomed) -> Tally:
            done, refs = Tally(), []
            for branch, entity, seq in doomed:
                place = (branch, entity, seq, seq)
                for _, size, ref in txn.all(kind.sql.snapshots_between, place):
                    done.note("snapshots", 1, size)
                    refs.append(ref)
            txn.execute_many(kind.sql.delete_snapshot, doomed)
            done.join(kind.collecting.release(txn, refs))
            return done

        _prepare(space)
        tally.join(space.database.transact(work))


def _orphans(space: Space, tally: Tally) -> None:
    """Delete values of snapshots that maintenance dropped without deleting their values."""
    kind = space.history_kind
    with space.background_view() as view:
        _, _, loose, _ = view.all(view.sql.gc_state)[0]
    if not loose:
        return
    _prepare(space)
    for refs in kind.collecting.unreferred(space.background_view):

        def work(txn: Transaction, refs: list[str] = refs) -> Tally:
            return kind.collecting.release(txn, refs)

        tally.join(space.database.transact(work))
    space.database.transact(lambda txn: txn.execute(kind.sql.tighten, (loose,)))
