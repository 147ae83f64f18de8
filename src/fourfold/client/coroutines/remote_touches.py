"""Changes of rows of the streams of a server, for coroutines."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from fourfold import limits
from fourfold.client import stream_records
from fourfold.client.coroutines.streams import AsyncStreamClient
from fourfold.client.rules import TouchWaiter
from fourfold.client.stream_records import offset_of
from fourfold.client.transport import start_retries
from fourfold.errors import FourfoldError
from fourfold.models.streams.touch import ActiveTemplate, Key, Meta, Template, WaitResult


class AsyncRemoteTouches:
    """Changes of rows of the streams of a server, to wait for."""

    def __init__(self, client: AsyncStreamClient) -> None:
        self._client = client

    async def meta(self, name: str) -> Meta:
        """Return the current cursor of a stream, and how many templates it has.

        Only the server knows the number of waiters.
        """
        touch = await self._client.touch(name)
        active = sum(template.state == "active" for template in touch.templates)
        return Meta(touch.cursor, offset_of(touch.processed_offset).record - 1, active, 0)

    async def templates(self, name: str) -> tuple[ActiveTemplate, ...]:
        """Return all templates of a stream."""
        touch = await self._client.touch(name)
        return tuple(map(stream_records.to_template, touch.templates))

    async def activate(
        self, name: str, templates: Sequence[Template]
    ) -> tuple[ActiveTemplate, ...]:
        """Activate templates for a stream, all or none; active ones are renewed."""
        active = await self._client.touch_templates(name, templates)
        return tuple(map(stream_records.to_template, active))

    async def wait(
        self, name: str, cursor: str | None, keys: Sequence[Key], timeout_s: float
    ) -> WaitResult:
        """Wait until a change after `cursor` touches one of the keys, or until the timeout.

        After the first response it retries for as long as a follower.
        """
        timeout = None if timeout_s == math.inf else timeout_s
        waiter = TouchWaiter(self._client.settings.address, name, keys, cursor, timeout)
        touched = waiter.receive(await self._client.send(waiter.call()))
        retries = start_retries(limits.CLIENT_FOLLOW_RETRY_S)
        while touched is None:
            try:
                touched = waiter.receive(await self._client.send(waiter.call()))
                retries.restart()
            except FourfoldError as error:
                await asyncio.sleep(retries.pause(error))
        return touched
