"""Touches: wait for changes of certain keys of a state stream.

    mine = Template("order", {"customer": "string"})
    (template,) = touches.activate("orders", [mine])
    at = touches.meta("orders").cursor
    ...                                     # read what is needed, then:
    change = touches.wait("orders", at, [Rows(template.id, {"customer": "c-17"})], timeout_s=30)

A wait ends when a change after its cursor touches one of its keys, or when it times out. It may
report a change of other keys, but never misses one of its own, even after a restart or a long
pause. If the changes since the cursor are unknown the result is `stale`, and everything has to be
read again. A wait without a cursor starts at the end of the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.kernel import Transaction
from fourfold.models.streams.touch import templates
from fourfold.models.streams.touch import templates as templates_module
from fourfold.models.streams.touch.journal import JournalScan, NotOnTheLoop
from fourfold.models.streams.touch.keys import TouchCursor
from fourfold.models.streams.touch.records import ActiveTemplate, Key, Meta, Template, WaitResult
from fourfold.models.streams.touch.templates import SQL, SeenRows
from fourfold.models.streams.touch.waiters import Wait, WaitCheck
from fourfold.models.streams.validation import check_name

if TYPE_CHECKING:
    from fourfold.models.streams.streams import Streams


class Touches:
    """Waits for changes of the state streams of one store."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._scan = JournalScan(streams)
        self._seen = SeenRows(streams.database, streams.clock)

    # Waiting

    def wait(
        self, name: str, cursor: str | None, keys: Sequence[Key], timeout_s: float
    ) -> WaitResult:
        """Block until a change after `cursor` touches one of the keys, or until the timeout."""
        wait = Wait(name, cursor, keys, timeout_s)
        with self._seen.waiting(name, wait.template_ids):
            while True:
                count = self._streams.notifier.count
                result = wait.result_after(self._record_progress(self._scan.check(wait)))
                if result is not None:
                    return result
                if wait.pause_s:
                    self._streams.notifier.wait(count, wait.pause_s)

    async def wait_async(
        self,
        name: str,
        cursor: str | None,
        keys: Sequence[Key],
        timeout_s: float,
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> WaitResult:
        """Wait until a change after `cursor` touches one of the keys, or until the timeout.

        `wake_all` ends the wait early, like a timeout, if `should_stop` returns True.
        """
        wait = Wait(name, cursor, keys, timeout_s)
        with (
            self._seen.waiting(name, wait.template_ids),
            self._scan.waiters.register(name) as waiter,
        ):
            while True:
                wait.untouched_below(waiter.wake())
                check = self._scan.check_cached(wait)
                if check is None:
                    check = self._record_progress(await self._check(wait))
                result = wait.result_after(check, stopping=should_stop())
                if result is not None:
                    return result
                if wait.pause_s:
                    marks = set(chain.from_iterable(check.marks))
                    await waiter.sleep(marks, wait.pause_s)
                else:
                    # There is more to check; let other coroutines run first.
                    await asyncio.sleep(0)

    def wake_all(self) -> None:
        """Wake all waiting coroutines to check `should_stop`; callable from any thread."""
        self._scan.waiters.wake_all()

    async def _check(self, wait: Wait) -> WaitCheck:
        """Check on the event loop if that is quick, otherwise in a thread."""
        try:
            return self._scan.check_on_loop(wait)
        except NotOnTheLoop:
            pass
        async with self._scan.readers.find(wait.name).gate():
            try:
                # The previous holder of the gate may have read what was missing.
                return self._scan.check_on_loop(wait)
            except NotOnTheLoop:
                return await asyncio.to_thread(self._scan.check, wait)

    def _record_progress(self, check: WaitCheck) -> WaitCheck:
        if not check.stale:
            self._seen.record_processed(check.sid, check.cursor.offset)
        return check

    def meta(self, name: str) -> Meta:
        """Return the current cursor of a stream, and how many templates and waiters it has."""
        check_name(name)
        with self._streams.database.read() as snapshot:
            info = self._scan.get_enabled(snapshot, name)
            count = int(snapshot.value(SQL.count_active, (name,)))
            written = snapshot.value(SQL.processed_through, (name,))
        processed = max(
            -1 if written is None else int(written), (self._seen.reached(info.sid) or 0) - 1
        )
        cursor = str(TouchCursor(info.incarnation, info.next_offset))
        return Meta(cursor, processed, count, self._seen.waiters(name))

    # Templates

    def activate(self, name: str, templates: Sequence[Template]) -> tuple[ActiveTemplate, ...]:
        """Activate templates for a stream, all or none; active ones are renewed."""
        return self._streams.database.transact(self._activating(name, templates))

    async def activate_async(
        self, name: str, templates: Sequence[Template]
    ) -> tuple[ActiveTemplate, ...]:
        """Activate templates for a stream, all or none; active ones are renewed."""
        return await self._streams.database.transact_async(self._activating(name, templates))

    def _activating(
        self, name: str, requested: Sequence[Template]
    ) -> Callable[[Transaction], tuple[ActiveTemplate, ...]]:
        check_name(name)
        if not 0 < len(requested) <= limits.TOUCH_TEMPLATES_MAX:
            raise InvalidInput(
                f"pass 1 to {limits.TOUCH_TEMPLATES_MAX} templates, got {len(requested)}"
            )
        checked = [templates.check(template) for template in requested]

        def work(txn: Transaction) -> tuple[ActiveTemplate, ...]:
            info = self._scan.get_enabled(txn, name)
            return templates.activate(txn, info, checked, self._streams.clock())

        return work

    def templates(self, name: str) -> tuple[ActiveTemplate, ...]:
        """Return all templates of a stream, including retired ones."""
        check_name(name)
        with self._streams.database.read() as snapshot:
            self._scan.get_enabled(snapshot, name)
            return templates.all_of(snapshot, name)

    # Upkeep

    def flush(self) -> None:
        """Write the buffered uses of templates and the processed offsets of streams."""
        self._seen.flush()

    def retire(self, now_ms: int) -> None:
        """Retire templates that were not used within their TTL; waiting counts as use."""
        templates_module.retire(self._streams.database, self._seen.last_use, now_ms)
