"""Reads of a graph: `select_*` return rows as written, `current_*` the newest versions.

Each takes `at`, the seq up to which it reads, and `txn`, a transaction whose own rows it sees.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from typing import cast

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.graphs import validation
from fourfold.models.graphs.reader import Query, Reader
from fourfold.models.graphs.records import (
    ATTRS,
    AppLogEntry,
    At,
    Attr,
    Edge,
    Kind,
    Neighbours,
    Parent,
    Part,
    Rating,
    Row,
)
from fourfold.models.graphs.writer import GraphTransaction

Ids = Iterable[int] | None


class Selections:
    """The reading half of `Graphs`."""

    @abstractmethod
    def _reader(self, txn: GraphTransaction | None) -> AbstractContextManager[Reader]: ...

    def select(self, query: Query, *, txn: GraphTransaction | None = None) -> tuple[Row, ...]:
        """Return the rows that match a query, as they were written."""
        with self._reader(txn) as reader:
            return tuple(reader.rows(query))

    def current(
        self,
        query: Query,
        *,
        trusted: Iterable[int] = (),
        suppressed: bool = False,
        txn: GraphTransaction | None = None,
    ) -> tuple[Row, ...]:
        """Return the newest version of each object that matches a query.

        Leaves out what its owner or one of the `trusted` identities suppresses, together with what
        belongs to it, unless `suppressed`. The limit counts the returned objects.
        """
        with self._reader(txn) as reader:
            if suppressed:
                return tuple(reader.rows(query, current=True))
            return tuple(reader.visible(query, frozenset(trusted)))

    def newest(
        self,
        app_id: int,
        kind: Kind,
        object_id: int,
        *,
        at: At | None = None,
        txn: GraphTransaction | None = None,
    ) -> Row:
        """Return the newest version of an object at or before a seq or a time.

        Raises:
            NotFound: The app has no such object at that seq.
        """
        with self._reader(txn) as reader:
            return reader.newest(app_id, validation.check_kind(kind), object_id, at)

    def neighbours(
        self,
        app_id: int,
        object_id: int,
        *,
        kind: Kind = "parent",
        at: At | None = None,
        limit: int = limits.NEIGHBOURS_MAX,
        trusted: Iterable[int] = (),
        suppressed: bool = False,
    ) -> Neighbours:
        """Return a parent or an attribute with what is one hop away from it.

        Leaves out what its owner or one of the `trusted` identities suppresses, unless
        `suppressed`. At most `limit` attributes, edges and ratings each are returned.

        Raises:
            NotFound: The app has no such object at that point.
        """
        with self._reader(None) as reader:
            return reader.neighbours(
                app_id,
                validation.check_kind(kind),
                object_id,
                at=at,
                limit=limit,
                trusted=frozenset(trusted),
                suppressed=suppressed,
            )

    def read_many(
        self,
        app_id: int,
        object_ids: Iterable[int],
        *,
        at: At | None = None,
        limit: int = limits.NEIGHBOURS_MAX,
        suppressed: bool = False,
        parts: Collection[Part] = ATTRS,
    ) -> list[Neighbours]:
        """Return parents with parts of their neighbourhood, all as of one seq.

        Those that do not exist are left out. At most `limit` of each part are returned.
        """
        with self._reader(None) as reader:
            return list(
                reader.read_many(
                    *(app_id, object_ids), at=at, limit=limit, suppressed=suppressed, parts=parts
                )
            )

    def seq_at(self, at: At) -> int:
        """Return the seq that `at` means: of a time the newest seq at or before it."""
        with self._reader(None) as reader:
            return reader.seq_at(at)

    def versions(
        self, app_id: int, kind: Kind, object_id: int, *, txn: GraphTransaction | None = None
    ) -> tuple[Row, ...]:
        """Return every version of an object, oldest first."""
        with self._reader(txn) as reader:
            return reader.versions(app_id, validation.check_kind(kind), object_id)

    def select_parents(
        self,
        app_id: int,
        *,
        type_ids: Ids = None,
        owner: int | None = None,
        since_seq: int | None = None,
        at: int | None = None,
        limit: int | None = None,
        txn: GraphTransaction | None = None,
    ) -> tuple[Parent, ...]:
        """Return parents as they were written."""
        query = Query(app_id, "parent", type_ids, owner, None, None, since_seq, at, limit)
        return cast("tuple[Parent, ...]", self.select(query, txn=txn))

    def select_attrs(
        self,
        app_id: int,
        *,
        parent_ids: Ids = None,
        type_ids: Ids = None,
        since_seq: int | None = None,
        at: int | None = None,
        limit: int | None = None,
        txn: GraphTransaction | None = None,
    ) -> tuple[Attr, ...]:
        """Return attributes as they were written."""
        query = _pointing(
            Query(app_id, "attr", type_ids, since=since_seq, at=at, limit=limit),
            {"parent_id": parent_ids},
        )
        return cast("tuple[Attr, ...]", self._select(query, {}, limit, txn))

    def select_edges(
        self,
        app_id: int,
        *,
        src_parent_ids: Ids = None,
        dst_parent_ids: Ids = None,
        dst_attr_ids: Ids = None,
        type_ids: Ids = None,
        since_seq: int | None = None,
        at: int | None = None,
        limit: int | None = None,
        txn: GraphTransaction | None = None,
    ) -> tuple[Edge, ...]:
        """Return edges from, to or between objects, as they were written."""
        ends = {
            "src_parent_id": src_parent_ids,
            "dst_parent_id": dst_parent_ids,
            "dst_attr_id": dst_attr_ids,
        }
        query = _pointing(
            Query(app_id, "edge", type_ids, since=since_seq, at=at, limit=limit), ends
        )
        return cast("tuple[Edge, ...]", self._select(query, ends, limit, txn))

    def select_ratings(
        self,
        app_id: int,
        *,
        target_parent_ids: Ids = None,
        target_attr_ids: Ids = None,
        type_ids: Ids = None,
        since_seq: int | None = None,
        at: int | None = None,
        limit: int | None = None,
        txn: GraphTransaction | None = None,
    ) -> tuple[Rating, ...]:
        """Return ratings as they were written."""
        targets = {"target_parent_id": target_parent_ids, "target_attr_id": target_attr_ids}
        if target_parent_ids is not None and target_attr_ids is not None:
            raise InvalidInput("pass target_parent_ids or target_attr_ids, not both")
        query = _pointing(
            Query(app_id, "rating", type_ids, since=since_seq, at=at, limit=limit), targets
        )
        return cast("tuple[Rating, ...]", self._select(query, {}, limit, txn))

    def select_logs(
        self, app_id: int, *, after: int = 0, limit: int = 1000
    ) -> tuple[AppLogEntry, ...]:
        """Return entries of the local log of an app after an entry id."""
        with self._reader(None) as reader:
            return reader.log(
                app_id,
                validation.check_integer(after, "after"),
                validation.check_integer(limit, "limit"),
            )

    def select_pending_rows(
        self,
        app_id: int,
        table: Kind,
        flag_mask: int,
        limit: int,
        after_seq: int,
        *,
        txn: GraphTransaction | None = None,
    ) -> tuple[Row, ...]:
        """Return rows after a seq that have one of the flags, in the order of the log.

        A page may be longer than `limit`: it never splits a transaction.
        """
        with self._reader(txn) as reader:
            return reader.pending(app_id, validation.check_kind(table), flag_mask, limit, after_seq)

    def current_parents(
        self,
        app_id: int,
        *,
        type_ids: Ids = None,
        owner: int | None = None,
        at: int | None = None,
        limit: int | None = None,
        trusted: Iterable[int] = (),
        suppressed: bool = False,
        txn: GraphTransaction | None = None,
    ) -> tuple[Parent, ...]:
        """Return the newest version of each parent."""
        query = Query(app_id, "parent", type_ids, owner, at=at, limit=limit)
        rows = self.current(query, trusted=trusted, suppressed=suppressed, txn=txn)
        return cast("tuple[Parent, ...]", rows)

    def current_attrs(
        self,
        app_id: int,
        *,
        parent_ids: Ids = None,
        type_ids: Ids = None,
        at: int | None = None,
        limit: int | None = None,
        trusted: Iterable[int] = (),
        suppressed: bool = False,
        txn: GraphTransaction | None = None,
    ) -> tuple[Attr, ...]:
        """Return the newest version of each attribute."""
        query = _pointing(
            Query(app_id, "attr", type_ids, since=None, at=at, limit=limit),
            {"parent_id": parent_ids},
        )
        rows = self.current(query, trusted=trusted, suppressed=suppressed, txn=txn)
        return cast("tuple[Attr, ...]", rows)

    def _select(
        self,
        query: Query,
        ends: dict[str, Ids],
        limit: int | None,
        txn: GraphTransaction | None,
    ) -> tuple[Row, ...]:
        """Select by one pointer, and filter by the others."""
        others = {
            name: frozenset(ids)
            for name, ids in ends.items()
            if ids is not None and name != query.pointer
        }
        if not others:
            return self.select(query, txn=txn)
        rows = self.select(query._replace(limit=None), txn=txn)
        matches = [row for row in rows if all(getattr(row, n) in ids for n, ids in others.items())]
        return tuple(matches if limit is None else matches[:limit])


def _pointing(query: Query, pointers: dict[str, Ids]) -> Query:
    """Return the query with the first given pointer."""
    for pointer, targets in pointers.items():
        if targets is not None:
            return query._replace(pointer=pointer, targets=targets)
    return query
