"""Records of the graphs model: named tuples and Structs.

A row is one version of an object. `object_id` is what other rows point at; it is the id of the
object's first row.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from fourfold.tabular import show_record

Kind: TypeAlias = Literal["parent", "attr", "edge", "rating"]
KINDS: tuple[Kind, ...] = ("parent", "attr", "edge", "rating")
BITS: dict[Kind, int] = {"parent": 1, "attr": 2, "edge": 4, "rating": 8}
"""The bit of each kind in `envelopes.kinds`."""

Part: TypeAlias = Literal["attrs", "edges", "ratings", "objects", "versions"]
PARTS: tuple[Part, ...] = ("attrs", "edges", "ratings", "objects")
"""Parts that can be read with an object; `objects` are the other ends of its edges."""

ATTRS: tuple[Part, ...] = ("attrs",)

SYSTEM_APP = 0
"""The app whose graph holds the identities."""
SUPPRESS = "suppress"
"""Ratings of this type hide their target, unless their number is 0."""


class Parent(NamedTuple):
    """One version of an object."""

    id: int
    type_id: int
    owner_identity: int
    global_seq: int
    sync_flags: int
    created_at: str
    updated_at: str
    object_id: int
    version: int
    origin: str
    origin_seq: int
    position: int
    leads: int


class Attr(NamedTuple):
    """One version of an attribute of a parent."""

    id: int
    parent_id: int
    type_id: int
    owner_identity: int
    global_seq: int
    sync_flags: int
    value_text: str | None
    value_number: float | None
    value_blob: bytes | None
    value_json: str | None
    created_at: str
    object_id: int
    version: int
    origin: str
    origin_seq: int
    position: int
    leads: int


class Edge(NamedTuple):
    """One version of an edge from a parent to a parent or an attribute."""

    id: int
    src_parent_id: int
    dst_parent_id: int | None
    dst_attr_id: int | None
    type_id: int
    owner_identity: int
    global_seq: int
    sync_flags: int
    created_at: str
    object_id: int
    version: int
    origin: str
    origin_seq: int
    position: int
    leads: int


class Rating(NamedTuple):
    """One version of a rating of a parent or an attribute."""

    id: int
    target_parent_id: int | None
    target_attr_id: int | None
    type_id: int
    owner_identity: int
    global_seq: int
    sync_flags: int
    value_text: str | None
    value_number: float | None
    value_json: str | None
    created_at: str
    object_id: int
    version: int
    origin: str
    origin_seq: int
    position: int
    leads: int


Row: TypeAlias = Parent | Attr | Edge | Rating
Direction: TypeAlias = Literal["out", "in", "both"]
"""Follow edges from their source, from their destination, or both."""
At: TypeAlias = int | datetime
"""A seq, or a time with a zone, which is the newest seq at or before it."""
ROWS: dict[Kind, type[Parent | Attr | Edge | Rating]] = {
    "parent": Parent,
    "attr": Attr,
    "edge": Edge,
    "rating": Rating,
}


class Neighbours(NamedTuple):
    """A parent or an attribute, and what is one hop away from it."""

    object: Row
    attrs: tuple[Attr, ...]
    """Attributes of the parent."""
    edges: tuple[Edge, ...]
    """Edges from it and to it."""
    ratings: tuple[Rating, ...]
    objects: tuple[Row, ...]
    """Other ends of the edges, and the parent of an attribute."""
    complete: bool
    """False if there are more attributes, edges, ratings or versions than were requested."""
    versions: tuple[Row, ...] = ()
    """Versions of the object, its attributes and its ratings, oldest first, if requested."""

    def _repr_html_(self) -> str:
        return show_record(self)


class TraverseHit(NamedTuple):
    """A parent that a traversal reached, with the last hop of a shortest way to it."""

    object_id: int
    distance: int
    """Number of edges from the start."""
    from_id: int
    """The parent before it."""
    edge_id: int
    """The edge between the two."""


class TraverseResult(NamedTuple):
    """The parents that a traversal reached, nearest first."""

    seq: int
    objects: tuple[TraverseHit, ...]
    complete: bool
    """False if there are more objects than were requested."""

    def _repr_html_(self) -> str:
        return show_record(self)


class Path(NamedTuple):
    """A shortest path: the parents from start to end, and the edges between them."""

    seq: int
    objects: tuple[int, ...]
    edges: tuple[int, ...]

    def _repr_html_(self) -> str:
        return show_record(self)


class PatternMatch(NamedTuple):
    """Objects and edges that match a pattern."""

    objects: dict[str, int]
    """The parent of each name."""
    paths: tuple[Path, ...]
    """The edge or the shortest path of each step, from its source to its target."""


class MatchResult(NamedTuple):
    """A page of the matches of a pattern."""

    seq: int
    rows: tuple[PatternMatch, ...]
    cursor: str | None
    """Pass it as `after` for the next page; None on the last."""

    def _repr_html_(self) -> str:
        return show_record(self)


ValueRow: TypeAlias = Attr | Rating
"""A row that has a value."""
TopOrder: TypeAlias = Literal["average", "sum", "count"]


class FindResult(NamedTuple):
    """A page of attributes or ratings in the order of their values."""

    seq: int
    rows: tuple[ValueRow, ...]
    cursor: str | None
    """Pass it as `after` for the next page; None on the last."""

    def _repr_html_(self) -> str:
        return show_record(self)


class Aggregate(NamedTuple):
    """Aggregates of the values of a type; those of numbers are None if there are none."""

    seq: int
    values: int
    """Number of values, of any type."""
    numbers: int
    sum: float | None
    average: float | None
    least: float | None
    greatest: float | None

    def _repr_html_(self) -> str:
        return show_record(self)


class TopHit(NamedTuple):
    """A parent and the aggregates of its numbers of one type."""

    object_id: int
    numbers: int
    sum: float
    average: float


class TopResult(NamedTuple):
    """The parents with the greatest numbers of a type, greatest first."""

    seq: int
    objects: tuple[TopHit, ...]

    def _repr_html_(self) -> str:
        return show_record(self)


class AppLogEntry(NamedTuple):
    """An entry of the local log of an app."""

    id: int
    level: str
    event_type: str
    context_json: str
    created_at: str


class App(NamedTuple):
    """An app: its id, slug, title and schema version."""

    app_id: int
    slug: str
    title: str
    version: int
    created_at: str


class Type(NamedTuple):
    """A registered type of one kind."""

    id: int
    kind: Kind
    type_key: str


class TypeDescription(NamedTuple):
    """A registered type with its rule."""

    id: int
    kind: Kind
    type_key: str
    rule: dict[str, Any] | None
    """What its objects must meet, as JSON values; None without a rule."""


class AppDescription(NamedTuple):
    """An app with its types, their rules, and its usage."""

    app: App
    usage: Usage
    types: tuple[TypeDescription, ...]

    def _repr_html_(self) -> str:
        return show_record(self)


class Identity(NamedTuple):
    """A public key with a local id and a label."""

    id: int
    pubkey: str
    label: str | None
    created_at: str


class Peer(NamedTuple):
    """An identity at an endpoint, for sync."""

    id: int
    identity_id: int
    endpoint: str
    meta_json: str
    created_at: str


class SyncProgress(NamedTuple):
    """The seq up to which rows of a peer were imported in a domain."""

    peer_id: int
    domain: str
    last_seq: int


class Usage(NamedTuple):
    """The rows and bytes that an app stores, and its limits; None means unlimited."""

    app_id: int
    rows: int
    bytes: int
    rows_max: int | None
    bytes_max: int | None


class Envelope(NamedTuple):
    """The rows of one app that were written under one seq."""

    global_seq: int
    app_id: int
    kinds: int
    sync_flags: int
    created_at: str
    trace_id: str | None


class GcReport(msgspec.Struct, frozen=True):
    """Counts of what gc of the graphs removed or, in a dry run, would remove."""

    cached: int
    """Cached results that were made before the newest seq."""
    requests: int
    """Results of requests whose idempotency key expired."""
    bytes: int
    dry_run: bool = False


class GraphChange(msgspec.Struct, frozen=True, gc=False):
    """One row of the change feed.

    It is untracked by the garbage collector, which would otherwise scan every row of a feed.
    """

    global_seq: int
    app_id: int
    kind: Kind
    row: Row


class ApplyResult(NamedTuple):
    """The seq of an applied envelope, and the object id of each operation, in order."""

    global_seq: int
    object_ids: tuple[int, ...]
