"""Templates: their ids, lifetime and stored state."""

from __future__ import annotations

import pytest
from touched_streams import BY_CITY, CONTROL, change, in_table

from fourfold import limits
from fourfold.errors import InvalidInput, LimitExceeded, NotFound, Refused
from fourfold.models.streams.touch import EntityKey, Template, TemplateKey, Touches
from fourfold.models.streams.touch.templates import (
    TOUCH_SEEN_EVERY_MS,
    TOUCH_TTL_MS,
    TOUCH_TTL_MS_MAX,
    TOUCH_TTL_MS_MIN,
)

DAY_MS = 24 * 3_600_000


@pytest.mark.parametrize(
    "template",
    [
        Template("", {"city": "string"}),
        Template("user", {}),
        Template("user", dict.fromkeys("abcdefghi", "string")),
        Template("user", {"city": "text"}),
        Template("user", {"city": ["string"]}),
        Template("user", {"": "string"}),
        Template("user", {"\ud800": "string"}),
        Template("user", ["city"]),
        Template("user", {"city": "string"}, 1),
        Template("user", {"city": "string"}, TOUCH_TTL_MS_MAX + 1),
        Template("user", {"city": "string"}, 1e6),
    ],
)
def test_invalid_templates_write_nothing(touches, template):
    with pytest.raises(InvalidInput):
        touches.activate("s", [BY_CITY, template])
    assert touches.templates("s") == ()


def test_template_id_is_derived_from_content(touches, stream):
    two = Template("user", {"b": "string", "a": "integer"})
    same = Template("user", {"a": "integer", "b": "string"}, 120_000)
    first, second = touches.activate("s", [two, BY_CITY])
    stream.append(change())
    (again,) = touches.activate("s", [same])
    assert (again.id, again.active_from_offset, again.inactivity_ttl_ms) == (first.id, 0, 120_000)
    assert list(again.fields) == ["a", "b"]
    assert len({first.id, second.id}) == 2
    assert touches.meta("s").templates == 2
    others = [
        Template("users", {"a": "integer", "b": "string"}),
        Template("user", {"a": "number", "b": "string"}),
    ]
    assert not {each.id for each in touches.activate("s", others)} & {first.id, second.id}


def test_too_many_templates_are_rejected_together(touches, monkeypatch):
    monkeypatch.setattr(limits, "TOUCH_TEMPLATES_MAX", 2)
    many = [Template("user", {field: "string"}) for field in "abc"]
    touches.activate("s", many[:1])
    with pytest.raises(LimitExceeded) as raised:
        touches.activate("s", many[1:])
    assert isinstance(raised.value, Refused)
    assert [each.fields for each in touches.templates("s")] == [{"a": "string"}]
    touches.activate("s", many[:2])


def test_rolled_back_activation_leaves_nothing(streams, touches, stream):
    cursor = touches.meta("s").cursor

    def fail():
        with streams.database.write() as txn:
            touches._activating("s", [BY_CITY])(txn)
            stream.append(change())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert touches.templates("s") == ()
    assert touches.wait("s", cursor, [EntityKey("user")], 0) == (False, False, cursor, ())
    assert touches.meta("s").templates == 0


def test_later_template_sees_earlier_changes(touches, stream):
    cursor = touches.wait("s", None, [EntityKey("user")], 0).cursor
    stream.append(change("1", "Ulm"))
    touches.wait("s", cursor, [EntityKey("user")], 0)
    (by_city,) = touches.activate("s", [BY_CITY])
    keys = [TemplateKey(by_city.id, {"city": "Ulm"}), TemplateKey(by_city.id, {"city": "Bonn"})]
    assert touches.wait("s", cursor, keys, 0).keys == (0,)


def test_reactivated_template_sees_changes_meanwhile(opened, touches, stream):
    (by_city,) = touches.activate("s", [BY_CITY])
    keys = [TemplateKey(by_city.id, {"city": "Ulm"}), TemplateKey(by_city.id, {"city": "Bonn"})]
    cursor = touches.wait("s", None, keys, 0).cursor
    opened.clock.ms += TOUCH_TTL_MS
    touches.retire(opened.clock.ms)
    stream.append(change("1", "Ulm"))
    # Processed without the template.
    assert touches.wait("s", cursor, [EntityKey("user")], 0).touched
    touches.activate("s", [BY_CITY])
    assert touches.wait("s", cursor, keys, 0) == (True, False, touches.meta("s").cursor, (0,))


def test_control_message_covers_later_template(touches, stream, monkeypatch):
    cursor = touches.wait("s", None, [EntityKey("user")], 0).cursor
    stream.append(change("1", "Ulm"))
    touches.wait("s", cursor, [EntityKey("user")], 0)
    (by_city,) = touches.activate("s", [BY_CITY])
    stream.append([CONTROL, change("2", "Bonn")])
    keys = [TemplateKey(by_city.id, {"city": "Ulm"}), TemplateKey(by_city.id, {"city": "Bonn"})]
    after = touches.wait("s", None, keys, 0).cursor
    # Older than a check may read: only the journal knows these changes.
    monkeypatch.setattr("fourfold.models.streams.touch.journal.TOUCH_BACK_RECORDS", 1)
    assert touches.wait("s", cursor, keys, 0) == (True, False, after, (0, 1))
    assert not touches.wait("s", after, keys, 0).touched


def test_unused_template_is_retired_then_deleted(opened, touches, stream):
    (made,) = touches.activate("s", [BY_CITY])
    opened.clock.ms += TOUCH_TTL_MS - 1
    touches.retire(opened.clock.ms)
    assert touches.meta("s").templates == 1
    opened.clock.ms += 1
    touches.retire(opened.clock.ms)
    assert [each.state for each in touches.templates("s")] == ["retired"]
    assert in_table(opened.streams, "SELECT retired_at_ms, retired_reason FROM live_templates") == [
        (opened.clock.ms, "inactivity")
    ]
    with pytest.raises(NotFound) as raised:
        touches.wait("s", None, [TemplateKey(made.id, {"city": "Ulm"})], 0)
    assert "Activate" in raised.value.hint
    stream.append(change())
    (again,) = touches.activate("s", [BY_CITY])
    assert (again.state, again.active_from_offset) == ("active", 1)
    assert in_table(opened.streams, "SELECT retired_at_ms, retired_reason FROM live_templates") == [
        (None, None)
    ]
    opened.clock.ms += TOUCH_TTL_MS
    touches.retire(opened.clock.ms)
    opened.clock.ms += DAY_MS - 1
    touches.retire(opened.clock.ms)
    assert len(touches.templates("s")) == 1
    opened.clock.ms += 1
    touches.retire(opened.clock.ms)
    assert touches.templates("s") == ()


def test_number_of_retired_templates_is_limited(opened, touches, monkeypatch):
    monkeypatch.setattr(limits, "TOUCH_TEMPLATES_MAX", 2)
    for field in "abcde":
        touches.activate("s", [Template("user", {field: "string"}, TOUCH_TTL_MS_MIN)])
        opened.clock.ms += TOUCH_TTL_MS_MIN
        touches.retire(opened.clock.ms)
    touches.activate("s", [BY_CITY])
    fields = {next(iter(each.fields)) for each in touches.templates("s")}
    assert fields == {"d", "e", "city"}


def test_template_in_use_is_not_retired(opened, touches):
    """Covers waits in progress, and uses that were flushed or not."""
    (made,) = touches.activate("s", [BY_CITY])
    keys = [TemplateKey(made.id, {"city": "Ulm"})]
    with touches._seen.waiting("s", [made.id]):
        opened.clock.ms += TOUCH_TTL_MS
        touches.retire(opened.clock.ms)
        assert touches.meta("s").templates == 1
    opened.clock.ms += TOUCH_TTL_MS - 1
    touches.wait("s", None, keys, 0)
    opened.clock.ms += 1
    touches.retire(opened.clock.ms)
    assert touches.meta("s").templates == 1
    opened.clock.ms += TOUCH_TTL_MS - 2
    touches.wait("s", None, keys, 0)
    touches.flush()
    opened.clock.ms += 2
    again = Touches(opened.streams)
    again.retire(opened.clock.ms)
    assert again.meta("s").templates == 1


def test_uses_are_written_once(opened, touches, stream):
    (made,) = touches.activate("s", [BY_CITY])
    stream.append([change(), change()])
    opened.clock.ms += 70_000
    touches.wait("s", None, [TemplateKey(made.id, {"city": "Ulm"})], 0)
    assert touches.meta("s").processed_through == 1
    touches.flush()
    written = (
        "SELECT t.processed_through, t.updated_at_ms, l.last_seen_at_ms "
        "FROM stream_touch_state AS t JOIN live_templates AS l USING (stream)"
    )
    assert in_table(opened.streams, written) == [(1, opened.clock.ms, opened.clock.ms)]
    assert Touches(opened.streams).meta("s").processed_through == 1
    before = opened.database.transactions
    touches.flush()
    touches.retire(opened.clock.ms)
    assert opened.database.transactions == before
    opened.clock.ms += TOUCH_SEEN_EVERY_MS
    touches.flush()
    assert not touches._seen._uses
    assert opened.streams.verify() == []


def test_templates_are_deleted_with_their_stream(streams, touches):
    touches.activate("s", [BY_CITY])
    touches.wait("s", None, [EntityKey("user")], 0)
    streams.delete("s")
    touches.flush()
    assert in_table(streams, "SELECT * FROM live_templates") == []
    assert in_table(streams, "SELECT * FROM stream_touch_state") == []
