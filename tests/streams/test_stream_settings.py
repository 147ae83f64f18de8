"""Lifetime and retention of a stream, changed after it was created."""

from __future__ import annotations

import pytest

from fourfold.errors import InvalidInput, NotFound, OffsetGone
from fourfold.models.streams.validation import format_offset


@pytest.fixture
def log(opened):
    return opened.streams.create("log", "text/plain")


def payloads(stream):
    return [record.payload for record in stream.read().records]


def test_retention_applies_from_the_next_sweep(opened, log):
    log.append([b"1", b"2", b"3"])
    assert log.configure(retention_bytes=2).retention_bytes == 2
    opened.streams.sweep()
    assert payloads(log) == [b"2", b"3"]


def test_wider_retention_does_not_restore_trimmed_records(opened, log):
    log.append([b"0", b"1", b"2", b"3"])
    log.configure(retention_bytes=2)
    opened.streams.sweep()
    for wider in (100, None):
        log.configure(retention_bytes=wider)
        log.append([b"4"])
        opened.streams.sweep()
        assert payloads(log)[:2] == [b"2", b"3"]
        with pytest.raises(OffsetGone):
            log.read(format_offset(1))
    assert opened.streams.verify() == []


def test_shorter_time_to_live_takes_effect_at_once(opened):
    log = opened.streams.create("ttl", "text/plain", ttl=1000)
    log.append([b"1"])
    opened.clock.ms += 1000
    log.read()
    log.configure(ttl=2)
    opened.clock.ms += 1999
    assert log.info.ttl_seconds == 2
    opened.clock.ms += 1
    with pytest.raises(NotFound):
        opened.streams.open("ttl")


def test_longer_time_to_live_takes_effect_at_once(opened):
    log = opened.streams.create("ttl", "text/plain", ttl=2)
    log.read()
    log.configure(ttl=100)
    opened.clock.ms += 99_000
    opened.streams.sweep()
    assert payloads(log) == []


def test_read_before_change_does_not_extend_the_new_lifetime(opened):
    """The use is written by a sweep after the change."""
    log = opened.streams.create("ttl", "text/plain", ttl=1000)
    log.read()
    log.configure(ttl=1)
    opened.streams.sweep()
    opened.clock.ms += 1000
    assert opened.streams.sweep() == 1


def test_time_to_live_and_fixed_end_replace_each_other(opened, log):
    end = opened.clock.ms + 5000
    info = log.configure(expires_at_ms=end)
    assert (info.ttl_seconds, info.expires_at_ms) == (None, end)
    info = log.configure(ttl=7)
    assert (info.ttl_seconds, info.expires_at_ms) == (7, opened.clock.ms + 7000)
    assert log.configure(expires_at_ms=None).ttl_seconds == 7
    info = log.configure(ttl=None)
    assert (info.ttl_seconds, info.expires_at_ms) == (None, None)
    log.configure(expires_at_ms=end)
    assert log.configure(ttl=None).expires_at_ms == end
    assert log.configure(expires_at_ms=None).expires_at_ms is None


def test_settings_survive_reopening(opened, log):
    log.configure(ttl=9, retention_seconds=5, retention_bytes=6)
    opened.reopen()
    info = opened.streams.info("log")
    assert (info.ttl_seconds, info.retention_seconds, info.retention_bytes) == (9, 5, 6)
    assert info.expires_at_ms == opened.clock.ms + 9000


def test_append_after_change_uses_the_new_lifetime(opened):
    log = opened.streams.create("ttl", "text/plain", ttl=10)
    log.append([b"1"])
    log.configure(ttl=None)
    log.append([b"2"])
    opened.clock.ms += 3_600_000
    opened.streams.sweep()
    assert payloads(log) == [b"1", b"2"]


@pytest.mark.parametrize(
    "settings",
    [{}, {"ttl": -1}, {"ttl": "9"}, {"retention_bytes": True}, {"ttl": 1, "expires_at_ms": 1}],
)
def test_invalid_settings_change_nothing(opened, log, settings):
    before = log.info
    with pytest.raises(InvalidInput):
        log.configure(**settings)
    assert log.info == before


def test_settings_of_unknown_stream_raise_not_found(opened, log):
    log_of_nothing = type(log)(opened.streams, "nothing")
    with pytest.raises(NotFound):
        log_of_nothing.configure(ttl=1)
