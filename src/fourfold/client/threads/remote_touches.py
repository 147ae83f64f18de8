# Generated from ../coroutines/remote_touches.py by `make generate`: change that file.
"""Changes of rows of the streams of a server, for threads."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from fourfold import limits
from fourfold.client import stream_records
from fourfold.client.rules import TouchWaiter
from fourfold.client.stream_records import offset_of
from fourfold.client.threads.streams import StreamClient
from fourfold.client.transport import start_retries
from fourfold.errors import FourfoldError
from fourfold.models.streams.touch import ActiveTemplate, Key, Meta, Template, WaitResult


class RemoteTouches:
    """Changes of rows of the streams of a server, to wait for."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client

    def meta(self, name: str) -> Meta:
        """Return the current cursor of a stream, and how many templates it has.

        Only the server knows the number of waiters.
        """
        touch = self._client.touch(name)
        active = sum(template.state == "active" for template in touch.templates)
        return Meta(touch.cursor, offset_of(touch.processed_offset).record - 1, active, 0)

    def templates(self, name: str) -> tuple[ActiveTemplate, ...]:
        """Return all templates of a stream."""
        touch = self._client.touch(name)
        return tuple(map(stream_records.to_template, touch.templates))

    def activate(self, name: str, templates: Sequence[Template]) -> tuple[ActiveTemplate, ...]:
        """Activate templates for a stream, all or none; active ones are renewed."""
        active = self._client.touch_templates(name, templates)
        return tuple(map(stream_records.to_template, active))

    def wait(
        self, name: str, cursor: str | None, keys: Sequence[Key], timeout_s: float
    ) -> WaitResult:
        """Wait until a change after `cursor` touches one of the keys, or until the timeout.

        After the first response it retries for as long as a follower.
        """
        timeout = None if timeout_s == math.inf else timeout_s
        waiter = TouchWaiter(self._client.settings.address, name, keys, cursor, timeout)
        touched = waiter.receive(self._client.send(waiter.call()))
        retries = start_retries(limits.CLIENT_FOLLOW_RETRY_S)
        while touched is None:
            try:
                touched = waiter.receive(self._client.send(waiter.call()))
                retries.restart()
            except FourfoldError as error:
                time.sleep(retries.pause(error))
        return touched
