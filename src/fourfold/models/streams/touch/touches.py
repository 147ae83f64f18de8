"""Touches: waiting until something changed that concerns certain keys of a state stream.

    mine = Template("order", {"customer": "string"})
    (template,) = touches.activate("orders", [mine])
    at = touches.meta("orders").cursor
    ...                                     # read what is needed, then:
    told = touches.wait("orders", at, [Rows(template.id, {"customer": "c-17"})], timeout_s=30)

A wait ends when one of its keys was touched by a change behind its cursor, or when its time is
over. It may be told of a change that does not concern it, and is never not told of one that does:
not after a restart, not when it comes back late. Where that cannot be told any more the answer is
`stale`, and everything has to be read again. A wait without a cursor is from now on.
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
from fourfold.models.streams.touch.keys import Cursor
from fourfold.models.streams.touch.records import ActiveTemplate, Key, Meta, Template, Touched
from fourfold.models.streams.touch.templates import SQL, SeenRows
from fourfold.models.streams.touch.waiters import Wait, WaitCheck
from fourfold.models.streams.validation import check_name

if TYPE_CHECKING:
    from fourfold.models.streams.streams import Streams


class Touches:
    """Who waits for changes of the streams of one store."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._looking = JournalScan(streams)
        self._seen = SeenRows(streams.database, streams.clock)

    # Waiting

    def wait(self, name: str, cursor: str | None, keys: Sequence[Key], timeout_s: float) -> Touched:
        """Until one of the keys is touched by a change behind the cursor, or the time is over."""
        wait = Wait(name, cursor, keys, timeout_s)
        with self._seen.waiting(name, wait.template_ids):
            while True:
                count = self._streams.notifier.count
                told = wait.after(self._noted(self._looking.look(wait)))
                if told is not None:
                    return told
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
    ) -> Touched:
        """The same for coroutines. It ends as if its time were over when everybody is woken
        (`wake_all`) and it `should_stop`.
        """
        wait = Wait(name, cursor, keys, timeout_s)
        with (
            self._seen.waiting(name, wait.template_ids),
            self._looking.waiters.seated(name) as seat,
        ):
            while True:
                wait.untouched_below(seat.rise())
                looked = self._looking.recall(wait)
                if looked is None:
                    looked = self._noted(await self._look(wait))
                told = wait.after(looked, stopping=should_stop())
                if told is not None:
                    return told
                if wait.pause_s:
                    marks = set(chain.from_iterable(looked.marks))
                    await seat.sleep(marks, wait.pause_s)
                else:
                    # There is more to look at; meanwhile others have their turn.
                    await asyncio.sleep(0)

    def wake_all(self) -> None:
        """Let every coroutine that waits look whether it should stop; from any thread."""
        self._looking.waiters.wake_all()

    async def _look(self, wait: Wait) -> WaitCheck:
        """Segments may be far away, and much may have to be read: that is for a thread."""
        try:
            return self._looking.glance(wait)
        except NotOnTheLoop:
            pass
        async with self._looking.desks.find(wait.name).gate():
            try:
                # Whoever was before this one may have read what was missing.
                return self._looking.glance(wait)
            except NotOnTheLoop:
                return await asyncio.to_thread(self._looking.look, wait)

    def _noted(self, looked: WaitCheck) -> WaitCheck:
        if not looked.stale:
            self._seen.processed(looked.sid, looked.cursor.offset)
        return looked

    def meta(self, name: str) -> Meta:
        """Where a stream is for those who wait at it."""
        check_name(name)
        with self._streams.database.read() as snapshot:
            info = self._looking.enabled(snapshot, name)
            count = int(snapshot.value(SQL.count_active, (name,)))
            written = snapshot.value(SQL.processed_through, (name,))
        processed = max(
            -1 if written is None else int(written), (self._seen.reached(info.sid) or 0) - 1
        )
        cursor = str(Cursor(info.incarnation, info.next_offset))
        return Meta(cursor, processed, count, self._seen.waiters(name))

    # Templates

    def activate(self, name: str, wanted: Sequence[Template]) -> tuple[ActiveTemplate, ...]:
        """Hold changes against templates from now on; all of them, or none. One that is active
        already counts as asked for.
        """
        return self._streams.database.transact(self._activating(name, wanted))

    async def activate_async(
        self, name: str, wanted: Sequence[Template]
    ) -> tuple[ActiveTemplate, ...]:
        """The same for coroutines."""
        return await self._streams.database.transact_async(self._activating(name, wanted))

    def _activating(
        self, name: str, wanted: Sequence[Template]
    ) -> Callable[[Transaction], tuple[ActiveTemplate, ...]]:
        check_name(name)
        if not 0 < len(wanted) <= limits.TOUCH_TEMPLATES_MAX:
            raise InvalidInput(f"1 to {limits.TOUCH_TEMPLATES_MAX} templates are activated at once")
        checked = [templates.check(each) for each in wanted]

        def work(txn: Transaction) -> tuple[ActiveTemplate, ...]:
            info = self._looking.enabled(txn, name)
            return templates.activate(txn, info, checked, self._streams.clock())

        return work

    def templates(self, name: str) -> tuple[ActiveTemplate, ...]:
        """All that a stream has, those included that were retired."""
        check_name(name)
        with self._streams.database.read() as snapshot:
            self._looking.enabled(snapshot, name)
            return templates.all_of(snapshot, name)

    # Upkeep

    def write_down(self) -> None:
        """What was seen since: templates that were asked for, how far streams were looked at."""
        self._seen.write_down()

    def retire(self, now_ms: int) -> None:
        """Retire templates that nobody asked for in their time. One that somebody waits with right
        now is asked for.
        """
        templates_module.retire(self._streams.database, self._seen.last_use, now_ms)
