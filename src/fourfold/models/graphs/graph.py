"""The handle of one app."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from fourfold import limits
from fourfold.arguments import check_arguments
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.graphs import validation
from fourfold.models.graphs.feed import FeedFilter, GraphFeed
from fourfold.models.graphs.match import PatternReader, pattern_filter
from fourfold.models.graphs.pattern import Pattern
from fourfold.models.graphs.reader import Query
from fourfold.models.graphs.records import (
    ATTRS,
    ROWS,
    Aggregate,
    App,
    AppDescription,
    ApplyResult,
    At,
    Direction,
    Envelope,
    FindResult,
    GraphChange,
    Kind,
    MatchResult,
    Neighbours,
    Part,
    Path,
    Row,
    TopOrder,
    TopResult,
    TraverseResult,
    Type,
    Usage,
)
from fourfold.models.graphs.traversal import Traversal
from fourfold.models.graphs.values import ValueReader
from fourfold.tabular import Rows

if TYPE_CHECKING:
    from fourfold.models.graphs.graphs import Graphs
    from fourfold.models.graphs.writer import GraphTransaction


@check_arguments()
class Graph:
    """A handle of one app: its objects, types and history. It holds no state.

    notes = store.graphs.create("notes", "Notes")
    note = notes.register_type("parent", "note")
    [one] = notes.insert("parent", [{"type_id": note, "owner_identity": 1}])
    notes.read("parent", one)                # now
    notes.read("parent", one, at=1)          # as of seq 1
    for changes in notes.follow(): ...
    """

    __slots__ = ("app_id", "graphs", "slug")

    def __init__(self, graphs: Graphs, app_id: int, slug: str) -> None:
        self.graphs = graphs
        self.app_id = app_id
        self.slug = slug

    @property
    def info(self) -> App:
        """The app: its id, slug, title and version."""
        return self.graphs.app(self.app_id)

    @property
    def usage(self) -> Usage:
        """The rows and bytes that the app stores, and its limits."""
        return self.graphs.usage(self.app_id)

    def set_limits(self, *, rows_max: int | None = None, bytes_max: int | None = None) -> Usage:
        """Set the limits of the app; None means unlimited. Existing rows stay.

        A write that would exceed a limit is refused as a whole.
        """
        return self.graphs.set_limits(self.app_id, rows_max=rows_max, bytes_max=bytes_max)

    def types(self) -> Rows[Type]:
        """Return the registered types."""
        return Rows(self.graphs.list_types(self.app_id), Type)

    def register_type(self, kind: Kind, key: str) -> int:
        """Return the id of a type, registering it on first use."""
        return self.graphs.register_type(self.app_id, kind, key)

    def set_rule(self, kind: Kind, key: str, rule: Mapping[str, Any] | None) -> None:
        """Set what objects of a type must meet, or remove it with None.

        `graph.set_rule("edge", "works at", {"on": ["person"], "to": ["company"], "most": 1})`

        Args:
            kind: "attr", "edge" or "rating".
            key: The key of the type.
            rule: Any of "on", "to", "value", "unique", "required", "most" and "most_in".

        Raises:
            InvalidInput: It is not a rule of this kind.
            NotFound: The app has no such type, or no type that the rule names.
            RuleBroken: An object breaks the rule.
        """
        self.graphs.set_rule(self.app_id, kind, key, rule)

    def describe(self) -> AppDescription:
        """Return the app with its types, their rules, and its usage."""
        return self.graphs.describe(self.app_id)

    def insert(
        self,
        kind: Kind,
        rows: Iterable[Mapping[str, Any]],
        *,
        txn: GraphTransaction | None = None,
    ) -> list[int]:
        """Insert objects of one kind and return their ids, or insert none of them.

        Args:
            kind: "parent", "attr", "edge" or "rating".
            rows: The fields of each object.
            txn: A transaction of `graphs.transaction()` to take part in.

        Raises:
            NotFound: A row refers to an object that the app does not have.
        """
        return self.graphs.insert(self.app_id, kind, rows, txn=txn)

    def update(
        self,
        kind: Kind,
        object_id: int,
        changes: Mapping[str, Any],
        *,
        expected: int | None = None,
        txn: GraphTransaction | None = None,
    ) -> int:
        """Write a new version of an object and return its row id; earlier versions stay readable.

        Args:
            kind: "parent", "attr", "edge" or "rating".
            object_id: The object.
            changes: The fields that change.
            expected: The `id` of the row that was read; refuse the change if there is a newer one.
            txn: A transaction of `graphs.transaction()` to take part in.

        Raises:
            PreconditionFailed: `expected` is not the newest row; nothing was written.
        """
        return self.graphs.update(self.app_id, kind, object_id, changes, expected=expected, txn=txn)

    def apply(
        self,
        operations: Iterable[Mapping[str, Any]],
        *,
        owner: int,
        trace_id: str,
        once: bool = False,
    ) -> ApplyResult:
        """Write a batch of operations under one seq, or none of them.

        Args:
            operations: Each has an `op` such as "parent_create", a `type_key` or `type_id`, and a
                `payload`; `{"$op": 0}` refers to the object of operation 0.
            owner: The identity that owns the objects.
            trace_id: A text that is stored with the batch.
            once: Write nothing if the app has a batch with the trace id, and return its result.

        Raises:
            ReplayMismatch: With `once`, other operations were written with the trace id.
        """
        return self.graphs.apply(self._envelope(operations, owner, trace_id), once=once)

    async def apply_async(
        self,
        operations: Iterable[Mapping[str, Any]],
        *,
        owner: int,
        trace_id: str,
        once: bool = False,
    ) -> ApplyResult:
        """Write a batch of operations like `apply`, from a coroutine."""
        envelope = self._envelope(operations, owner, trace_id)
        return await self.graphs.apply_async(envelope, once=once)

    def _envelope(
        self, operations: Iterable[Mapping[str, Any]], owner: int, trace_id: str
    ) -> dict[str, Any]:
        common = {"app_id": self.app_id, "owner_identity": owner}
        ops = []
        for operation in operations:
            # An iterator cannot be examined again after a raw error.
            if not isinstance(operation, Mapping):
                raise InvalidInput(
                    f"operations must be mappings, got {operation!r:.80}",
                    hint="Pass operations such as {'op': 'parent_create', ...}.",
                )
            ops.append({**common, **operation})
        return {"trace_id": trace_id, "ops": ops}

    def read(self, kind: Kind, object_id: int, at: At | None = None) -> Row | None:
        """Return the newest version of an object at or before a seq or a time, or None."""
        try:
            return self.graphs.newest(self.app_id, kind, object_id, at=at)
        except NotFound:
            return None

    def objects(
        self,
        kind: Kind,
        *,
        types: Iterable[int] | None = None,
        at: At | None = None,
        limit: int | None = None,
        suppressed: bool = False,
    ) -> Rows[Row]:
        """Return the newest version of each object of a kind, in the order of the log.

        Args:
            kind: "parent", "attr", "edge" or "rating".
            types: Only objects of these type ids.
            at: A seq or a time, by default the newest.
            limit: Maximum number of objects.
            suppressed: Include objects that a rating suppresses.
        """
        query = Query(self.app_id, kind, type_ids=types, at=at, limit=limit)
        return Rows(self.graphs.current(query, suppressed=suppressed), ROWS[kind])

    def neighbours(
        self,
        object_id: int,
        *,
        kind: Kind = "parent",
        at: At | None = None,
        limit: int = limits.NEIGHBOURS_MAX,
        suppressed: bool = False,
    ) -> Neighbours:
        """Return a parent or an attribute with what is one hop away from it.

        Args:
            object_id: The object.
            kind: "parent" or "attr".
            at: A seq or a time, by default the newest.
            limit: Maximum number of attributes, of edges and of ratings.
            suppressed: Include objects that a rating suppresses.

        Raises:
            NotFound: The app has no such object at that point.
        """
        return self.graphs.neighbours(
            self.app_id, object_id, kind=kind, at=at, limit=limit, suppressed=suppressed
        )

    def traverse(
        self,
        start: int,
        *,
        depth: int = limits.TRAVERSE_DEPTH,
        types: Iterable[int] | None = None,
        direction: Direction = "out",
        at: At | None = None,
        limit: int = limits.TRAVERSE_OBJECTS_MAX,
        suppressed: bool = False,
    ) -> TraverseResult:
        """Return the parents within some hops of a parent, nearest first, without itself.

        Args:
            start: The id of the parent.
            depth: Maximum number of hops.
            types: Follow only edges of these type ids.
            direction: Follow edges "out" of each parent, "in" to it, or "both".
            at: A seq or a time, by default the newest.
            limit: Maximum number of returned parents, at most 10,000.
            suppressed: Visit parents that their owners suppress.

        Raises:
            NotFound: The app has no such parent at that point.
        """
        with self._traversal(types, at, suppressed=suppressed) as traversal:
            return traversal.traverse(start, depth, direction, limit)

    def path(
        self,
        start: int,
        end: int,
        *,
        depth: int = limits.PATH_DEPTH,
        types: Iterable[int] | None = None,
        direction: Direction = "out",
        at: At | None = None,
        suppressed: bool = False,
    ) -> Path | None:
        """Return a shortest path between two parents, or None if there is none.

        Args:
            start: The id of the first parent.
            end: The id of the last parent.
            depth: Maximum number of edges.
            types: Follow only edges of these type ids.
            direction: Follow edges "out" of each parent, "in" to it, or "both".
            at: A seq or a time, by default the newest.
            suppressed: Visit parents that their owners suppress.

        Raises:
            NotFound: The app does not have one of the parents at that point.
            LimitExceeded: More than 1,000,000 parents were visited.
        """
        with self._traversal(types, at, suppressed=suppressed) as traversal:
            return traversal.path(start, end, depth, direction)

    def exists(
        self,
        src: int,
        dst: int,
        *,
        types: Iterable[int] | None = None,
        at: At | None = None,
        suppressed: bool = False,
    ) -> bool:
        """Return True if an edge leads from one parent to another, at a seq or a time.

        Raises:
            NotFound: The app does not have one of the parents at that point.
        """
        with self._traversal(types, at, suppressed=suppressed) as traversal:
            return traversal.exists(src, dst)

    def count(
        self,
        object_id: int,
        *,
        types: Iterable[int] | None = None,
        direction: Direction = "out",
        at: At | None = None,
        suppressed: bool = False,
    ) -> int:
        """Return the number of edges between a parent and others, at a seq or a time.

        Raises:
            NotFound: The app has no such parent at that point.
        """
        with self._traversal(types, at, suppressed=suppressed) as traversal:
            return traversal.count(object_id, direction)

    def find(
        self,
        type_key: str,
        where: Any = None,
        *,
        kind: Literal["attr", "rating"] = "attr",
        at: At | None = None,
        limit: int = limits.PAGE_ITEMS,
        after: str | None = None,
        suppressed: bool = False,
    ) -> FindResult:
        """Return attributes or ratings of a type by their value, in the order of values.

        `graph.find("email", "ann@example.org")`, `graph.find("age", {"$gte": 18, "$lt": 30})`

        Args:
            type_key: The key of the type.
            where: A value to be equal to, or operators of the filter grammar; None for all.
            kind: "attr" or "rating".
            at: A seq or a time, by default the newest.
            limit: Maximum number of rows; large values make a page shorter.
            after: The `cursor` of the page before, with all else unchanged.
            suppressed: Include objects that a rating suppresses.

        Raises:
            NotFound: The app has no such type.
        """
        with self.graphs.snapshot() as reader:
            values = ValueReader(reader, self.app_id, kind, at)
            return values.find(type_key, where, limit=limit, after=after, suppressed=suppressed)

    def match(
        self,
        pattern: Pattern | Mapping[str, Any],
        *,
        at: At | None = None,
        limit: int = limits.PAGE_ITEMS,
        after: str | None = None,
        suppressed: bool = False,
    ) -> MatchResult:
        """Return the objects and edges that match a pattern, in the order of their ids.

        `graph.match(Pattern().node("a", type_key="person").edge("a", "b", "knows"))`

        Args:
            pattern: A `Pattern` or its JSON form, of at most 6 steps.
            at: A seq or a time, by default the newest.
            limit: Maximum number of matches.
            after: The `cursor` of the page before, with all else unchanged.
            suppressed: Include objects that a rating suppresses.

        Raises:
            NotFound: The app does not have an object or a type that the pattern names.
            LimitExceeded: A path of the pattern reaches more than 100,000 objects.
        """
        with self.graphs.snapshot() as reader:
            matches = PatternReader(reader, self.app_id, pattern, at=at, suppressed=suppressed)
            return matches.match(limit, after)

    def aggregate(
        self,
        type_key: str,
        *,
        kind: Literal["attr", "rating"] = "rating",
        target: int | None = None,
        target_kind: Literal["parent", "attr"] = "parent",
        at: At | None = None,
        suppressed: bool = False,
    ) -> Aggregate:
        """Return count, sum, average and bounds of the values of a type, at a seq or a time.

        Args:
            type_key: The key of the type.
            kind: "rating" or "attr".
            target: Only values of this object, by default of all.
            target_kind: The kind of the target.
            at: A seq or a time, by default the newest.
            suppressed: Include values of objects that a rating suppresses.

        Raises:
            NotFound: The app has no such type.
        """
        with self.graphs.snapshot() as reader:
            values = ValueReader(reader, self.app_id, kind, at)
            return values.aggregate(type_key, target, target_kind, suppressed=suppressed)

    def top(
        self,
        type_key: str,
        *,
        kind: Literal["attr", "rating"] = "rating",
        types: Iterable[int] | None = None,
        order: TopOrder = "average",
        at: At | None = None,
        limit: int = 10,
        suppressed: bool = False,
    ) -> TopResult:
        """Return the parents with the greatest numbers of a type, such as the best rated.

        Args:
            type_key: The key of the type of the ratings, or of the attributes.
            kind: "rating" or "attr".
            types: Only parents of these type ids.
            order: "average", "sum" or "count" of the numbers of a parent.
            at: A seq or a time, by default the newest.
            limit: Maximum number of parents.
            suppressed: Include parents that a rating suppresses.

        Raises:
            NotFound: The app has no such type.
        """
        with self.graphs.snapshot() as reader:
            values = ValueReader(reader, self.app_id, kind, at)
            return values.top(type_key, types, order, limit, suppressed=suppressed)

    @contextmanager
    def _traversal(
        self, types: Iterable[int] | None, at: At | None, *, suppressed: bool
    ) -> Iterator[Traversal]:
        with self.graphs.snapshot() as reader:
            yield Traversal(reader, self.app_id, types=types, at=at, suppressed=suppressed)

    def read_many(
        self,
        object_ids: Iterable[int],
        *,
        at: At | None = None,
        limit: int = limits.NEIGHBOURS_MAX,
        suppressed: bool = False,
        parts: Collection[Part] = ATTRS,
    ) -> list[Neighbours]:
        """Return several parents with parts of their neighbourhood, all as of one seq.

        Args:
            object_ids: The parents, at most 200; those that do not exist are left out.
            at: A seq or a time, by default the newest.
            limit: Maximum number of each part of an object.
            suppressed: Include objects that a rating suppresses.
            parts: What to read besides the objects: "attrs", "edges", "ratings" and "objects",
                the other ends of the edges.
        """
        return self.graphs.read_many(
            *(self.app_id, validation.check_object_ids(object_ids)),
            at=at,
            limit=limit,
            suppressed=suppressed,
            parts=parts,
        )

    def envelopes(
        self, trace_id: str, *, after: int = 0, limit: int = limits.PAGE_ITEMS
    ) -> Rows[Envelope]:
        """Return the envelopes that were written with a trace id, oldest first.

        Args:
            trace_id: The text that was passed to `apply`.
            after: Begin after this seq.
            limit: Maximum number of envelopes.
        """
        with self.graphs.snapshot() as reader:
            return Rows(reader.envelopes(self.app_id, trace_id, after, limit), Envelope)

    def history(
        self, kind: Kind, object_id: int, *, after: int = 0, limit: int | None = None
    ) -> Rows[Row]:
        """Return the versions of an object, oldest first.

        Args:
            kind: Kind of the object.
            object_id: Its id.
            after: Only versions after this seq.
            limit: Maximum number of versions, by default all.
        """
        validation.check_integer(after, "after")
        if limit is not None:
            validation.check_integer(limit, "limit", least=1)
        versions = self.graphs.versions(self.app_id, kind, object_id)
        newer = (row for row in versions if row.global_seq > after)
        return Rows(islice(newer, limit), ROWS[kind])

    def log(self, *, after: int = 0, limit: int = limits.FEED_PAGE_ROWS) -> Rows[GraphChange]:
        """Return the rows written after a seq, in the order of the log.

        At most `limit` rows, unless the first transaction alone has more: a transaction is never
        split. To read on, pass the `global_seq` of the last row.
        """
        validation.check_integer(after, "after")
        validation.check_integer(limit, "limit", least=1)
        query = FeedFilter.of([self.app_id], None, None)
        while True:
            page = self.graphs.page(query, after, limit, durable=False)
            if page.changes or page.position == after:
                return Rows(page.changes, GraphChange)
            after = page.position

    def follow(
        self,
        *,
        after: int = 0,
        limit: int = limits.FEED_PAGE_ROWS,
        timeout: float | None = None,
        pattern: Pattern | Mapping[str, Any] | None = None,
    ) -> GraphFeed:
        """Iterate over pages of changes after a seq and wait for more, with `for` or `async for`.

        Args:
            after: Begin after this seq.
            limit: Maximum number of rows of a page, unless one transaction has more.
            timeout: End after this many seconds without a change.
            pattern: Only rows of the types of its edges and conditions, and suppressions: nothing
                else changes what `match` returns for it.
        """
        if pattern is None:
            return self.graphs.feed(after=after, apps=[self.app_id], limit=limit, timeout=timeout)
        with self.graphs.snapshot() as reader:
            query = pattern_filter(reader, self.app_id, pattern)
        options: dict[str, Any] = {"durable": False, "timeout": timeout}
        return GraphFeed(self.graphs, query, after=after, limit=limit, **options)

    def position(self) -> int:
        """Return the newest seq of the store; all apps share the sequence."""
        return self.graphs.position()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return self.graphs is other.graphs and self.app_id == other.app_id

    def __hash__(self) -> int:
        return hash((id(self.graphs), self.app_id))

    def __repr__(self) -> str:
        return f"<Graph {self.slug}>"
