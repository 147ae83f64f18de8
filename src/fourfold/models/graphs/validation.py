"""Rows and values from callers, checked and ordered by column.

A row is a mapping of the columns that a caller may set. Numbers, versions and origins are not among
them: they are given by the transaction. One function for each kind, because a bulk insert runs it
once for every row.

What is asked of every value before it is written. An error names the field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.graphs.records import KINDS, PARTS, ROWS, Kind, Part

_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def check_integer(value: Any, name: str, *, least: int = 0) -> int:
    """Return an integer; raise InvalidInput unless it is one and at least `least`."""
    if type(value) is not int or not least <= value <= limits.INTEGER_MAX:
        raise InvalidInput(f"{name} must be an integer from {least} to 2**63 - 1, got {value!r}")
    return value


def check_parts(parts: Collection[Part]) -> None:
    """Raise InvalidInput for unknown parts of an object."""
    names = (*PARTS, "versions")
    if isinstance(parts, str) or not set(parts) <= set(names):
        raise InvalidInput(f"parts must be a list of {', '.join(names)}, got {format_value(parts)}")


def check_object_ids(object_ids: Iterable[Any]) -> list[int]:
    """Return the ids of objects that are read together; raise InvalidInput for others."""
    checked = [check_integer(value, "object_id", least=1) for value in object_ids]
    if len(checked) > limits.OBJECTS_READ_MAX:
        raise InvalidInput(
            f"object_ids must be at most {limits.OBJECTS_READ_MAX}, got {len(checked)}",
            hint="Read them in several calls.",
        )
    return checked


def check_text(value: Any, name: str, *, most: int = limits.GRAPH_NAME_MAX) -> str:
    """Return a text; raise InvalidInput unless it is one of at most `most` characters."""
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise InvalidInput(
            f"{name} must be text of 1 to {most} characters, got {format_value(value)}"
        )
    return value if value.isascii() else check_stored_text(value, name)


def check_stored_text(value: Any, name: str) -> str:
    """Return a text that SQLite can store; raise InvalidInput if it is not one."""
    if not isinstance(value, str):
        raise InvalidInput(f"{name} must be text, got {format_value(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{name} contains a lone surrogate") from None
    return value


def check_timestamp(value: Any, name: str) -> str:
    """Return an ISO 8601 time with a zone; raise InvalidInput for others."""
    try:
        parsed = datetime.fromisoformat(check_stored_text(value, name))
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None:
        raise InvalidInput(
            f"{name} must be an ISO 8601 time with a zone, got {format_value(value)}",
            hint="For example 2026-01-31T12:00:00+00:00.",
        )
    return str(value)


def check_json_text(value: Any, name: str) -> str:
    """Return text that is JSON, unchanged."""
    try:
        json.loads(check_stored_text(value, name), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} is not JSON: {error}") from None
    return str(value)


def check_number(value: Any, name: str) -> float:
    """Return a number; raise InvalidInput unless it is finite."""
    if type(value) not in {int, float} or value != value or abs(value) == float("inf"):  # noqa: PLR0124
        raise InvalidInput(f"{name} must be a finite number, got {format_value(value)}")
    try:
        return float(value)
    except OverflowError:
        raise InvalidInput(f"{name} is too large for a number") from None


def check_blob(value: Any, name: str) -> bytes:
    """Return bytes; raise InvalidInput if a value is not bytes."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidInput(f"{name} must be bytes, got {format_value(value)}")
    return bytes(value)


def check_kind(value: Any) -> Kind:
    """Return the kind of an object; raise InvalidInput for an unknown one."""
    for known in KINDS:
        if value == known:
            return known
    raise InvalidInput(
        f"{format_value(value)} is not a kind of object", hint=f"One of: {', '.join(KINDS)}."
    )


def is_slug(value: object) -> bool:
    """Return True if an app can have this slug."""
    return isinstance(value, str) and _SLUG.fullmatch(value) is not None


def check_slug(value: Any) -> str:
    """Return the slug of an app; raise InvalidInput if it is not valid."""
    if not is_slug(value):
        raise InvalidInput(
            f"{format_value(value)} cannot be the slug of an app",
            hint="Use 1 to 64 lower-case letters, digits, '_' and '-'; begin with no sign.",
        )
    return str(value)


def check_fields(row: Any, name: str, known: frozenset[str]) -> Mapping[str, Any]:
    """Return a mapping; raise InvalidInput if it has unknown fields, such as misspelled ones."""
    if type(row) is dict and known.issuperset(row):
        return row
    if not isinstance(row, Mapping):
        raise InvalidInput(f"a row of {name} must be a mapping, got {format_value(row)}")
    unknown = [str(field) for field in row if field not in known]
    if unknown:
        raise InvalidInput(
            f"a row of {name} has no {', '.join(sorted(unknown))}",
            hint=f"It may have: {', '.join(sorted(known))}.",
        )
    return row


def format_value(value: Any) -> str:
    """Return a value for an error message, shortened."""
    return repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:77]}..."


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def encode_json(value: Any, name: str) -> str:
    """Return a value as JSON text; raise InvalidInput if it does not round-trip."""
    try:
        written = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} cannot be written as JSON: {error}") from None
    return check_stored_text(written, name)


def check_ids(ids: Any, name: str) -> str:
    """Several ids, as the JSON list that a statement takes."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise InvalidInput(f"{name} must be several ids, got {format_value(ids)}")
    return json.dumps([check_integer(value, name, least=1) for value in ids])


Values = tuple[Any, ...]
"""The columns of one kind between `id` and `object_id`, with a hole for `global_seq`."""

_OTHER_VALUES = frozenset({"value_number", "value_blob", "value_json"})
_OWN = frozenset({"type_id", "owner_identity", "sync_flags", "created_at"})


class Shape(NamedTuple):
    """Columns and validators of one kind of rows."""

    table: str
    columns: tuple[str, ...]
    fields: frozenset[str]
    read: Callable[[Mapping[str, Any], int, str], tuple[Values, int]]
    """A row, the number and the time of its transaction: its values, and the bytes they hold."""
    fixed: tuple[str, ...]
    """Columns that no later version of an object may change."""
    at_type: int
    at_flags: int
    """Indexes of the type and the flags among the columns."""


_BELOW = 1 << 62
"""Numbers below need no second look; those above are left to the check that names the field."""


def _bad_flags(flags: Any, kind: str) -> int:
    raise InvalidInput(f"{kind}.sync_flags must be a set of bits, got {format_value(flags)}")


def _id(value: Any, field: str) -> int:
    if type(value) is int and 0 < value < _BELOW:
        return value
    return check_integer(value, field, least=1)


def _own(row: Mapping[str, Any], kind: str, now: str) -> tuple[int, int, int, str]:
    """Return the fields of every kind: type, owner, flags and creation time."""
    get = row.get
    type_id, owner = get("type_id"), get("owner_identity")
    flags, created = get("sync_flags", 0), get("created_at")
    if type(type_id) is not int or not 0 < type_id < _BELOW:
        type_id = check_integer(type_id, f"{kind}.type_id", least=1)
    if type(owner) is not int or not 0 <= owner < _BELOW:
        owner = check_integer(owner, f"{kind}.owner_identity")
    if type(flags) is not int or not 0 <= flags < _BELOW:
        flags = _bad_flags(flags, kind)
    if created is None:
        created = now
    else:
        check_timestamp(created, f"{kind}.created_at")
    return type_id, owner, flags, created


def _parent(row: Mapping[str, Any], seq: int, now: str) -> tuple[Values, int]:
    type_id, owner, flags, created = _own(row, "parent", now)
    updated = row.get("updated_at")
    if updated is None:
        updated = created
    else:
        check_timestamp(updated, "parent.updated_at")
    return (type_id, owner, seq, flags, created, updated), 0


def _attr(row: Mapping[str, Any], seq: int, now: str) -> tuple[Values, int]:
    type_id, owner, flags, created = _own(row, "attr", now)
    parent, text = row.get("parent_id"), row.get("value_text")
    if type(parent) is not int or not 0 < parent < _BELOW:
        parent = check_integer(parent, "attr.parent_id", least=1)
    if type(text) is str and text.isascii() and _OTHER_VALUES.isdisjoint(row):
        # Most attributes are this: a text and nothing else.
        return (parent, type_id, owner, seq, flags, text, None, None, None, created), len(text)
    text, number, blob, document, size = _payload(row, "attr")
    values = (parent, type_id, owner, seq, flags, text, number, blob, document, created)
    return values, size


def _edge(row: Mapping[str, Any], seq: int, now: str) -> tuple[Values, int]:
    type_id, owner, flags, created = _own(row, "edge", now)
    source = _id(row.get("src_parent_id"), "edge.src_parent_id")
    parent, attr = _one_of(row, "dst_parent_id", "dst_attr_id", "edge")
    return (source, parent, attr, type_id, owner, seq, flags, created), 0


def _rating(row: Mapping[str, Any], seq: int, now: str) -> tuple[Values, int]:
    type_id, owner, flags, created = _own(row, "rating", now)
    parent, attr = _one_of(row, "target_parent_id", "target_attr_id", "rating")
    text, number, _, document, size = _payload(row, "rating")
    return (parent, attr, type_id, owner, seq, flags, text, number, document, created), size


def _one_of(
    row: Mapping[str, Any], first: str, second: str, kind: str
) -> tuple[int | None, int | None]:
    one, other = row.get(first), row.get(second)
    if (one is None) == (other is None):
        raise InvalidInput(f"{kind} must have {first} or {second}, and not both")
    if one is not None:
        return _id(one, f"{kind}.{first}"), None
    return None, _id(other, f"{kind}.{second}")


def _payload(
    row: Mapping[str, Any], kind: str
) -> tuple[str | None, float | None, bytes | None, str | None, int]:
    """Return the value, of which there is at most one, by its type, and its size in bytes."""
    get = row.get
    text, number = get("value_text"), get("value_number")
    blob, document = get("value_blob"), get("value_json")
    if (text is not None) + (number is not None) + (blob is not None) + (document is not None) > 1:
        raise InvalidInput(f"{kind} must have at most one of the columns value_*")
    if text is not None:
        if type(text) is str and text.isascii():
            return text, None, None, None, len(text)
        text = check_stored_text(text, f"{kind}.value_text")
        return text, None, None, None, len(text.encode())
    if number is not None:
        return None, check_number(number, f"{kind}.value_number"), None, None, 8
    if blob is not None:
        blob = check_blob(blob, f"{kind}.value_blob")
        return None, None, blob, None, len(blob)
    if document is not None:
        document = check_json_text(document, f"{kind}.value_json")
        return None, None, None, document, len(document.encode())
    return None, None, None, None, 0


def _shape(
    kind: Kind,
    fields: frozenset[str],
    read: Callable[[Mapping[str, Any], int, str], tuple[Values, int]],
    fixed: tuple[str, ...],
) -> Shape:
    columns = ROWS[kind]._fields
    return Shape(
        kind,
        columns,
        fields | _OWN,
        read,
        (*fixed, "type_id", "owner_identity"),
        columns.index("type_id"),
        columns.index("sync_flags"),
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
