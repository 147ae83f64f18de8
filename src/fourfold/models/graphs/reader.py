"""Reads: rows by their fields and targets, now or at any seq.

    select_*     rows as they were written, in the order of the log
    current_*    the newest version of each object, without what is suppressed

A filter that is None does not filter; an empty one matches nothing. `since` is exclusive, `at` is
inclusive. Both become ranges of ids, because ids and numbers grow together, so every question is
a walk along one index, without sorting what was not asked for.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar, cast

from fourfold import limits
from fourfold.errors import InvalidInput, NotFound
from fourfold.kernel import Queries, ReadTransaction
from fourfold.models.graphs import fold, validation
from fourfold.models.graphs.apps import Apps
from fourfold.models.graphs.records import (
    ATTRS,
    PARTS,
    ROWS,
    SUPPRESS,
    App,
    AppLogEntry,
    At,
    Attr,
    Edge,
    Envelope,
    Kind,
    Neighbours,
    Part,
    Rating,
    Row,
)
from fourfold.models.graphs.statements import (
    POINTERS,
    REFERENCES,
    SQL,
    app_statements,
    statements_of,
)

T = TypeVar("T")

_LAST_ID = (1 << 63) - 1
_NO_LIMIT = -1
_PAGE, _PAGE_MIN = 500, 16
"""Rows that are read at once to see which of them are suppressed; with a limit about as many."""


class Query(NamedTuple):
    """A query of one table of one app."""

    app_id: int
    kind: Kind
    type_ids: Iterable[int] | None = None
    owner: int | None = None
    pointer: str | None = None
    targets: Iterable[int] | None = None
    since: int | None = None
    at: At | None = None
    limit: int | None = None
    after_id: int = 0
    """Only rows with a greater id, to continue after a page."""


Target = tuple[Kind, int]
"""A parent or an attribute, by its kind and id."""


class _Judges(NamedTuple):
    """Whose suppressions count: in which app, by which type of rating, up to which number."""

    app_id: int
    suppress: int
    at: At | None
    trusted: frozenset[int]


class Reader:
    """Reads of one snapshot."""

    def __init__(self, snapshot: ReadTransaction, apps: Apps, node: str) -> None:
        self._snapshot = snapshot
        self._apps = apps
        self._node = node

    def rows(self, question: Query, *, current: bool = False) -> list[Row]:
        """Return the rows that match a query, in the order of the log."""
        return list(self.iterate(question, current=current))

    def iterate(self, question: Query, *, current: bool = False) -> Iterator[Row]:
        """Yield the rows that match a query."""
        self._apps.must_exist(self._snapshot, question.app_id)
        limit = _limit(question.limit)
        bounds = self._bounds(question)
        if bounds is None or limit == 0:
            return iter(())
        types = _ids(question.type_ids, "type_ids")
        sql = statements_of(question.app_id, question.kind)
        if question.pointer is not None:
            rows = self._pointing(sql, question, types, bounds, current=current)
        else:
            rows = self._walk(sql, question, types, bounds, limit, current=current)
        make = ROWS[question.kind]._make
        return (make(row) for row in (rows if limit < 0 else islice(rows, limit)))

    def newest(self, app_id: int, kind: Kind, object_id: int, at: At | None = None) -> Row:
        """Return the newest version of one object up to a seq or a time."""
        self._apps.must_exist(self._snapshot, app_id)
        validation.check_integer(object_id, f"{kind}.object_id", least=1)
        last = self._last_id(app_id, kind, at)
        sql = statements_of(app_id, kind).newest
        row = self._snapshot.one(sql, (object_id, last))
        if row is None:
            when = "" if at is None else f" at {at}"
            raise NotFound(f"app {app_id} has no {kind} {object_id}{when}")
        return ROWS[kind]._make(row)

    def versions(self, app_id: int, kind: Kind, object_id: int) -> tuple[Row, ...]:
        """Return every version of one object, oldest first."""
        self._apps.must_exist(self._snapshot, app_id)
        validation.check_integer(object_id, f"{kind}.object_id", least=1)
        rows = self._snapshot.all(statements_of(app_id, kind).versions, (object_id,))
        versions = [ROWS[kind]._make(row) for row in rows]
        return tuple(sorted(versions, key=lambda row: fold.rank(row, self._node)))

    def history(
        self, app_id: int, kind: Kind, object_id: int, at: At | None, after_id: int = 0
    ) -> Iterator[Row]:
        """Yield the versions of one object in the order in which they were written here."""
        self._apps.must_exist(self._snapshot, app_id)
        validation.check_integer(object_id, f"{kind}.object_id", least=1)
        last = self._last_id(app_id, kind, at)
        sql = statements_of(app_id, kind).history
        first = statements_of(app_id, kind).first_version
        ways = [self._snapshot.rows(first, (object_id, after_id, last))]
        ways += [self._snapshot.rows(sql, (object_id, leads, after_id, last)) for leads in (0, 1)]
        make = ROWS[kind]._make
        return (make(row) for row in heapq.merge(*ways))

    def neighbours(
        self,
        app_id: int,
        kind: Kind,
        object_id: int,
        *,
        at: At | None,
        limit: int,
        trusted: frozenset[int] = frozenset(),
        suppressed: bool = False,
        parts: Collection[Part] = PARTS,
    ) -> Neighbours:
        """Return an object with up to `limit` attributes, edges and ratings one hop away.

        Only the `parts` are read; others are empty.
        """
        if kind not in {"parent", "attr"}:
            raise InvalidInput(f"neighbours: kind must be parent or attr, got {kind!r}")
        validation.check_integer(limit, "limit", least=1)
        seq = at if at is None else self.seq_at(at)
        centre = self.newest(app_id, kind, object_id, seq)

        def pointing(pointing_kind: Kind, pointer: str) -> list[Any]:
            if f"{pointing_kind}s" not in parts:
                return []
            query = Query(app_id, pointing_kind, at=seq)
            sql = statements_of(app_id, pointing_kind)
            last = self._last_id(app_id, pointing_kind, seq)
            if pointing_kind == "edge":
                names = [f"adjacent_{pointer}"] + [f"adjacent_past_{pointer}"] * (seq is not None)
                params: tuple[int, ...] = (object_id, last, _LAST_ID if seq is None else seq)
            else:
                names, params = [f"held_by_one_{pointer}"], (object_id, last)
            make = ROWS[pointing_kind]._make
            ways = (self._snapshot.rows(getattr(sql, name), params) for name in names)
            rows: Iterator[Row] = (make(row) for row in chain.from_iterable(ways))
            if not suppressed:
                rows = self._unsuppressed(rows, query, trusted, min(_PAGE, limit + _PAGE_MIN))
            return list(islice(rows, limit + 1))

        outgoing: list[Edge] = []
        attrs: list[Attr] = []
        if kind == "parent":
            attrs = pointing("attr", "parent_id")
            outgoing = pointing("edge", "src_parent_id")
        known = {edge.id for edge in outgoing}
        incoming = [edge for edge in pointing("edge", f"dst_{kind}_id") if edge.id not in known]
        ratings: list[Rating] = pointing("rating", f"target_{kind}_id")
        # Neither direction hides the other.
        out_max = max(limit // 2, limit - len(incoming))
        edges = [*outgoing[:out_max], *incoming[: limit - min(out_max, len(outgoing))]]
        complete = len(edges) == len(outgoing) + len(incoming)
        versions: list[Row] = []
        if "versions" in parts:
            around: list[tuple[Kind, Row]] = [(kind, centre)]
            around += [("attr", attr) for attr in attrs[:limit]]
            around += [("rating", rating) for rating in ratings[:limit]]
            versions = self._versions(app_id, around, seq)
        return Neighbours(
            centre,
            tuple(attrs[:limit]),
            tuple(edges),
            tuple(ratings[:limit]),
            tuple(self._other_ends(app_id, centre, kind, edges, seq) if "objects" in parts else ()),
            complete
            and len(attrs) <= limit
            and len(ratings) <= limit
            and len(versions) <= limits.VERSIONS_MAX,
            tuple(sorted(versions[: limits.VERSIONS_MAX], key=_log_order)),
        )

    def _versions(
        self, app_id: int, objects: Iterable[tuple[Kind, Row]], at: int | None
    ) -> list[Row]:
        """Return the versions of objects, up to one more than a read returns."""
        versions = (
            version
            for kind, row in objects
            for version in self.history(app_id, kind, row.object_id, at)
        )
        return list(islice(versions, limits.VERSIONS_MAX + 1))

    def read_many(
        self,
        app_id: int,
        object_ids: Iterable[int],
        *,
        at: At | None,
        limit: int,
        suppressed: bool = False,
        parts: Collection[Part] = ATTRS,
    ) -> Iterator[Neighbours]:
        """Yield parents with up to `limit` of each part; those that do not exist are left out."""
        validation.check_parts(parts)
        seq = at if at is None else self.seq_at(at)
        for object_id in object_ids:
            try:
                yield self.neighbours(
                    *(app_id, "parent", object_id),
                    at=seq,
                    limit=limit,
                    suppressed=suppressed,
                    parts=parts,
                )
            except NotFound:
                continue

    def _other_ends(
        self, app_id: int, centre: Row, kind: Kind, edges: Iterable[Edge], at: int | None
    ) -> Iterator[Row]:
        ends: dict[Target, None] = {}
        if isinstance(centre, Attr):
            ends["parent", centre.parent_id] = None
        for edge in edges:
            ends.update(dict.fromkeys(sorted(_about(edge, "edge"))))
        ends.pop((kind, centre.object_id), None)
        for end_kind, number in ends:
            # Earlier versions accepted references to objects that do not exist.
            try:
                yield self.newest(app_id, end_kind, number, at)
            except NotFound:
                continue

    def visible(self, question: Query, trusted: frozenset[int]) -> Iterator[Row]:
        """Yield the current version of each object, without suppressed ones.

        The owner and trusted identities suppress objects and what belongs to them. The limit counts
        the rest.
        """
        limit = _limit(question.limit)
        rows = self.iterate(question._replace(limit=None if limit else 0), current=True)
        size = _PAGE if limit < 0 else min(_PAGE, limit + _PAGE_MIN)
        shown = self._unsuppressed(rows, question, trusted, size)
        return shown if limit < 0 else islice(shown, limit)

    def _unsuppressed(
        self, rows: Iterator[Row], question: Query, trusted: frozenset[int], size: int
    ) -> Iterator[Row]:
        """Yield visible rows page by page: ratings are read in bulk, and memory is bounded."""
        suppress = self._apps.find_type(self._snapshot, question.app_id, "rating", SUPPRESS)
        if suppress is None:
            yield from rows
            return
        while page := list(islice(rows, size)):
            about = [_about(row, question.kind) for row in page]
            judges = _Judges(question.app_id, suppress, question.at, trusted)
            hidden = self._hidden(frozenset().union(*about), judges)
            yield from (row for row, each in zip(page, about, strict=True) if not each & hidden)

    def _hidden(self, objects: frozenset[Target], judges: _Judges) -> set[Target]:
        """Return the suppressed ones of `targets`; a parent hides its attributes."""
        attrs = {number for kind, number in objects if kind == "attr"}
        parents = {number for kind, number in objects if kind == "parent"}
        sql = app_statements(judges.app_id).parents_of_attrs
        belongs = self._snapshot.all(sql, (json.dumps(sorted(attrs)),)) if attrs else []
        hidden_parents = self._suppressed("parent", parents | {row[1] for row in belongs}, judges)
        hidden_attrs = self._suppressed("attr", attrs, judges)
        hidden_attrs |= {row[0] for row in belongs if row[1] in hidden_parents}
        hidden: set[Target] = {("parent", number) for number in hidden_parents}
        return hidden | {("attr", number) for number in hidden_attrs}

    def _suppressed(self, kind: Kind, ids: set[int], judges: _Judges) -> set[int]:
        """Return the objects of one kind that are suppressed themselves."""
        if not ids:
            return set()
        query = Query(
            judges.app_id,
            "rating",
            type_ids=[judges.suppress],
            pointer=f"target_{kind}_id",
            targets=ids,
            at=judges.at,
        )
        ratings = (row for row in self.rows(query, current=True) if isinstance(row, Rating))
        parents, attrs = fold.suppressions(ratings, frozenset({judges.suppress}))
        suppressed_by = parents if kind == "parent" else attrs
        sql = statements_of(judges.app_id, kind).owners
        rows = self._snapshot.all(sql, (json.dumps(sorted(suppressed_by)),))
        owners: dict[int, int] = dict(cast("Any", rows))
        return {
            number
            for number, by in suppressed_by.items()
            if fold.is_hidden(by, owners.get(number), judges.trusted)
        }

    def pending(
        self, app_id: int, kind: Kind, flag_mask: int, limit: int, after_seq: int
    ) -> tuple[Row, ...]:
        """Return rows after a seq that have one of the flags.

        Returns at least `limit` of them if there are that many, and never splits a seq.
        """
        self._apps.must_exist(self._snapshot, app_id)
        validation.check_integer(flag_mask, "flag_mask")
        validation.check_integer(after_seq, "after_seq")
        validation.check_integer(limit, "limit", least=1)
        pending: list[Row] = []
        rows = self._snapshot.rows(statements_of(app_id, kind).pending, (after_seq, flag_mask))
        for values in rows:
            row = ROWS[kind]._make(values)
            if len(pending) >= limit and row.global_seq != pending[-1].global_seq:
                break
            pending.append(row)
        return tuple(pending)

    def log(self, app_id: int, after: int, limit: int) -> tuple[AppLogEntry, ...]:
        """Return the next transactions of an app after a seq."""
        return self._apps.read_log(self._snapshot, app_id, after, limit)

    def apps(self) -> tuple[App, ...]:
        """Return all apps, the system app included."""
        return self._apps.all(self._snapshot)

    def envelopes(self, app_id: int, trace_id: str, after: int, limit: int) -> list[Envelope]:
        """Return envelopes of an app with a trace id, after a seq."""
        self._apps.must_exist(self._snapshot, app_id)
        validation.check_text(trace_id, "trace_id")
        validation.check_integer(after, "after")
        validation.check_integer(limit, "limit", least=1)
        rows = self._snapshot.all(SQL.envelopes_of_trace, (app_id, trace_id, after, limit))
        return list(map(Envelope._make, rows))

    def newest_seq(self, at_most: int | None = None) -> int:
        """Return the newest seq that this snapshot sees."""
        newest = int(self._snapshot.value(SQL.last_seq))
        return newest if at_most is None else min(newest, at_most)

    def seq_at(self, at: At) -> int:
        """Return the seq that `at` means: of a time the newest envelope by then, or 0.

        Times of envelopes follow the order of the log, unless the clock was set back meanwhile.
        """
        if not isinstance(at, datetime):
            return at
        if at.tzinfo is None:
            raise InvalidInput(f"at must be a time with a zone, got {at.isoformat()}")
        low, high = 0, self.newest_seq()
        while low < high:
            middle = (low + high + 1) // 2
            row = self._snapshot.one(SQL.envelope_until, (middle,))
            if row is not None and datetime.fromisoformat(row[1]) > at:
                high = int(row[0]) - 1
            else:
                low = middle
        return low

    def check_at(self, at: At | None) -> int:
        """Return the seq that `at` means, by default the newest; raise InvalidInput after that."""
        newest = self.newest_seq()
        if at is None:
            return newest
        seq = validation.check_integer(self.seq_at(at), "at")
        if seq > newest:
            raise InvalidInput(f"at must be at most {newest}, the newest seq, got {seq}")
        return seq

    def hidden_parents(self, app_id: int, ids: Iterable[int], seq: int) -> set[int]:
        """Return those of some parents that their owners suppress at a seq."""
        return self.hidden(app_id, "parent", ids, seq)

    def hidden(self, app_id: int, kind: Kind, ids: Iterable[int], seq: int) -> set[int]:
        """Return those of some parents or attributes that their owners suppress at a seq."""
        suppress = self.find_type(app_id, "rating", SUPPRESS)
        if suppress is None:
            return set()
        return self._suppressed(kind, set(ids), _Judges(app_id, suppress, seq, frozenset()))

    def unsuppressed(self, rows: Iterator[Row], query: Query, limit: int) -> Iterator[Any]:
        """Yield the visible ones of some rows of the kind of a query."""
        return self._unsuppressed(rows, query, frozenset(), min(_PAGE, limit + _PAGE_MIN))

    def check_app(self, app_id: int) -> None:
        """Raise NotFound for an unknown app."""
        self._apps.must_exist(self._snapshot, app_id)

    def find_type(self, app_id: int, kind: Kind, type_key: str) -> int | None:
        """Return the id of a type, or None."""
        return self._apps.find_type(self._snapshot, app_id, kind, type_key)

    def edge_types(self, app_id: int) -> list[int]:
        """Return the ids of the types of edges of an app."""
        types = self._apps.all_types(self._snapshot, app_id)
        return [row.id for row in types if row.kind == "edge"]

    def iter_raw(self, sql: str, params: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield rows as the database returns them."""
        return self._snapshot.rows(sql, params)

    def ids_between(self, app_id: int, kind: Kind, after: int, until: int) -> tuple[int, int]:
        """Return the bounds of the ids of rows after one seq and until another."""
        sql = statements_of(app_id, kind)
        first = self._snapshot.value(sql.first_after, (after,))
        last = self._snapshot.value(sql.last_until, (until,))
        return (0, 0) if first is None or last is None else (int(first) - 1, int(last))

    def raw_rows(self, sql: str, params: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Return rows as the database returns them, all at once; for one page."""
        return self._snapshot.all(sql, params)

    def raw_parts_as(
        self, make: Callable[[tuple[Any, ...]], T], count: int, sql: str, params: tuple[Any, ...]
    ) -> Iterator[list[T]]:
        """Yield `make` of each row, in lists of up to `count`."""
        return self._snapshot.parts_as(make, count, sql, params)

    def value(self, sql: str, params: tuple[Any, ...]) -> Any:
        """Return the only value of a query."""
        return self._snapshot.value(sql, params)

    # Ways through an index

    def _walk(
        self,
        sql: Queries,
        question: Query,
        types: list[int] | None,
        bounds: tuple[int, int],
        limit: int,
        *,
        current: bool,
    ) -> Iterator[tuple[Any, ...]]:
        owner = question.owner
        if owner is not None:
            validation.check_integer(owner, "owner")
        ending = "_current" if current else ""

        def walk(name: str, *ids: int) -> Iterator[tuple[Any, ...]]:
            return self._snapshot.rows(getattr(sql, name + ending), (*bounds, limit, *ids))

        if types is None and owner is not None and question.kind == "parent":
            # An index has parents by type and owner.
            of_kind = app_statements(question.app_id).type_ids
            types = [int(row[0]) for row in self._snapshot.all(of_kind, ("parent",))]
        if types is None:
            return walk("range_of_ids") if owner is None else walk("of_owner", owner)
        if owner is None:
            ways = [walk("of_type", type_id) for type_id in types]
        else:
            ways = [walk("of_type_and_owner", type_id, owner) for type_id in types]
        return heapq.merge(*ways) if len(ways) != 1 else ways[0]

    def _pointing(
        self,
        sql: Queries,
        question: Query,
        types: list[int] | None,
        bounds: tuple[int, int],
        *,
        current: bool,
    ) -> Iterator[tuple[Any, ...]]:
        if question.pointer not in POINTERS[question.kind]:
            raise InvalidInput(f"{question.kind} has no pointer {question.pointer!r}")
        targets = _ids(question.targets, question.pointer)
        if targets is None or question.owner is not None:
            raise InvalidInput("a question by pointer names its targets, and no owner")
        params: tuple[Any, ...] = (json.dumps(targets), *bounds)
        if current and question.kind in {"attr", "rating"}:
            held = getattr(sql, f"held_{question.pointer}")
            wanted = None if types is None else json.dumps(types)
            return iter(sorted(self._snapshot.all(held, (*params, wanted))))
        name = f"pointing_at_{question.pointer}"
        if types is not None:
            name = f"pointing_at_of_type_{question.pointer}"
            params = (*params, json.dumps(types))
        if current:
            name += "_current"
        return iter(sorted(set(self._snapshot.all(getattr(sql, name), params))))

    def _bounds(self, question: Query) -> tuple[int, int] | None:
        """Return the ids between which the rows are, or None if there are none."""
        above = validation.check_integer(question.after_id, "after_id")
        if question.since is not None:
            since = validation.check_integer(question.since, "since_seq")
            sql = statements_of(question.app_id, question.kind).first_after
            first = self._snapshot.value(sql, (since,))
            if first is None:
                return None
            above = max(above, int(first) - 1)
        last = self._last_id(question.app_id, question.kind, question.at)
        return None if last <= above else (above, last)

    def _last_id(self, app_id: int, kind: Kind, at: At | None) -> int:
        if at is None:
            return _LAST_ID
        last_id = self._snapshot.value(statements_of(app_id, kind).last_until, (self.check_at(at),))
        return 0 if last_id is None else int(last_id)


def _ids(ids: Iterable[int] | None, name: str) -> list[int] | None:
    if ids is None:
        return None
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise InvalidInput(f"{name} must be several ids, got {validation.format_value(ids)}")
    return sorted({validation.check_integer(value, name, least=1) for value in ids})


def _about(row: Row, kind: Kind) -> frozenset[Target]:
    """Return the parents and attributes that a row is hidden with: itself and its targets."""
    about = {(target, getattr(row, name)) for name, target in REFERENCES[kind]}
    if kind in {"parent", "attr"}:
        about.add((kind, row.object_id))
    return frozenset(pair for pair in about if pair[1] is not None)


def _limit(limit: int | None) -> int:
    return _NO_LIMIT if limit is None else validation.check_integer(limit, "limit")


def _log_order(row: Row) -> tuple[int, int]:
    return row.global_seq, row.id
