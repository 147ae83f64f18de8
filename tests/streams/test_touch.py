"""Waits for changes: results by cursor, and valid keys."""

from __future__ import annotations

import json

import pytest
from opened_streams import JSON
from touched_streams import BY_CITY, CONTROL, TOUCHED, change

from fourfold import limits
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.streams import Fork
from fourfold.models.streams.touch import EntityKey, RowKey, Template, TemplateKey, Touches
from fourfold.models.streams.touch.keys import TOUCH_KEYS_MAX

# Cursors


def test_wait_returns_its_changed_keys(touches, stream):
    (by_city,) = touches.activate("s", [BY_CITY])
    cursor = touches.meta("s").cursor
    stream.append([change("1", "Ulm"), change("2", "Bonn")])
    keys = [
        RowKey("user", "1"),
        RowKey("user", "3"),
        EntityKey("user"),
        EntityKey("order"),
        by_city.key({"city": "Bonn"}),
        TemplateKey(by_city.id, {"city": "Kiel"}),
    ]
    result = touches.wait("s", cursor, keys, 0)
    assert result == (True, False, touches.meta("s").cursor, (0, 2, 4))
    assert touches.wait("s", result.cursor, keys, 0) == (False, False, result.cursor, ())


def test_wait_without_cursor_starts_at_the_end(touches, stream):
    stream.append(change())
    result = touches.wait("s", None, [EntityKey("user")], 0)
    assert result == (False, False, touches.meta("s").cursor, ())
    stream.append(change())
    assert touches.wait("s", result.cursor, [EntityKey("user")], 0).touched


def test_cursor_is_valid_after_restart(opened, touches, stream):
    (by_city,) = touches.activate("s", [BY_CITY])
    cursor = touches.meta("s").cursor
    stream.append(change("1", "Ulm"))
    opened.reopen()
    again = Touches(opened.streams)
    keys = [RowKey("user", "1"), RowKey("user", "2"), TemplateKey(by_city.id, {"city": "Ulm"})]
    assert again.wait("s", cursor, keys, 0).keys == (0, 2)


def test_cursor_of_earlier_stream_is_stale(streams, touches):
    cursor = touches.meta("s").cursor
    assert not touches.wait("s", cursor, [EntityKey("user")], 0).touched
    streams.delete("s")
    streams.create("s", JSON)
    streams.profiles.put("s", TOUCHED)
    result = touches.wait("s", cursor, [EntityKey("user"), EntityKey("order")], 0)
    assert result == (True, True, touches.meta("s").cursor, (0, 1))
    assert not touches.wait("s", result.cursor, [EntityKey("user")], 0).touched


def test_cursor_below_retention_is_stale(opened, touches):
    opened.streams.create("r", JSON, retention_seconds=1)
    opened.streams.profiles.put("r", TOUCHED)
    cursor = touches.meta("r").cursor
    opened.streams.open("r").append([change(), change()])
    opened.clock.ms += 2_000
    opened.streams.sweep()
    result = touches.wait("r", cursor, [EntityKey("order")], 0)
    assert result.stale
    assert not touches.wait("r", result.cursor, [EntityKey("order")], 0).touched


class NoSegments:
    """Segment reader of a stream whose trimmed records are gone."""

    def records(self, snapshot, sid, start, end):
        raise AssertionError(f"{start} to {end} is gone")


@pytest.mark.parametrize("cold", [None, NoSegments()])
def test_journal_below_retention_is_rebuilt(opened, touches, cold):
    """The journal cannot advance: its next records were trimmed."""
    opened.streams.create("r", JSON, retention_seconds=1)
    opened.streams.profiles.put("r", TOUCHED)
    stream = opened.streams.open("r")
    touches.wait("r", None, [EntityKey("user")], 0)
    stream.append([change("1"), change("2")])
    opened.clock.ms += 2_000
    opened.streams.sweep()
    assert opened.streams.info("r").first_offset == 2
    opened.streams.cold = cold
    result = touches.wait("r", None, [EntityKey("user")], 0)
    assert result == (False, False, touches.meta("r").cursor, ())
    stream.append(change("3"))
    assert touches.wait("r", result.cursor, [RowKey("user", "1"), RowKey("user", "3")], 0).keys == (
        1,
    )


@pytest.mark.parametrize("limit", ["TOUCH_BACK_RECORDS", "TOUCH_BACK_BYTES", "TOUCH_MARKS_MAX"])
def test_too_old_cursor_is_stale(touches, stream, monkeypatch, limit):
    cursor = touches.meta("s").cursor
    stream.append([change(str(number)) for number in range(5)])
    monkeypatch.setattr(f"fourfold.models.streams.touch.journal.{limit}", 4)
    result = touches.wait("s", cursor, [EntityKey("order")], 0)
    assert result == (True, True, touches.meta("s").cursor, (0,))
    assert not touches.wait("s", result.cursor, [EntityKey("order")], 0).touched


def with_field(name):
    fields = {name: {"type": "string"}}
    value = {"type": "object", "properties": fields, "additionalProperties": False}
    return {"type": "object", "properties": {"value": value}}


def test_cursor_before_new_schema_version_is_stale(streams, touches, stream):
    """Earlier records have other fields."""
    streams.schemas.put("s", {"schema": with_field("city")})
    (by_town,) = touches.activate("s", [Template("user", {"town": "string"})])
    keys = [TemplateKey(by_town.id, {"town": "Ulm"})]
    cursor = touches.meta("s").cursor
    stream.append(change("1", "Ulm"))
    assert touches.wait("s", cursor, keys, 0).keys == ()
    rename = {"op": "rename", "from": "city", "to": "town"}
    lens = [{"op": "in", "name": "value", "ops": [rename]}]
    streams.schemas.put("s", {"schema": with_field("town"), "lens": lens})
    assert json.loads(stream.read().records[0].payload)["value"] == {"town": "Ulm"}
    result = touches.wait("s", cursor, keys, 0)
    assert result == (True, True, touches.meta("s").cursor, (0,))
    assert not touches.wait("s", result.cursor, keys, 0).touched


@pytest.mark.parametrize(
    "cursor", ["", "x", "x:", ":1", "x:-1", "x:01", "x:1 ", 7, "x:1" + "0" * 20]
)
def test_invalid_cursor_is_rejected(touches, cursor):
    with pytest.raises(InvalidInput, match="invalid cursor"):
        touches.wait("s", cursor, [EntityKey("user")], 0)


def test_cursor_after_the_end_is_rejected(touches):
    incarnation = touches.meta("s").cursor.partition(":")[0]
    with pytest.raises(InvalidInput, match="after the end 0"):
        touches.wait("s", f"{incarnation}:1", [EntityKey("user")], 0)


def test_fork_has_its_own_waits(streams, touches, stream):
    (by_city,) = touches.activate("s", [BY_CITY])
    stream.append([change("1"), change("2")])
    streams.create("fork", fork=Fork("s"))
    incarnation = touches.meta("fork").cursor.partition(":")[0]
    assert touches.templates("fork") == ()
    with pytest.raises(NotFound, match="no active template"):
        touches.wait("fork", None, [TemplateKey(by_city.id, {"city": "Ulm"})], 0)
    stream.append(change("3"))
    streams.open("fork").append(change("4"))
    keys = [RowKey("user", str(number)) for number in range(1, 5)]
    # Below its fork offset, its records are those of the source.
    assert touches.wait("fork", f"{incarnation}:1", keys, 0).keys == (1, 3)


def test_control_message_wakes_all_waits(touches, stream):
    (by_city,) = touches.activate("s", [BY_CITY])
    cursor = touches.meta("s").cursor
    stream.append([CONTROL, change("1")])
    keys = [EntityKey("order"), RowKey("user", "2"), TemplateKey(by_city.id, {"city": "Kiel"})]
    result = touches.wait("s", cursor, keys, 0)
    assert result == (True, False, touches.meta("s").cursor, (0, 1, 2))
    assert not touches.wait("s", result.cursor, keys, 0).touched


@pytest.mark.parametrize("is_followed", [False, True])
def test_control_message_covers_evicted_marks(touches, stream, monkeypatch, is_followed):
    """It touches every earlier cursor, so the evicted marks do not matter."""
    monkeypatch.setattr("fourfold.models.streams.touch.journal.TOUCH_MARKS_MAX", 4)
    cursor = touches.meta("s").cursor
    keys = [EntityKey("order"), RowKey("user", "1")]
    many = [change(str(number)) for number in range(9)]
    if is_followed:
        touches.wait("s", cursor, keys, 0)
    stream.append(many)
    assert touches.wait("s", cursor, keys, 0).stale
    stream.append([CONTROL, change("x"), change("y")])
    result = touches.wait("s", cursor, keys, 0)
    assert result == (True, False, touches.meta("s").cursor, (0, 1))
    assert not touches.wait("s", result.cursor, keys, 0).touched


def test_later_wait_may_have_an_earlier_cursor(touches, stream):
    cursor = touches.meta("s").cursor
    stream.append(change("1"))
    later = touches.wait("s", None, [EntityKey("user")], 0).cursor
    assert touches.wait("s", cursor, [RowKey("user", "1"), RowKey("user", "2")], 0).keys == (0,)
    assert not touches.wait("s", later, [RowKey("user", "1")], 0).touched


def test_journal_of_earlier_stream_is_ignored(streams, touches, stream):
    touches.wait("s", touches.meta("s").cursor, [EntityKey("user")], 0)
    stream.append(change("1"))
    touches.wait("s", None, [EntityKey("user")], 0)
    streams.delete("s")
    streams.create("s", JSON)
    streams.profiles.put("s", TOUCHED)
    cursor = touches.meta("s").cursor
    streams.open("s").append(change("2"))
    assert touches.wait("s", cursor, [RowKey("user", "1"), RowKey("user", "2")], 0).keys == (1,)


def test_evicted_marks_are_read_again_within_the_limit(touches, stream, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.touch.journal.TOUCH_MARKS_MAX", 5)
    first = touches.meta("s").cursor
    stream.append([change("1"), change("2")])
    cursor = touches.wait("s", first, [EntityKey("user")], 0).cursor
    # They exceed the limit together with the two before, but not by themselves.
    stream.append([change("3"), change("4"), change("5")])
    keys = [RowKey("user", str(number)) for number in range(1, 6)]
    assert touches.wait("s", cursor, keys, 0) == (True, False, touches.meta("s").cursor, (2, 3, 4))


# Keys


def test_wait_on_stream_without_touch_raises_not_found(streams, touches):
    streams.create("plain", JSON)
    streams.create("state", JSON)
    streams.profiles.put("state", {"kind": "state-protocol"})
    for name in ("plain", "state", "missing"):
        for ask in (
            lambda name=name: touches.meta(name),
            lambda name=name: touches.wait(name, None, [EntityKey("user")], 0),
            lambda name=name: touches.activate(name, [BY_CITY]),
            lambda name=name: touches.templates(name),
        ):
            with pytest.raises(NotFound) as raised:
                ask()
            assert ("touch" in raised.value.hint) == (name != "missing")


@pytest.mark.parametrize(
    "keys",
    [
        [],
        [EntityKey("user")] * (TOUCH_KEYS_MAX + 1),
        ["user"],
        [("user", "1")],
        [EntityKey("")],
        [RowKey("user", 7)],
        [RowKey("user", "x" * (limits.TOUCH_KEY_CHARS + 1))],
        [TemplateKey(None, {})],
    ],
)
def test_invalid_keys_are_rejected(touches, keys):
    with pytest.raises(InvalidInput):
        touches.wait("s", None, keys, 0)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1", None])
def test_invalid_timeouts_are_rejected(touches, timeout):
    with pytest.raises(InvalidInput):
        touches.wait("s", None, [EntityKey("user")], timeout)


def test_values_must_match_fields_of_template(touches):
    fields = {"text": "string", "whole": "integer", "any": "number", "flag": "boolean"}
    (made,) = touches.activate("s", [Template("user", fields)])
    good = {"text": "x", "whole": 1, "any": 0.5, "flag": True}
    for fine in ({}, {"whole": 2.0}, {"any": 3}, dict.fromkeys(fields)):
        touches.wait("s", None, [TemplateKey(made.id, good | fine)], 0)
    for bad in (
        {"text": 1},
        {"text": "x" * (limits.TOUCH_KEY_CHARS + 1)},
        {"whole": 1.5},
        {"whole": True},
        {"whole": float("inf")},
        {"any": "1"},
        {"any": float("nan")},
        {"flag": 1},
        {"more": None},
    ):
        with pytest.raises(InvalidInput):
            touches.wait("s", None, [TemplateKey(made.id, good | bad)], 0)
    with pytest.raises(InvalidInput, match="exactly"):
        touches.wait("s", None, [TemplateKey(made.id, {"text": "x"})], 0)
