"""What waiting for changes gives back, and what callers hand in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Encoding = Literal["string", "integer", "number", "boolean"]
Scalar = str | int | float | bool | None


class Entity(NamedTuple):
    """Any change of one type."""

    entity: str


class Row(NamedTuple):
    """Any change of one key of a type."""

    entity: str
    key: str


class Rows(NamedTuple):
    """Any change of rows that have, or had, these values in the fields of a template."""

    template_id: str
    values: Mapping[str, Scalar]


Key = Entity | Row | Rows


class Template(NamedTuple):
    """Fields of an entity that rows shall be waited for by, and what is in each."""

    entity: str
    fields: Mapping[str, Encoding]
    inactivity_ttl_ms: int | None = None
    """How long nobody may ask for it before it is retired."""


class ActiveTemplate(NamedTuple):
    """A template as its row says."""

    id: str
    entity: str
    fields: dict[str, Encoding]
    state: Literal["active", "retired"]
    active_from_offset: int
    last_seen_at_ms: int
    inactivity_ttl_ms: int


class Touched(NamedTuple):
    """What became of a wait. `keys` are the places of the keys that changed; `stale` means that it
    cannot be told which did, so that everything has to be read again. With `cursor` nothing is
    missed from there on.
    """

    touched: bool
    stale: bool
    cursor: str
    keys: tuple[int, ...]


class Meta(NamedTuple):
    """Where a stream is for those who wait: a cursor at its end, the last offset whose change was
    looked at, how many templates are active, and how many wait right now.
    """

    cursor: str
    processed_through: int
    templates: int
    waiting: int
