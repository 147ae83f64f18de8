"""Taking rows out of the log, in short transactions.

What is to be taken was decided from a snapshot. That holds good later: states up to the horizon
never change, and nobody but a collection takes anything. A transaction leaves the space whole. It
writes the document that a surviving row needs before it takes what led there; it takes the newest
row of a run first, so that older ones, which may have snapshots of their own, still stand on what
they stood on; and it takes the snapshots along with their rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from fourfold import limits
from fourfold.content import content_id
from fourfold.kernel import Transaction
from fourfold.models.documents import reader
from fourfold.models.documents.chain import Link, chain
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.gc.points import Points, Window
from fourfold.models.documents.gc.records import Tally
from fourfold.models.documents.gc.runs import LogRow, Place, Run, runs
from fourfold.models.documents.gc.seals import Seals
from fourfold.models.documents.history import History, Row, View

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space


class State(msgspec.Struct):
    """A collection under way, as the space keeps it until it is finished."""

    horizon: int
    requests: bool
    windows: list[Window]

    def spelled(self) -> str:
        return trusted(self)


class Doomed(NamedTuple):
    """The rows of an entity between two places, and what the row behind them needs."""

    branch: str
    entity: str
    after: Place
    until: Place
    base: str | None
    rows: int


class _Done(NamedTuple):
    tally: Tally
    left: list[Doomed]


def sweep(space: Space, state: State, points: Points, tally: Tally) -> None:
    """Take what nobody needs out of every window.

    In batches: many small runs to a transaction, or many transactions to a long run.
    """
    waiting: list[Doomed] = []
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


def _doomed(space: Space, state: State, points: Points) -> Iterator[Doomed]:
    """Yield what goes out of every window. A window leaves the state once all of it was yielded."""
    while state.windows:
        window = state.windows[-1]
        done: set[str] = set()
        kept = [*points.get(window.branch, ()), state.horizon]
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
            yield from doomed_in(space, window.branch, entities, kept)
            if len(page) < limits.MAINTENANCE_PAGE_ROWS:
                break
            place = page[-1]
            state.windows[-1] = msgspec.structs.replace(window, after=max(place[0] - 1, 0))
        state.windows.pop()


def doomed_in(
    space: Space, branch: str, entities: dict[str, None], points: list[int]
) -> Iterator[Doomed]:
    """What goes of the logs of some entities on a branch. Only reads."""
    waiting = list(entities)
    while waiting:
        found: list[Doomed] = []
        size = 0
        with space.background_view() as view:
            # A snapshot is held only for a short while, or the log of the database would grow.
            while waiting and size < limits.GC_BATCH_BYTES:
                entity = waiting.pop(0)
                rows = view.rows(view.sql.entity_rows, (branch, entity, points[-1]))
                for run in runs((LogRow(*row) for row in rows), points):
                    doomed = _decided(view, branch, entity, run)
                    if doomed is not None:
                        found.append(doomed)
                        size += len(doomed.base or "")
        yield from found


def _decided(view: View, branch: str, entity: str, run: Run) -> Doomed | None:
    """What goes of a run, and what the row behind it needs instead."""
    if not run.leading:
        return Doomed(branch, entity, run.after, run.until, None, run.rows)
    seq = run.until[0]
    found = reader.entry(view, [Link(branch, seq), *chain(view, branch, seq)[1:]], entity)
    assert found is not None
    assert found.document is not None
    text = trusted(found.document)
    if len(text.encode()) <= run.leading:
        return Doomed(branch, entity, run.after, run.until, text, run.rows)
    if not run.rest:
        return None
    return Doomed(branch, entity, run.after, run.leading_from, None, run.rest)


def _take(space: Space, waiting: list[Doomed], tally: Tally, state: State | None) -> None:
    """Take a batch; with the last of it, write down the state if that is given."""
    history = space.history_kind
    while waiting:
        batch = waiting

        def work(txn: Transaction, batch: list[Doomed] = batch) -> _Done:
            done = _taken(txn, history, batch)
            if state is not None and not done.left:
                txn.execute(history.sql.note_run, (state.spelled(),))
            return done

        done = space.database.transact(work, size=sum(len(each.base or "") for each in batch))
        tally.join(done.tally)
        waiting = done.left
        space.database.pauses.rest()


def _taken(txn: Transaction, history: History, batch: list[Doomed]) -> _Done:
    taking = _Taking(txn, history)
    left = list(batch)
    while left and not taking.full:
        doomed = left.pop(0)
        count = taking.take(doomed)
        if 0 < count < doomed.rows:
            left.insert(0, doomed._replace(rows=doomed.rows - count))
    taking.seals.write()
    return _Done(taking.tally, left)


class _Taking:
    """One transaction of a collection."""

    def __init__(self, txn: Transaction, history: History) -> None:
        self.seals = Seals(txn, history)
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
            or self.seals.rows_read >= limits.GC_SEAL_ROWS
        )

    def take(self, doomed: Doomed) -> int:
        """Take the newest of the doomed rows, as many as still fit; how many that were."""
        rows = []
        for row in self._newest(doomed):
            # A seal needs all of its commit, so this is what takes the time.
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

    def _newest(self, doomed: Doomed) -> Iterator[Row]:
        place = (doomed.branch, doomed.entity, *doomed.after, *doomed.until)
        most = limits.GC_BATCH_ROWS - self._rows
        for row in self._txn.rows(self._history.sql.doomed_rows, (*place, most)):
            self._rows += 1
            self._size += sum(len(each) for each in row if isinstance(each, bytes))
            yield row
