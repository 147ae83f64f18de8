"""A stream with a TTL that is in use does not expire, even if writing the use fails."""

from __future__ import annotations

from functools import partial

import pytest

from fourfold.errors import Busy, NotFound
from fourfold.kernel import Database
from fourfold.models.streams import MIGRATIONS, PROFILE, Streams, expiry


class Clock:
    ms = 1_000_000

    def __call__(self):
        return self.ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def streams(tmp_path, clock):
    profile = PROFILE.with_(synchronous="OFF")
    with Database.open(tmp_path / "s.sqlite", profile=profile, migrations=MIGRATIONS) as database:
        yield Streams(database, clock=clock)


def used(streams, clock):
    """A stream that would have expired without a read a second ago."""
    streams.create("s", "text/plain", ttl=2, body=b"x")
    clock.ms += 1_500
    streams.read("s")
    clock.ms += 1_000


def test_use_counts_while_it_is_flushed(streams, clock, monkeypatch):
    used(streams, clock)
    seen = []
    transact = streams.database.transact

    def watched(work, **given):
        seen.append(streams.info("s").name)
        return transact(work, **given)

    monkeypatch.setattr(streams.database, "transact", watched)
    streams.sweep()
    assert seen
    assert streams.info("s").expires_at_ms == 1_000_000 + 1_500 + 2_000


def test_use_counts_when_flush_fails(streams, clock, monkeypatch):
    used(streams, clock)

    def busy(_work, **_given):
        raise Busy("not now")

    with monkeypatch.context() as patched:
        patched.setattr(streams.database, "transact", busy)
        with pytest.raises(Busy):
            streams.sweep()
    assert streams.info("s").name == "s"
    assert streams.sweep() == 0
    assert streams.info("s").name == "s"
    clock.ms += 1_000
    assert streams.sweep() == 1
    with pytest.raises(NotFound):
        streams.info("s")


def test_use_during_flush_is_kept_for_next_flush(streams, clock, monkeypatch):
    used(streams, clock)
    transact = streams.database.transact

    def reading(work, **given):
        done = transact(work, **given)
        clock.ms += 500
        streams.read("s")
        return done

    with monkeypatch.context() as patched:
        patched.setattr(streams.database, "transact", reading)
        streams.sweep()
    clock.ms += 1_900
    assert streams.sweep() == 0
    assert streams.info("s").name == "s"


def test_sweep_sees_use_between_its_steps(streams, clock):
    """The stored expiry has passed, the buffered one has not."""
    streams.create("s", "text/plain", ttl=2, body=b"x")
    clock.ms += 1_900
    streams.read("s")
    clock.ms += 200
    assert streams.database.transact(partial(expiry._expire, streams, "s")) == 0
    assert streams.info("s").name == "s"
