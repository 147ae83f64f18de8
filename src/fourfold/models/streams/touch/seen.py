"""What was seen while somebody waited, until it is written down: templates that are in use, and how
far the changes of streams were looked at.

Writing that down with every wait would make a commit of it, so it is kept in memory, where it
counts at once. What is not written yet is not forgotten when writing fails. After a crash it is
lost, and nothing with it: a template may be retired early, and is activated again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from fourfold import limits
from fourfold.errors import NotFound
from fourfold.kernel import Database, Transaction
from fourfold.models.streams.touch.templates import SQL

_Template = tuple[str, str]
"""The name of a stream, and the id of a template."""


@dataclass(slots=True)
class _Use:
    waiting: int = 0
    seen_ms: int = 0
    written_ms: int = 0


class Seen:
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
