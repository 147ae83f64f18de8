"""Event logs: valid events, added timestamps, redacted secrets and routing keys."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_spellings import BLANKS, spelled

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.streams import profiles
from support.properties import examples

NOW_MS = 1_769_860_800_007
NOW = "2026-01-31T12:00:00.007Z"
EVENTS = profiles.read({"kind": "evlog", "redact": ["IBAN", "straße", "card/number"]})


def taken(profile, *records):
    return profile.admit(records, NOW_MS)


def written(record, profile=EVENTS):
    """Return the stored record of one event that has a timestamp."""
    assert b'"timestamp"' in record
    return taken(profile, record).records[0]


def event(fields):
    return b'{"timestamp":"2026-01-31T12:00:00Z",' + fields + b"}"


# Timestamps and levels


def test_missing_timestamp_is_added_to_event():
    records = [b"{}", b"{ }", b' {"a": 1.50}', b'{"nested":{"timestamp":1},"timestamp\\u0020":1}']
    assert taken(EVENTS, *records).records == [
        b'{"timestamp":"%s"}' % NOW.encode(),
        b'{"timestamp":"%s" }' % NOW.encode(),
        b' {"timestamp":"%s","a": 1.50}' % NOW.encode(),
        b'{"timestamp":"%s","nested":{"timestamp":1},"timestamp\\u0020":1}' % NOW.encode(),
    ]


def test_added_timestamp_has_milliseconds():
    shown = [EVENTS.admit([b"{}"], now_ms).records[0][14:-2] for now_ms in (0, 999, -1, 1_000)]
    assert shown == [
        b"1970-01-01T00:00:00.000Z",
        b"1970-01-01T00:00:00.999Z",
        b"1969-12-31T23:59:59.999Z",
        b"1970-01-01T00:00:01.000Z",
    ]


@pytest.mark.parametrize(
    "timestamp",
    [
        "2026-01-31T12:00:00Z",
        "2024-02-29t23:59:59.123456789z",
        "2026-01-31T12:00:00.5+05:30",
        "0001-01-01T00:00:00-23:59",
        "2016-12-31T23:59:60Z",
        "2017-01-01T05:29:60+05:30",
        "2016-12-31T18:59:60.5-05:00",
    ],
)
def test_rfc_3339_timestamps_are_kept(timestamp):
    record = b'{"a":1,"\\u0074imestamp" :"%s"}' % timestamp.encode()
    assert taken(EVENTS, record).records == [record]


@pytest.mark.parametrize(
    "timestamp",
    [
        '"2026-01-31"',
        '"2026-01-31T12:00:00"',
        '"2026-01-31 12:00:00Z"',
        '"2026-01-31T12:00Z"',
        '"2026-02-29T12:00:00Z"',
        '"2026-13-01T12:00:00Z"',
        '"0000-01-01T12:00:00Z"',
        '"2026-01-31T24:00:00Z"',
        '"2026-01-31T12:60:00Z"',
        '"2026-01-31T12:00:60Z"',
        '"2016-12-31T23:59:60+01:00"',
        '"2026-01-31T12:00:61Z"',
        '"2026-01-31T12:00:00.Z"',
        '"2026-01-31T12:00:00+24:00"',
        '"2026-01-31T12:00:00+0100"',
        '"2026-01-31T12:00:00Z\\n"',
        '"\u0662026-01-31T12:00:00Z"',
        '"202\u0666-01-31T12:00:00Z"',
        '""',
        "1769860800007",
        "null",
    ],
)
def test_other_timestamps_are_rejected(timestamp):
    with pytest.raises(InvalidInput, match=r"message 2: .* its timestamp is not an RFC 3339"):
        taken(EVENTS, b"{}", f'{{"timestamp":{timestamp}}}'.encode())


@pytest.mark.parametrize("level", ["trace", "debug", "info", "warn", "error", "fatal", "WARN"])
def test_levels_keep_their_case(level):
    record = event(b'"level":"%s"' % level.encode())
    assert written(record) == record


@pytest.mark.parametrize("level", [b'"warning"', b'""', b"3", b"null", b'["info"]', b'"info "'])
def test_other_levels_are_rejected(level):
    with pytest.raises(InvalidInput, match=r"message 1: .* its level is unknown") as refused:
        written(event(b'"level":%s' % level))
    assert "trace, debug, info, warn, error, fatal" in refused.value.hint
    assert refused.value.details == {"message": 1}


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (b"[{}]", "not an object"),
        (b'"text"', "not an object"),
        (b'{"a":', "not JSON"),
        (b'{"a":"\xff"}', "not JSON"),
        (b"{} {}", "not JSON"),
    ],
)
def test_invalid_event_is_rejected(record, complaint):
    with pytest.raises(InvalidInput, match=f"message 3: .* it is {complaint}"):
        taken(EVENTS, b"{}", b"{}", record)


# Secrets


@pytest.mark.parametrize(
    ("came", "stays"),
    [
        (b'"password":"x"', b'"password":"[REDACTED]"'),
        (b'"PassWord" : 12.50 ,"b":1.50', b'"PassWord" : "[REDACTED]" ,"b":1.50'),
        (b'"token":true', b'"token":"[REDACTED]"'),
        (b'"token":null', b'"token":null'),
        (b'"Set-Cookie":["x","y\\"]"],"b":[ ]', b'"Set-Cookie":"[REDACTED]","b":[ ]'),
        (b'"api_key":{"a":"}","b":[{}]}', b'"api_key":"[REDACTED]"'),
        (b'"secret":{},"a":[]', b'"secret":"[REDACTED]","a":[]'),
        (b'"a":[[{"API-KEY":1}],2]', b'"a":[[{"API-KEY":"[REDACTED]"}],2]'),
        (b'"a":{"_access__Token-":-1e9}', b'"a":{"_access__Token-":"[REDACTED]"}'),
        (b'"p\\u0061ssword":"x"', b'"p\\u0061ssword":"[REDACTED]"'),
        (b'"to\\u004Ben":"x"', b'"to\\u004Ben":"[REDACTED]"'),
        # Both values of a duplicate name are redacted, though a parser returns only one.
        (b'"token":"x","token":null', b'"token":"[REDACTED]","token":null'),
        (b'"a":{"token":"x"},"a":1', b'"a":{"token":"[REDACTED]"},"a":1'),
        (b'"token":{"token":1}', b'"token":"[REDACTED]"'),
        # Names of the profile, in any case and with any escapes.
        (b'"i_ban":"x"', b'"i_ban":"[REDACTED]"'),
        (b'"STRASSE":"x"', b'"STRASSE":"[REDACTED]"'),
        ('"Stra\u1e9ee":"x"'.encode(), '"Stra\u1e9ee":"[REDACTED]"'.encode()),
        (b'"card/number":"x"', b'"card/number":"[REDACTED]"'),
        (b'"card\\/number":"x"', b'"card\\/number":"[REDACTED]"'),
        # The Kelvin sign folds to k.
        ('"to\u212aen":"x"'.encode(), '"to\u212aen":"[REDACTED]"'.encode()),
    ],
)
def test_only_secrets_are_replaced(came, stays):
    once = written(event(came))
    assert once == event(stays)
    assert written(once) == once


@pytest.mark.parametrize(
    "fields",
    [
        b'"a":"password", "b" : ["token","secret"]',
        b'"tokens":5,"secretary":"x","pass word":"y","":1',
        b'"a":"\\"token\\":1","b":"\\\\", "c":"\\u0074oken"',
        b'"a":"{\\"password\\":\\"x\\"}"',
        '"\u00fc":"\u00e4", "n": 1.0e+05, "n":0.10'.encode(),
    ],
)
def test_similar_names_are_not_redacted(fields):
    assert written(event(fields)) == event(fields)


def test_default_names_are_always_redacted():
    usual = (
        "password token secret authorization cookie set-cookie apikey api_key api-key access_token "
        "refresh_token client_secret private_key Proxy-Authorization X-Api-Key"
    )
    plain = profiles.read({"kind": "evlog"})
    for name in usual.split():
        record = event(b'"%s":"x"' % name.encode())
        assert written(record, plain) == record.replace(b'"x"', b'"[REDACTED]"'), name


def test_names_of_another_redact_list_are_not_redacted():
    assert written(event(b'"iban":"x"'), profiles.read({"kind": "evlog"})) == event(b'"iban":"x"')


SECRET = "hunter2"
SECRET_NAMES = ["password", "token", "apikey", "setcookie", "clientsecret", "iban", "card/number"]
OTHER_NAMES = [
    "a",
    "",
    "tokens",
    "timestamp",
    "level",
    "pass word",
    "\u00fc",
    'q"uote',
    "requestId",
]
SCALARS = ["null", "true", "0.10", "-1.50E+10", "12345678901234567890", '"text"', '"\\"token\\":"']


@st.composite
def odd_spelling(draw, name):
    """Draw a spelling of a secret name, in mixed case and with ignored characters."""
    out = draw(st.sampled_from(["", "_"]))
    for letter in name:
        out += letter.upper() if draw(st.booleans()) else letter
        out += draw(st.sampled_from(["", "", "", "-", "_"]))
    return out


@st.composite
def planted(draw, inner):
    """Draw a secret value that contains SECRET, and its redacted form."""
    name = draw(spelled(draw(odd_spelling(draw(st.sampled_from(SECRET_NAMES))))))
    value = draw(
        st.one_of(
            st.just(b"null"),
            spelled(SECRET + '\\"'),
            inner.map(lambda pair: b'{"a":%s,"b]}":["%s"]}' % (pair[0], SECRET.encode())),
            inner.map(lambda pair: b'["%s\\"", %s ]' % (SECRET.encode(), pair[0])),
        )
    )
    return name, value, value if value == b"null" else b'"[REDACTED]"'


@st.composite
def other_member(draw, inner):
    name = draw(spelled(draw(st.sampled_from(OTHER_NAMES))))
    return (name, *draw(inner))


@st.composite
def object_pair(draw, inner):
    """Draw the text of an object, possibly with duplicate names, and its redacted form."""
    members = draw(st.lists(st.one_of(planted(inner), other_member(inner)), max_size=4))
    blank, comma = draw(BLANKS), draw(BLANKS) + b","
    return tuple(
        b"{" + blank + comma.join(m[0] + blank + b":" + blank + m[1 + at] for m in members) + b"}"
        for at in (0, 1)
    )


def array_pair(inner):
    return st.lists(inner, max_size=3).map(
        lambda pairs: tuple(b"[" + b", ".join(pair[at] for pair in pairs) + b"]" for at in (0, 1))
    )


LEAVES = st.sampled_from(SCALARS).map(lambda text: (text.encode(), text.encode()))
VALUES = st.recursive(
    LEAVES, lambda inner: st.one_of(object_pair(inner), array_pair(inner)), max_leaves=8
)


def texts_of(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts_of(each)


def parsed(record):
    """Parse a message with duplicate names, and numbers by their digits."""
    return json.loads(
        record, object_pairs_hook=lambda pairs: ("object", pairs), parse_float=str, parse_int=str
    )


@settings(max_examples=examples(150))
@given(st.lists(object_pair(VALUES), min_size=1, max_size=2), BLANKS)
def test_secrets_are_redacted_at_any_depth(bodies, blank):
    came, stays = (
        b'{"inner":[%s],"timestamp":%s"2026-01-31T12:00:00Z"}' % (b",".join(parts), blank)
        for parts in zip(*bodies, strict=True)
    )
    result = written(came)
    assert result == stays
    assert not any(SECRET in text for text in texts_of(parsed(result)))
    assert parsed(result) == parsed(stays)
    # Without a timestamp only that is added.
    bare = came.replace(b'"timestamp"', b'"moment"')
    assert taken(EVENTS, bare).records[0] == b'{"timestamp":"%s",%s' % (
        NOW.encode(),
        stays.replace(b'"timestamp"', b'"moment"')[1:],
    )


# Routing keys


def test_routing_key_is_first_text_field():
    most = limits.ROUTING_KEY_MAX
    records = {
        b'{"requestId":"r","traceId":"t"}': b"r",
        b'{"traceId":"t"}': b"t",
        b'{"requestId":7,"traceId":"t"}': b"t",
        b'{"requestId":"","traceId":"t"}': b"t",
        b'{"requestId":"%s"}' % (b"x" * most): b"x" * most,
        b'{"requestId":"%s","traceId":"t"}' % (b"x" * (most + 1)): b"t",
        '{{"requestId":"{}"}}'.format("\u00fc" * (most // 2 + 1)).encode(): None,
        b'{"request\\u0049d":"\\u00fc"}': "\u00fc".encode(),
        b'{"requestId":"a","requestId":"b"}': b"b",
        b'{"a":{"requestId":"r"}}': None,
        b"{}": None,
    }
    assert taken(EVENTS, *records).keys == list(records.values())


def test_profile_without_routing_fields_assigns_no_keys():
    assert (
        taken(profiles.read({"kind": "evlog", "routingKey": []}), b'{"requestId":"r"}').keys is None
    )
