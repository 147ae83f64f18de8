"""Snapshots of a space: which ones it retains, and where it needs another.

Snapshots are derived: every state can be read without them, and only the time that takes changes
when some are dropped. Whatever the policy, those stay from which a read now, at a fork, or at a
pinned seq starts.

    "all"    every snapshot stays: each past state is a short replay away
    k        the newest k of each entity on each branch
    "log"    the older, the fewer: of those whose distance in seqs from the newest lies between two
             powers of two, one

Maintenance works in short transactions beside readers and writers. It can stop anywhere and start
again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Literal

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.kernel import Queries, Transaction
from fourfold.models.documents import reader
from fourfold.models.documents.ancestry import chain, last_seq
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.gc.records import GcReport
from fourfold.models.documents.history import History
from fourfold.models.documents.indexes.declaration import SQL as INDEX_SQL
from fourfold.models.documents.records import Branch
from fourfold.models.documents.validation import check_several

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space

Retention = Literal["all", "log"] | int
Key = tuple[str, str, int]
"""Branch, entity, seq."""


class MaintenanceReport(msgspec.Struct, frozen=True):
    """Counts of the snapshots that maintenance made, where replay was deep, and dropped."""

    made: int
    dropped: int
    collected: GcReport | None = None
    """Report of the gc that ran too, if the space has a policy."""


def check_retention(retention: object) -> None:
    """Raise InvalidInput unless a value is a way to keep snapshots."""
    good = retention in ("all", "log") or (type(retention) is int and retention >= 1)
    if not good:
        raise InvalidInput(
            f"{retention!r:.100} is not a way to keep snapshots",
            hint='Use "all", "log", or how many of the newest to keep, at least 1.',
        )


def maintain(space: Space, retention: Retention, pins: Iterable[int]) -> MaintenanceReport:
    """Add and remove snapshots as a retention says; return the report."""
    check_retention(retention)
    pinned = check_several(pins, "the seqs to pin")
    newest = space.seq()
    strange = [pin for pin in pinned if type(pin) is not int or not 0 <= pin <= newest]
    if strange:
        raise InvalidInput(f"seq {strange[0]!r:.100} cannot be pinned; the newest is {newest}")
    with space.upkeep:
        count = _make_missing(space)
        dropped = 0 if retention == "all" else _drop(space, retention, pinned)
    return MaintenanceReport(count, dropped)


def surplus(
    seqs: Sequence[int], retention: Retention, anchors: Iterable[int], newest: int
) -> list[int]:
    """Return the snapshots of an entity, given in order, that a policy does not need.

    An anchor is a seq that is read: the newest snapshot at or before it is retained.
    """
    if retention == "all" or not seqs:
        return []
    retained = {seqs[-1]}
    retained.update(seqs[at - 1] for anchor in anchors if (at := bisect_right(seqs, anchor)))
    if retention == "log":
        # The oldest of each span: as time goes on spans grow together, and still hold one each.
        retained.update({(newest - seq + 1).bit_length(): seq for seq in reversed(seqs)}.values())
    else:
        retained.update(seqs[-retention:])
    return [seq for seq in seqs if seq not in retained]


def _drop(space: Space, retention: Retention, pinned: Sequence[int]) -> int:
    dropped = 0
    for doomed in superfluous(space, retention, pinned):
        dropped += len(doomed)
        space.database.transact(partial(_forget, sql=space.history_kind.sql, keys=doomed))
    return dropped


def superfluous(space: Space, retention: Retention, pinned: Sequence[int]) -> Iterator[list[Key]]:
    """Yield the snapshots that a policy does not need, page by page."""
    last: Key = ("", "", 0)
    while True:
        with space.background_view() as view:
            newest = last_seq(view)
            anchors = _anchors([Branch(*row) for row in view.rows(view.sql.branches)], pinned)
            page: list[Key] = [
                (branch, entity, seq)
                for branch, entity, seq in view.rows(
                    view.sql.snapshot_keys, (*last, limits.MAINTENANCE_PAGE_ROWS)
                )
            ]
            if not page:
                return
            # The last entity of a page may continue on the next page, so it is read to its end.
            branch, entity, _ = page[-1]
            while rest := view.all(
                view.sql.snapshot_keys, (*page[-1], limits.MAINTENANCE_PAGE_ROWS)
            ):
                more = [(one, two, seq) for one, two, seq in rest if (one, two) == (branch, entity)]
                page += more
                if len(more) < len(rest):
                    break
        last = page[-1]
        doomed: list[Key] = [
            (*key, seq)
            for key, rows in groupby(page, key=lambda row: row[:2])
            for seq in surplus(
                [row[2] for row in rows], retention, anchors.get(key[0], pinned), newest
            )
        ]
        if doomed:
            yield doomed


def _forget(txn: Transaction, sql: Queries, keys: list[Key]) -> None:
    txn.execute_many(sql.delete_snapshot, keys)
    # What they refer to may be orphaned now; the next collection looks for it.
    txn.execute(sql.loosen, (len(keys),))


def _anchors(branches: Iterable[Branch], pinned: Sequence[int]) -> dict[str, list[int]]:
    """Return the seqs at which each branch is read: forks, also of dead branches, and pins."""
    anchors: dict[str, list[int]] = {}
    for branch in branches:
        anchors.setdefault(branch.name, []).extend(pinned)
        if branch.parent is not None and branch.fork_seq is not None:
            anchors.setdefault(branch.parent, []).append(branch.fork_seq)
    return anchors


def _make_missing(space: Space) -> int:
    """Make snapshots of the newest states that take many patches to reach."""
    count = 0
    for branch, entity, seq in _deep_heads(space):
        with space.background_view() as view:
            # A state at a seq never changes, so it can be computed without holding up the writer.
            entry = reader.entry(view, chain(view, branch, seq), entity)
        if entry is None or entry.document is None or not entry.patches:
            continue
        _make(space, branch, entity, entry.seq, trusted(entry.document))
        count += 1
    return count


def _make(space: Space, branch: str, entity: str, seq: int, text: str) -> None:
    keep = space.history_kind.keep_snapshot
    space.database.transact(
        lambda txn: keep(txn, branch, entity, seq, text), size=len(entity) + len(text)
    )


def keep_if_deep(txn: Transaction, history: History, branch: str, entity: str) -> None:
    """Store a snapshot of the newest state of an entity if it takes many patches to reach."""
    view = history.view(txn)
    seq = view.value(INDEX_SQL.head_seq, (branch, entity))
    if view.value(view.sql.replay_depth, (branch, entity, seq)) < limits.SNAPSHOT_REPLAY_MAX:
        return
    entry = reader.entry(view, chain(view, branch, seq), entity)
    if entry is not None and entry.document is not None and entry.patches:
        history.keep_snapshot(txn, branch, entity, entry.seq, trusted(entry.document))


def _deep_heads(space: Space) -> Iterator[Key]:
    last = ("", "")
    while True:
        with space.background_view() as view:
            page = view.all(view.sql.head_keys, (*last, limits.MAINTENANCE_PAGE_ROWS))
            deep = [
                (branch, entity, seq)
                for branch, entity, seq in page
                if view.value(view.sql.replay_depth, (branch, entity, seq))
                >= limits.SNAPSHOT_REPLAY_MAX
            ]
        yield from deep
        if len(page) < limits.MAINTENANCE_PAGE_ROWS:
            return
        last = (page[-1][0], page[-1][1])
