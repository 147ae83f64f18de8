"""Attributes and ratings by their values, now or at any seq: lookups, ranges and aggregates.

A lookup reads `value_now` and `value_past` in the order of values: numbers, then texts, then JSON.
It costs what it returns, however many versions there are. Texts are compared in full, JSON values
one by one.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.content.filters import Comparison, Filter, Membership, parse_filter
from fourfold.errors import InvalidInput, NotFound
from fourfold.kernel import Queries, load_queries
from fourfold.models.graphs import cursors, validation
from fourfold.models.graphs.intervals import KEY_CHARS
from fourfold.models.graphs.reader import Query, Reader
from fourfold.models.graphs.records import (
    BITS,
    ROWS,
    SUPPRESS,
    Aggregate,
    At,
    FindResult,
    Kind,
    TopHit,
    TopOrder,
    TopResult,
    ValueRow,
)
from fourfold.models.graphs.statements import newest_of

_TEMPLATES = load_queries("fourfold.models.graphs", "values.sql")
_JSON: Final = b""
_OTHER: Final = b"\0"
_BATCH: Final = 200
"""Objects whose newest versions are read with one statement."""
_LAST_ID: Final = (1 << 63) - 1
_RANK: Final = {float: 0, str: 1, bytes: 2}
ORDERS: Final[tuple[TopOrder, ...]] = ("average", "sum", "count")


class _KeyRange(NamedTuple):
    """Values from one to another, both included."""

    low: Any
    high: Any


_EVERYTHING: Final = _KeyRange(float("-inf"), _OTHER)


@lru_cache(maxsize=4096)
def value_statements(app_id: int, kind: Kind) -> Queries:
    """Return the statements about the values of attributes or ratings of one app."""
    number = str(validation.check_integer(app_id, "app_id"))
    columns = ", ".join(f"r.{name}" for name in ROWS[kind]._fields)
    filled = {}
    for name in _TEMPLATES:
        text = getattr(_TEMPLATES, name).replace("{at_seq}", _TEMPLATES.at_seq)
        text = text.replace("{n}", number).replace("{kind}", kind).replace("{columns}", columns)
        text = text.replace("{newest}", newest_of(app_id, kind, "wanted.value", "?2"))
        filled[name] = text.replace("{bit}", str(BITS[kind]))
    return Queries(f"values of {kind} of app {number}", filled)


class ValueReader:
    """Reads by value in one app at one seq, on one read transaction."""

    def __init__(self, reader: Reader, app_id: int, kind: str, at: At | None) -> None:
        if kind not in {"attr", "rating"}:
            raise InvalidInput(f"kind must be attr or rating, got {kind!r:.80}")
        self._reader = reader
        self._app_id = app_id
        self._kind: Kind = validation.check_kind(kind)
        reader.check_app(app_id)
        self._at = at
        self._sql = value_statements(app_id, self._kind)

    def find(
        self, type_key: str, where: Any, *, limit: int, after: str | None, suppressed: bool
    ) -> FindResult:
        """Return a page of the objects of a type whose value meets a condition."""
        validation.check_integer(limit, "limit", least=1)
        if limit > limits.PAGE_ITEMS_MAX:
            raise InvalidInput(f"limit must be at most {limits.PAGE_ITEMS_MAX}, got {limit}")
        condition = value_filter(where)
        type_id = self._type_id(type_key)
        digest = cursors.digest_of(
            ("find", self._app_id, self._kind, type_key, condition.where, suppressed)
        )
        cursor = cursors.parse(after, digest)
        seq = self._reader.check_at(self._at if cursor is None else cursor.seq)
        start = None if cursor is None else _position(cursor.after)
        entries = self._entries(type_id, condition, seq, start)
        rows: list[ValueRow] = []
        size = 0
        for row in self._rows(entries, condition, seq, limit, suppressed=suppressed):
            if len(rows) == limit or size > limits.PAGE_BYTES:
                last = rows[-1]
                place = [_encode_key(key_of(last)), last.object_id]
                return FindResult(seq, tuple(rows), cursors.encode(digest, seq, place))
            rows.append(row)
            size += sum(len(value) for value in row if isinstance(value, str | bytes))
        return FindResult(seq, tuple(rows), None)

    def aggregate(
        self, type_key: str, target: int | None, target_kind: str, *, suppressed: bool
    ) -> Aggregate:
        """Return count, sum, average and bounds of the values of a type, of one target or all."""
        if target_kind not in {"parent", "attr"}:
            raise InvalidInput(f"target_kind must be parent or attr, got {target_kind!r:.80}")
        if target is not None:
            validation.check_integer(target, "target", least=1)
        seq = self._reader.check_at(self._at)
        params = self._params(type_key, seq, suppressed=suppressed)
        place = (target, int(target_kind == "attr"))
        [row] = self._reader.raw_rows(self._sql.aggregate, (*params, *place))
        return Aggregate(seq, *row)

    def top(
        self,
        type_key: str,
        types: Iterable[int] | None,
        order: str,
        limit: int,
        *,
        suppressed: bool,
    ) -> TopResult:
        """Return the parents with the greatest numbers of a type of ratings or attributes."""
        validation.check_integer(limit, "limit", least=1)
        if order not in ORDERS:
            raise InvalidInput(f"order must be one of {', '.join(ORDERS)}, got {order!r:.80}")
        if limit > limits.PAGE_ITEMS_MAX:
            raise InvalidInput(f"limit must be at most {limits.PAGE_ITEMS_MAX}, got {limit}")
        seq = self._reader.check_at(self._at)
        params = self._params(type_key, seq, suppressed=suppressed)
        ids = None if types is None else validation.check_ids(types, "types")
        rows = self._reader.raw_rows(self._sql.top, (*params, None, None, ids, order, limit))
        return TopResult(seq, tuple(TopHit(*row) for row in rows))

    def _type_id(self, type_key: str) -> int:
        """Return the id of a type.

        Raises:
            NotFound: The app has no such type.
        """
        validation.check_text(type_key, "type")
        type_id = self._reader.find_type(self._app_id, self._kind, type_key)
        if type_id is None:
            raise NotFound(
                f"app {self._app_id} has no type {type_key!r} of {self._kind}",
                hint="List the types with `fourfold app types`.",
            )
        return type_id

    def _params(self, type_key: str, seq: int, *, suppressed: bool) -> tuple[Any, ...]:
        hidden: tuple[list[int], list[int]] = ([], [])
        if not suppressed:
            hidden = self._hidden(seq)
        return self._type_id(type_key), seq, *map(json.dumps, hidden)

    def _hidden(self, seq: int) -> tuple[list[int], list[int]]:
        """Return all suppressed parents and attributes, and the attributes of these parents."""
        suppress = self._reader.find_type(self._app_id, "rating", SUPPRESS)
        if suppress is None:
            return [], []
        pairs = self._reader.raw_rows(self._sql.suppressed_targets, (suppress,))
        parents = self._reader.hidden(
            *(self._app_id, "parent"), [number for kind, number in pairs if kind == 0], seq
        )
        attrs = self._reader.hidden(
            *(self._app_id, "attr"), [number for kind, number in pairs if kind == 1], seq
        )
        below = self._reader.raw_rows(self._sql.attrs_of, (json.dumps(sorted(parents)),))
        return sorted(parents), sorted(attrs | {row[0] for row in below})

    def _entries(
        self, type_id: int, condition: Filter, seq: int, start: tuple[Any, int] | None
    ) -> Iterator[int]:
        """Yield the ids of objects whose value may match, in the order of values and ids."""
        for low, high in ranges_of(condition):
            first = (low, 0)
            if start is not None:
                if _rank(high) < _rank(start[0]):
                    continue
                first = max(first, start, key=lambda place: (_rank(place[0]), place[1]))
            params = (type_id, first[0], high, first[1], seq)
            now = self._reader.iter_raw(self._sql.between_now, params)
            past = self._reader.iter_raw(self._sql.between_past, params)
            merged = heapq.merge(now, past, key=lambda row: (_rank(row[0]), row[1]))
            yield from (row[1] for row in merged)

    def _rows(
        self, ids: Iterator[int], condition: Filter, seq: int, limit: int, *, suppressed: bool
    ) -> Iterator[ValueRow]:
        """Yield the newest versions of objects that match, without suppressed ones."""
        last = self._reader.ids_between(self._app_id, self._kind, 0, seq)[1] or _LAST_ID
        make = ROWS[self._kind]._make

        def matching() -> Iterator[Any]:
            while batch := list(islice(ids, min(_BATCH, limit + 1))):
                rows = self._reader.raw_rows(self._sql.newest_of, (json.dumps(batch), last))
                versions: Iterator[Any] = map(make, rows)
                yield from (row for row in versions if matches(row, condition))

        if suppressed:
            return matching()
        query = Query(self._app_id, self._kind, at=seq)
        return self._reader.unsuppressed(matching(), query, limit)


def value_filter(where: Any) -> Filter:
    """Parse a condition on a value: a plain value (equality) or filter operators."""
    condition = parse_filter({} if where is None else {"value": where})
    validation.check_stored_text(json.dumps(condition.where, ensure_ascii=False), "where")
    return condition


def matches(row: ValueRow, condition: Filter) -> bool:
    """Return True if the value of a row meets a condition."""
    return condition.matches(document_of(row))


def document_of(row: ValueRow) -> dict[str, Any]:
    """Return the value of a row as a document for a filter; bytes and no value are missing."""
    if row.value_text is not None:
        return {"value": row.value_text}
    if row.value_number is not None:
        return {"value": row.value_number}
    return {} if row.value_json is None else {"value": json.loads(row.value_json)}


def key_of(row: ValueRow) -> float | str | bytes:
    """Return the value of a row as `value_now` has it."""
    if row.value_text is not None:
        # SQLite ends a text at a null character.
        return row.value_text.split("\0", 1)[0][:KEY_CHARS]
    if row.value_number is not None:
        return row.value_number
    return _OTHER if row.value_json is None else _JSON


def ranges_of(condition: Filter) -> list[_KeyRange]:
    """Return ranges of values, in order, outside of which nothing matches.

    JSON values are not in order, so they are always among them.
    """
    bounds: list[_KeyRange] = []
    for part in condition.conjuncts():
        if isinstance(part, Membership) or (
            isinstance(part, Comparison) and part.operator == "$eq"
        ):
            values = part.values if isinstance(part, Membership) else (part.value,)
            keys = {key for value in values if (key := _key(value)) is not None}
            ranges = [_KeyRange(key, key) for key in sorted(keys, key=_rank)]
            return [*ranges, _KeyRange(_JSON, _JSON)]
        if isinstance(part, Comparison) and (limited := _bound(part)) is not None:
            bounds.append(limited)
    if not bounds:
        return [_EVERYTHING]
    low = max((bound.low for bound in bounds), key=_rank)
    high = min((bound.high for bound in bounds), key=_rank)
    ranges = [_KeyRange(low, high)] if _rank(low) <= _rank(high) else []
    return [*ranges, _KeyRange(_JSON, _JSON)]


def _bound(part: Comparison) -> _KeyRange | None:
    """Return the range of a comparison; None if an order of values does not help."""
    key = _key(part.value)
    if key is None or part.operator in {"$ne", "$contains"}:
        return None
    first, last = ("", chr(0x10FFFF) * KEY_CHARS) if type(key) is str else (-_INF, _INF)
    if part.operator == "$prefix":
        return _KeyRange(key, key + chr(0x10FFFF) * (KEY_CHARS - len(str(key))))
    return _KeyRange(key, last) if part.operator in {"$gt", "$gte"} else _KeyRange(first, key)


_INF: Final = float("inf")


def _key(value: Any) -> Any:
    """Return a text or a number as `value_now` has it; None for others."""
    if type(value) is str:
        return value.split("\0", 1)[0][:KEY_CHARS]
    if type(value) in {int, float}:
        try:
            return float(value)
        except OverflowError:
            return _INF if value > 0 else -_INF
    return None


def _rank(key: Any) -> tuple[int, Any]:
    return _RANK[type(key)], key


def _encode_key(key: float | str | bytes) -> Any:
    return [key.decode()] if isinstance(key, bytes) else key


def _position(after: Any) -> tuple[Any, int]:
    """Return the place of a cursor: a value and the id of an object."""
    try:
        key, object_id = after
        validation.check_integer(object_id, "cursor")
        if isinstance(key, list):
            return key[0].encode(), object_id
        return (key if isinstance(key, str) else float(key)), object_id
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
        raise InvalidInput("cursor must be that of a page of this query") from None
