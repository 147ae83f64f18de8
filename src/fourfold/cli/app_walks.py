"""`fourfold app neighbours`, `path` and `match`: walks along the edges of an app."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import click

from fourfold.cli.completion import complete_apps
from fourfold.cli.graph_command import graphs_command
from fourfold.cli.history_options import at_option
from fourfold.cli.output import Output
from fourfold.cli.space.arguments import json_argument
from fourfold.errors import InvalidInput
from fourfold.limits import PAGE_ITEMS_MAX, PATH_DEPTH, TRAVERSE_OBJECTS_MAX
from fourfold.models.graphs import Graph, Graphs, Pattern, Query
from fourfold.models.graphs.records import At, Direction, Edge, Kind, Parent, Row

app_argument: Final = click.argument("app", shell_complete=complete_apps)
dot_option: Final = click.option("--dot", is_flag=True, help="Print a graph for Graphviz.")
_REACHED: Final = ("object_id", "type_key", "distance", "from_id", "edge_id", "edge_type")
_STEPS: Final = ("object_id", "type_key", "edge_id", "edge_type")


def graph_of(graphs: Graphs, name: str) -> Graph:
    """Resolve an app by its id or its slug, as a handle."""
    return graphs.open(int(name) if name.isdecimal() and len(name) < 19 else name)


def type_ids(graph: Graph, kind: Kind, keys: Sequence[str]) -> list[int] | None:
    """Return the ids of types by their keys; None without keys."""
    known = {row.type_key: row.id for row in graph.types() if row.kind == kind}
    if unknown := sorted(set(keys) - set(known)):
        raise InvalidInput(
            f"app {graph.slug!r} has no type {unknown[0]!r} of {kind}",
            hint="List the types with `fourfold app types`.",
        )
    return [known[key] for key in keys] if keys else None


def _walk_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of all walks."""
    for option in (
        click.option("--suppressed", is_flag=True, help="Visit suppressed objects."),
        dot_option,
        at_option("As of this seq or time."),
        click.option(
            "--direction",
            type=click.Choice(["out", "in", "both"]),
            default="out",
            show_default=True,
            help="Follow edges out of each object, in to it, or both.",
        ),
        click.option(
            "--type",
            "types",
            multiple=True,
            metavar="KEY",
            help="Follow only edges of this type; repeatable.",
        ),
    ):
        function = option(function)
    return function


@graphs_command("neighbours", rows=True)
@app_argument
@click.argument("object_id", metavar="OBJECT", type=click.IntRange(min=1))
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Maximum number of hops.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=TRAVERSE_OBJECTS_MAX),
    default=100,
    show_default=True,
    help="Maximum number of objects.",
)
@_walk_options
def neighbours(
    out: Output,
    graphs: Graphs,
    *,
    app: str,
    object_id: int,
    depth: int,
    limit: int,
    types: tuple[str, ...],
    direction: Direction,
    at: int | datetime | None,
    dot: bool,
    suppressed: bool,
) -> None:
    """List the objects within some hops of OBJECT along edges, nearest first."""
    graph = graph_of(graphs, app)
    result = graph.traverse(
        object_id,
        depth=depth,
        types=type_ids(graph, "edge", types),
        direction=direction,
        at=at,
        limit=limit,
        suppressed=suppressed,
    )
    names = Names(graph, result.seq)
    records = [
        {
            **row._asdict(),
            "type_key": names.type_of("parent", row.object_id),
            "edge_type": names.type_of("edge", row.edge_id),
        }
        for row in result.objects
    ]
    if dot:
        edges = [(row.from_id, row.object_id, row.edge_id) for row in result.objects]
        out.text(to_dot(names, [object_id, *(row.object_id for row in result.objects)], edges))
        return
    document = {"seq": result.seq, "objects": records, "complete": result.complete}
    out.rows(
        document,
        "objects",
        {
            "object": "object_id",
            "type": "type_key",
            "distance": "distance",
            "from": "from_id",
            "edge": "edge_id",
            "edge type": "edge_type",
        },
        fields=_REACHED,
        empty="no objects",
    )
    if not result.complete and out.format == "text":
        out.line(f"There are more: --limit {min(limit * 10, TRAVERSE_OBJECTS_MAX)}")


@graphs_command("path", rows=True)
@app_argument
@click.argument("start", type=click.IntRange(min=1))
@click.argument("end", type=click.IntRange(min=1))
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    default=PATH_DEPTH,
    show_default=True,
    help="Maximum number of edges.",
)
@_walk_options
def path(
    out: Output,
    graphs: Graphs,
    *,
    app: str,
    start: int,
    end: int,
    depth: int,
    types: tuple[str, ...],
    direction: Direction,
    at: int | datetime | None,
    dot: bool,
    suppressed: bool,
) -> None:
    """Show a shortest path from the object START to the object END."""
    graph = graph_of(graphs, app)
    result = graph.path(
        start,
        end,
        depth=depth,
        types=type_ids(graph, "edge", types),
        direction=direction,
        at=at,
        suppressed=suppressed,
    )
    objects, edges = ((), ()) if result is None else (result.objects, result.edges)
    names = Names(graph, graphs.position() if result is None else result.seq)
    if dot:
        hops = zip(objects, objects[1:], edges, strict=False)
        out.text(to_dot(names, objects, hops))
        return
    records = [
        {
            "object_id": number,
            "type_key": names.type_of("parent", number),
            "edge_id": edge,
            "edge_type": None if edge is None else names.type_of("edge", edge),
        }
        for number, edge in zip(objects, (None, *edges), strict=bool(objects))
    ]
    out.rows(
        {"seq": names.seq, "path": records},
        "path",
        {"object": "object_id", "type": "type_key", "by edge": "edge_id", "edge type": "edge_type"},
        fields=_STEPS,
        empty="no path",
    )


@graphs_command("match", rows=True)
@app_argument
@click.argument("pattern")
@at_option("As of this seq or time.")
@dot_option
@click.option("--suppressed", is_flag=True, help="Include suppressed objects.")
@click.option("--after", metavar="CURSOR", help="Continue after a page, with all else unchanged.")
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=PAGE_ITEMS_MAX),
    default=100,
    show_default=True,
    help="Maximum number of matches.",
)
def match(
    out: Output,
    graphs: Graphs,
    *,
    app: str,
    pattern: str,
    at: int | datetime | None,
    dot: bool,
    suppressed: bool,
    after: str | None,
    limit: int,
) -> None:
    """Find the objects and edges that match PATTERN.

    PATTERN is JSON, @FILE, or - for stdin, such as '{"nodes": {"a": {"type": "person"}}, "steps":
    [{"from": "a", "to": "b", "type": "knows"}]}'. A node has a type, an id, or conditions on
    attributes in "where"; a step has a type, a direction, or "hops" for a shortest path.
    """
    graph = graph_of(graphs, app)
    parsed = Pattern.parse(json_argument(pattern, "PATTERN"))
    result = graph.match(parsed, at=at, limit=limit, after=after, suppressed=suppressed)
    if dot:
        paths = [path for row in result.rows for path in row.paths]
        hops = [
            hop
            for path in paths
            for hop in zip(path.objects, path.objects[1:], path.edges, strict=False)
        ]
        objects = [number for row in result.rows for number in row.objects.values()]
        objects += [number for path in paths for number in path.objects]
        out.text(to_dot(Names(graph, result.seq), objects, hops))
        return
    records = [
        {
            "objects": row.objects,
            "paths": [{"objects": path.objects, "edges": path.edges} for path in row.paths],
        }
        for row in result.rows
    ]
    out.rows(
        {"seq": result.seq, "rows": records, "next_cursor": result.cursor},
        "rows",
        {
            **{name: _object_of(name) for name in parsed.names},
            **{f"step {place + 1}": _way_of(place) for place in range(len(parsed.steps))},
        },
        fields=("objects", "paths"),
        empty="no matches",
    )
    if result.cursor is not None and out.format == "text":
        out.line(f"There are more: --after {result.cursor}")


def _object_of(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda record: record["objects"][name]


def _way_of(place: int) -> Callable[[dict[str, Any]], object]:
    """Return a function that returns the edge of a step, or those of its path."""
    return lambda record: ", ".join(map(str, record["paths"][place]["edges"]))


class Names:
    """Type keys of objects at one seq, for output."""

    def __init__(self, graph: Graph, seq: int) -> None:
        self.seq = seq
        self._graph = graph
        self._keys = {row.id: row.type_key for row in graph.types()}

    def type_of(self, kind: Kind, object_id: int) -> str | None:
        """Return the key of the type of an object."""
        row = self._graph.read(kind, object_id, self.seq)
        return None if row is None else self._keys.get(row.type_id)

    def edge(self, object_id: int) -> tuple[int, int]:
        """Return the ends of an edge between two parents."""
        row: Any = self._graph.read("edge", object_id, self.seq)
        return row.src_parent_id, row.dst_parent_id


def to_dot(names: Names, objects: Iterable[int], hops: Iterable[tuple[int, int, int]]) -> str:
    """Return objects and edges in the DOT language; edges point from source to destination."""
    lines = ["digraph {"]
    for number in dict.fromkeys(objects):
        label = _quoted(f"{names.type_of('parent', number)} {number}")
        lines.append(f"  {number} [label={label}];")
    for edge in dict.fromkeys(edge for _, _, edge in hops):
        src, dst = names.edge(edge)
        lines.append(f"  {src} -> {dst} [label={_quoted(str(names.type_of('edge', edge)))}];")
    return "\n".join([*lines, "}", ""])


def rows_to_dot(graph: Graph, rows: Iterable[Row], at: At | None) -> str:
    """Return parents with the edges between them, or edges with their ends, in the DOT language."""
    shown = list(rows)
    objects = [row.object_id for row in shown if isinstance(row, Parent)]
    edges = [row for row in shown if isinstance(row, Edge)]
    if objects:
        query = Query(
            graph.app_id,
            "edge",
            pointer="src_parent_id",
            targets=objects,
            at=at,
            limit=TRAVERSE_OBJECTS_MAX,
        )
        among = set(objects)
        found = (row for row in graph.graphs.current(query) if isinstance(row, Edge))
        edges = [row for row in found if row.dst_parent_id in among]
    else:
        edges = [row for row in edges if row.dst_parent_id is not None]
        objects = [end for row in edges for end in (row.src_parent_id, row.dst_parent_id or 0)]
    seq = graph.graphs.get_global_seq() if at is None else graph.graphs.seq_at(at)
    hops = ((row.src_parent_id, row.dst_parent_id or 0, row.object_id) for row in edges)
    return to_dot(Names(graph, seq), objects, hops)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
