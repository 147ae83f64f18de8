"""Walks along edges between parents: reach, paths, existence and counts, at any seq.

A walk goes level by level, so the first way to an object is a shortest one. It reads the edges of
objects that it visits and nothing else. A suppressed parent is not visited, and its edges are not
followed. Edges to attributes are not part of a walk.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from fourfold import limits
from fourfold.errors import InvalidInput, LimitExceeded
from fourfold.kernel import Queries, load_queries
from fourfold.models.graphs import validation
from fourfold.models.graphs.reader import Reader
from fourfold.models.graphs.records import At, Direction, Path, TraverseHit, TraverseResult

T = TypeVar("T")

_WAYS: dict[Direction, tuple[str, ...]] = {"out": ("out",), "in": ("in",), "both": ("out", "in")}
REVERSE: dict[Direction, Direction] = {"out": "in", "in": "out", "both": "both"}
_STEP, _STEP_MIN = 500, 16
"""Objects whose edges, or suppressions, are read with one statement; a limit makes it fewer."""


_TEMPLATES = load_queries("fourfold.models.graphs", "adjacency.sql")


@lru_cache(maxsize=4096)
def adjacency_statements(app_id: int) -> Queries:
    """Return the statements about the edges of one app."""
    number = str(validation.check_integer(app_id, "app_id"))
    filled = {name: getattr(_TEMPLATES, name).replace("{n}", number) for name in _TEMPLATES}
    return Queries(f"edges of app {number}", filled)


class _Hop(NamedTuple):
    """An edge, from the end that the walk came from."""

    from_id: int
    to_id: int
    edge_id: int


class Traversal:
    """Walks in one app at one seq, on one read transaction."""

    def __init__(
        self,
        reader: Reader,
        app_id: int,
        *,
        types: Iterable[int] | None = None,
        at: At | None = None,
        suppressed: bool = False,
    ) -> None:
        self._reader = reader
        self._app_id = app_id
        self._types = None if types is None else validation.check_ids(types, "types")
        self._seq = reader.check_at(at)
        self._suppressed = suppressed
        self._sql = adjacency_statements(app_id)

    def traverse(self, start: int, depth: int, direction: Direction, limit: int) -> TraverseResult:
        """Return up to `limit` parents within `depth` hops of `start`, nearest first."""
        check_direction(direction)
        validation.check_integer(depth, "depth", least=1)
        validation.check_integer(limit, "limit", least=1)
        if limit > limits.TRAVERSE_OBJECTS_MAX:
            raise InvalidInput(f"limit must be at most {limits.TRAVERSE_OBJECTS_MAX}, got {limit}")
        frontier = self._check_start(start)
        seen = {start}
        reached: list[TraverseHit] = []
        for distance in range(1, depth + 1):
            wanted = limit - len(reached) + 1
            level = self._visit(frontier, direction, seen, min(_STEP, wanted + _STEP_MIN))
            hops = list(islice(level, wanted))
            reached += [TraverseHit(hop.to_id, distance, hop.from_id, hop.edge_id) for hop in hops]
            if len(reached) > limit:
                return TraverseResult(self._seq, tuple(reached[:limit]), complete=False)
            frontier = [hop.to_id for hop in hops]
            if not frontier:
                break
        return TraverseResult(self._seq, tuple(reached), complete=True)

    @property
    def seq(self) -> int:
        """The seq that the walks read."""
        return self._seq

    def path(
        self,
        start: int,
        end: int,
        depth: int,
        direction: Direction,
        objects_max: int = limits.PATH_OBJECTS_MAX,
    ) -> Path | None:
        """Return a shortest path of at most `depth` edges, searched from both ends, or None."""
        check_direction(direction)
        validation.check_integer(depth, "depth", least=1)
        ends = (self._check_start(start), self._check_start(end))
        if not all(ends):
            return None
        if start == end:
            return Path(self._seq, (start,), ())
        forward, backward = _Side(ends[0], direction), _Side(ends[1], REVERSE[direction])
        for _ in range(depth):
            side, other = forward, backward
            if len(backward.frontier) < len(forward.frontier):
                side, other = backward, forward
            level = []
            for hop in self._visit(side.frontier, side.direction, side.seen):
                side.hops[hop.to_id] = hop
                if hop.to_id in other.seen:
                    edges = forward.edges_to(hop.to_id)[::-1], backward.edges_to(hop.to_id)
                    return _make_path(self._seq, start, edges)
                level.append(hop.to_id)
                if len(side.seen) + len(other.seen) > objects_max:
                    raise LimitExceeded(
                        f"path: more than {objects_max} objects were visited",
                        hint="Follow fewer types of edges, or pass a smaller depth.",
                    )
            if not level:
                return None
            side.frontier = level
        return None

    def exists(self, src: int, dst: int) -> bool:
        """Return True if an edge leads from one parent to another."""
        if not (self._check_start(src) and self._check_start(dst)):
            return False
        types = self._types or json.dumps(self._reader.edge_types(self._app_id))
        params = (src, dst, self._seq, types)
        return any(
            self._reader.value(sql, params) for sql in (self._sql.exists_now, self._sql.exists_past)
        )

    def count(self, object_id: int, direction: Direction) -> int:
        """Return the number of edges between a parent and other visible parents."""
        check_direction(direction)
        start = self._check_start(object_id)
        return sum(
            1 for hops in _batches(self._hops(start, direction)) for _ in self._visible(hops)
        )

    def _check_start(self, object_id: int) -> list[int]:
        """Return the object as the first frontier, which is empty if it is suppressed.

        Raises:
            NotFound: The app has no such parent at this seq.
        """
        self._reader.newest(self._app_id, "parent", object_id, self._seq)
        return [] if self._hidden([object_id]) else [object_id]

    def _hidden(self, ids: Iterable[int]) -> set[int]:
        if self._suppressed:
            return set()
        return self._reader.hidden_parents(self._app_id, ids, self._seq)

    def _visible(self, hops: list[_Hop]) -> Iterator[_Hop]:
        hidden = self._hidden({hop.to_id for hop in hops})
        return (hop for hop in hops if hop.to_id not in hidden)

    def _visit(
        self, frontier: list[int], direction: Direction, seen: set[int], size: int = _STEP
    ) -> Iterator[_Hop]:
        """Yield one hop to each parent that is next to the frontier and not in `seen`.

        Reads about `size` edges at a time.
        """

        def new_hops() -> Iterator[_Hop]:
            for hop in self._hops(frontier, direction):
                if hop.to_id not in seen:
                    seen.add(hop.to_id)
                    yield hop

        for hops in _batches(new_hops(), size):
            yield from self._visible(hops)

    def _hops(self, frontier: list[int], direction: Direction) -> Iterator[_Hop]:
        for ids in _batches(frontier):
            params: tuple[Any, ...] = (json.dumps(ids), self._seq, self._types)
            for way in _WAYS[direction]:
                for table in ("now", "past"):
                    sql = getattr(self._sql, f"{way}_{table}")
                    yield from map(_Hop._make, self._reader.iter_raw(sql, params))


class _Side:
    """One end of a search for a path: the objects that it reached, and how."""

    def __init__(self, frontier: list[int], direction: Direction) -> None:
        self.frontier = frontier
        self.direction = direction
        self.seen = set(frontier)
        self.hops: dict[int, _Hop] = {}

    def edges_to(self, object_id: int) -> list[tuple[int, _Hop]]:
        """Return the hops from an object back to this end, each with the nearer object."""
        hops = []
        while (hop := self.hops.get(object_id)) is not None:
            hops.append((hop.from_id, hop))
            object_id = hop.from_id
        return hops


def _make_path(
    seq: int, start: int, edges: tuple[list[tuple[int, _Hop]], list[tuple[int, _Hop]]]
) -> Path:
    first, second = edges
    objects = [start, *(hop.to_id for _, hop in first), *(nearer for nearer, _ in second)]
    return Path(seq, tuple(objects), tuple(hop.edge_id for _, hop in (*first, *second)))


def check_direction(direction: str) -> None:
    """Raise InvalidInput unless a walk can have this direction."""
    if direction not in _WAYS:
        raise InvalidInput(f"direction must be one of {', '.join(_WAYS)}, got {direction!r:.80}")


def _batches(items: Iterable[T], size: int = _STEP) -> Iterator[list[T]]:
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
