"""Live templates: by which fields the rows of an entity are waited for.

A template is known by what it compares, so whoever asks for the same has the same. It is active
from then on, until nobody asked for it for as long as it says; then it is retired, which spares
every change the comparison, and asking again makes it active again. Each function is the work of
one transaction, or a part of it.

Retiring templates that nobody asks for, and forgetting those that were retired long ago.

What was seen while somebody waited, until it is written down: templates that are in use, and how
far the changes of streams were looked at.

Writing that down with every wait would make a commit of it, so it is kept in memory, where it
counts at once. What is not written yet is not forgotten when writing fails. After a crash it is
lost, and nothing with it: a template may be retired early, and is activated again.
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
from fourfold.models.streams.touch.records import ActiveTemplate, Encoding, Rows, Template
from fourfold.models.streams.validation import stored

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


def active(snapshot: ReadTransaction, name: str) -> dict[str, ActiveTemplate]:
    """The active templates of a stream, by their ids."""
    return {row[0]: _template(row) for row in snapshot.all(SQL.active, (name,))}


def all_of(snapshot: ReadTransaction, name: str) -> tuple[ActiveTemplate, ...]:
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


def retire(database: Database, last_use: Callable[[str, str], int], now_ms: int) -> None:
    """So many of both as one sweep may take; one transaction, and none when there is nothing to do.

    `last_use` says when a template was asked for as far as that is not written down: such a one
    stays, and that is written down.
    """
    most = limits.TOUCH_TEMPLATES_SWEPT
    with database.read() as snapshot:
        unseen = snapshot.all(SQL.unseen, (now_ms, limits.TOUCH_TTL_MS_MIN, most))
        before = now_ms - limits.TOUCH_RETIRED_KEPT_MS
        forgettable = snapshot.all(SQL.forgettable, (before, most))
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
class _Use:
    waiting: int = 0
    seen_ms: int = 0
    written_ms: int = 0


class SeenRows:
    """The uses of templates, and how far streams were looked at."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self._uses: dict[_Template, _Use] = {}
        self._waiting: dict[str, int] = {}
        self._processed: dict[int, int] = {}
        self._change = threading.Lock()

    @contextmanager
    def waiting(self, name: str, template_ids: Collection[str]) -> Iterator[None]:
        """While somebody waits at a stream, and asks for templates of it."""
        with self._change:
            self._waiting[name] = self._waiting.get(name, 0) + 1
            for each in template_ids:
                self._uses.setdefault((name, each), _Use()).waiting += 1
        is_there = True
        try:
            yield
        except NotFound:
            is_there = False
            raise
        finally:
            with self._change:
                self._end(name, template_ids, is_there=is_there)

    def _end(self, name: str, template_ids: Collection[str], *, is_there: bool) -> None:
        self._waiting[name] -= 1
        if not self._waiting[name]:
            del self._waiting[name]
        for each in template_ids:
            use = self._uses[name, each]
            use.waiting -= 1
            if is_there:
                use.seen_ms = self._clock()
            elif not use.waiting and not use.seen_ms:
                del self._uses[name, each]

    def processed(self, sid: int, reached: int) -> None:
        """The changes of a stream were looked at, up to and without an offset."""
        with self._change:
            if reached > self._processed.get(sid, -1):
                self._processed[sid] = reached

    def reached(self, sid: int) -> int | None:
        """The same, if it is not written down yet."""
        return self._processed.get(sid)

    def waiters(self, name: str) -> int:
        return self._waiting.get(name, 0)

    def last_use(self, name: str, template_id: str) -> int:
        """When a template was last asked for here; now, while somebody waits."""
        with self._change:
            return self._last_use(self._uses.get((name, template_id)))

    def _last_use(self, use: _Use | None) -> int:
        if use is None:
            return 0
        return self._clock() if use.waiting else use.seen_ms

    def write_down(self) -> None:
        """In one transaction; none when nothing is new."""
        now = self._clock()
        with self._change:
            uses = {
                key: last
                for key, use in self._uses.items()
                if (last := self._last_use(use)) - use.written_ms >= limits.TOUCH_SEEN_EVERY_MS
            }
            processed = dict(self._processed)
        if uses or processed:
            self._database.transact(partial(_write, uses, processed, now))
        with self._change:
            for sid, reached in processed.items():
                # One that was looked at further meanwhile is written down the next time.
                if self._processed.get(sid) == reached:
                    del self._processed[sid]
            for key, last in uses.items():
                if key in self._uses:
                    self._uses[key].written_ms = last
            self._forget_old(now)

    def _forget_old(self, now: int) -> None:
        """What is written down, and was not used since, need not be known here."""
        for key, use in list(self._uses.items()):
            is_old = use.written_ms + limits.TOUCH_SEEN_EVERY_MS <= now
            if is_old and not use.waiting and use.seen_ms <= use.written_ms:
                del self._uses[key]


def _write(
    uses: dict[_Template, int], processed: dict[int, int], now_ms: int, txn: Transaction
) -> None:
    txn.execute_many(SQL.seen, [(*key, last) for key, last in uses.items()])
    last_offsets = [(sid, reached - 1, now_ms) for sid, reached in processed.items()]
    txn.execute_many(SQL.put_processed_through, last_offsets)
