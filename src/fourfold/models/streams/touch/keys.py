"""Keys that are waited for: what is refused, and by which marks each is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.streams.touch import changes, templates
from fourfold.models.streams.touch.changes import Mark
from fourfold.models.streams.touch.records import ActiveTemplate, Entity, Key, Row, Rows


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
        return (changes.entity_mark(key.entity),)
    if isinstance(key, Row):
        return (changes.row_mark(key.entity, key.key),)
    values = templates.values_of(key, found, name)
    return (
        changes.all_rows_mark(key.template_id),
        changes.rows_mark(key.template_id, values),
    )
