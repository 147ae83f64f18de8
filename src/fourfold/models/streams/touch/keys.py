"""Keys that are waited for: what is refused, and by which marks each is touched.

What a change touches, and what those who wait are touched by. Pure.

Both sides are brought into marks, numbers that meet where a key is touched. Two keys may share one:
then somebody is told of a change that does not concern them, which costs a look. Never the other
way round: where a message leaves open which rows it concerns, it touches all that it may concern.

    a change      its type, its key, and of each template of its type the rows that have the values
                  before it, and those that have the values after it
    no old_value  all rows of these templates; an insert has nothing before it
    a control     everything, and so does what cannot be read
    the rest      nothing: a stream may carry other messages beside its changes

Cursors of those who wait for changes: a stream, and up to where all of it was seen. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.streams.json_messages import decode
from fourfold.models.streams.touch import templates
from fourfold.models.streams.touch.records import ActiveTemplate, Entity, Key, Row, Rows

Mark = int
"""A key, or a set of them. It holds within this process."""
_WRITES = frozenset({"insert", "update", "upsert"})
_EXACT = 2**53
"""Beyond it whole numbers that are next to each other may be one and the same to whoever wrote
them, or asks for them: many programs have no others than floats.
"""


class ComparedRow(NamedTuple):
    """A template as changes are held against it: its fields in order."""

    template_id: str
    fields: tuple[str, ...]


class _Unreadable(Exception):
    """Nobody can wait for these values: one of them is an object or an array."""


def entity_mark(entity: str) -> Mark:
    return hash(("entity", entity))


def row_mark(entity: str, key: str) -> Mark:
    return hash(("row", entity, key))


def all_rows_mark(template_id: str) -> Mark:
    return hash(("all rows", template_id))


def rows_mark(template_id: str, values: Sequence[Any]) -> Mark:
    """The rows that have these values in the fields of a template, in the order of the fields."""
    return hash(("rows", template_id, *map(_plain, values)))


def touched_by(payload: bytes, templates: Mapping[str, Sequence[ComparedRow]]) -> set[Mark] | None:
    """What a message touches, where templates are given by their entities; None is everything."""
    try:
        message = decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Whoever reads it in another way may find a change in it.
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
        # The fold takes what is written there as text, in a way that nobody can ask for.
        return None
    marks = {entity_mark(entity), row_mark(entity, message["key"])}
    for template in templates.get(entity, ()):
        marks.update(_rows_touched(template, message, str(operation)))
    return marks


def _is_change(message: Mapping[str, Any], operation: Any) -> bool:
    """Whether the fold of a state stream takes a message for a change."""
    if not isinstance(operation, str) or not isinstance(message.get("key"), str):
        return False
    return operation == "delete" or (operation in _WRITES and "value" in message)


def _rows_touched(
    template: ComparedRow, change: Mapping[str, Any], operation: str
) -> Iterator[Mark]:
    """The rows of one template: those as they were, and as they are."""
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
    """A value in the one form that equal values have: numbers by what they are worth, and nothing
    of one kind like something of another.
    """
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
    """The keys of one wait, as far as they can be held against nothing but themselves."""
    if not 0 < len(keys) <= limits.TOUCH_KEYS_MAX:
        raise InvalidInput(f"a wait is for 1 to {limits.TOUCH_KEYS_MAX} keys, not {len(keys)}")
    for number, key in enumerate(keys):
        if not isinstance(key, Entity | Row | Rows):
            raise InvalidInput(
                f"key {number} is {key!r:.80}", hint="Wait for an Entity, a Row or the Rows."
            )
        texts = (key.template_id,) if isinstance(key, Rows) else tuple(key)
        for text in texts:
            if not isinstance(text, str) or not 0 < len(text) <= limits.TOUCH_KEY_CHARS:
                raise InvalidInput(
                    f"key {number} is not of text of 1 to {limits.TOUCH_KEY_CHARS} characters"
                )
    return tuple(keys)


def template_ids(keys: Sequence[Key]) -> frozenset[str]:
    """The templates that are asked for."""
    return frozenset(key.template_id for key in keys if isinstance(key, Rows))


def marks_of(
    keys: Sequence[Key], found: Mapping[str, ActiveTemplate], name: str
) -> tuple[tuple[Mark, ...], ...]:
    """For each key what touches it, by the active templates of the stream of that name."""
    return tuple(_marks(key, found, name) for key in keys)


def _marks(key: Key, found: Mapping[str, ActiveTemplate], name: str) -> tuple[Mark, ...]:
    if isinstance(key, Entity):
        return (entity_mark(key.entity),)
    if isinstance(key, Row):
        return (row_mark(key.entity, key.key),)
    values = templates.values_of(key, found, name)
    return (
        all_rows_mark(key.template_id),
        rows_mark(key.template_id, values),
    )


_CURSOR = re.compile(r"([0-9A-Za-z_-]{1,64}):(0|[1-9][0-9]{0,17})")


class Cursor(NamedTuple):
    """A place in a stream, which its incarnation tells from an earlier one of the same name."""

    incarnation: str
    offset: int

    def __str__(self) -> str:
        return f"{self.incarnation}:{self.offset}"


def read_cursor(text: object) -> Cursor:
    """A cursor that a caller has kept."""
    found = _CURSOR.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidInput(
            f"{text!r:.80} is not a cursor",
            hint="Use one that a wait gave you, or none to wait from now on.",
        )
    return Cursor(found[1], int(found[2]))
