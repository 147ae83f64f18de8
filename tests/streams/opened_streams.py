"""Streams with subscriptions in a file that can be reopened, with a clock that tests set."""

from __future__ import annotations

from fourfold.kernel import Database, Options
from fourfold.models.streams import MIGRATIONS, PROFILE, Streams
from fourfold.models.streams.subscriptions import Subscribe
from fourfold.models.streams.subscriptions.leases import Fence

JSON = "application/json"
OPTIONS = Options()
PULL = Subscribe("work", "pull-wake", "in/*", wake_stream="wakes")


class Clock:
    ms = 1_000_000

    def __call__(self):
        return self.ms


class Opened:
    """The streams of a file, which can be reopened."""

    def __init__(self, path):
        self.path, self.clock = path, Clock()
        self.open()

    def open(self):
        self.database = Database.open(
            self.path, profile=PROFILE, migrations=MIGRATIONS, options=OPTIONS
        )
        self.streams = Streams(self.database, clock=self.clock)
        self.subscriptions = self.streams.subscriptions

    def reopen(self):
        self.database.close()
        self.open()


def fence(wake):
    return Fence(wake.wake_id, wake.generation, wake.generation)
