"""Indexes of vectors: the embeddings at a declared path, at every seq and on every branch.

Each version of the vector of an entity is a row of a table of the index, with the seqs between
which a branch had it. Vectors are stored as 32-bit floats of length 1. A search computes the cosine
of each vector that its branch shows, with the functions of sqlite-vec: it is exact. Only a search
needs that package; commits, builds and `verify` do not.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.kernel import Transaction, load_queries
from fourfold.models.documents.ancestry import BranchLink, chain
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.indexes import declaration
from fourfold.models.documents.indexes.declaration import Index, resolve
from fourfold.models.documents.indexes.entries import (
    EntityLog,
    Interval,
    Snapshot,
    readable_intervals,
    readable_versions,
)
from fourfold.models.documents.indexes.text import SQL as TEXT_SQL
from fourfold.models.documents.problems import make_problem
from fourfold.models.documents.records import Document
from fourfold.models.problem import Problem

if TYPE_CHECKING:
    from fourfold.models.documents.indexes.maintenance import EntityBuild, EntityChange
    from fourfold.models.documents.space import Space

SQL: Final = load_queries("fourfold.models.documents.indexes", "vector.sql")
DIMENSIONS_MAX: Final = 8_192
"""Numbers of a vector."""


def table_of(ix: int) -> str:
    """Return the name of the table of an index."""
    return f"index_vector_{ix:d}"


def encode_vector(value: object) -> bytes | None:
    """Return the direction of a vector as 32-bit floats; None if `value` has no direction."""
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= DIMENSIONS_MAX:
        return None
    try:
        numbers = [float(number) for number in value if type(number) in (int, float)]
    except OverflowError:
        return None
    length = math.hypot(*numbers)
    if len(numbers) < len(value) or not 0 < length < math.inf:
        return None
    floats = array("f", [number / length for number in numbers])
    if sys.byteorder == "big":
        floats.byteswap()
    return floats.tobytes()


def check_vector(vector: Any) -> bytes:
    """Return the vector of a search as it is stored; raise InvalidInput for others."""
    values = vector.tolist() if hasattr(vector, "tolist") else vector
    encoded = encode_vector(values)
    if encoded is None:
        raise InvalidInput(
            f"vector must be a list of 1 to {DIMENSIONS_MAX:,} finite numbers that are not all 0, "
            f"got {vector!r:.100}"
        )
    return encoded


def vector_of(index: Index, document: Document | None) -> bytes | None:
    """Return the vector of a document, or None if it has none."""
    if document is None:
        return None
    return next(
        (encode_vector(value) for value in resolve(document, index.paths[0])),
        None,
    )


class VectorIndex:
    """Indexes of vectors."""

    def create(self, txn: Transaction, ix: int) -> None:
        """Create the table of an index, if there is none."""
        txn.execute(SQL.create.format(table=table_of(ix)))

    def write(
        self, txn: Transaction, indexes: Sequence[Index], changes: Sequence[EntityChange]
    ) -> None:
        """Apply the changes of a commit."""
        for index in indexes:
            if index.state == "building":
                # After a restore there is a declaration, and nothing else.
                self.create(txn, index.ix)
            table = table_of(index.ix)
            end = SQL.end if index.options.history == "all" else SQL.delete_live
            for entity, branch, seq, old, new in changes:
                before, after = vector_of(index, old), vector_of(index, new)
                if before == after:
                    continue
                if before is not None:
                    place = (branch, entity, seq)[: 3 if end == SQL.end else 2]
                    txn.execute(end.format(table=table), place)
                if after is not None:
                    row = (branch, entity, seq, None, after)
                    txn.execute(SQL.insert.format(table=table), row)

    def build(self, index: Index) -> EntityBuild:
        """Return a build of the vectors of one entity."""
        return VectorBuild(index)

    def delete_rows(self, txn: Transaction, ix: int, rows_max: int) -> int:
        """Drop the table of a dropped index; return 1 if there was one."""
        del rows_max
        if txn.value(SQL.exists, (table_of(ix),)) is None:
            return 0
        txn.execute(SQL.drop.format(table=table_of(ix)))
        return 1


class VectorBuild:
    """The vectors of one entity of a branch, from all of its states."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._versions: list[tuple[bytes, int, int | None]] = []

    def add(self, states: Iterable[Snapshot]) -> None:
        """Add states that follow those before."""
        versions = self._versions
        for seq, document in states:
            vector = vector_of(self._index, document)
            if versions and versions[-1][2] is None:
                last, begin, _ = versions[-1]
                if last == vector:
                    continue
                versions[-1] = (last, begin, seq)
                if self._index.options.history == "now":
                    del versions[-1]
            if vector is not None:
                versions.append((vector, seq, None))

    def store(self, txn: Transaction, branch: str, entity: str) -> None:
        """Store the vectors in place of those that commits have stored since the declaration."""
        table = table_of(self._index.ix)
        VectorIndex().create(txn, self._index.ix)
        txn.execute(SQL.delete_entity.format(table=table), (branch, entity))
        rows = [(branch, entity, begin, end, vector) for vector, begin, end in self._versions]
        txn.execute_many(SQL.insert.format(table=table), rows)

    def versions(self) -> Iterator[tuple[bytes, Interval]]:
        """Yield each vector, and when it held."""
        for vector, begin, end in self._versions:
            yield vector, (begin, end)


def nearest(
    view: HistoryReader,
    index: Index,
    vector: bytes,
    links: Sequence[BranchLink],
    *,
    page: tuple[int, int],
    allowed: tuple[str, ...] = (),
) -> list[tuple[str, float, int]]:
    """Return the ids, negative cosines and number of the nearest vectors; `page` is limit, offset.

    Args:
        allowed: Empty, or a JSON array of the ids of the entities to compare.

    Raises:
        MissingDependency: The package sqlite-vec is not installed.
    """
    view.snapshot.load_vector_functions()
    sql = SQL.nearest.format(table=table_of(index.ix), allowed=TEXT_SQL.allowed if allowed else "")
    return view.all(sql, (vector, trusted(links), *page, *allowed))


def trim(space: Space, index: Index, retained: dict[str, list[int]], least: int) -> int:
    """Delete the vectors that no reader can see any more; return how many."""
    count = last = 0
    table = table_of(index.ix)
    while True:
        with space.background_view() as view:
            page = view.all(SQL.past.format(table=table), (last, limits.MAINTENANCE_PAGE_ROWS))
        doomed = [
            (doc,)
            for doc, branch, begin, end in page
            if not readable_intervals([(begin, end)], retained.get(branch, [least]))
        ]
        if doomed:
            space.database.transact(partial(_delete, table=table, docs=doomed))
            count += len(doomed)
            space.database.pauses.pause()
        if len(page) < limits.MAINTENANCE_PAGE_ROWS:
            return count
        last = page[-1][0]


def _delete(txn: Transaction, table: str, docs: list[tuple[int]]) -> None:
    txn.execute_many(SQL.delete.format(table=table), docs)


class VectorCheck:
    """The comparison of one index of vectors with the log."""

    def __init__(
        self, view: HistoryReader, index: Index, retained: dict[str, list[int]], least: int
    ) -> None:
        self._view = view
        self._index = index
        self._retained = retained
        self._least = least
        self._table = table_of(index.ix)

    def problems(self) -> Iterator[Problem]:
        """Yield the vectors that are not what the log gives, and then those without an entity."""
        place = ("", "")
        parents: dict[str, list[BranchLink]] = {}
        while page := self._view.all(
            declaration.SQL.heads_page, (*place, limits.MAINTENANCE_PAGE_ROWS)
        ):
            for branch, entity, _ in page:
                if branch not in parents:
                    parents[branch] = chain(self._view, branch, limits.INTEGER_MAX)[1:]
                build = VectorBuild(self._index)
                build.add(EntityLog(parents[branch], branch, entity).read(self._view))
                rows = self._view.all(SQL.versions.format(table=self._table), (branch, entity))
                stored = ((vector, (begin, end)) for vector, begin, end in rows)
                if self._readable(branch, stored) != self._readable(branch, build.versions()):
                    yield self._problem("is not what the log gives", branch, entity)
            place = page[-1][:2]
        for branch, entity in self._view.rows(SQL.without_entity.format(table=self._table)):
            yield self._problem("is not in the log", branch, entity)

    def _readable(
        self, branch: str, versions: Iterable[tuple[bytes, Interval]]
    ) -> list[tuple[bytes, Interval]]:
        retained = self._retained.get(branch, [self._least])
        return readable_versions(versions, retained, self._index.options.history)

    def _problem(self, wrong: str, branch: str, entity: str) -> Problem:
        return make_problem(
            f"index {self._index.name!r}: the vector of {entity!r} on {branch!r} {wrong}",
            self._table,
            {"branch": branch, "id": entity},
        )
