"""Records of the touch API: keys, templates and results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Encoding = Literal["string", "integer", "number", "boolean"]
Scalar = str | int | float | bool | None


class EntityKey(NamedTuple):
    """Matches any change of one entity type."""

    entity: str


class RowKey(NamedTuple):
    """Matches any change of one key of an entity type."""

    entity: str
    key: str


class TemplateKey(NamedTuple):
    """Matches changes of rows that have, or had, these values in the fields of a template."""

    template_id: str
    values: Mapping[str, Scalar]


Key = EntityKey | RowKey | TemplateKey


class Template(NamedTuple):
    """Fields of an entity by which rows are matched, with the encoding of each."""

    entity: str
    fields: Mapping[str, Encoding]
    inactivity_ttl_ms: int | None = None
    """Time without use after which it is retired."""


class ActiveTemplate(NamedTuple):
    """A stored template and its state."""

    id: str
    entity: str
    fields: dict[str, Encoding]
    state: Literal["active", "retired"]
    active_from_offset: int
    last_seen_at_ms: int
    inactivity_ttl_ms: int

    def key(self, values: Mapping[str, Scalar]) -> TemplateKey:
        """Return the key of the rows that have, or had, these values in the template's fields."""
        return TemplateKey(self.id, values)


class WaitResult(NamedTuple):
    """The result of a wait.

    `keys` are the indexes of the keys that changed; `stale` means that the changes are unknown, so
    that everything has to be read again. Waiting again from `cursor` misses nothing.
    """

    touched: bool
    stale: bool
    cursor: str
    keys: tuple[int, ...]


class Meta(NamedTuple):
    """The touch state of a stream: a cursor at its end, the last processed offset, and counts.

    `templates` counts the active templates, `waiting` the current waiters.
    """

    cursor: str
    processed_through: int
    templates: int
    waiting: int
