"""The size of a schema with its references expanded. Pure.

A validator follows each reference it meets, so 2 KB of definitions that each refer twice to the
next expand to 2^30 of them. Recursive definitions have no finite size: they are counted once, and
the number of their cycles is counted separately.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from fourfold.errors import InvalidInput

SCHEMA_PARTS_MAX: Final = 20_000
SCHEMA_IN_PLACE_MAX: Final = 500
"""Subschemas, in all and for one value, with references resolved."""

_VALUES = frozenset({"const", "enum", "default", "examples", "required", "type"})
"""Keywords with values, not schemas."""
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
_HOMES = frozenset({"$defs", "definitions"})
_IN_PLACE = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"}
)
"""Keywords whose schemas apply to the same value as the schema that contains them."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class Size(NamedTuple):
    """The expanded size of a schema. Numbers above their limits are not exact."""

    parts: int
    """Number of schemas in it, with references expanded."""
    in_place: int
    """Maximum number of schemas that apply to one value."""
    cycles: int
    """Number of cycles from a definition back to itself, beyond the first."""


def measure(schema: Any) -> Size:
    """Return the size of a schema with its references expanded."""
    graph = _SchemaGraph(schema)
    parts: dict[int, int] = {}
    in_place: dict[int, int] = {}
    total = cycles = 0
    for component in graph.components():
        members = set(component)
        inner = sum(count for node in component for count in _within(graph.all[node], members))
        if inner == 0:
            (node,) = component
            parts[node] = _sum(graph.all[node], parts)
            continue
        cycles = max(cycles, inner - len(component))
        outside = (
            _sum(Counter({k: n for k, n in graph.all[node].items() if k not in members}), parts)
            for node in component
        )
        total = min(total + sum(outside), SCHEMA_PARTS_MAX + 1)
        parts.update(dict.fromkeys(component, 1))
    for component in graph.components(in_place=True):
        for node in component:
            known = Counter({k: n for k, n in graph.here[node].items() if k in in_place})
            in_place[node] = _sum(known, in_place)
    return Size(
        min(total + parts[graph.root], SCHEMA_PARTS_MAX + 1),
        max(in_place[node] for node in parts),
        cycles,
    )


def check(size: Size) -> None:
    """Raise InvalidInput for a schema that is too large to validate messages."""
    for count, maximum, where in (
        (size.parts, SCHEMA_PARTS_MAX, "in all"),
        (size.in_place, SCHEMA_IN_PLACE_MAX, "for one value"),
    ):
        if count > maximum:
            raise InvalidInput(
                f"the schema has more than {maximum} parts {where} with its references expanded",
                hint="Refer to a definition once where it is referred to several times.",
                details={"limit": maximum},
            )


def _within(edges: Counter[int], members: set[int]) -> Iterator[int]:
    return (count for node, count in edges.items() if node in members)


def _sum(edges: Counter[int], sizes: dict[int, int]) -> int:
    maximum = SCHEMA_PARTS_MAX + 1
    return min(1 + sum(count * sizes[node] for node, count in edges.items()), maximum)


class _SchemaGraph:
    """The graph of the schemas of a document; edges count references and parts."""

    def __init__(self, schema: Any) -> None:
        self._nodes: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}
        self._bases: list[str] = []
        self._resources: dict[str, Any] = {}
        self._anchors: dict[str, list[int]] = {}
        self._document = schema
        self._collect(schema)
        self.root = 0
        self.all: list[Counter[int]] = [Counter() for _ in self._nodes]
        self.here: list[Counter[int]] = [Counter() for _ in self._nodes]
        """Edges to schemas that apply to the same value."""
        for number, node in enumerate(self._nodes):
            self._link(number, node)

    def _collect(self, schema: Any) -> None:
        """Number every object of the document, with the base URI of its references."""
        waiting: list[tuple[Any, str]] = [(schema if isinstance(schema, dict) else {}, "")]
        self._resources[""] = waiting[0][0]
        while waiting:
            node, base = waiting.pop()
            if isinstance(node, list):
                waiting += [(part, base) for part in node if isinstance(part, dict | list)]
                continue
            if isinstance(node.get("$id"), str):
                base = urldefrag(urljoin(base, node["$id"]))[0]
                self._resources.setdefault(base, node)
            number = self._numbers[id(node)] = len(self._nodes)
            self._nodes.append(node)
            self._bases.append(base)
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(node.get(keyword), str):
                    self._anchors.setdefault(node[keyword], []).append(number)
            waiting += [(part, base) for part in node.values() if isinstance(part, dict | list)]

    def _link(self, number: int, node: dict[str, Any]) -> None:
        for keyword, value in node.items():
            if keyword in _REFERENCES:
                targets = self._targets(self._bases[number], value)
                self.here[number].update(targets)
            elif keyword in _VALUES or keyword in _HOMES:
                continue
            else:
                inner = value.values() if keyword in _MAPS and isinstance(value, dict) else value
                inner = [value] if isinstance(inner, dict) else inner
                parts = inner if not isinstance(inner, str | int | float | None) else ()
                targets = [self._numbers[id(part)] for part in parts if isinstance(part, dict)]
                if keyword in _IN_PLACE:
                    self.here[number].update(targets)
            self.all[number].update(targets)

    def _targets(self, base: str, reference: Any) -> list[int]:
        """Return the schemas that a reference may resolve to; none for an external one."""
        if not isinstance(reference, str):
            return []
        address, fragment = urldefrag(urljoin(base, reference))
        resource = self._resources.get(address)
        if resource is None:
            return []
        if fragment and not fragment.startswith("/"):
            return self._anchors.get(unquote(fragment), [])
        for step in unquote(fragment).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(resource, list) and key.isdecimal() and int(key) < len(resource):
                resource = resource[int(key)]
            elif isinstance(resource, dict) and key in resource:
                resource = resource[key]
            else:
                return []
        number = self._numbers.get(id(resource))
        return [] if number is None else [number]

    def components(self, *, in_place: bool = False) -> Iterator[list[int]]:
        """Yield the strongly connected components reachable from the root, innermost first.

        Uses Tarjan's algorithm without recursion. With `in_place`, yields all components of the
        graph of schemas that apply to the same value.
        """
        edges = self.here if in_place else self.all
        order: dict[int, int] = {}
        lowest: dict[int, int] = {}
        path: list[int] = []
        on_path: set[int] = set()
        for start in range(len(self._nodes)) if in_place else (self.root,):
            if start in order:
                continue
            work: list[tuple[int, Iterator[int]]] = [(start, iter(edges[start]))]
            while work:
                node, rest = work[-1]
                if node not in order:
                    order[node] = lowest[node] = len(order)
                    path.append(node)
                    on_path.add(node)
                for successor in rest:
                    if successor not in order:
                        work.append((successor, iter(edges[successor])))
                        break
                    if successor in on_path:
                        lowest[node] = min(lowest[node], order[successor])
                else:
                    work.pop()
                    if work:
                        outer = work[-1][0]
                        lowest[outer] = min(lowest[outer], lowest[node])
                    if lowest[node] == order[node]:
                        component = _pop_through(path, node)
                        on_path.difference_update(component)
                        yield component


def _pop_through(path: list[int], node: int) -> list[int]:
    popped = [path.pop()]
    while popped[-1] != node:
        popped.append(path.pop())
    return popped
