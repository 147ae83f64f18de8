"""The calls that read a graph: `select_*` for rows as written, `current_*` for objects as they are.

Every one of them takes `at`, a number up to which it looks, and `txn`, the transaction whose own
rows it should see.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import cast

from fourfold.errors import InvalidInput
from fourfold.models.graphs import validation
from fourfold.models.graphs.reader import Question, Reader
from fourfold.models.graphs.records import (
    Attr,
    Edge,
    Kind,
    LogEntry,
    Parent,
    Rating,
    Row,
)
from fourfold.models.graphs.writer import GraphTransaction

Ids = Iterable[int] | None


class Selections:
    """The reading half of `Graphs`."""

    @abstractmethod
    def _reader(self, txn: GraphTransaction | None) -> AbstractContextManager[Reader]: ...

    def select(self, question: Question, *, txn: GraphTransaction | None = None) -> tuple[Row, ...]:
        """The rows that a question finds, as they were written."""
        with self._reader(txn) as reader:
            return tuple(reader.rows(question))

    def current(
        self,
        question: Question,
        *,
        trusted: Iterable[int] = (),
        suppressed: bool = False,
        txn: GraphTransaction | None = None,
    ) -> tuple[Row, ...]:
        """The newest version of each object that a question finds. What its owner, or one of the
        `trusted`, suppresses is left out with what belongs to it, unless `suppressed`. A limit
        counts what is left.
        """
        with self._reader(txn) as reader:
            if suppressed:
                return tuple(reader.rows(question, current=True))
            return tuple(reader.visible(question, frozenset(trusted)))

    def newest(
        self,
        app_id: int,
        kind: Kind,
        object_id: int,
        *,
        at: int | None = None,
        txn: GraphTransaction | None = None,
    ) -> Row:
        """The newest version of one object, now or up to a number."""
        with self._reader(txn) as reader:
            return reader.newest(app_id, validation.check_kind(kind), object_id, at)

    def versions(
        self, app_id: int, kind: Kind, object_id: int, *, txn: GraphTransaction | None = None
    ) -> tuple[Row, ...]:
        """Every version of one object, oldest first."""
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
        asked = Question(app_id, "parent", type_ids, owner, None, None, since_seq, at, limit)
        return cast("tuple[Parent, ...]", self.select(asked, txn=txn))

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
        asked = _pointing(
            Question(app_id, "attr", type_ids, since=since_seq, at=at, limit=limit),
            {"parent_id": parent_ids},
        )
        return cast("tuple[Attr, ...]", self._select(asked, {}, limit, txn))

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
        """Edges from, to, or between objects."""
        ends = {
            "src_parent_id": src_parent_ids,
            "dst_parent_id": dst_parent_ids,
            "dst_attr_id": dst_attr_ids,
        }
        asked = _pointing(
            Question(app_id, "edge", type_ids, since=since_seq, at=at, limit=limit), ends
        )
        return cast("tuple[Edge, ...]", self._select(asked, ends, limit, txn))

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
        targets = {"target_parent_id": target_parent_ids, "target_attr_id": target_attr_ids}
        if target_parent_ids is not None and target_attr_ids is not None:
            raise InvalidInput("a rating is about a parent or an attribute: ask for one of them")
        asked = _pointing(
            Question(app_id, "rating", type_ids, since=since_seq, at=at, limit=limit), targets
        )
        return cast("tuple[Rating, ...]", self._select(asked, {}, limit, txn))

    def select_logs(
        self, app_id: int, *, after: int = 0, limit: int = 1000
    ) -> tuple[LogEntry, ...]:
        """The app's own log, from an entry on."""
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
        """Rows behind a number that have one of the flags, in the order of the log. A page may be
        longer than `limit`: it never cuts what was written under one number.
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
        asked = Question(app_id, "parent", type_ids, owner, at=at, limit=limit)
        found = self.current(asked, trusted=trusted, suppressed=suppressed, txn=txn)
        return cast("tuple[Parent, ...]", found)

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
        asked = _pointing(
            Question(app_id, "attr", type_ids, since=None, at=at, limit=limit),
            {"parent_id": parent_ids},
        )
        found = self.current(asked, trusted=trusted, suppressed=suppressed, txn=txn)
        return cast("tuple[Attr, ...]", found)

    def _select(
        self,
        asked: Question,
        ends: dict[str, Ids],
        limit: int | None,
        txn: GraphTransaction | None,
    ) -> tuple[Row, ...]:
        """Ask by one pointer, and keep what fits the others as well."""
        others = {
            name: frozenset(wanted)
            for name, wanted in ends.items()
            if wanted is not None and name != asked.pointer
        }
        if not others:
            return self.select(asked, txn=txn)
        found = self.select(asked._replace(limit=None), txn=txn)
        kept = [row for row in found if all(getattr(row, n) in w for n, w in others.items())]
        return tuple(kept if limit is None else kept[:limit])


def _pointing(question: Question, pointers: dict[str, Ids]) -> Question:
    """The same question, by the first pointer that is given."""
    for pointer, targets in pointers.items():
        if targets is not None:
            return question._replace(pointer=pointer, targets=targets)
    return question
