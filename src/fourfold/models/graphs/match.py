"""Matches of a pattern in an app, now or at any seq.

The object with the narrowest condition comes first: by id, by value, by type. Its candidates are
read in the order of their ids, some at a time, and one statement joins the edges of all steps to
them. It compares values as `value_now` has them, and does not know what is suppressed; both are
checked for the rows that it returns, in bulk. So a page costs the matches up to its end.

An edge is in one step of a match at most. A path is a shortest one along visible objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.content.filters import Filter
from fourfold.errors import InvalidInput, LimitExceeded, NotFound
from fourfold.kernel import Queries, load_queries
from fourfold.models.graphs import cursors, validation
from fourfold.models.graphs.feed import FeedFilter
from fourfold.models.graphs.pattern import Pattern, PatternStep
from fourfold.models.graphs.reader import Query, Reader
from fourfold.models.graphs.records import (
    SUPPRESS,
    At,
    Attr,
    Direction,
    Kind,
    MatchResult,
    Path,
    PatternMatch,
)
from fourfold.models.graphs.traversal import REVERSE, Traversal
from fourfold.models.graphs.values import matches, ranges_of

_TEMPLATES = load_queries("fourfold.models.graphs", "match.sql")
_FIRST_MIN, _FIRST_MAX = 16, 512
"""Candidates of the first object that one statement joins: few at first, for a short page."""
_ROWS_MIN, _ROWS_MAX = 256, 65_536
"""Rows that one statement returns; it is repeated from the last one for more."""
_RANGES_MAX = 16
"""Ranges of values in a statement; more are read as one."""
_TOO_MANY: Final = "malformed JSON"
"""What SQLite says about the text that `reach` returns for too many objects."""
_WAYS: Final[dict[Direction, tuple[str, ...]]] = {
    "out": ("hops_out",),
    "in": ("hops_in",),
    "both": ("hops_out", "hops_in"),
}


@lru_cache(maxsize=4096)
def match_statements(app_id: int) -> Queries:
    """Return the fragments of statements about one app."""
    number = str(validation.check_integer(app_id, "app_id"))
    filled = {name: getattr(_TEMPLATES, name).replace("{n}", number) for name in _TEMPLATES}
    return Queries(f"matches in app {number}", filled)


class _JoinStep(NamedTuple):
    """A step in the direction in which it is joined, with its types as ids."""

    near: str
    far: str
    direction: Direction
    types: tuple[int, ...] | None
    hops: int


class _Condition(NamedTuple):
    """A condition on the attributes of one type of an object."""

    type_id: int
    filter: Filter


class _Node(NamedTuple):
    """The conditions on one object, with types as ids."""

    type_id: int | None
    id: int | None
    conditions: tuple[_Condition, ...]


class PatternReader:
    """Reads the matches of one pattern at one seq, on one read transaction."""

    def __init__(
        self,
        reader: Reader,
        app_id: int,
        pattern: Pattern | Mapping[str, Any],
        *,
        at: At | None = None,
        suppressed: bool = False,
    ) -> None:
        reader.check_app(app_id)
        self._reader = reader
        self._app_id = app_id
        self._pattern = Pattern.parse(pattern)
        self._at = at
        self._suppressed = suppressed
        self._sql = match_statements(app_id)

    def match(self, limit: int, after: str | None) -> MatchResult:
        """Return a page of matches, in the order of the ids of their objects and edges."""
        validation.check_integer(limit, "limit", least=1)
        if limit > limits.PAGE_ITEMS_MAX:
            raise InvalidInput(f"limit must be at most {limits.PAGE_ITEMS_MAX}, got {limit}")
        digest = cursors.digest_of(
            ("match", self._app_id, self._pattern.to_json(), self._suppressed)
        )
        cursor = cursors.parse(after, digest)
        seq = self._reader.check_at(self._at if cursor is None else cursor.seq)
        plan = _Plan(self._reader, self._app_id, self._pattern, seq)
        start = plan.start if cursor is None else plan.parse_place(cursor.after)
        rows: list[PatternMatch] = []
        place = start
        for values, paths in self._matches(plan, start):
            if len(rows) == limit:
                return MatchResult(seq, tuple(rows), cursors.encode(digest, seq, list(place)))
            place = values
            rows.append(PatternMatch(plan.objects(self._pattern.names, values), paths))
        return MatchResult(seq, tuple(rows), None)

    def _matches(
        self, plan: _Plan, start: tuple[int, ...]
    ) -> Iterator[tuple[tuple[int, ...], tuple[Path, ...]]]:
        """Yield the ids and the paths of each match after a place."""
        size = _FIRST_MIN
        firsts = self._firsts(plan, start[0])
        while batch := list(islice(firsts, size)):
            size = min(2 * size, _FIRST_MAX)
            visible = self._visible(plan.seq, {plan.order[0]: set(batch)}, plan)[plan.order[0]]
            ids = [number for number in batch if number in visible]
            if ids:
                yield from self._joined(plan, ids, start)

    def _joined(
        self, plan: _Plan, ids: list[int], start: tuple[int, ...]
    ) -> Iterator[tuple[tuple[int, ...], tuple[Path, ...]]]:
        """Yield the matches of some candidates of the first object."""
        most, after = _ROWS_MIN, start
        while True:
            sql, params = plan.statement(ids, after, most)
            try:
                rows = self._reader.raw_rows(sql, params)
            except InvalidInput as error:
                if _TOO_MANY not in error.message:
                    raise
                raise LimitExceeded(
                    f"match: a path reaches more than {limits.MATCH_REACH_MAX} objects",
                    hint="Give the path fewer hops or types, or its ends narrower conditions.",
                ) from None
            yield from self._checked(plan, rows)
            if len(rows) < most:
                return
            after, most = rows[-1], min(4 * most, _ROWS_MAX)
            ids = [number for number in ids if number >= after[0]]

    def _checked(
        self, plan: _Plan, rows: list[tuple[Any, ...]]
    ) -> Iterator[tuple[tuple[int, ...], tuple[Path, ...]]]:
        """Yield the rows whose objects are visible and meet all conditions, with their paths."""
        ids = {name: {row[place] for row in rows} for place, name in enumerate(plan.order)}
        visible = self._visible(plan.seq, ids, plan)
        known: dict[tuple[int, int, int], Path | None] = {}
        for row in rows:
            if all(row[place] in visible[name] for place, name in enumerate(plan.order)):
                paths = self._paths(plan, row, known)
                if paths is not None:
                    yield row, paths

    def _paths(
        self,
        plan: _Plan,
        row: tuple[int, ...],
        known: dict[tuple[int, int, int], Path | None],
    ) -> tuple[Path, ...] | None:
        """Return the path of each step; None if a step has no visible one."""
        objects = plan.objects(self._pattern.names, row)
        edges = iter(row[len(plan.order) :])
        edge_of = {number: next(edges) for number in plan.joined if plan.steps[number].hops == 1}
        paths: list[Path] = []
        for number, step in enumerate(self._pattern.steps):
            ends = objects[step.source], objects[step.target]
            if step.hops == 1:
                paths.append(Path(plan.seq, ends, (edge_of[number],)))
                continue
            key = (number, *ends)
            if key not in known:
                known[key] = self._walk(plan, number).path(*ends, step.hops, step.direction)
            path = known[key]
            if path is None:
                return None
            paths.append(path)
        return tuple(paths)

    def _walk(self, plan: _Plan, number: int) -> Traversal:
        return Traversal(
            self._reader,
            self._app_id,
            types=plan.steps[number].types,
            at=plan.seq,
            suppressed=self._suppressed,
        )

    def _firsts(self, plan: _Plan, least: int) -> Iterator[int]:
        """Yield the candidates of the first object from an id on, in the order of their ids."""
        node = plan.nodes[plan.order[0]]
        if node.id is not None:
            return iter([node.id] if node.id >= least else [])
        if node.conditions:
            sql, params = plan.holders(_narrowest(node.conditions), least)
        elif node.type_id is not None:
            sql, params = self._sql.parents_of_type, (least, plan.seq, node.type_id)
        else:
            sql, params = self._sql.parents, (least, plan.seq)
        return (row[0] for row in self._reader.iter_raw(sql, params))

    def _visible(self, seq: int, ids: Mapping[str, set[int]], plan: _Plan) -> dict[str, set[int]]:
        """Return those of some objects that are not suppressed and meet their conditions."""
        every: set[int] = set().union(*ids.values())
        if not self._suppressed:
            every -= self._reader.hidden_parents(self._app_id, every, seq)
        visible = {}
        for name, numbers in ids.items():
            remaining = numbers & every
            for condition in plan.nodes[name].conditions:
                remaining &= self._holders(remaining, condition, seq)
            visible[name] = remaining
        return visible

    def _holders(self, ids: set[int], condition: _Condition, seq: int) -> set[int]:
        """Return those of some parents that have an attribute that meets a condition."""
        query = Query(
            self._app_id,
            "attr",
            type_ids=[condition.type_id],
            pointer="parent_id",
            targets=ids,
            at=seq,
        )
        rows: Iterable[Any] = (
            self._reader.rows(query, current=True)
            if self._suppressed
            else self._reader.visible(query, frozenset())
        )
        return {
            row.parent_id
            for row in rows
            if isinstance(row, Attr) and matches(row, condition.filter)
        }


def pattern_filter(reader: Reader, app_id: int, pattern: Pattern | Mapping[str, Any]) -> FeedFilter:
    """Return the filter of the rows that may change the matches of a pattern, by their types.

    Raises:
        InvalidInput: It is not a pattern.
        NotFound: The app has no type that the pattern names.
    """
    reader.check_app(app_id)
    parsed = Pattern.parse(pattern)
    types: set[tuple[Kind, int]] = set()
    for name in parsed.names:
        node = parsed.nodes.get(name)
        if not parsed.steps:
            # With steps, a new parent matches nothing before it has an edge.
            key = None if node is None else node.type
            types.add(("parent", 0 if key is None else _type_id(reader, app_id, "parent", key)))
        types |= {("attr", _type_id(reader, app_id, "attr", key)) for key in parsed.filters(name)}
    for step in parsed.steps:
        keys = step.types
        ids = [0] if keys is None else [_type_id(reader, app_id, "edge", key) for key in keys]
        types |= {("edge", type_id) for type_id in ids}
    suppress = reader.find_type(app_id, "rating", SUPPRESS)
    if suppress is not None:
        types.add(("rating", suppress))
    kinds = frozenset(kind for kind, _ in types)
    return FeedFilter(frozenset({app_id}), kinds, None, frozenset(types))


def _type_id(reader: Reader, app_id: int, kind: Kind, key: str) -> int:
    type_id = reader.find_type(app_id, kind, key)
    if type_id is None:
        raise NotFound(
            f"app {app_id} has no type {key!r} of {kind}",
            hint="List the types with `fourfold app types`.",
        )
    return type_id


class _Plan:
    """The order in which the objects of a pattern are joined, and the statement for it."""

    def __init__(self, reader: Reader, app_id: int, pattern: Pattern, seq: int) -> None:
        self.seq = seq
        self.is_newest = seq == reader.newest_seq()
        self._sql = match_statements(app_id)
        self._reader = reader
        self._app_id = app_id
        self.nodes = {name: self._node(pattern, name) for name in pattern.names}
        self.steps = [self._step(step) for step in pattern.steps]
        self.order = [min(pattern.names, key=lambda name: _rank(self.nodes[name]))]
        self.joined: list[int] = []
        while len(self.joined) < len(self.steps):
            number = next(
                number
                for number, step in enumerate(self.steps)
                if number not in self.joined and {step.near, step.far} & set(self.order)
            )
            step = self.steps[number]
            if step.near not in self.order:
                step = step._replace(
                    near=step.far, far=step.near, direction=REVERSE[step.direction]
                )
                self.steps[number] = step
            if step.far not in self.order:
                self.order.append(step.far)
            self.joined.append(number)
        edges = sum(step.hops == 1 for step in self.steps)
        self.start = (0,) * (len(self.order) + edges)

    def objects(self, names: Iterable[str], row: tuple[int, ...]) -> dict[str, int]:
        """Return the ids of a row by the names of the objects, in the order of the pattern."""
        return {name: row[self.order.index(name)] for name in names}

    def parse_place(self, place: Any) -> tuple[int, ...]:
        """Return the place of a cursor."""
        if not isinstance(place, list) or len(place) != len(self.start):
            raise InvalidInput("cursor must be that of a page of this pattern")
        return tuple(validation.check_integer(number, "cursor") for number in place)

    def holders(self, condition: _Condition, least: int) -> tuple[str, tuple[Any, ...]]:
        """Return the statement of the parents that have a value, from an id on."""
        params = _Params(least, self.seq)
        type_id = params.add(condition.type_id)
        tables = ("holders_now",) if self.is_newest else ("holders_now", "holders_past")
        parts = []
        for low, high in _ranges(condition):
            bounds = {"type": type_id, "low": params.add(low), "high": params.add(high)}
            parts += [_fill(getattr(self._sql, table), **bounds) for table in tables]
        return _fill(self._sql.holders, ranges=" UNION ALL ".join(parts)), params.all

    def statement(
        self, ids: list[int], after: tuple[int, ...], limit: int
    ) -> tuple[str, tuple[Any, ...]]:
        """Return the statement of the rows after a place, for some candidates of the first."""
        params = _Params(json.dumps(ids), self.seq)
        parts = _Statement(self, self._sql, params)
        columns = parts.columns()
        sql = _fill(
            self._sql.match,
            columns=columns,
            joins="\n".join(parts.joins),
            after=", ".join(map(params.add, after)),
            conditions="\n".join(parts.conditions),
            limit=params.add(limit),
        )
        return sql, params.all

    @property
    def edge_types(self) -> tuple[int, ...]:
        """All types of edges of the app."""
        return tuple(self._reader.edge_types(self._app_id))

    def _node(self, pattern: Pattern, name: str) -> _Node:
        node = pattern.nodes.get(name)
        if node is None:
            return _Node(None, None, ())
        if node.id is not None:
            self._reader.newest(self._app_id, "parent", node.id, self.seq)
        conditions = tuple(
            _Condition(self._type_id("attr", key), condition)
            for key, condition in pattern.filters(name).items()
        )
        type_id = None if node.type is None else self._type_id("parent", node.type)
        return _Node(type_id, node.id, conditions)

    def _step(self, step: PatternStep) -> _JoinStep:
        types = None
        if step.types is not None:
            types = tuple(sorted({self._type_id("edge", key) for key in step.types}))
        return _JoinStep(step.source, step.target, step.direction, types, step.hops)

    def _type_id(self, kind: Kind, key: str) -> int:
        return _type_id(self._reader, self._app_id, kind, key)


class _Statement:
    """The joins and conditions of the statement of a plan."""

    def __init__(self, plan: _Plan, sql: Queries, params: _Params) -> None:
        self._plan = plan
        self._sql = sql
        self._params = params
        self.joins: list[str] = []
        self.conditions: list[str] = []
        self._objects = {plan.order[0]: "first.value"}
        """The expression of each object that is joined."""

    def columns(self) -> str:
        """Join all objects; return the columns: the objects in order, and the edges."""
        edges: list[str] = []
        self._add_node(self._plan.order[0])
        for number in self._plan.joined:
            step, alias = self._plan.steps[number], f"s{number}"
            far, edge = self._add_step(step, alias)
            if edge is not None:
                self.conditions += [f"AND {edge} <> {other}" for other in edges]
                edges.append(edge)
            if step.far not in self._objects:
                self._objects[step.far] = far
                self._add_node(step.far)
        return ", ".join((*(self._objects[name] for name in self._plan.order), *edges))

    def _add_node(self, name: str) -> None:
        """Add the conditions on an object."""
        node, expression = self._plan.nodes[name], self._objects[name]
        is_first = name == self._plan.order[0]
        if node.id is not None and not is_first:
            self.conditions.append(f"AND {expression} = {self._params.add(node.id)}")
        if node.type_id is not None:
            alias = f"p{self._plan.order.index(name)}"
            self.joins.append(_fill(self._sql.is_type, alias=alias))
            places = {"alias": alias, "node": expression, "type": self._params.add(node.type_id)}
            self.conditions.append(_fill(self._sql.is_type_where, **places))
        if not is_first:
            self.conditions += [self._has_value(expression, part) for part in node.conditions]

    def _has_value(self, expression: str, condition: _Condition) -> str:
        """Return a condition that holds for all objects that have a value, and some others."""
        ranges = ""
        if self._plan.is_newest:
            pairs = [
                f"+v.value >= {self._params.add(low)} AND +v.value <= {self._params.add(high)}"
                for low, high in _ranges(condition)
            ]
            ranges = f"AND ({' OR '.join(pairs)})"
        type_id = self._params.add(condition.type_id)
        return _fill(self._sql.has_value, node=expression, type=type_id, ranges=ranges)

    def _add_step(self, step: _JoinStep, alias: str) -> tuple[str, str | None]:
        """Add the edges of a step; return the expressions of its far object and its edge."""
        near, far = self._objects[step.near], self._objects.get(step.far)
        if step.hops > 1:
            self.joins.append(self._reach(step, alias, near))
            if far is not None:
                self.conditions.append(f"AND {alias}.value = {far}")
            return f"{alias}.value", None
        if self._plan.is_newest and step.direction != "both":
            return self._add_edge(step, alias, near, far), f"{alias}.object_id"
        hops = " UNION ".join(self._hops(step, near, what="e.object_id", far=far))
        self.joins.append(_fill(self._sql.edges, hops=hops, alias=alias))
        return _item(alias, 0), _item(alias, 1)

    def _add_edge(self, step: _JoinStep, alias: str, near: str, far: str | None) -> str:
        """Add an edge as it is now; return the expression of its far object."""
        self.joins.append(f"CROSS JOIN edge_now AS {alias}")
        name, types = f"edge_{step.direction}", step.types
        if far is not None:
            # A seek for each type, also where an object has many edges.
            name, types = "edge_between", types or self._plan.edge_types
            if step.direction == "in":
                near, far = far, near
        of_types = self._types(alias, types)
        places = {"alias": alias, "near": near, "far": far or "", "types": of_types}
        self.conditions.append(_fill(getattr(self._sql, name), **places))
        return f"{alias}.dst" if step.direction == "out" else f"{alias}.src"

    def _hops(
        self, step: _JoinStep, near: str, *, what: str, table: str = "", far: str | None = None
    ) -> list[str]:
        """Return the statements of the edges of one object, now and before."""
        tables = [("edge_now", "")]
        if not self._plan.is_newest:
            tables.append(("edge_past", "AND e.to_seq > ?2"))
        types = self._types("e", step.types)
        hops = []
        for way in _WAYS[step.direction]:
            end = "e.dst" if way == "hops_out" else "e.src"
            bound = "" if far is None else f"AND {end} = {far}"
            hops += [
                _fill(
                    getattr(self._sql, way),
                    what=what,
                    table=f"{table} {name}",
                    near=near,
                    until=until,
                    types=types,
                    bound=bound,
                )
                for name, until in tables
            ]
        return hops

    def _reach(self, step: _JoinStep, alias: str, near: str) -> str:
        """Return the objects that a path may lead to, suppressed ones included."""
        most, hops = self._params.add(limits.MATCH_REACH_MAX), self._params.add(step.hops)
        parts = self._hops(step, "reach.far", what="reach.depth + 1", table="reach CROSS JOIN")
        steps = " UNION ".join(f"{part} AND reach.depth < {hops}" for part in parts)
        return _fill(self._sql.reach, near=near, steps=steps, most=most, alias=alias)

    def _types(self, alias: str, types: tuple[int, ...] | None) -> str:
        if types is None:
            return ""
        return f"AND {alias}.type_id IN ({', '.join(map(self._params.add, types))})"


class _Params:
    """The parameters of a statement, by number."""

    def __init__(self, *values: Any) -> None:
        self._values = list(values)

    def add(self, value: Any) -> str:
        """Return the place of a value in the statement."""
        self._values.append(value)
        return f"?{len(self._values)}"

    @property
    def all(self) -> tuple[Any, ...]:
        """The values, in order."""
        return tuple(self._values)


def _rank(node: _Node) -> int:
    """Return how few objects a node may have: fewer ones come first."""
    if node.id is not None:
        return 0
    if node.conditions:
        return 1 + _width(_narrowest(node.conditions))
    return 4 if node.type_id is not None else 5


def _narrowest(conditions: Iterable[_Condition]) -> _Condition:
    return min(conditions, key=_width)


def _width(condition: _Condition) -> int:
    ranges = ranges_of(condition.filter)
    if ranges and ranges[0].low == ranges[0].high:
        return 0
    return 1 if len(ranges) > 1 else 2


def _ranges(condition: _Condition) -> list[tuple[Any, Any]]:
    """Return ranges of `value_now` outside of which nothing meets a condition."""
    ranges = [(low, high) for low, high in ranges_of(condition.filter)]
    return ranges if len(ranges) <= _RANGES_MAX else [(ranges[0][0], ranges[-1][1])]


def _item(alias: str, place: int) -> str:
    return f"json_extract({alias}.value, '$[{place}]')"


def _fill(text: str, **places: str) -> str:
    for name, value in places.items():
        text = text.replace(f"{{{name}}}", value)
    return text
