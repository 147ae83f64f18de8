"""What callers hand in, checked and brought into the order of the columns.

A row is a mapping of the columns that a caller may set. Numbers, versions and origins are not among
them: they are given by the transaction. One function for each kind, because a bulk insert runs it
once for every row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fourfold.errors import InvalidInput
from fourfold.models.graphs import checks
from fourfold.models.graphs.records import ROWS, Kind

Values = tuple[Any, ...]
"""The columns of one kind between `id` and `object_id`, with a hole for `global_seq`."""

_OWN = frozenset({"type_id", "owner_identity", "sync_flags", "created_at"})


class Shape(NamedTuple):
    """How rows of one kind are read."""

    table: str
    columns: tuple[str, ...]
    fields: frozenset[str]
    read: Callable[[Mapping[str, Any], int, str], tuple[Values, int]]
    """A row, the number and the time of its transaction: its values, and the bytes they hold."""
    fixed: tuple[str, ...]
    """What no later version of an object may change."""


def _flags(row: Mapping[str, Any], kind: str) -> int:
    flags = row.get("sync_flags", 0)
    return flags if type(flags) is int and 0 <= flags < 1 << 62 else _bad_flags(flags, kind)


def _bad_flags(flags: Any, kind: str) -> int:
    raise InvalidInput(f"{kind}.sync_flags must be a set of bits, not {checks.shown(flags)}")


def _id(row: Mapping[str, Any], field: str, kind: str) -> int:
    value = row.get(field)
    if type(value) is int and 0 < value < 1 << 62:
        return value
    return checks.integer(value, f"{kind}.{field}", least=1)


def _identity(row: Mapping[str, Any], kind: str) -> int:
    value = row.get("owner_identity")
    if type(value) is int and 0 <= value < 1 << 62:
        return value
    return checks.integer(value, f"{kind}.owner_identity")


def _time(row: Mapping[str, Any], field: str, now: str, kind: str) -> str:
    value = row.get(field)
    return now if value is None else checks.moment(value, f"{kind}.{field}")


def _parent(row: Mapping[str, Any], seq: int, now: str) -> tuple[Values, int]:
    created = _time(row, "created_at", now, "parent")
    updated = _time(row, "updated_at", created, "parent")
    type_id, owner = _id(row, "type_id", "parent"), _identity(row, "parent")
    return (type_id, owner, seq, _flags(row, "parent"), created, updated), 0


def _attr(row: Mapping[str, Any], seq: int, now: str) -> tuple[Values, int]:
    text, number, blob, document, size = _payload(row, "attr")
    return (
        _id(row, "parent_id", "attr"),
        _id(row, "type_id", "attr"),
        _identity(row, "attr"),
        seq,
        _flags(row, "attr"),
        text,
        number,
        blob,
        document,
        _time(row, "created_at", now, "attr"),
    ), size


def _edge(row: Mapping[str, Any], seq: int, now: str) -> tuple[Values, int]:
    parent, attr = _one_of(row, "dst_parent_id", "dst_attr_id", "edge")
    return (
        _id(row, "src_parent_id", "edge"),
        parent,
        attr,
        _id(row, "type_id", "edge"),
        _identity(row, "edge"),
        seq,
        _flags(row, "edge"),
        _time(row, "created_at", now, "edge"),
    ), 0


def _rating(row: Mapping[str, Any], seq: int, now: str) -> tuple[Values, int]:
    parent, attr = _one_of(row, "target_parent_id", "target_attr_id", "rating")
    text, number, _, document, size = _payload(row, "rating")
    return (
        parent,
        attr,
        _id(row, "type_id", "rating"),
        _identity(row, "rating"),
        seq,
        _flags(row, "rating"),
        text,
        number,
        document,
        _time(row, "created_at", now, "rating"),
    ), size


def _one_of(
    row: Mapping[str, Any], first: str, second: str, kind: str
) -> tuple[int | None, int | None]:
    one, other = row.get(first), row.get(second)
    if (one is None) == (other is None):
        raise InvalidInput(f"{kind} must have {first} or {second}, and not both")
    if one is not None:
        return _id(row, first, kind), None
    return None, _id(row, second, kind)


def _payload(
    row: Mapping[str, Any], kind: str
) -> tuple[str | None, float | None, bytes | None, str | None, int]:
    """At most one value; and how many bytes it has."""
    text, number = row.get("value_text"), row.get("value_number")
    blob, document = row.get("value_blob"), row.get("value_json")
    if (text is not None) + (number is not None) + (blob is not None) + (document is not None) > 1:
        raise InvalidInput(f"{kind} must have at most one of the columns value_*")
    if text is not None:
        text = checks.stored_text(text, f"{kind}.value_text")
        return text, None, None, None, len(text.encode())
    if number is not None:
        return None, checks.number(number, f"{kind}.value_number"), None, None, 8
    if blob is not None:
        blob = checks.blob(blob, f"{kind}.value_blob")
        return None, None, blob, None, len(blob)
    if document is not None:
        document = checks.json_text(document, f"{kind}.value_json")
        return None, None, None, document, len(document.encode())
    return None, None, None, None, 0


def _shape(
    kind: Kind,
    fields: frozenset[str],
    read: Callable[[Mapping[str, Any], int, str], tuple[Values, int]],
    fixed: tuple[str, ...],
) -> Shape:
    return Shape(
        kind, ROWS[kind]._fields, fields | _OWN, read, (*fixed, "type_id", "owner_identity")
    )


SHAPES: dict[Kind, Shape] = {
    "parent": _shape("parent", frozenset({"updated_at"}), _parent, ("created_at",)),
    "attr": _shape(
        "attr",
        frozenset({"parent_id", "value_text", "value_number", "value_blob", "value_json"}),
        _attr,
        ("parent_id",),
    ),
    "edge": _shape(
        "edge",
        frozenset({"src_parent_id", "dst_parent_id", "dst_attr_id"}),
        _edge,
        ("src_parent_id",),
    ),
    "rating": _shape(
        "rating",
        frozenset(
            {"target_parent_id", "target_attr_id", "value_text", "value_number", "value_json"}
        ),
        _rating,
        ("target_parent_id", "target_attr_id"),
    ),
}
