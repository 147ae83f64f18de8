"""Pages of graphs: the apps, the objects of an app by type, and an object in its neighbourhood."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, field

from fourfold.explorer import values
from fourfold.explorer.drawings import Bar
from fourfold.explorer.links import format_at
from fourfold.explorer.neighbourhood import GraphNode, Neighbourhood
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, Fragment, Visit
from fourfold.wire.graphs import (
    AppInfo,
    AppPage,
    AttrRow,
    ChangesEvent,
    DescriptionInfo,
    EdgeRow,
    NeighboursInfo,
    ObjectPage,
    ObjectRow,
    ObjectsInfo,
    ParentRow,
    RatingRow,
    TypePage,
)

PAGE_ROWS: Final = 50
NEIGHBOURS_SHOWN: Final = 100
HISTORY_ROWS: Final = 200
"""Attributes, edges and ratings of an object whose changes its page shows."""
CHANGES_SHOWN: Final = 30
TYPES_READ: Final = 1_000
LOG_SEQS: Final = 120
LOG_ROWS: Final = 5_000
"""Newest seqs, and rows of them, on the time bar of an app."""
NAMES_READ: Final = 20
"""Attributes that are read to find the name of an object."""
IDS_READ: Final = 200
"""Objects that are read by one request."""
NAMED: Final = ("name", "title", "label")
"""Attributes that name an object, best first; otherwise its first text does."""

Types = dict[int, tuple[str, str]]


class AppsPageQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the list of apps."""

    prefix: str = ""
    cursor: str = ""


class AppPageQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of an app."""

    app: str
    type: str = ""
    """Id of a type, to list its objects only."""
    cursor: str = ""


class ObjectPageQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of an object."""

    app: str
    id: int
    start: int | None = field(default=None, name="from")
    """Seq to compare with; by default that of the change before."""
    depth: int = 2
    """1 for the neighbours only, 2 for theirs, too."""
    type: str = ""
    """Name of a type: only objects of it are drawn around this one."""
    changes: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    """Changes, newest first, before those that are shown."""


async def apps_page(visit: Visit, query: AppsPageQuery) -> dict[str, Any]:
    """List the apps that have a graph."""
    prefix = await visit.list_prefix("graphs", query.prefix)
    page = await visit.api.get(
        *("/v1/apps", AppPage),
        prefix=prefix,
        cursor=query.cursor,
        limit=PAGE_ROWS,
        at=visit.time,
    )
    # Every store of graphs has the app `system`.
    is_empty = not prefix and all(not row.app_id and not row.rows for row in page.items)
    return {
        "prefix": prefix,
        "cursor": query.cursor,
        "apps": page.items,
        "is_empty": is_empty and not visit.time,
        "next_cursor": page.next_cursor,
    }


async def app_page(visit: Visit, query: AppPageQuery) -> dict[str, Any]:
    """Show the types of an app, and its objects with their names."""
    path = f"/v1/apps/{query.app}"
    at = format_at(visit.at)
    described, page = await asyncio.gather(
        visit.api.get(f"{path}/description", DescriptionInfo),
        visit.api.get(
            *(f"{path}/objects", ObjectPage),
            kind="parent",
            type=query.type,
            at=at,
            cursor=query.cursor,
            limit=PAGE_ROWS,
        ),
    )
    info = described.app
    types: Types = {row.id: (row.kind, row.type_key) for row in described.types}
    reader = ObjectReader(visit, query.app, types)
    arounds, log = await asyncio.gather(
        reader.many((row.object_id for row in page.items), str(page.seq)),
        _read_log(visit, query.app, info.seq),
    )
    seqs = [seq for seq, _ in log]
    return {
        "app": info,
        "bars": [
            Bar(
                seq,
                "set" if any(row.version == 1 for row in rows) else "patch",
                len(rows),
                visit.link("/app", app=query.app, type=query.type, at=seq),
                f"seq {seq}, {len(rows)} row{'' if len(rows) == 1 else 's'}",
            )
            for seq, rows in log
        ],
        "before": max((seq for seq in seqs if seq < page.seq), default=None),
        "after": min((seq for seq in seqs if seq > page.seq), default=None),
        "first_at_ms": values.to_ms(_time(log[0][1][0])) if log else None,
        "last_at_ms": values.to_ms(_time(log[-1][1][0])) if log else None,
        "types": [
            {"id": row.id, "kind": row.kind, "name": row.type_key, "rule": row.rule}
            for row in described.types
        ],
        "type": query.type,
        "cursor": query.cursor,
        "seq": page.seq,
        "objects": [reader.parent_row(around) for around in arounds],
        "next_cursor": page.next_cursor,
    }


async def _read_log(visit: Visit, app: str, newest: int) -> list[tuple[int, list[ObjectRow]]]:
    """Return the newest transactions of an app, oldest first, with rows that they wrote.

    The number of seqs and rows that are read is limited; seqs of other apps count too.
    """
    rows: dict[int, list[ObjectRow]] = {}
    count = 0
    if not newest:
        return []
    events = visit.api.iter_events(
        f"/v1/apps/{app}/feed", after=max(0, newest - LOG_SEQS), until=newest
    )
    async with aclosing(events):
        async for name, data in events:
            if name != "changes" or count >= LOG_ROWS:
                break
            event = msgspec.json.decode(data, type=ChangesEvent)
            rows.setdefault(event.seq, []).extend(change.object for change in event.changes)
            count += len(event.changes)
    return [(seq, group) for seq, group in rows.items() if group]


# An object


class ObjectReader:
    """Read objects of an app with what is around them."""

    def __init__(self, visit: Visit, app: str, types: Types) -> None:
        self._visit = visit
        self._app = app
        self._types = types
        self._path = f"/v1/apps/{app}"

    async def around(self, number: int, at: str, limit: int = NEIGHBOURS_SHOWN) -> NeighboursInfo:
        """Return an object with its attributes, edges and ratings at a point."""
        path = f"{self._path}/neighbours/{number}"
        return await self._visit.api.get(path, NeighboursInfo, at=at, limit=limit)

    async def many(
        self, numbers: Iterable[int], at: str, *parts: str, limit: int = NAMES_READ
    ) -> list[NeighboursInfo]:
        """Return objects with their attributes and `parts` at a point, in few requests."""
        ids = list(dict.fromkeys(numbers))
        body = {"parts": ["attrs", *parts], "limit": limit, **({"at": at} if at else {})}
        pages = [
            await self._visit.api.post(
                f"{self._path}/read", ObjectsInfo, {**body, "ids": ids[start : start + IDS_READ]}
            )
            for start in range(0, len(ids), IDS_READ)
        ]
        return [item for page in pages for item in page.items]

    def name_of(self, around: NeighboursInfo) -> str:
        """Return what people call an object: a text attribute; empty without one."""
        texts = {self.type_name(row): row.value_text for row in around.attrs if row.value_text}
        return next(
            (texts[name] for name in NAMED if name in texts), next(iter(texts.values()), "")
        )

    def type_name(self, row: ObjectRow) -> str:
        """Return the name of the type of an object, or its id if it is unknown."""
        return self._types[row.type_id][1] if row.type_id in self._types else f"type {row.type_id}"

    def parent_row(self, around: NeighboursInfo) -> dict[str, Any]:
        """Return an object for a page."""
        row = around.object
        assert isinstance(row, ParentRow)
        return {
            "id": row.object_id,
            "name": self.name_of(around),
            "type": self.type_name(row),
            "owner": row.owner_identity,
            "seq": row.global_seq,
            "version": row.version,
            "updated_at_ms": values.to_ms(row.updated_at),
        }

    def node(self, around: NeighboursInfo, start: int | None) -> GraphNode:
        """Return an object for the drawing; it is new or changed since the seq `start`."""
        row = around.object
        assert isinstance(row, ParentRow)
        name = self.name_of(around)
        changed = max([row.global_seq, *(attr.global_seq for attr in around.attrs)])
        state = ""
        if start and changed > start:
            is_new = row.version == 1 and row.global_seq > start
            state = "new" if is_new else "changed"
        kind = self.type_name(row)
        return GraphNode(
            id=row.object_id,
            kind=kind,
            type=f"{kind} {row.object_id}" if name else kind,
            label=name or str(row.object_id),
            state=state,
            url=self._visit.link("/object", app=self._app, id=row.object_id),
        )

    async def history(self, number: int) -> tuple[list[ObjectRow], bool]:
        """Return the versions of an object, its attributes and its ratings, and its edges.

        The second value is False if there are more than are read.

        Raises:
            NotFound: There is no such object.
        """
        parts = ("edges", "ratings", "versions")
        found = await self.many([number], "", *parts, limit=HISTORY_ROWS)
        around = found[0] if found else await self.around(number, "")
        return [*around.versions, *around.edges], around.complete


async def object_page(visit: Visit, query: ObjectPageQuery) -> dict[str, Any]:
    """Show an object at a point: its neighbourhood, attributes and changes, with the time bar."""
    info, types = await asyncio.gather(
        visit.api.get(f"/v1/apps/{query.app}", AppInfo), read_types(visit, query.app)
    )
    reader = ObjectReader(visit, query.app, types)
    rows, is_complete = await reader.history(query.id)
    view = await _read_object(visit, query, reader, rows)
    seqs = sorted({row.global_seq for row in rows})
    times = [values.to_ms(_time(row)) for row in sorted(rows, key=lambda row: row.global_seq)]
    return {
        "app": info,
        **view,
        "seqs": seqs,
        "is_complete": is_complete,
        "bars": _bars(visit, query, rows, reader),
        "first_at_ms": times[0] if times else None,
        "last_at_ms": times[-1] if times else None,
    }


async def object_part(visit: Visit, query: ObjectPageQuery) -> dict[str, Any]:
    """Show what changes on the page of an object with a step of its time bar."""
    info, types = await asyncio.gather(
        visit.api.get(f"/v1/apps/{query.app}", AppInfo), read_types(visit, query.app)
    )
    reader = ObjectReader(visit, query.app, types)
    rows, _ = await reader.history(query.id)
    return {"app": info, **await _read_object(visit, query, reader, rows)}


async def _read_object(
    visit: Visit, query: ObjectPageQuery, reader: ObjectReader, rows: list[ObjectRow]
) -> dict[str, Any]:
    """Return an object at the point of the visit, and what changed since the seq to compare."""
    around = await reader.around(query.id, format_at(visit.at))
    assert isinstance(around.object, ParentRow)
    own = sorted({row.global_seq for row in rows if row.global_seq <= around.seq})
    shown = own[-1] if own else around.seq
    start = query.start if query.start is not None else (own[-2] if len(own) > 1 else 0)
    start, end = min(start, shown), max(start, shown)
    before = None
    if start >= (rows[0].global_seq if rows else 0) and start:
        before = await reader.around(query.id, str(start))
    graph = await _read_graph(query, reader, around, before, start)
    earlier = {(type(row), row.object_id, row.version): row for row in rows}
    changes = _removed_edges(around, before, reader) + [
        _change(row, reader, earlier.get((type(row), row.object_id, row.version - 1)))
        for row in _between(rows, start, end)
    ]
    following = query.changes + CHANGES_SHOWN
    return {
        "object": reader.parent_row(around),
        "seq": around.seq,
        "shown": shown,
        "start": start,
        "depth": query.depth,
        "type": query.type,
        "attributes": _attributes(around, before, reader),
        "ratings": [_attribute(row, reader) for row in around.ratings],
        "graph": graph,
        "edges": graph["edges"],
        "complete": around.complete,
        "changes": changes[query.changes : following],
        "change_count": len(changes),
        "earlier_changes": query.changes,
        "more_changes": following if following < len(changes) else None,
    }


async def _read_graph(
    query: ObjectPageQuery,
    reader: ObjectReader,
    around: NeighboursInfo,
    before: NeighboursInfo | None,
    start: int,
) -> dict[str, Any]:
    """Return the nodes and edges around an object, and those that are gone since `before`."""
    drawing = Neighbourhood(reader.node(around, start))
    at = str(around.seq)
    known = {edge.object_id for edge in around.edges}
    gone = [] if before is None else [e for e in before.edges if e.object_id not in known]
    edges = [(edge, "") for edge in around.edges] + [(edge, "gone") for edge in gone]
    first = drawing.choose(query.id, [edge for edge, _ in edges])
    parts = ("edges",) if query.depth > 1 else ()
    earlier = _ends(gone)
    details = await reader.many(
        (number for number in first if number not in earlier), at, *parts, limit=NEIGHBOURS_SHOWN
    ) + await reader.many(
        (number for number in first if number in earlier),
        str(start),
        *parts,
        limit=NEIGHBOURS_SHOWN,
    )
    nodes = {info.object.object_id: reader.node(info, start) for info in details}
    for edge, state in edges:
        drawing.connect(edge, reader.type_name(edge), state or _state(edge, start), nodes)
    if query.depth > 1:
        await _second_hop(drawing, reader, details, start)
    drawing.values(around, reader.type_name, _value)
    return drawing.data(query.type)


async def _second_hop(
    drawing: Neighbourhood, reader: ObjectReader, details: list[NeighboursInfo], start: int
) -> None:
    """Add the neighbours of the neighbours, as many as there is room for."""
    hops = [(info, edge) for info in details for edge in info.edges]
    numbers = drawing.choose_second(hops)
    at = str(details[0].seq) if details else ""
    infos = await reader.many(numbers, at)
    nodes = {info.object.object_id: reader.node(info, start) for info in infos}
    for info, edge in hops:
        drawing.extend(info.object.object_id, edge, reader.type_name(edge), nodes, start)


def _ends(edges: list[EdgeRow]) -> set[int]:
    return {edge.dst_parent_id or 0 for edge in edges} | {edge.src_parent_id for edge in edges}


def _state(edge: EdgeRow, start: int) -> str:
    return "new" if start and edge.global_seq > start else ""


async def read_types(visit: Visit, app: str) -> Types:
    """Return kind and name of each type by its id."""
    page = await visit.api.get(f"/v1/apps/{app}/types", TypePage, limit=TYPES_READ)
    return {row.id: (row.kind, row.type_key) for row in page.items}


def _attributes(
    around: NeighboursInfo, before: NeighboursInfo | None, reader: ObjectReader
) -> list[dict[str, Any]]:
    """Return the attributes, each with its earlier value if that was another one."""
    earlier = {} if before is None else {row.object_id: _value(row) for row in before.attrs}
    rows = []
    for row in around.attrs:
        shown = _attribute(row, reader)
        shown["is_new"] = before is not None and row.object_id not in earlier
        value = earlier.get(row.object_id, shown["value"])
        shown["before"] = None if value == shown["value"] else value
        rows.append(shown)
    return rows


def _attribute(row: AttrRow | RatingRow, reader: ObjectReader) -> dict[str, Any]:
    return {
        "type": reader.type_name(row),
        "value": _value(row),
        "seq": row.global_seq,
        "version": row.version,
        "owner": row.owner_identity,
    }


def _value(row: AttrRow | RatingRow) -> Any:
    if row.value_text is not None:
        return row.value_text
    if row.value_number is not None:
        return row.value_number
    if row.value_json is not None:
        return msgspec.json.decode(row.value_json)
    blob = row.value_blob if isinstance(row, AttrRow) else None
    return None if blob is None else f"{len(blob)} bytes"


def _time(row: ObjectRow) -> str:
    return row.updated_at if isinstance(row, ParentRow) else row.created_at


def _between(rows: list[ObjectRow], start: int, end: int) -> list[ObjectRow]:
    """Return the versions after a seq up to another, newest first."""
    chosen = [row for row in rows if start < row.global_seq <= end]
    return sorted(chosen, key=lambda row: row.global_seq, reverse=True)


def _removed_edges(
    around: NeighboursInfo, before: NeighboursInfo | None, reader: ObjectReader
) -> list[dict[str, Any]]:
    """Return the edges of an earlier point that are gone, if all edges of both points are known."""
    if before is None or not around.complete:
        return []
    left = {edge.object_id for edge in around.edges}
    gone = [edge for edge in before.edges if edge.object_id not in left]
    return [
        {**_change(edge, reader), "sign": "-", "seq": None, "owner": "", "at_ms": None}
        for edge in gone
    ]


def _change(
    row: ObjectRow, reader: ObjectReader, before: ObjectRow | None = None
) -> dict[str, Any]:
    """Return a version of an object as a change of the one before it, if that is known."""
    name = reader.type_name(row)
    sign = "+" if row.version == 1 else "~"
    if isinstance(row, EdgeRow):
        text = f"edge {name}: {row.src_parent_id} → {row.dst_parent_id or row.dst_attr_id}"
    elif isinstance(row, ParentRow):
        text = f"{name} {row.object_id}"
    elif isinstance(before, AttrRow | RatingRow):
        text = f"{name} {_value(before)} → {_value(row)}"
    else:
        text = f"{name} = {_value(row)}"
    return {
        "seq": row.global_seq,
        "sign": sign,
        "text": text,
        "owner": row.owner_identity,
        "at_ms": values.to_ms(_time(row)),
    }


def _bars(
    visit: Visit, query: ObjectPageQuery, rows: list[ObjectRow], reader: ObjectReader
) -> list[Bar]:
    """Return a bar for each seq at which something of the object was written."""
    by_seq: dict[int, list[ObjectRow]] = {}
    for row in sorted(rows, key=lambda row: row.global_seq):
        by_seq.setdefault(row.global_seq, []).append(row)
    bars = []
    for seq, group in by_seq.items():
        is_new = any(isinstance(row, ParentRow | EdgeRow) for row in group)
        depth = None if query.depth == 2 else query.depth
        parameters = {"app": query.app, "id": query.id, "at": seq, "depth": depth}
        parameters["type"] = query.type
        url = visit.link("/object", **parameters, **{"from": query.start})
        title = f"seq {seq}, " + ", ".join(_change(row, reader)["text"] for row in group[:3])
        bars.append(Bar(seq, "set" if is_new else "patch", 2 if is_new else 1, url, title))
    return bars


PAGES: Final = (
    ExplorerPage("/graphs", "graphs.html", apps_page, AppsPageQuery, "List apps."),
    ExplorerPage("/app", "app.html", app_page, AppPageQuery, "Show an app."),
    ExplorerPage("/object", "object.html", object_page, ObjectPageQuery, "Show an object."),
)
FRAGMENTS: Final = (
    Fragment("/object.part", "object_part.html", object_part, ObjectPageQuery, "Step in time."),
)
