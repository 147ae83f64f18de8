"""Keys, marks and cursors of waits for changes. Pure.

Keys and changes are both converted to marks, integers that are equal if a change touches a key. Two
keys may share a mark: then a wait reports a change of another key, which costs a check. The reverse
never happens: a message that does not state which rows it changes touches all that it may change.

    a change      touches its type, its key, and for each template of its type the rows with the
                  values before and after it
    no old_value  touches all rows of these templates, unless it is an insert
    a control     touches everything, as does a message that cannot be decoded
    the rest      touches nothing: a stream may contain other messages

A cursor is an incarnation of a stream and the offset up to which it was checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.streams.json_messages import decode
from fourfold.models.streams.touch import templates
from fourfold.models.streams.touch.records import (
    ActiveTemplate,
    EntityKey,
    Key,
    RowKey,
    TemplateKey,
)

TOUCH_KEYS_MAX: Final = 1_024
"""Keys of one wait."""

Mark = int
"""Hash of a key or of a set of keys; valid in this process only."""
_WRITES = frozenset({"insert", "update", "upsert"})
_EXACT = 2**53
"""Above this, adjacent integers may be equal for programs whose numbers are floats."""


class ComparedRow(NamedTuple):
    """The fields of a template in order, for matching changes."""

    template_id: str
    fields: tuple[str, ...]


class _Unreadable(Exception):
    """One of the values is an object or an array, which no key can match."""


def entity_mark(entity: str) -> Mark:
    """Return the mark of any change of an entity type."""
    return hash(("entity", entity))


def row_mark(entity: str, key: str) -> Mark:
    """Return the mark of one row of an entity type."""
    return hash(("row", entity, key))


def all_rows_mark(template_id: str) -> Mark:
    """Return the mark of all rows of a template."""
    return hash(("all rows", template_id))


def rows_mark(template_id: str, values: Sequence[Any]) -> Mark:
    """Return the mark of the rows with these values in the fields of a template, in order."""
    return hash(("rows", template_id, *map(_plain, values)))


def touched_by(payload: bytes, templates: Mapping[str, Sequence[ComparedRow]]) -> set[Mark] | None:
    """Return the marks that a message touches, by templates per entity; None is everything."""
    try:
        message = decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Another decoder may find a change in it.
        return None
    headers = message.get("headers") if isinstance(message, dict) else None
    if not isinstance(headers, dict):
        return set()
    operation, entity = headers.get("operation"), message.get("type", "")
    if "control" in headers:
        return None
    if not _is_change(message, operation):
        return set()
    if not isinstance(entity, str):
        # The fold converts it to text that no key can match exactly.
        return None
    marks = {entity_mark(entity), row_mark(entity, message["key"])}
    for template in templates.get(entity, ()):
        marks.update(_rows_touched(template, message, str(operation)))
    return marks


def _is_change(message: Mapping[str, Any], operation: Any) -> bool:
    """Return True if the fold of a state stream treats a message as a change."""
    if not isinstance(operation, str) or not isinstance(message.get("key"), str):
        return False
    return operation == "delete" or (operation in _WRITES and "value" in message)


def _rows_touched(
    template: ComparedRow, change: Mapping[str, Any], operation: str
) -> Iterator[Mark]:
    """Yield the marks of the rows of one template, before and after a change."""
    before, after = change.get("old_value"), change.get("value")
    if isinstance(before, dict):
        yield from _rows_like(template, before)
    elif operation != "insert":
        yield all_rows_mark(template.template_id)
    if operation == "delete":
        return
    if isinstance(after, dict):
        yield from _rows_like(template, after)
    else:
        yield all_rows_mark(template.template_id)


def _rows_like(template: ComparedRow, row: Mapping[str, Any]) -> Iterator[Mark]:
    try:
        yield rows_mark(template.template_id, [row.get(field) for field in template.fields])
    except _Unreadable:
        return


def _plain(value: Any) -> tuple[str, str]:
    """Return the normal form of a value: equal numbers are equal, other types differ."""
    if value is None:
        return "null", ""
    if isinstance(value, bool):
        return "boolean", str(value)
    if isinstance(value, str):
        return "string", value
    if isinstance(value, int | float):
        return "number", _plain_number(value)
    raise _Unreadable


def _plain_number(value: float) -> str:
    if not -_EXACT < value < _EXACT:
        try:
            return repr(float(value))
        except OverflowError:
            return "beyond"
    whole = int(value)
    return hex(whole) if whole == value else repr(value)


def check(keys: Sequence[Key]) -> tuple[Key, ...]:
    """Return the keys of one wait, checked without the templates of a stream."""
    if not 0 < len(keys) <= TOUCH_KEYS_MAX:
        raise InvalidInput(f"pass 1 to {TOUCH_KEYS_MAX} keys, got {len(keys)}")
    for number, key in enumerate(keys):
        if not isinstance(key, EntityKey | RowKey | TemplateKey):
            raise InvalidInput(
                f"key {number} must be an Entity, a Row or Rows, got {key!r:.80}",
                hint="Pass Entity(...), Row(...) or Rows(...).",
            )
        texts = (key.template_id,) if isinstance(key, TemplateKey) else tuple(key)
        for text in texts:
            if not isinstance(text, str) or not 0 < len(text) <= limits.TOUCH_KEY_CHARS:
                raise InvalidInput(
                    f"key {number} must be text of 1 to {limits.TOUCH_KEY_CHARS} characters, "
                    f"got {text!r:.80}"
                )
    return tuple(keys)


def template_ids(keys: Sequence[Key]) -> frozenset[str]:
    """Return the ids of the templates that the keys use."""
    return frozenset(key.template_id for key in keys if isinstance(key, TemplateKey))


def marks_of(
    keys: Sequence[Key], active: Mapping[str, ActiveTemplate], name: str
) -> tuple[tuple[Mark, ...], ...]:
    """Return the marks of each key, by the active templates of a stream."""
    return tuple(_marks(key, active, name) for key in keys)


def _marks(key: Key, active: Mapping[str, ActiveTemplate], name: str) -> tuple[Mark, ...]:
    if isinstance(key, EntityKey):
        return (entity_mark(key.entity),)
    if isinstance(key, RowKey):
        return (row_mark(key.entity, key.key),)
    values = templates.values_of(key, active, name)
    return (
        all_rows_mark(key.template_id),
        rows_mark(key.template_id, values),
    )


_CURSOR = re.compile(r"([0-9A-Za-z_-]{1,64}):(0|[1-9][0-9]{0,17})")


class TouchCursor(NamedTuple):
    """An offset in one incarnation of a stream."""

    incarnation: str
    offset: int

    def __str__(self) -> str:
        return f"{self.incarnation}:{self.offset}"


def parse_cursor(text: object) -> TouchCursor:
    """Parse a cursor."""
    match = _CURSOR.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidInput(
            f"invalid cursor {text!r:.80}",
            hint="Use a cursor that a wait returned, or none to wait from now on.",
        )
    return TouchCursor(match[1], int(match[2]))
