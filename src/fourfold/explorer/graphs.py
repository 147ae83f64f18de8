"""Pages of graphs: the apps, the objects of an app by type, and an object with its neighbours."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from fourfold.explorer import values
from fourfold.explorer.links import format_at
from fourfold.explorer.neighbourhood import Neighbour
from fourfold.explorer.page import Page, PageQuery, Visit
from fourfold.wire.graphs import (
    AppInfo,
    AppPage,
    AttrRow,
    EdgeRow,
    NeighboursInfo,
    ObjectPage,
    ParentRow,
    RatingRow,
    TypePage,
)

PAGE_ROWS: Final = 50
NEIGHBOURS_SHOWN: Final = 100
TYPES_READ: Final = 1_000
VERSIONS_SHOWN: Final = 100


class AppsPageQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the list of apps."""

    prefix: str = ""
    cursor: str = ""


class AppQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of an app."""

    app: str
    type: str = ""
    """Id of a type, to list its objects only."""
    cursor: str = ""


class ObjectPageQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of an object."""

    app: str
    id: int


async def apps_page(visit: Visit, query: AppsPageQuery) -> dict[str, Any]:
    """List the apps that have a graph."""
    page = await visit.api.get(
        "/v1/apps", AppPage, prefix=query.prefix, cursor=query.cursor, limit=PAGE_ROWS
    )
    return {
        "prefix": query.prefix,
        "cursor": query.cursor,
        "apps": page.items,
        # Every store of graphs has the app `system`.
        "is_empty": not query.prefix and all(not row.app_id and not row.rows for row in page.items),
        "next_cursor": page.next_cursor,
    }


async def app_page(visit: Visit, query: AppQuery) -> dict[str, Any]:
    """Show the types of an app, and its objects."""
    path = f"/v1/apps/{query.app}"
    info, types, page = await asyncio.gather(
        visit.api.get(path, AppInfo),
        _types(visit, query.app),
        visit.api.get(
            *(f"{path}/objects", ObjectPage),
            kind="parent",
            type=query.type,
            at=format_at(visit.at),
            cursor=query.cursor,
            limit=PAGE_ROWS,
        ),
    )
    return {
        "app": info,
        "types": [
            {"id": number, "kind": kind, "name": name} for number, (kind, name) in types.items()
        ],
        "type": query.type,
        "cursor": query.cursor,
        "seq": page.seq,
        "objects": [_parent_row(row, types) for row in page.items if isinstance(row, ParentRow)],
        "next_cursor": page.next_cursor,
    }


async def object_page(visit: Visit, query: ObjectPageQuery) -> dict[str, Any]:
    """Show an object: its attributes, what points at it, what it points at, and its versions."""
    path = f"/v1/apps/{query.app}"
    at = format_at(visit.at)
    info, types, around, history = await asyncio.gather(
        visit.api.get(path, AppInfo),
        _types(visit, query.app),
        visit.api.get(
            *(f"{path}/neighbours/{query.id}", NeighboursInfo), at=at, limit=NEIGHBOURS_SHOWN
        ),
        visit.api.get(*(f"{path}/history/{query.id}", ObjectPage), at=at, limit=VERSIONS_SHOWN),
    )
    assert isinstance(around.object, ParentRow)
    neighbours = _neighbours(visit, query, around, types)
    return {
        "app": info,
        "object": _parent_row(around.object, types),
        "seq": around.seq,
        "attributes": [_attribute(row, types) for row in around.attrs],
        "ratings": [_attribute(row, types) for row in around.ratings],
        "neighbours": neighbours,
        "complete": around.complete,
        "versions": [
            {"seq": row.global_seq, "version": row.version, "at_ms": values.to_ms(_time(row))}
            for row in reversed(history.items)
        ],
    }


async def _types(visit: Visit, app: str) -> dict[int, tuple[str, str]]:
    """Return kind and name of each type by its id."""
    page = await visit.api.get(f"/v1/apps/{app}/types", TypePage, limit=TYPES_READ)
    return {row.id: (row.kind, row.type_key) for row in page.items}


def _name(types: dict[int, tuple[str, str]], number: int) -> str:
    return types[number][1] if number in types else f"type {number}"


def _parent_row(row: ParentRow, types: dict[int, tuple[str, str]]) -> dict[str, Any]:
    return {
        "id": row.object_id,
        "type": _name(types, row.type_id),
        "owner": row.owner_identity,
        "seq": row.global_seq,
        "version": row.version,
        "updated_at_ms": values.to_ms(row.updated_at),
    }


def _attribute(row: AttrRow | RatingRow, types: dict[int, tuple[str, str]]) -> dict[str, Any]:
    return {
        "type": _name(types, row.type_id),
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


def _time(row: ParentRow | AttrRow | EdgeRow | RatingRow) -> str:
    return row.updated_at if isinstance(row, ParentRow) else row.created_at


def _neighbours(
    visit: Visit,
    query: ObjectPageQuery,
    around: NeighboursInfo,
    types: dict[int, tuple[str, str]],
) -> list[Neighbour]:
    """Return the other ends of the edges: what points at the object, then what it points at."""
    objects = {(_kind(row), row.object_id): row for row in around.objects}
    neighbours = []
    for edge in around.edges:
        is_from = edge.src_parent_id == query.id
        kind, number = "parent", edge.src_parent_id
        if is_from and edge.dst_parent_id is not None:
            number = edge.dst_parent_id
        elif is_from:
            kind, number = "attr", edge.dst_attr_id or 0
        row = objects.get((kind, number))
        url = "" if kind != "parent" else visit.link("/object", app=query.app, id=number)
        neighbours.append(
            Neighbour(
                edge=_name(types, edge.type_id),
                is_from=is_from,
                type="" if row is None else _name(types, row.type_id),
                id=number,
                label=str(_value(row)) if isinstance(row, AttrRow) else f"{number}",
                seq=edge.global_seq,
                url=url,
            )
        )
    return sorted(neighbours, key=lambda neighbour: (neighbour.is_from, neighbour.seq))


def _kind(row: ParentRow | AttrRow) -> str:
    return "parent" if isinstance(row, ParentRow) else "attr"


PAGES: Final = (
    Page("/graphs", "graphs.html", apps_page, AppsPageQuery, "List apps."),
    Page("/app", "app.html", app_page, AppQuery, "Show an app."),
    Page("/object", "object.html", object_page, ObjectPageQuery, "Show an object."),
)
