"""A graph of a server with the methods of `fourfold.Graph`, for coroutines."""

from __future__ import annotations

import builtins
import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import aclosing
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fourfold import limits
from fourfold.arguments import check_arguments
from fourfold.client import graphs
from fourfold.client.containers import AsyncGraphContainer
from fourfold.client.follower import AsyncRemoteChanges
from fourfold.client.graphs import ChangesDecoder, EdgeOptions
from fourfold.client.reader import EventReader
from fourfold.errors import NotFound
from fourfold.models.graphs import fold, validation
from fourfold.models.graphs.feed import FeedFilter
from fourfold.models.graphs.pattern import Pattern
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
from fourfold.tabular import Rows
from fourfold.wire import graphs as wire
from fourfold.wire.graph_patterns import MatchPage

if TYPE_CHECKING:
    from fourfold.client.coroutines.remote_graphs import AsyncRemoteGraphs


@check_arguments()
class AsyncRemoteGraph(AsyncGraphContainer):
    """A handle of one app of a server, with the methods of `fourfold.Graph`."""

    def __init__(self, graphs: AsyncRemoteGraphs, app_id: int, slug: str, node: str) -> None:
        self.graphs = graphs
        self.app_id = app_id
        self.slug = slug
        self._node = node
        self._connection = graphs.connection
        self._calls = graphs.calls

    @property
    async def info(self) -> App:
        """The app: its id, slug, title and version."""
        return await self.graphs.app(self.slug)

    @property
    async def usage(self) -> Usage:
        """The rows and bytes that the app stores, and its limits."""
        response = await self._connection.send(self._calls.get_app(self.slug))
        return graphs.to_usage(graphs.parse(response, wire.AppInfo))

    async def set_limits(
        self, *, rows_max: int | None = None, bytes_max: int | None = None
    ) -> Usage:
        """Set the limits of the app; None means unlimited. Existing rows stay.

        A write that would exceed a limit is refused as a whole. The key must have the scope admin.
        """
        call = self._calls.set_limits(self.slug, rows_max, bytes_max)
        return graphs.to_usage(graphs.parse(await self._connection.send(call), wire.AppInfo))

    async def types(self) -> Rows[Type]:
        """Return the registered types."""
        return Rows(await self.graphs.list_types(self.app_id), Type)

    async def register_type(self, kind: Kind, key: str) -> int:
        """Return the id of a type, registering it on first use."""
        validation.check_text(key, "type_key")
        call = self._calls.register_type(self.slug, validation.check_kind(kind), key)
        return graphs.parse(await self._connection.send(call), wire.TypeInfo).id

    async def set_rule(self, kind: Kind, key: str, rule: Mapping[str, Any] | None) -> None:
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
        validation.check_text(key, "type_key")
        call = self._calls.set_rule(self.slug, validation.check_kind(kind), key, rule)
        graphs.parse(await self._connection.send(call), wire.DescriptionInfo)

    async def describe(self) -> AppDescription:
        """Return the app with its types, their rules, and its usage."""
        response = await self._connection.send(self._calls.describe(self.slug))
        return graphs.to_description(graphs.parse(response, wire.DescriptionInfo))

    # Writing

    async def insert(
        self, kind: Kind, rows: Iterable[Mapping[str, Any]], *, txn: None = None
    ) -> list[int]:
        """Insert objects of one kind and return their ids, or insert none of them.

        Args:
            kind: "parent", "attr", "edge" or "rating".
            rows: The fields of each object. All have one owner, and no time.
            txn: None: a server has no transactions over several requests.

        Raises:
            NotFound: A row refers to an object that the app does not have.
        """
        graphs.check_no_transaction(txn)
        operations = graphs.to_operations(self.app_id, validation.check_kind(kind), rows)
        if not operations:
            return []
        result = await self._apply({"trace_id": "insert", "ops": operations})
        return list(result.object_ids)

    async def update(
        self,
        kind: Kind,
        object_id: int,
        changes: Mapping[str, Any],
        *,
        expected: int | None = None,
        txn: None = None,
    ) -> int:
        """Write a new version of an object and return its row id; earlier versions stay readable.

        Args:
            kind: "parent", "attr", "edge" or "rating".
            object_id: The object.
            changes: The fields that change.
            expected: The `id` of the row that was read; refuse the change if there is a newer one.
            txn: None: a server has no transactions over several requests.

        Raises:
            PreconditionFailed: `expected` is not the newest row; nothing was written.
        """
        graphs.check_no_transaction(txn)
        old = await self._newest(kind, object_id)
        operation = graphs.to_update(self.app_id, kind, old, changes, expected)
        result = await self._apply({"trace_id": "update", "ops": [operation]})
        return (await self._newest(kind, object_id, result.global_seq)).id

    async def apply(
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
        common = {"app_id": self.app_id, "owner_identity": owner}
        ops = [{**common, **operation} for operation in operations]
        return await self._apply({"trace_id": trace_id, "ops": ops}, once=once)

    # Reading

    async def read(self, kind: Kind, object_id: int, at: At | None = None) -> Row | None:
        """Return the newest version of an object at or before a seq or a time, or None."""
        try:
            return await self._newest(kind, object_id, at)
        except NotFound:
            return None

    async def objects(
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
        ids = None if types is None else list(types)
        rows: list[Row] = []
        if limit is not None:
            validation.check_integer(limit, "limit")
        if limit == 0 or ids == []:
            return Rows(rows, ROWS[validation.check_kind(kind)])
        call = self._calls.objects(
            self.slug, validation.check_kind(kind), ids or (), at, suppressed=suppressed
        )
        size = limits.PAGE_ITEMS_MAX if limit is None else limit
        async for page in self._connection.pages(call, wire.ObjectPage, size):
            rows += map(graphs.to_row, page.items)
            if limit is not None and len(rows) >= limit:
                break
        return Rows(rows[:limit], ROWS[kind])

    async def neighbours(
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
        validation.check_integer(object_id, f"{kind}.object_id", least=1)
        call = self._calls.neighbours(
            self.slug, validation.check_kind(kind), object_id, at, limit, suppressed=suppressed
        )
        response = await self._connection.send(call)
        return graphs.to_neighbours(graphs.parse(response, wire.NeighboursInfo))

    async def traverse(
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
        validation.check_integer(start, "parent.object_id", least=1)
        edges = EdgeOptions(types, at, suppressed, direction)
        call = self._calls.traverse(self.slug, start, depth, limit, edges)
        response = await self._connection.send(call)
        return graphs.to_traversal(graphs.parse(response, wire.TraverseInfo))

    async def path(
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
            LimitExceeded: More than 100,000 parents were visited.
        """
        edges = EdgeOptions(types, at, suppressed, direction)
        call = self._calls.path(self.slug, start, end, depth, edges)
        response = await self._connection.send(call)
        return graphs.to_path(graphs.parse(response, wire.PathInfo))

    async def exists(
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
        call = self._calls.exists(self.slug, src, dst, EdgeOptions(types, at, suppressed))
        response = await self._connection.send(call)
        return graphs.parse(response, wire.ExistsInfo).exists

    async def count(
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
        validation.check_integer(object_id, "parent.object_id", least=1)
        edges = EdgeOptions(types, at, suppressed, direction)
        call = self._calls.count(self.slug, object_id, edges)
        return graphs.parse(await self._connection.send(call), wire.EdgeCount).count

    async def find(
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
        request = {
            "type": validation.check_text(type_key, "type"),
            "where": where,
            "kind": kind,
            "limit": limit,
            "cursor": after,
            "suppressed": suppressed,
        }
        response = await self._connection.send(self._calls.find(self.slug, request, at))
        return graphs.to_find_result(graphs.parse(response, wire.ValuePage))

    async def match(
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
        request = {
            "pattern": Pattern.parse(pattern).to_json(),
            "limit": limit,
            "cursor": after,
            "suppressed": suppressed,
        }
        response = await self._connection.send(self._calls.match(self.slug, request, at))
        return graphs.to_match_result(graphs.parse(response, MatchPage))

    async def aggregate(
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
        request = {
            "type": validation.check_text(type_key, "type"),
            "kind": kind,
            "target": target,
            "target_kind": target_kind,
        }
        call = self._calls.aggregate(self.slug, request, at, suppressed=suppressed)
        response = await self._connection.send(call)
        return graphs.to_aggregate(graphs.parse(response, wire.AggregateInfo))

    async def top(
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
        request = {
            "type": validation.check_text(type_key, "type"),
            "kind": kind,
            "order": order,
            "limit": limit,
        }
        call = self._calls.top(self.slug, request, types, at, suppressed=suppressed)
        response = await self._connection.send(call)
        return graphs.to_top_result(graphs.parse(response, wire.TopInfo))

    async def read_many(
        self,
        object_ids: Iterable[int],
        *,
        at: At | None = None,
        limit: int = limits.NEIGHBOURS_MAX,
        suppressed: bool = False,
        parts: Collection[Part] = ATTRS,
    ) -> builtins.list[Neighbours]:
        """Return several parents with parts of their neighbourhood, all as of one seq.

        Args:
            object_ids: The parents, at most 200; those that do not exist are left out.
            at: A seq or a time, by default the newest.
            limit: Maximum number of each part of an object.
            suppressed: Include objects that a rating suppresses.
            parts: What to read besides the objects: "attrs", "edges", "ratings" and "objects",
                the other ends of the edges.
        """
        ids = validation.check_object_ids(object_ids)
        validation.check_parts(parts)
        call = self._calls.read_many(self.slug, ids, at, limit, parts, suppressed=suppressed)
        response = await self._connection.send(call)
        items = graphs.parse(response, wire.ObjectsInfo).items
        return [graphs.to_neighbours(item) for item in items]

    async def envelopes(
        self, trace_id: str, *, after: int = 0, limit: int = limits.PAGE_ITEMS
    ) -> Rows[Envelope]:
        """Return the envelopes that were written with a trace id, oldest first.

        Args:
            trace_id: The text that was passed to `apply`.
            after: Begin after this seq.
            limit: Maximum number of envelopes.
        """
        validation.check_text(trace_id, "trace_id")
        validation.check_integer(after, "after")
        validation.check_integer(limit, "limit", least=1)
        call = self._calls.envelopes(self.slug, trace_id, after)
        rows: list[Envelope] = []
        async for page in self._connection.pages(call, wire.EnvelopePage, limit):
            rows += (Envelope(*msgspec.structs.astuple(item)) for item in page.items)
            if len(rows) >= limit:
                break
        return Rows(rows[:limit], Envelope)

    async def history(
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
        validation.check_integer(object_id, f"{validation.check_kind(kind)}.object_id", least=1)
        call = self._calls.history(self.slug, kind, object_id)
        rows: list[Row] = []
        try:
            async for page in self._connection.pages(call, wire.ObjectPage):
                rows += map(graphs.to_row, page.items)
        except NotFound:
            # An object that the app does not have has no versions; the app itself must exist.
            await self.position()
        rows.sort(key=lambda row: fold.rank(row, self._node))
        newer = (row for row in rows if row.global_seq > after)
        return Rows(islice(newer, limit), ROWS[kind])

    async def log(self, *, after: int = 0, limit: int = limits.FEED_PAGE_ROWS) -> Rows[GraphChange]:
        """Return the rows written after a seq, in the order of the log.

        At most `limit` rows, unless the first transaction alone has more: a transaction is never
        split. To read on, pass the `global_seq` of the last row.
        """
        validation.check_integer(limit, "limit", least=1)
        rows: list[GraphChange] = []
        until = await self.position()
        if validation.check_integer(after, "after") >= until:
            return Rows(rows, GraphChange)
        query = FeedFilter.of([self.app_id], None, None)
        call = self._calls.feed(self.slug, query, after, until)
        reader = EventReader(call._replace(live=False), ChangesDecoder(query).decode)
        async with aclosing(self._connection.run(reader)) as items:
            async for _, changes in items:
                if changes and rows and len(rows) + len(changes) > limit:
                    break
                rows += changes or ()
        return Rows(rows, GraphChange)

    def follow(
        self,
        *,
        after: int = 0,
        limit: int = limits.FEED_PAGE_ROWS,
        timeout: float | None = None,
        pattern: Pattern | Mapping[str, Any] | None = None,
    ) -> AsyncRemoteChanges:
        """Iterate over pages of changes after a seq and wait for more.

        It continues after broken connections. A page is a transaction.

        Args:
            after: Begin after this seq.
            limit: Ignored: a page has the rows of one transaction.
            timeout: End after this many seconds without a change.
            pattern: Only rows of the types of its edges and conditions, and suppressions: nothing
                else changes what `match` returns for it.
        """
        query = FeedFilter.of([self.app_id], None, None)
        checked = None if pattern is None else Pattern.parse(pattern)
        return self.graphs.follow_app(self.slug, query, after, limit, timeout, pattern=checked)

    async def position(self) -> int:
        """Return the newest seq of the store; all apps share the sequence."""
        response = await self._connection.send(self._calls.get_app(self.slug))
        return graphs.parse(response, wire.AppInfo).seq

    def __repr__(self) -> str:
        return f"<Graph {self.slug}>"

    async def _apply(self, envelope: Mapping[str, Any], *, once: bool = False) -> ApplyResult:
        call = self._calls.apply(self.slug, envelope, uuid.uuid4().hex, once=once)
        return graphs.parse_applied(await self._connection.send(call))

    async def _newest(self, kind: Kind, object_id: int, at: At | None = None) -> Row:
        validation.check_integer(object_id, f"{validation.check_kind(kind)}.object_id", least=1)
        call = self._calls.get_object(self.slug, kind, object_id, at)
        state = graphs.parse(await self._connection.send(call), wire.ObjectState)
        return graphs.to_row(state.object)
