"""Live templates: the fields by which waits match rows of an entity.

The id of a template is a hash of its content, so equal templates are shared. A template is active
until it was not used for its TTL; then it is retired, which saves matching every change against it,
and activating it again makes it active. Each function runs in one transaction or in part of one.

`retire` retires unused templates and deletes those that were retired long ago.

`SeenRows` buffers the uses of templates and the processed offsets of streams. Writing them with
every wait would make it a commit, so they are buffered in memory, where they count at once. A
failed write keeps the buffer. A crash loses it, which is harmless: a template may be retired early,
and is activated again.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from fourfold import limits
from fourfold.errors import InvalidInput, LimitExceeded, NotFound
from fourfold.kernel import Database, ReadTransaction, Transaction, load_queries
from fourfold.models.streams.records import StreamInfo
from fourfold.models.streams.touch.records import ActiveTemplate, Encoding, Template, TemplateKey
from fourfold.models.streams.validation import check_storable

TOUCH_TEMPLATES_SWEPT: Final = 1_000
"""Templates that one sweep retires, and that it deletes."""
TOUCH_FIELDS_MAX: Final = 8
"""Fields that a template compares."""
TOUCH_NAME_CHARS: Final = 256
"""Length of the entity of a template, and of each of its fields."""
TOUCH_TTL_MS: Final = 3_600_000
TOUCH_TTL_MS_MIN: Final = 60_000
TOUCH_TTL_MS_MAX: Final = 7 * 24 * 3_600_000
"""Default, minimum and maximum idle time after which a template is retired."""
TOUCH_SEEN_EVERY_MS: Final = 10_000
"""Interval at which the use of a template is recorded; after a crash a template may count as
unused for this much longer.
"""
TOUCH_RETIRED_KEPT_MS: Final = 24 * 3_600_000
"""Time for which a retired template is kept."""

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
    """Return a template with its fields in order, or raise InvalidInput."""
    _check_name(template.entity, "template entity")
    fields = template.fields
    if not isinstance(fields, Mapping) or not 0 < len(fields) <= TOUCH_FIELDS_MAX:
        raise InvalidInput(
            f"template of {template.entity!r:.80}: fields must be a mapping of 1 to "
            f"{TOUCH_FIELDS_MAX} fields"
        )
    for field, encoding in fields.items():
        _check_name(field, "template field")
        if not isinstance(encoding, str) or encoding not in _FITS:
            raise InvalidInput(
                f"field {field!r:.80}: encoding must be one of {', '.join(_FITS)}, "
                f"got {encoding!r:.80}"
            )
    ttl = template.inactivity_ttl_ms
    shortest, longest = TOUCH_TTL_MS_MIN, TOUCH_TTL_MS_MAX
    if ttl is not None and (type(ttl) is not int or not shortest <= ttl <= longest):
        raise InvalidInput(
            f"inactivity_ttl_ms must be an integer from {shortest} to {longest}, got {ttl!r:.80}"
        )
    return template._replace(fields=dict(sorted(fields.items())))


def _check_name(text: object, what: str) -> None:
    if not isinstance(text, str) or not 0 < len(text) <= TOUCH_NAME_CHARS:
        raise InvalidInput(
            f"{what} must be text of 1 to {TOUCH_NAME_CHARS} characters, got {text!r:.80}"
        )
    check_storable(text)


def id_of(template: Template) -> str:
    """Return the id of a template: a hash of its entity, fields and encodings."""
    compared = [template.entity, sorted(template.fields.items())]
    return hashlib.sha256(json.dumps(compared).encode()).hexdigest()[:32]


def active(snapshot: ReadTransaction, name: str) -> dict[str, ActiveTemplate]:
    """Return the active templates of a stream by id."""
    return {row[0]: _template(row) for row in snapshot.all(SQL.active, (name,))}


def all_of(snapshot: ReadTransaction, name: str) -> tuple[ActiveTemplate, ...]:
    """Return all templates of a stream, including retired ones."""
    return tuple(map(_template, snapshot.all(SQL.all_of_stream, (name,))))


def _template(row: Sequence[Any]) -> ActiveTemplate:
    names, encodings = json.loads(row[2]), cast("list[Encoding]", json.loads(row[3]))
    return ActiveTemplate(row[0], row[1], dict(zip(names, encodings, strict=True)), *row[4:])


def activate(
    txn: Transaction, info: StreamInfo, templates: Sequence[Template], now_ms: int
) -> tuple[ActiveTemplate, ...]:
    """Activate checked templates and record their use; return them in the same order."""
    for template in templates:
        fields = json.dumps(list(template.fields))
        encodings = json.dumps(list(template.fields.values()))
        params = (
            *(info.name, id_of(template), template.entity, fields, encodings, now_ms),
            *(template.inactivity_ttl_ms, info.next_offset, TOUCH_TTL_MS),
        )
        txn.execute(SQL.activate, params)
    if int(txn.value(SQL.count_active, (info.name,))) > limits.TOUCH_TEMPLATES_MAX:
        raise LimitExceeded(
            f"stream {info.name!r}: cannot have more than {limits.TOUCH_TEMPLATES_MAX} "
            "active templates",
            hint="Use fewer templates, or wait until unused ones are retired.",
        )
    txn.execute(SQL.forget_more_than, (info.name, limits.TOUCH_TEMPLATES_MAX))
    activated = active(txn, info.name)
    return tuple(activated[id_of(template)] for template in templates)


def values_of(rows: TemplateKey, templates: Mapping[str, ActiveTemplate], name: str) -> list[Any]:
    """Return the values of a key in the order of the fields of its template.

    Raises:
        NotFound: the template is not active.
        InvalidInput: the values do not match the template.
    """
    template = templates.get(rows.template_id)
    if template is None:
        raise NotFound(
            f"stream {name!r}: no active template {rows.template_id!r:.80}",
            hint="Activate it, read the state again, and then wait.",
        )
    if not isinstance(rows.values, Mapping) or rows.values.keys() != template.fields.keys():
        raise InvalidInput(
            f"template {template.id}: values must be given for exactly "
            f"{', '.join(template.fields)!r:.400}",
            hint="Pass null for a field that the row does not have.",
        )
    for field, encoding in template.fields.items():
        value = rows.values[field]
        if value is not None and not _FITS[encoding](value):
            raise InvalidInput(
                f"template {template.id}: field {field!r:.80} must be of type {encoding}, "
                f"got {value!r:.80}"
            )
    return [rows.values[field] for field in template.fields]


def retire(database: Database, last_use: Callable[[str, str], int], now_ms: int) -> None:
    """Retire unused templates and delete old retired ones, in one transaction if needed.

    `last_use` returns the buffered last use of a template: one that was used stays active, and its
    use is written.
    """
    limit = TOUCH_TEMPLATES_SWEPT
    with database.read() as snapshot:
        unseen = snapshot.all(SQL.unseen, (now_ms, TOUCH_TTL_MS_MIN, limit))
        before = now_ms - TOUCH_RETIRED_KEPT_MS
        forgettable = snapshot.all(SQL.forgettable, (before, limit))
    if not unseen and not forgettable:
        return

    def work(txn: Transaction) -> None:
        for name, template_id, ttl_ms in unseen:
            last = last_use(name, template_id)
            if last + ttl_ms > now_ms:
                txn.execute(SQL.seen, (name, template_id, last))
            else:
                txn.execute(SQL.retire, (name, template_id, now_ms))
        txn.execute_many(SQL.forget, forgettable)

    database.transact(work)


_Template = tuple[str, str]
"""The name of a stream, and the id of a template."""


@dataclass(slots=True)
class _TemplateUse:
    waiting: int = 0
    seen_ms: int = 0
    written_ms: int = 0


class SeenRows:
    """Buffered uses of templates and processed offsets of streams."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self._uses: dict[_Template, _TemplateUse] = {}
        self._waiting: dict[str, int] = {}
        self._processed: dict[int, int] = {}
        self._change = threading.Lock()

    @contextmanager
    def waiting(self, name: str, template_ids: Collection[str]) -> Iterator[None]:
        """Count a wait on a stream and a use of its templates for the duration of the block."""
        with self._change:
            self._waiting[name] = self._waiting.get(name, 0) + 1
            for template_id in template_ids:
                self._uses.setdefault((name, template_id), _TemplateUse()).waiting += 1
        exists = True
        try:
            yield
        except NotFound:
            exists = False
            raise
        finally:
            with self._change:
                self._end(name, template_ids, exists=exists)

    def _end(self, name: str, template_ids: Collection[str], *, exists: bool) -> None:
        self._waiting[name] -= 1
        if not self._waiting[name]:
            del self._waiting[name]
        for template_id in template_ids:
            use = self._uses[name, template_id]
            use.waiting -= 1
            if exists:
                use.seen_ms = self._clock()
            elif not use.waiting and not use.seen_ms:
                del self._uses[name, template_id]

    def record_processed(self, sid: int, reached: int) -> None:
        """Record that the changes of a stream below an offset were processed."""
        with self._change:
            if reached > self._processed.get(sid, -1):
                self._processed[sid] = reached

    def reached(self, sid: int) -> int | None:
        """Return the processed offset of a stream if it is not written yet."""
        return self._processed.get(sid)

    def waiters(self, name: str) -> int:
        """Return the number of waiters of a stream."""
        return self._waiting.get(name, 0)

    def last_use(self, name: str, template_id: str) -> int:
        """Return the last use of a template by this process; now, while a wait uses it."""
        with self._change:
            return self._last_use(self._uses.get((name, template_id)))

    def _last_use(self, use: _TemplateUse | None) -> int:
        if use is None:
            return 0
        return self._clock() if use.waiting else use.seen_ms

    def flush(self) -> None:
        """Write the buffer in one transaction, if there is anything new."""
        now = self._clock()
        with self._change:
            uses = {
                key: last
                for key, use in self._uses.items()
                if (last := self._last_use(use)) - use.written_ms >= TOUCH_SEEN_EVERY_MS
            }
            processed = dict(self._processed)
        if uses or processed:
            self._database.transact(partial(_write, uses, processed, now))
        with self._change:
            for sid, reached in processed.items():
                # A stream that was processed further meanwhile is written next time.
                if self._processed.get(sid) == reached:
                    del self._processed[sid]
            for key, last in uses.items():
                if key in self._uses:
                    self._uses[key].written_ms = last
            self._drop_old(now)

    def _drop_old(self, now: int) -> None:
        """Drop uses that are written and were not renewed since."""
        for key, use in list(self._uses.items()):
            is_old = use.written_ms + TOUCH_SEEN_EVERY_MS <= now
            if is_old and not use.waiting and use.seen_ms <= use.written_ms:
                del self._uses[key]


def _write(
    uses: dict[_Template, int], processed: dict[int, int], now_ms: int, txn: Transaction
) -> None:
    txn.execute_many(SQL.seen, [(*key, last) for key, last in uses.items()])
    last_offsets = [(sid, reached - 1, now_ms) for sid, reached in processed.items()]
    txn.execute_many(SQL.put_processed_through, last_offsets)
