"""Timeouts of connections: every one is checked, and few in one iteration of the event loop."""

from __future__ import annotations

import asyncio

import pytest

from fourfold.server.http_protocol import (
    HTTP_TIMEOUT_CHECK_CONNECTIONS,
    Phase,
    RequestTimeouts,
)

INTERVAL_S = 0.02


class Connection:
    """A connection that counts how often its deadline was checked."""

    phase = Phase.FRESH
    received = unsent = 0
    last_progress_at = float("inf")

    def __init__(self, timeouts, checked):
        self.transport = self
        self._timeouts = timeouts
        self._checked = checked
        self._timeouts.watch(self)

    @property
    def since(self):
        self._checked[-1].append(self)
        return self._timeouts.now

    def get_write_buffer_size(self):
        return 0


class Timeouts(RequestTimeouts):
    """Timeouts that begin a new list of checked connections in each iteration of the loop."""

    def __init__(self, checked):
        super().__init__(interval_s=INTERVAL_S)
        self._checked = checked

    def _check_slice(self, loop):
        self._checked.append([])
        super()._check_slice(loop)


async def wait_for(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  (nothing signals a check)
            await asyncio.sleep(INTERVAL_S)


def test_connections_are_checked_in_slices():
    async def check():
        checked = []
        timeouts = Timeouts(checked)
        crowd = {Connection(timeouts, checked) for _ in range(1_000)}
        await wait_for(lambda: sum(map(len, checked)) >= 2 * len(crowd))
        sizes = [len(part) for part in checked]
        assert max(sizes) <= HTTP_TIMEOUT_CHECK_CONNECTIONS, sizes
        # A round checks each connection once.
        slices = -(-len(crowd) // HTTP_TIMEOUT_CHECK_CONNECTIONS)
        first_round = [connection for part in checked[:slices] for connection in part]
        assert len(first_round) == 1_000
        assert set(first_round) == crowd

    asyncio.run(check())


@pytest.mark.parametrize("count", [1, HTTP_TIMEOUT_CHECK_CONNECTIONS, 200])
def test_connection_that_is_gone_is_not_checked(count):
    async def check():
        checked = []
        timeouts = Timeouts(checked)
        crowd = [Connection(timeouts, checked) for _ in range(count)]
        await wait_for(lambda: any(checked))
        gone = set(crowd) - {connection for part in checked for connection in part}
        for connection in crowd:
            timeouts.unwatch(connection)
        before = len(checked)
        await asyncio.sleep(5 * INTERVAL_S)
        later = {connection for part in checked[before:] for connection in part}
        assert not later & gone
        # The timer ends with the last connection.
        await wait_for(lambda: timeouts._timer is None)
        last = Connection(timeouts, checked)
        await wait_for(lambda: checked[-1] == [last])

    asyncio.run(check())
