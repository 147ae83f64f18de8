"""Garbage collection of a space: `space.gc(policy)`, and `space.maintain()` where a policy is kept.

A collection first moves the horizon, and writes down which points below it stay readable: from then
on nobody can ask for what is about to go. Then it works through the log, the requests, the
snapshots, the values and the blobs, in transactions that are short enough for others to write in
between. One that is stopped, or killed, leaves a space that is whole; the next one finishes it.

Seqs, commits, heads and the newest state of every entity on every branch always stay.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fourfold import limits
from fourfold.errors import CorruptData, Refused
from fourfold.kernel import Database, Transaction
from fourfold.models.documents import retention
from fourfold.models.documents.gc import blob_sweep, points, policy, requests, sweeping
from fourfold.models.documents.gc.horizon import horizon
from fourfold.models.documents.gc.policy import GcPolicy
from fourfold.models.documents.gc.records import Collected, Tally

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space


def collect(
    space: Space, asked: GcPolicy | None, *, pins: tuple[int, ...] = (), dry_run: bool = False
) -> Collected:
    """Collect what `asked` allows or, if it is None, what the policy of the space does."""
    if asked is not None:
        asked = policy.checked(asked)
    if dry_run:
        return _on_a_copy(space, asked, pins)
    with space.upkeep:
        with space.background_view() as view:
            stored, before = policy.stored(view), horizon(view)
        chosen = asked or stored
        if chosen is None:
            raise Refused(
                f"{space.did} gives up nothing: it has no policy for collections",
                hint="Say what may go: `fourfold space gc ROOT DID --keep 1000`, or "
                "`space.gc(GcPolicy(keep_seqs=1000))`.",
            )
        # Whoever collects by another policy for once may not know what was pinned.
        pinned = tuple({*chosen.pins, *(stored.pins if stored else ()), *pins})
        tally = Tally()
        _finish(space, tally)
        _begin(space, chosen, pinned)
        _finish(space, tally)
        if chosen.snapshots != "all":
            _drop_snapshots(space, chosen.snapshots, pinned, tally)
        _orphans(space, tally)
        if chosen.blobs:
            blob_sweep.sweep(space, chosen.blob_age_s, tally)
        with space.background_view() as view:
            kept = sum(map(len, points.stored_points(view).values()))
            report = tally.report(horizon(view), before, kept)
        if tally:
            space.database.drop_migration_backups()
        return report


def keep_policy(space: Space, asked: GcPolicy | None) -> None:
    """Keep a policy in the space, if it can be followed as things are."""
    chosen = None if asked is None else policy.checked(asked)
    kind = space.history_kind

    def work(txn: Transaction) -> None:
        view = kind.view(txn)
        if chosen is not None:
            points.plan(view, chosen, chosen.pins)
        policy.store(txn, view, chosen)

    space.database.transact(work)


def _on_a_copy(space: Space, asked: GcPolicy | None, pins: tuple[int, ...]) -> Collected:
    """What a collection would do, by doing it to a copy: nothing else counts shared facts and
    values as exactly, and the space itself, opened only to be read, cannot change.
    """
    kind = space.history_kind
    opened = {"profile": kind.profile, "migrations": kind.migrations, "sequences": (kind.seq,)}
    with tempfile.TemporaryDirectory(prefix="fourfold-gc-") as folder:
        copy = Path(folder) / "copy.sqlite"
        with Database.open(space.database.path, mode="r", **opened) as source:  # type: ignore[arg-type]
            source.backup(copy)
        with Database.open(copy, **opened) as database:  # type: ignore[arg-type]
            done = collect(type(space)(space.did, database, kind), asked, pins=pins)
    return msgspec.structs.replace(done, dry_run=True)


def _begin(space: Space, chosen: GcPolicy, pins: tuple[int, ...]) -> None:
    """Move the horizon, and write down which points stay. What needs these is decided beside the
    writers, and once more among them if somebody forked or merged meanwhile.
    """
    kind = space.history_kind
    with space.background_view() as view:
        planned = points.plan(view, chosen, pins)
        _, shortened, _, _ = view.all(view.sql.gc_state)[0]
    requests = chosen.requests and shortened < planned.horizon
    if not planned.windows and not requests:
        return
    _prepare(space)

    def work(txn: Transaction) -> None:
        view = kind.view(txn)
        made = planned if points.holds(view, planned) else points.plan(view, chosen, pins)
        txn.execute(view.sql.forget_points)
        kept = [(branch, seq) for branch, seqs in made.points.items() for seq in seqs]
        txn.execute_many(view.sql.insert_point, kept)
        state = sweeping.State(made.horizon, requests, made.windows)
        txn.execute(view.sql.begin_run, (made.horizon, state.spelled()))

    space.database.transact(work)


def _prepare(space: Space) -> None:
    """Indexes, which in a large space take longer to make than a transaction may otherwise."""
    space.database.transact(space.history_kind.collecting.prepare, deadline_s=limits.GC_PREPARE_S)


def _finish(space: Space, tally: Tally) -> None:
    """Do what a collection that has begun still has to do; nothing if there is none."""
    with space.background_view() as view:
        _, shortened, _, run = view.all(view.sql.gc_state)[0]
        kept = points.stored_points(view)
    if run is None:
        return
    try:
        state = msgspec.json.decode(run, type=sweeping.State)
    except msgspec.MsgspecError as error:
        raise CorruptData(f"the collection that is under way cannot be read: {error}") from error
    sweeping.sweep(space, state, kept, tally)
    if state.requests:
        requests.shorten(space, shortened, state.horizon, tally)
    space.database.transact(lambda txn: txn.execute(space.history_kind.sql.note_run, (None,)))


# Snapshots and values


def _drop_snapshots(
    space: Space, keep: retention.Retention, pins: tuple[int, ...], tally: Tally
) -> None:
    kind = space.history_kind
    for doomed in retention.superfluous(space, keep, pins):

        def work(txn: Transaction, doomed: list[retention.Key] = doomed) -> Tally:
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
    """Values of snapshots that maintenance dropped: nobody looked after them then."""
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
