"""Tables that are derived from events of sessions: rows of the log, with columns from their bodies.

The columns are those that the queries of the tables compute with SQLite's JSON functions: a value
is the text in the body as it is stored, a scalar has SQLite's text of it. Of a turn or a step the
newest event counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fourfold.query.sessions.tables import TABLES
from fourfold.query.tables import ROOT, Column, arrow, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_Row = Mapping[str, Any]
_STARTED: Final = "started"
_INTEGERS: Final = range(-(1 << 63), 1 << 63)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class _DerivationRule:
    """Rule that derives the rows of a table from events."""

    condition: str
    """Condition on the events that have rows."""
    field: str
    """Field of the body."""
    whole: str
    """Column with the field as JSON."""
    columns: Callable[[_Row, Mapping[str, bytes]], dict[str, Any]]
    """Columns from an event and the members of the field."""
    entity: str = ""
    """Column with the id of the entity."""
    newest: bool = False
    """True if only the newest event of an entity counts."""


def derive(table: str, events: DataFrame) -> DataFrame:
    """Return the rows of a table; `events` has all columns of the log, and `root`."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    rule = _RULES[table]
    rows = events.where(rule.condition)
    if rule.newest:
        key = (ROOT, "session", "entity_id")
        others = [name for name in events.columns if name not in key]
        newest = f.max_by(f.struct(*others), "event_id").alias("newest")
        started = f.min_by("time", "event_id").alias(_STARTED)
        rows = rows.groupBy(*key).agg(newest, started).select(*key, _STARTED, "newest.*")
    output = TABLES.table(table).columns
    ddl = ", ".join(f"`{column.name}` {column.type}" for column in output)
    return rows.mapInArrow(partial(derive_batches, table=table, output=output), ddl)


def derive_batches(
    batches: Iterable[pa.RecordBatch], table: str, output: tuple[Column, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table for batches of its events."""
    rule = _RULES[table]
    schema = arrow_schema(output)
    for batch in batches:
        rows = [_derived_row(row, rule) for row in batch.to_pylist()]
        yield arrow().RecordBatch.from_pylist(rows, schema=schema)


def _derived_row(event: _Row, rule: _DerivationRule) -> dict[str, Any]:
    field = _members(event["body"].encode()).get(rule.field)
    own = {rule.whole: _text(field), rule.entity: event["entity_id"]}
    return {**event, **own, **rule.columns(event, _members(field))}


def _members(raw: bytes | None) -> Mapping[str, bytes]:
    """Return the members of an object as stored; of any other value, none."""
    if raw is None or not raw.startswith(b"{"):
        return {}
    return {name: bytes(value) for name, value in _FIELDS.decode(raw).items()}


def _items(raw: bytes | None) -> list[bytes]:
    if raw is None or not raw.startswith(b"["):
        return []
    return [bytes(value) for value in _ITEMS.decode(raw)]


def _text(raw: bytes | None) -> str | None:
    """Return a value as JSON."""
    return None if raw is None else raw.decode()


def _scalar(raw: bytes | None) -> str | None:
    """Return a value as SQLite casts it to text: a text without quotes, true as 1."""
    if raw is None or raw == b"null":
        return None
    if raw in {b"true", b"false"}:
        return "1" if raw == b"true" else "0"
    if raw.startswith(b'"'):
        return msgspec.json.decode(raw, type=str)
    if raw[:1] in b"{[":
        return raw.decode()
    number = _number(raw)
    return str(number) if isinstance(number, int) else _real(number)


def _real(number: float) -> str:
    """Return the shortest text of a real number, always with a point."""
    digits, exponent, power = repr(number).partition("e")
    return f"{digits if '.' in digits else f'{digits}.0'}{exponent}{power}"


def _number(raw: bytes) -> int | float:
    """Return a number as SQLite reads it: an integer that does not fit is real."""
    is_integer = not any(sign in raw for sign in b".eE")
    if is_integer and int(raw) in _INTEGERS:
        return int(raw)
    return float(raw)


def _is_number(raw: bytes | None) -> bool:
    return raw is not None and raw[:1] in b"-0123456789"


def _integer(raw: bytes | None) -> int | None:
    """Return an integer, at most as large as a column can have it; of other values, None."""
    if raw is None or not _is_number(raw) or any(sign in raw for sign in b".eE"):
        return None
    return min(max(int(raw), _INTEGERS[0]), _INTEGERS[-1])


def _float(raw: bytes | None) -> float | None:
    return float(raw) if raw is not None and _is_number(raw) else None


def _turn(_event: _Row, turn: Mapping[str, bytes]) -> dict[str, Any]:
    usage = _members(turn.get("usage"))
    tokens = _float(usage.get("tokens"))
    parts = [
        number
        for name, value in usage.items()
        if name.endswith("_tokens") and (number := _float(value)) is not None
    ]
    if tokens is None and parts:
        tokens = sum(parts)
    return {
        "outcome": _scalar(turn.get("status")),
        "steps": _integer(turn.get("steps")),
        "tokens": tokens,
        "cost": _float(usage.get("cost")),
        "usage": _text(turn.get("usage")),
        "error": _text(turn.get("error")),
    }


def _step(_event: _Row, step: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        "turn_id": _integer(step.get("turn_id")),
        "status": _scalar(step.get("status")),
        "usage": _text(step.get("usage")),
    }


def _message(event: _Row, message: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        "compaction": event["type"] == "session/compacted",
        "turn_id": _integer(message.get("turn_id")),
        "role": _scalar(message.get("role")),
        "content": _text(message.get("content")),
    }


def _eval(_event: _Row, value: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        "turn_id": _integer(value.get("turn_id")),
        "name": _scalar(value.get("name")),
        "status": _scalar(value.get("status")),
    }


def _head(_event: _Row, head: Mapping[str, bytes]) -> dict[str, Any]:
    first, last = _items(head.get("event_range"))
    return {
        "head": _scalar(head.get("id")),
        "basis": _scalar(head.get("basis")),
        "kind": _scalar(head.get("kind")),
        "first_event": _integer(first),
        "last_event": _integer(last),
        "turn_id": _integer(head.get("turn_id")),
    }


def _edge(_event: _Row, edge: Mapping[str, bytes]) -> dict[str, Any]:
    names = ("type", "from_session", "to_session", "from_head", "to_head")
    return {"edge": _scalar(edge.get("id")), **{name: _scalar(edge.get(name)) for name in names}}


_RULES: Final = {
    "messages": _DerivationRule("entity = 'message'", "message", "message", _message, "message_id"),
    "turns": _DerivationRule("entity = 'turn'", "turn", "turn", _turn, "turn_id", newest=True),
    "steps": _DerivationRule("entity = 'step'", "step", "step", _step, "step_id", newest=True),
    "evals": _DerivationRule("entity = 'eval'", "eval", "eval", _eval, "eval_id"),
    "heads": _DerivationRule("type = 'head/published'", "head", "content", _head),
    "edges": _DerivationRule("type = 'lineage/edge-added'", "edge", "content", _edge),
}
DERIVED: Final = tuple(_RULES)
"""Names of the tables."""
