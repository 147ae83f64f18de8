"""What graphs give back: tuples with names, which nobody can change.

A row is one version of an object. `object_id` is what other rows point at; it is the id of the
object's first row.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

Kind: TypeAlias = Literal["parent", "attr", "edge", "rating"]
KINDS: tuple[Kind, ...] = ("parent", "attr", "edge", "rating")
BITS: dict[Kind, int] = {"parent": 1, "attr": 2, "edge": 4, "rating": 8}
"""The bit of each kind in `envelopes.kinds`."""

SYSTEM_APP = 0
"""The app whose graph holds the identities."""
SUPPRESS = "suppress"
"""Ratings of this type hide what they are about, unless their number is 0."""


class Parent(NamedTuple):
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
ROWS: dict[Kind, type[Parent | Attr | Edge | Rating]] = {
    "parent": Parent,
    "attr": Attr,
    "edge": Edge,
    "rating": Rating,
}


class LogEntry(NamedTuple):
    id: int
    level: str
    event_type: str
    context_json: str
    created_at: str


class App(NamedTuple):
    app_id: int
    slug: str
    title: str
    version: int
    created_at: str


class Type(NamedTuple):
    id: int
    kind: Kind
    type_key: str


class Identity(NamedTuple):
    id: int
    pubkey: str
    label: str | None
    created_at: str


class Peer(NamedTuple):
    id: int
    identity_id: int
    endpoint: str
    meta_json: str
    created_at: str


class Progress(NamedTuple):
    """How far one peer got in one domain."""

    peer_id: int
    domain: str
    last_seq: int


class Usage(NamedTuple):
    """What an app holds, and what it may hold; None is no limit."""

    app_id: int
    rows: int
    bytes: int
    rows_max: int | None
    bytes_max: int | None


class Envelope(NamedTuple):
    """What was written under one number in one app."""

    global_seq: int
    app_id: int
    kinds: int
    sync_flags: int
    created_at: str
    trace_id: str | None


class Change(msgspec.Struct, frozen=True, gc=False):
    """One row of the change feed. It cannot be changed either, but is no tuple: a feed makes so
    many of these that the garbage collector would take a good part of its time. It refers to
    nothing that could refer to it, so the collector may leave it alone.
    """

    global_seq: int
    app_id: int
    kind: Kind
    row: Row


class ApplyResult(NamedTuple):
    """What became of an envelope: its number, and the object of each operation in order."""

    global_seq: int
    object_ids: tuple[int, ...]
