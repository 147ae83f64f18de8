"""Live templates: by which fields the rows of an entity are waited for.

A template is known by what it compares, so whoever asks for the same has the same. It is active
from then on, until nobody asked for it for as long as it says; then it is retired, which spares
every change the comparison, and asking again makes it active again. Each function is the work of
one transaction, or a part of it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from fourfold import limits
from fourfold.errors import InvalidInput, LimitExceeded, NotFound
from fourfold.kernel import Snapshot, Transaction, load_queries
from fourfold.models.streams.names import stored
from fourfold.models.streams.records import StreamInfo
from fourfold.models.streams.touch.records import ActiveTemplate, Encoding, Rows, Template

SQL = load_queries("fourfold.models.streams.touch")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= limits.TOUCH_KEY_CHARS


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)


_FITS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": _is_text,
    "integer": lambda value: _is_number(value) and value == int(value),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
}


def check(template: Template) -> Template:
    """The same with its fields in order; InvalidInput when something does not fit."""
    _check_name(template.entity, "the entity of a template")
    fields = template.fields
    if not isinstance(fields, Mapping) or not 0 < len(fields) <= limits.TOUCH_FIELDS_MAX:
        raise InvalidInput(
            f"a template of {template.entity!r:.80} has 1 to {limits.TOUCH_FIELDS_MAX} fields"
        )
    for field, encoding in fields.items():
        _check_name(field, "a field of a template")
        if not isinstance(encoding, str) or encoding not in _FITS:
            raise InvalidInput(
                f"the field {field!r:.80} is compared as one of {', '.join(_FITS)}, "
                f"not {encoding!r:.80}"
            )
    ttl = template.inactivity_ttl_ms
    shortest, longest = limits.TOUCH_TTL_MS_MIN, limits.TOUCH_TTL_MS_MAX
    if ttl is not None and (type(ttl) is not int or not shortest <= ttl <= longest):
        raise InvalidInput(f"inactivity_ttl_ms is an integer from {shortest} to {longest}")
    return template._replace(fields=dict(sorted(fields.items())))


def _check_name(text: object, what: str) -> None:
    if not isinstance(text, str) or not 0 < len(text) <= limits.TOUCH_NAME_CHARS:
        raise InvalidInput(f"{what} is text of 1 to {limits.TOUCH_NAME_CHARS} characters")
    stored(text)


def id_of(template: Template) -> str:
    """What a template is known by: the entity, its fields, and what is in each."""
    compared = [template.entity, sorted(template.fields.items())]
    return hashlib.sha256(json.dumps(compared).encode()).hexdigest()[:32]


def active(snapshot: Snapshot, name: str) -> dict[str, ActiveTemplate]:
    """The active templates of a stream, by their ids."""
    return {row[0]: _template(row) for row in snapshot.all(SQL.active, (name,))}


def all_of(snapshot: Snapshot, name: str) -> tuple[ActiveTemplate, ...]:
    return tuple(map(_template, snapshot.all(SQL.all_of_stream, (name,))))


def _template(row: Sequence[Any]) -> ActiveTemplate:
    names, encodings = json.loads(row[2]), cast("list[Encoding]", json.loads(row[3]))
    return ActiveTemplate(row[0], row[1], dict(zip(names, encodings, strict=True)), *row[4:])


def activate(
    txn: Transaction, info: StreamInfo, wanted: Sequence[Template], now_ms: int
) -> tuple[ActiveTemplate, ...]:
    """Make templates active that were checked, and count them as seen; in the order given."""
    for each in wanted:
        fields, encodings = json.dumps(list(each.fields)), json.dumps(list(each.fields.values()))
        params = (
            *(info.name, id_of(each), each.entity, fields, encodings, now_ms),
            *(each.inactivity_ttl_ms, info.next_offset, limits.TOUCH_TTL_MS),
        )
        txn.execute(SQL.activate, params)
    if int(txn.value(SQL.count_active, (info.name,))) > limits.TOUCH_TEMPLATES_MAX:
        raise LimitExceeded(
            f"the stream {info.name!r} would have more than {limits.TOUCH_TEMPLATES_MAX} "
            "active templates",
            hint="Compare fewer fields, or wait until some are retired because nobody asks.",
        )
    txn.execute(SQL.forget_more_than, (info.name, limits.TOUCH_TEMPLATES_MAX))
    found = active(txn, info.name)
    return tuple(found[id_of(each)] for each in wanted)


def values_of(rows: Rows, found: Mapping[str, ActiveTemplate], name: str) -> list[Any]:
    """The values that are waited for, in the order of the template's fields. NotFound when the
    template is not active, InvalidInput when they do not fit it.
    """
    template = found.get(rows.template_id)
    if template is None:
        raise NotFound(
            f"the stream {name!r} has no active template {rows.template_id!r:.80}",
            hint="Activate it, read what you need once more, and then wait.",
        )
    if not isinstance(rows.values, Mapping) or rows.values.keys() != template.fields.keys():
        raise InvalidInput(
            f"the template {template.id} needs a value for each of "
            f"{', '.join(template.fields)!r:.400}, and no others",
            hint="A field that the row does not have is null.",
        )
    for field, encoding in template.fields.items():
        value = rows.values[field]
        if value is not None and not _FITS[encoding](value):
            raise InvalidInput(
                f"the field {field!r:.80} of the template {template.id} is compared as {encoding}; "
                f"{value!r:.80} does not fit"
            )
    return [rows.values[field] for field in template.fields]
