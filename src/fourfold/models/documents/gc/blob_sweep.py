"""Blobs that nothing readable mentions.

A blob is mentioned where its 64 digits stand in the text of a document, of patches or in the id of
an entity, in anything that the log or a snapshot still holds; so `{"$blob": ...}` is found, and any
other way to write it. The entity with its metadata mentions it too. A blob therefore goes only when
its metadata was deleted, or never written, and nothing readable shows it any more: both are out of
reach, or none is.

Looking for mentions reads everything that is left of the log. It is done only when there are blobs
that are old enough and whose metadata is gone, and ends when all of them were found.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fourfold import limits
from fourfold.kernel import Transaction
from fourfold.models.documents.chain import last_seq
from fourfold.models.documents.gc.records import Tally
from fourfold.models.documents.history import Row, View
from fourfold.models.documents.space_blobs import META_PREFIX

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space

_DIGITS = re.compile(r"(?=([0-9a-f]{64}))")


def sweep(space: Space, age_s: float, tally: Tally) -> None:
    moment = moment_before(age_s)
    with space.background_view() as view:
        scanned = last_seq(view)
    listed = unmentioned(space, moment)
    for start in range(0, len(listed), limits.MAINTENANCE_PAGE_ROWS):
        batch = listed[start : start + limits.MAINTENANCE_PAGE_ROWS]

        def work(txn: Transaction, batch: list[str] = batch) -> Tally:
            return _removed(txn, space, batch, moment, scanned)

        tally.join(space.database.transact(work))


def moment_before(age_s: float) -> str:
    """When it was so many seconds ago, as the table of blobs writes it."""
    before = datetime.fromtimestamp(max(time.time() - age_s, 0.0), UTC)
    return before.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def unmentioned(space: Space, moment: str) -> list[str]:
    """The blobs from before a moment that nothing readable mentions now. Only reads."""
    candidates = _candidates(space, moment)
    _strike_mentioned(space, candidates)
    return sorted(candidates)


def _candidates(space: Space, moment: str) -> set[str]:
    """The blobs that are old enough, and of which no metadata is left."""
    found: set[str] = set()
    last = ""
    while True:
        with space.background_view() as view:
            page = view.all(view.sql.blobs_page, (last, moment, limits.MAINTENANCE_PAGE_ROWS))
            found.update(digits for (digits,) in page if not _described(view, digits))
        if len(page) < limits.MAINTENANCE_PAGE_ROWS:
            return found
        last = page[-1][0]


def _described(view: View, digits: str) -> bool:
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
    """Take the blobs that are still as they were when they were looked at."""
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
