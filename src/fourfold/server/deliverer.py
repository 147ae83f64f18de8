"""Tells webhooks and wake streams of what is pending, beside the server, on a thread of its own.

All state is in the database, so nothing is lost when the process dies: a webhook that was under way
is called again. A look is taken when something was committed, when a time has come, and now and
then. While there are no subscriptions, appends are not listened to.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Self
from urllib.parse import quote

from fourfold import limits
from fourfold.errors import FourfoldError, Refused, WebhookRefused
from fourfold.models.streams.names import show_offset
from fourfold.models.streams.subscriptions import Link, Subscriptions, Wake
from fourfold.server import webhooks
from fourfold.server.signing import Keys
from fourfold.server.webhooks import Targets, WebhookFailed

CONTROL = "/v1/stream/__ds"


class Deliverer:
    """Runs from `with` to the end of the block."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        keys: Keys,
        targets: Callable[[], Targets],
        *,
        concurrency: int = limits.WEBHOOK_CONCURRENCY,
        timeout_s: float = limits.WEBHOOK_TIMEOUT_S,
    ) -> None:
        self._subscriptions = subscriptions
        self._keys = keys
        self._targets = targets
        self._concurrency = concurrency
        self._timeout_s = timeout_s
        self._stopping = False
        self._rung = False
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._under_way: dict[str, tuple[str, asyncio.Task[None]]] = {}
        """The calls that are running, by subscription, each with its owner."""
        self._thread = threading.Thread(target=self._run, name="fourfold-deliverer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._ring()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._deliver())
        except BaseException as error:
            self._subscriptions.failure = Refused(f"nobody is woken any more: {error!r:.200}")
            raise
        finally:
            self._loop.close()

    def _ring(self, _said: object = None) -> None:
        # Called for every commit, from any thread: all but the first since the last look are free.
        if not self._rung:
            self._rung = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake.set)

    async def _deliver(self) -> None:
        with self._subscriptions.bell.calling(self._ring), ExitStack() as listening:
            listens = False
            while not self._stopping:
                self._wake.clear()
                self._rung = False
                pause = limits.WEBHOOK_IDLE_S
                try:
                    if bool(self._subscriptions.count()) != listens:
                        listens = not listens
                        listening.pop_all().close()
                        if listens:
                            bell = self._subscriptions.streams_bell
                            listening.enter_context(bell.calling(self._ring))
                    pause = self._look() if listens else pause
                    self._subscriptions.failure = None
                except FourfoldError as error:
                    self._subscriptions.failure = error
                await self._sleep(pause)
        await self._drain()

    def _look(self) -> float:
        """Settle what is due, begin with webhooks that are; how long until the next is."""
        due = self._subscriptions.due()
        if due.now:
            self._subscriptions.settle()
            due = self._subscriptions.due()
        if len(self._under_way) < self._concurrency:
            self._begin_calls()
        if due.now:
            return 0.0
        if due.next_ms is None:
            return limits.WEBHOOK_IDLE_S
        left = due.next_ms / 1000 - time.time()
        # What is overdue is under way, or waits for a free place; its end rings.
        return min(limits.WEBHOOK_IDLE_S, left) if left > 0 else limits.WEBHOOK_IDLE_S

    def _begin_calls(self) -> None:
        """Call webhooks that are due, the owners in turn. With several owners, one has at most a
        quarter of the slots, so that webhooks which do not answer delay those of their owner.
        """
        share = self._concurrency
        if self._subscriptions.webhook_owners() > 1:
            share = max(1, share // limits.WEBHOOK_OWNER_SHARE)
        busy = Counter(owner for owner, _ in self._under_way.values())
        # Those under way are still due: as many more are looked at.
        for subscription, owner in self._subscriptions.webhooks(2 * share):
            if len(self._under_way) >= self._concurrency:
                return
            if subscription not in self._under_way and busy[owner] < share:
                busy[owner] += 1
                task = self._loop.create_task(self._call(subscription))
                self._under_way[subscription] = (owner, task)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(limits.WEBHOOK_LOOK_S)
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _call(self, subscription_id: str) -> None:
        try:
            wake = self._subscriptions.attempt(subscription_id)
            if wake is not None:
                await self._tell(wake)
        except FourfoldError as error:
            self._subscriptions.failure = error
        finally:
            del self._under_way[subscription_id]
            self._ring()

    async def _tell(self, wake: Wake) -> None:
        try:
            body = json.dumps(notification(wake, self._keys)).encode()
            told = {
                "content-type": "application/json",
                "webhook-signature": self._keys.signature(body, int(time.time())),
            }
            url = wake.subscription.webhook_url or ""
            answer = await webhooks.post(url, body, told, self._targets(), self._timeout_s)
        except (WebhookFailed, WebhookRefused):
            # It shows as failed, and is tried again: what is refused may be allowed by then.
            self._subscriptions.failed(wake)
            return
        except FourfoldError:
            # Its keys or its extras are not there: `/health` tells, and it is tried again too.
            self._subscriptions.failed(wake)
            raise
        if 200 <= answer.status < 300:
            self._subscriptions.delivered(wake, done=_says_done(answer.body))
        else:
            self._subscriptions.failed(wake)

    async def _drain(self) -> None:
        """Let what is under way come to its end, for a moment."""
        if self._under_way:
            tasks = [task for _, task in self._under_way.values()]
            await asyncio.wait(tasks, timeout=limits.WEBHOOK_DRAIN_S)
        left = [task for _, task in self._under_way.values()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def notification(wake: Wake, keys: Keys) -> dict[str, object]:
    """What a webhook is told."""
    found = wake.subscription
    return {
        "subscription_id": found.id,
        "wake_id": wake.wake_id,
        "generation": wake.generation,
        "streams": [shown(link) for link in wake.streams],
        "callback_url": address(found.address, found.id, "callback"),
        "callback_token": keys.token(found.id, wake.generation),
    }


def shown(link: Link) -> dict[str, object]:
    return {
        "path": link.stream,
        "link_type": "explicit" if link.explicit else "glob",
        "acked_offset": show_offset(link.acked, link.incarnation_number),
        "tail_offset": show_offset(link.tail, link.incarnation_number),
        "has_pending": link.pending,
    }


def address(base: str, subscription_id: str, action: str) -> str:
    return f"{base}{CONTROL}/subscriptions/{quote(subscription_id, safe='')}/{action}"


def _says_done(body: bytes) -> bool:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and said.get("done") is True
