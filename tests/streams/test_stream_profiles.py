"""Profiles: configuration, accepted messages and rejected messages."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_spellings import BLANKS, spelled

from fourfold.errors import InvalidInput
from fourfold.models.streams import fold, profiles
from fourfold.models.streams.profiles.config import EVENT_FIELD_NAME_MAX
from fourfold.models.streams.profiles.profile import STREAM_PROFILED_DEPTH_MAX
from support.properties import examples

NOW_MS = 1_769_860_800_007
STATE = profiles.read({"kind": "state-protocol"})
EVENTS = profiles.read({"kind": "evlog"})


def taken(profile, *records):
    return profile.admit(records, NOW_MS)


# Configuration

EVLOG = {"kind": "evlog", "redact": [], "routingKey": ["requestId", "traceId"]}


@pytest.mark.parametrize(
    ("asked", "whole"),
    [
        ({"kind": "generic"}, {"kind": "generic"}),
        ({"kind": "state-protocol"}, {"kind": "state-protocol", "touch": {"enabled": False}}),
        (
            {"kind": "state-protocol", "touch": {}},
            {"kind": "state-protocol", "touch": {"enabled": False}},
        ),
        (
            {"kind": "state-protocol", "touch": {"enabled": True}},
            {"kind": "state-protocol", "touch": {"enabled": True}},
        ),
        ({"kind": "evlog"}, EVLOG),
        ({"kind": "evlog", "redact": ["Iban"]}, EVLOG | {"redact": ["Iban"]}),
        ({"kind": "evlog", "routingKey": []}, EVLOG | {"routingKey": []}),
    ],
)
def test_profile_json_includes_defaults(asked, whole):
    profile = profiles.read(asked)
    assert profile.to_json() == whole
    assert profile.kind == whole["kind"]
    assert profile.touch_enabled is whole.get("touch", {}).get("enabled", False)
    assert profiles.read(json.loads(json.dumps(profile.to_json()))) == profile


def test_profiles_that_differ_are_not_equal():
    asked = [
        {"kind": "generic"},
        {"kind": "state-protocol"},
        {"kind": "state-protocol", "touch": {"enabled": True}},
        {"kind": "evlog"},
        {"kind": "evlog", "redact": ["a"]},
        {"kind": "evlog", "routingKey": ["a"]},
    ]
    assert len({profiles.read(each) for each in asked}) == len(asked)


@pytest.mark.parametrize(
    ("kind", "empty", "as_json"),
    [("generic", False, False), ("state-protocol", False, True), ("evlog", True, True)],
)
def test_profile_requirements(kind, empty, as_json):
    profile = profiles.read({"kind": kind})
    assert (profile.needs_empty_stream, profile.needs_json) == (empty, as_json)


def long_name(extra):
    return "n" * (EVENT_FIELD_NAME_MAX + extra)


@pytest.mark.parametrize(
    ("asked", "complaint", "hint"),
    [
        ("evlog", "object with a 'kind'", "generic, state-protocol, evlog"),
        (["evlog"], "object with a 'kind'", "generic, state-protocol, evlog"),
        ({}, "object with a 'kind'", "generic, state-protocol, evlog"),
        ({"kind": "Evlog"}, "unknown kind of profile 'Evlog'", "generic, state-protocol, evlog"),
        ({"kind": ["evlog"]}, "unknown kind of profile", "generic, state-protocol, evlog"),
        ({"kind": "generic", "touch": {}}, "unknown field 'touch'", "Use kind."),
        ({"kind": "state-protocol", "tuch": {}}, "unknown field 'tuch'", "kind, touch"),
        ({"kind": "state-protocol", "touch": True}, "'touch' of a profile", '{"enabled": true}'),
        ({"kind": "state-protocol", "touch": None}, "'touch' of a profile", '{"enabled": true}'),
        ({"kind": "state-protocol", "touch": {"on": True}}, "unknown field 'on'", "enabled"),
        ({"kind": "state-protocol", "touch": {"enabled": 1}}, "true or false", ""),
        ({"kind": "evlog", "redacted": []}, "unknown field 'redacted'", "kind, redact, routingKey"),
        ({"kind": "evlog", "redact": "iban"}, "list of at most 100 field names", ""),
        ({"kind": "evlog", "redact": ["x"] * 101}, "list of at most 100 field names", ""),
        ({"kind": "evlog", "routingKey": ["x"] * 9}, "list of at most 8 field names", ""),
        ({"kind": "evlog", "redact": [7]}, "invalid field name 7", "printable"),
        ({"kind": "evlog", "redact": [""]}, "invalid field name ''", "printable"),
        ({"kind": "evlog", "redact": ["a\nb"]}, "'redact' of a profile", "printable"),
        ({"kind": "evlog", "redact": ["\ud800"]}, "'redact' of a profile", "printable"),
        ({"kind": "evlog", "redact": [long_name(1)]}, "'redact' of a profile", "200 characters"),
        ({"kind": "evlog", "redact": ["_-"]}, "matches no field", ""),
        ({"kind": "evlog", "redact": ["Time_Stamp"]}, "cannot redact 'timestamp'", ""),
        ({"kind": "evlog", "redact": ["LEVEL"]}, "cannot redact 'level'", ""),
        # Routing keys are stored in indexes, so a secret cannot be one.
        ({"kind": "evlog", "routingKey": ["Api-Key"]}, "cannot use 'Api-Key'", "routingKey"),
        ({"kind": "evlog", "redact": ["trace_id"]}, "cannot use 'traceId'", "routingKey"),
    ],
)
def test_invalid_profile_is_rejected(asked, complaint, hint):
    with pytest.raises(InvalidInput) as refused:
        profiles.read(asked)
    assert complaint in refused.value.message
    assert hint in refused.value.hint


def test_profile_accepts_names_up_to_the_limits():
    profiles.read({"kind": "evlog", "redact": [long_name(0)] * 100, "routingKey": ["x"] * 8})


def test_generic_profile_changes_nothing():
    records = [b"[1, 2", b"\xff"]
    assert profiles.read({"kind": "generic"}) is profiles.GENERIC
    assert profiles.GENERIC.admit(records, NOW_MS) == (records, None)


# Changes of state

GOOD_CHANGES = [
    b'{"type":"t","key":"k","value":1,"headers":{"operation":"insert"}}',
    b'{"type":"t","key":"k","value":null,"headers":{"operation":"update"}}',
    b'{"type":"t","key":"k","value":{},"old_value":[1],"headers":{"operation":"upsert"}, "more":1}',
    b'{"type":"t","key":"k","headers":{"operation":"delete","txid":"7"}}',
    b'{"type":"t","key":"k","headers":{"operation":"delete"},"old_value":{"a":1.50}}',
    b'{"headers":{"control":"snapshot-start"}}',
    b'{"headers":{"control":""},"type":7,"value":1}',
    # The last of duplicate names counts, as it does for the fold.
    b'{"type":7,"type":"t","key":"","key":"k","value":1,"headers":{},"headers":{"operation":9,"operation":"insert"}}',
    b'{"\\u0074ype":"t","k\\u0065y":"\\u006b","value":1,"headers":{"operation":"in\\u0073ert"}}',
]


@pytest.mark.parametrize("record", GOOD_CHANGES)
def test_changes_are_stored_as_received(record):
    assert taken(STATE, record) == ((record,), None)


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (b"[]", "not an object"),
        (b"7", "not an object"),
        (b"{}", "no 'headers' object"),
        (b'{"type":"t","key":"k","value":1,"headers":"insert"}', "no 'headers' object"),
        (b'{"type":"t","key":"k","value":1,"headers":{}}', "not one of insert, update"),
        (b'{"type":"t","key":"k","value":1,"headers":{"operation":"Insert"}}', "not one of"),
        (b'{"type":"t","key":"k","value":1,"headers":{"operation":["insert"]}}', "not one of"),
        (b'{"key":"k","value":1,"headers":{"operation":"insert"}}', "'type' is not text"),
        (b'{"type":"","key":"k","value":1,"headers":{"operation":"insert"}}', "'type' is not text"),
        (b'{"type":"t","key":7,"value":1,"headers":{"operation":"insert"}}', "'key' is not text"),
        (b'{"type":"t","key":"","headers":{"operation":"delete"}}', "'key' is not text"),
        (b'{"type":"t","key":"k","headers":{"operation":"upsert"}}', "no 'value', which upsert"),
        (b'{"headers":{"control":7}}', "'control' is not text"),
        (b'{"type":"t","key":"k","headers":{"control":"x","operation":"delete"}}', "both an op"),
        (b'{"headers":{"control":"x","operation":null}}', "both an operation"),
        (GOOD_CHANGES[0].replace(b'"k"', b'"k","key":7'), "'key' is not text"),
        (GOOD_CHANGES[0].replace(b"1", b"1e400"), "cannot be decoded"),
        (GOOD_CHANGES[0].replace(b"1", b"9" * 5000), "cannot be decoded"),
        (GOOD_CHANGES[0].replace(b"1", b'"\xff"'), "cannot be decoded"),
        (GOOD_CHANGES[0] + b"x", "cannot be decoded"),
    ],
)
def test_invalid_change_is_rejected_with_its_number(record, complaint):
    with pytest.raises(InvalidInput) as refused:
        taken(STATE, GOOD_CHANGES[0], record, GOOD_CHANGES[1])
    assert "message 2: violates" in refused.value.message
    assert "'state-protocol'" in refused.value.message
    assert complaint in refused.value.message
    assert "insert, update, upsert, delete" in refused.value.hint
    assert refused.value.details == {"message": 2}


@st.composite
def objects(draw, members, names, extra=()):
    """Draw an object with these names and others, with duplicates, in any order."""
    more = draw(st.lists(st.sampled_from(extra), max_size=2)) if extra else []
    parts = [
        draw(spelled(name)) + draw(BLANKS) + b":" + draw(BLANKS) + draw(members[name])
        for name in draw(st.permutations([*names, *more]))
    ]
    blank = draw(BLANKS)
    return b"{" + blank + (blank + b"," + blank).join(parts) + blank + b"}"


def one_of(*texts):
    return st.sampled_from(texts)


HEADER = {
    "operation": one_of(b'"insert"', b'"update"', b'"upsert"', b'"delete"', b'"x"', b"[]"),
    "control": one_of(b'"reset"', b'"reset"', b"null"),
    "txid": one_of(b'"7"'),
}
CHANGE = {
    "type": one_of(b'"t"', b'"t"', b'"u"', b'""', b"7"),
    "key": one_of(b'"k"', b'"k"', b'"l"', b'""', b'["k"]'),
    "value": one_of(b"1", b"null", b'{"a":1.50,"a":[2]}', b'"x"', b"1e5"),
    "old_value": one_of(b"0"),
    "headers": st.one_of(
        objects(HEADER, ["operation"]),
        objects(HEADER, ["operation"], ["txid", "operation", "control"]),
        objects(HEADER, ["control"], ["txid"]),
        st.just(b"[]"),
    ),
}
CHANGES = st.one_of(
    objects(CHANGE, ["type", "key", "value", "headers"]),
    objects(CHANGE, ["type", "key", "headers"], sorted(CHANGE)),
    objects(CHANGE, ["headers"], sorted(CHANGE)),
)


def is_change(message):
    """Return True if a message is valid: a second implementation of the rule."""
    return (
        all(isinstance(message.get(name), str) and message[name] for name in ("type", "key"))
        and isinstance(message.get("headers"), dict)
        and message["headers"].get("operation") in ["insert", "update", "upsert", "delete"]
        and ("value" in message or message["headers"]["operation"] == "delete")
        and "control" not in message["headers"]
    )


def is_control(message):
    headers = message.get("headers")
    return (
        isinstance(headers, dict)
        and isinstance(headers.get("control"), str)
        and "operation" not in headers
    )


@settings(max_examples=examples(300))
@given(CHANGES)
def test_accepted_messages_are_changes_for_the_fold(record):
    message = json.loads(record)
    try:
        result = taken(STATE, record)
    except InvalidInput:
        assert not is_change(message)
        assert not is_control(message)
        return
    assert result == ((record,), None)
    assert is_change(message) or is_control(message)
    before = {(kind, key): "before" for kind in ("t", "u") for key in ("k", "l")}
    after = dict(before)
    fold.apply(after, msgspec.json.decode(record))
    if is_control(message):
        assert after == before
        return
    row = message["type"], message["key"]
    expected = {other: value for other, value in before.items() if other != row}
    if message["headers"]["operation"] != "delete":
        expected[row] = message["value"]
    assert after == expected


# Depth of messages


def nested(levels, opening=b"[", closing=b"]"):
    return opening * levels + b"1" * (opening != b"[") + closing * levels


@pytest.mark.parametrize("profile", [STATE, EVENTS], ids=lambda profile: profile.kind)
def test_message_depth_is_limited(profile):
    def message(value):
        return (
            b'{"timestamp":"2026-01-31T12:00:00Z","type":"t","key":"k",'
            b'"headers":{"operation":"insert"},"value":' + value + b"}"
        )

    inside = STREAM_PROFILED_DEPTH_MAX - 1
    for value in (
        nested(inside),
        nested(inside, b'{"token ":', b"}"),
        b"[" + b",".join([b"[{}]"] * 600) + b"]",
        b'"' + b"[{" * 600 + b'\\""',
    ):
        assert taken(profile, message(value)).records[0] == message(value)
    for value in (
        nested(inside + 1),
        nested(inside + 1, b'{"a":', b"}"),
        nested(100_000),
        nested(100_000, b'{"token":', b"}"),
    ):
        with pytest.raises(InvalidInput, match=r"message 2: .* nested deeper than 500 levels"):
            taken(profile, message(b"1"), message(value))
