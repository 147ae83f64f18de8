"""Taking rows out of a log of facts, with the facts and values that nothing refers to then.

A fact goes with the last place where it was said; a value with the last fact and snapshot that
refer to it. The parent of a fact that stays may be gone: its hash still stands in the fact, and a
row of `gc_gap` says that it was taken on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from fourfold import limits
from fourfold.kernel import Transaction, load_queries
from fourfold.models.documents.gc.records import Tally
from fourfold.models.documents.history import Row, View

_SQL = load_queries("fourfold.models.documents.facts")


def remove(txn: Transaction, branch: str, entity: str, rows: Sequence[Row]) -> Tally:
    """Take occurrences of facts about an entity of a branch."""
    places = [(branch, entity, row[2], row[3]) for row in rows]
    txn.execute_many(_SQL.delete_occurrence, places)
    tally = Tally()
    tally.note("revisions", len(rows), sum(len(row[6] or b"") for row in rows))
    refs = []
    for row in rows:
        named = row[4].decode()
        value = txn.value(_SQL.value_of_fact, (named,))
        txn.execute(_SQL.delete_fact, (named,))
        if txn.changes:
            tally.note("facts", 1, 0)
            refs.append(value)
        else:
            txn.execute(_SQL.move_fact, (named,))
    tally.join(release(txn, refs))
    return tally


def release(txn: Transaction, refs: Sequence[str | None]) -> Tally:
    """Take those of these values to which nothing refers."""
    tally = Tally()
    for ref in dict.fromkeys(refs):
        size = txn.value(_SQL.orphan, (ref,))
        if size is not None:
            txn.execute(_SQL.delete_value, (ref,))
            tally.note("values", 1, size)
    return tally


def prepare(txn: Transaction) -> None:
    """Make what refers to facts and values quick to find; it takes long once, in a large space."""
    for sql in (_SQL.index_occurrence, _SQL.index_head, _SQL.index_fact, _SQL.index_snapshot):
        txn.execute(sql)


def unreferred(view: Callable[[], AbstractContextManager[View]]) -> Iterator[list[str]]:
    """The values that nothing refers to, page by page."""
    last = ""
    while True:
        with view() as opened:
            page = opened.all(_SQL.values_page, (last, limits.MAINTENANCE_PAGE_ROWS))
        orphans = [named for named, referred in page if not referred]
        if orphans:
            yield orphans
        if len(page) < limits.MAINTENANCE_PAGE_ROWS:
            return
        last = page[-1][0]
