"""Search and aggregates in a few lines: every record is decoded and examined."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from datetime import UTC, datetime

from hypothesis import strategies as st

from fourfold.content.filters import parse_filter
from fourfold.models.streams.search.query import SearchExpression

WORDS = ["slow", "plan", "Retry", "über", "eu-west", "timeout", "plans"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
VALUES = st.one_of(
    st.sampled_from([None, True, False, 0, 1, 1.0, 2.5, -3, 200, 500, 503, 2**60, 1e300]),
    st.sampled_from(["", "auth", "pay", "500", "a", "ab", [], [1, "auth"], {}, {"x": 1}]),
    st.sampled_from(["NaN", "-Infinity", "12", 'a"b', "über", "a\u2028b", -0.0, 2**53, 2**53 + 1]),
    st.sampled_from([2**63, -(2**63) - 1, 2**64, 10**40]),
    TEXTS,
)
TIMES = st.one_of(
    st.integers(990_000, 1_010_000),
    st.sampled_from(["1970-01-01T00:16:40Z", "1970-01-01T00:16:45.5+00:00", "never", None, True]),
    st.sampled_from([1_000_000.5, 2**53 + 1, -(2**63) - 1, 10**40]),
)
MESSAGES = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "service": st.one_of(st.sampled_from(["auth", "pay", "auth service"]), VALUES),
            "status": VALUES,
            "duration": st.one_of(st.integers(0, 50), VALUES),
            "message": st.one_of(TEXTS, VALUES),
            "note": st.fixed_dictionaries({"text": st.one_of(TEXTS, VALUES)}),
            "time": TIMES,
        },
    ),
    VALUES,
)
NAMES = ["service", "status", "duration", "message", "note", "time", "x"]


def spelled_name(name, escape):
    return f'"\\u{ord(name[0]):04x}{name[1:]}"' if escape else json.dumps(name)


@st.composite
def spelled_objects(draw):
    """Draw an object as bytes: names may be repeated, and names and strings may have escapes."""
    nested = st.fixed_dictionaries({}, optional={"text": VALUES, "status": VALUES})
    values = st.one_of(VALUES, nested)
    names = st.tuples(st.sampled_from(NAMES), st.booleans())
    pairs = draw(st.lists(st.tuples(names, values, st.booleans()), max_size=5))
    texts = [
        f"{spelled_name(*name)} : {json.dumps(value, ensure_ascii=escape)}"
        for name, value, escape in pairs
    ]
    return ("{" + ",\n".join(texts) + "}").encode()


RAW = st.one_of(
    st.sampled_from(
        [
            b'{"message":"\\ud800 slow","status":1}',
            b'{"status":1e400,"duration":1e400}',
            b"1e400",
            b'{"duration":99,"service":"pay","service":"auth","duration":12}',
            b'{"x":["\\"auth\\""],"service":"\\u0061uth"}',
        ]
    ),
    spelled_objects(),
)
QUERY_LIST = [
    "",
    "slow",
    "pla*",
    '"slow plan"',
    "uber",
    "-slow",
    "slow OR retry",
    "(slow plan) OR -timeout",
    "service:auth",
    "service:auth status:>=500",
    "service:auth -status:500",
    "status:500",
    "status:200..503",
    "status:<1",
    "status:true",
    "status:null",
    "duration:>10 slow",
    "duration:10..20 OR service:pay",
    "duration:>10 service:auth",
    "service:über",
    "has:status",
    "-has:note.text",
    "message:plan",
    "message:pla*",
    'message:"slow plan"',
    "note.text:slow",
    "service:a*",
    "service:*ut*",
    'service:="auth service"',
    "status:>a",
    "service:auth (slow OR duration:<5)",
    "nothing:here",
    "zzz",
]
QUERIES = st.sampled_from(QUERY_LIST)
WHERE_LIST = [
    None,
    None,
    {"service": "auth"},
    {"status": {"$ne": 500}},
    {"status": {"$in": [500, "500", None]}},
    {"status": {"$type": "number"}, "duration": {"$lt": 20}},
    {"service": {"$any": "auth"}},
    {"$not": {"message": {"$text": "slow plan"}}},
    {"$or": [{"/note/text": {"$contains": "a"}}, {"duration": {"$gte": 30}}]},
    {"status": {"$exists": False}},
    {"service": {"$eq": {"x": 1}}},
    {"status": {"$gt": 2**59}},
    {"duration": {"$gte": 12}, "service": "auth"},
    {"duration": {"$gt": "1"}},
    {"duration": {"$lt": 1}},
    {"service": "über"},
    {"service": {"$prefix": 'a"'}, "status": {"$exists": True}},
    {"message": {"$contains": "\u2028"}},
    {"/note/status": {"$gte": 0}},
    {"/1": "auth"},
]
WHERES = st.sampled_from(WHERE_LIST)
SPANS = st.sampled_from([(None, None), (None, None), (1_000_000, None), (None, 1_000_500)])
MEASURES = ("count", "sum(duration)", "min(duration)", "max(status)", "avg(duration)")
PERCENTILES = ("p50(duration)", "p95(duration)")
DECLARATION = {
    "text": ["message", "note.text"],
    "columns": ["service", "status", "duration"],
    "timestamp": "time",
    "rollups": [{"every": "1s", "by": ["service"], "measures": ["duration", "status"]}],
}


def append_raw(stream, payload):
    """Append bytes, except lone surrogates where a declaration refuses them."""
    if b"ud800" not in payload or stream.schema().search is None:
        stream.append_bytes(payload)


def value_of(payload):
    return json.loads(payload)


def time_of(message, appended_ms, declared):
    value = message.get(declared, None) if declared and isinstance(message, dict) else None
    if isinstance(value, str):
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            return appended_ms
        return math.floor((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 2**53:
        return math.floor(value)
    return appended_ms


def naive_matches(stream, query, where=None, since=None, until=None):
    """All matches, the newest first: pairs of record and message."""
    registry = stream.schema()
    declared = registry.search
    parsed = SearchExpression(query, declared.text if declared else (), parse_filter(where))
    matches = []
    for record in stream:
        message = value_of(record.payload)
        time = time_of(message, record.ts_ms, declared.timestamp if declared else None)
        if (since is not None and time < since) or (until is not None and time > until):
            continue
        if parsed.matches(message):
            matches.append((record, message, time))
    return matches[::-1]


def naive_offsets(stream, *args, **options):
    return [record.offset for record, _, _ in naive_matches(stream, *args, **options)]


def group_value(message, field):
    for part in field.split("."):
        if not isinstance(message, dict) or part not in message:
            return None
        message = message[part]
    return None if isinstance(message, dict | list) else message


def naive_groups(stream, by, every_ms, measures, *args, **options):
    """The groups of an aggregate, as a dictionary by their keys."""
    groups = defaultdict(list)
    for _, message, time in naive_matches(stream, *args, **options):
        key = tuple((type(v) is bool, v) for v in (group_value(message, f) for f in by))
        groups[(None if every_ms is None else time // every_ms * every_ms, *key)].append(message)
    return {
        key: {measure: _measured(measure, messages) for measure in measures}
        for key, messages in groups.items()
    }


def _measured(measure, messages):
    if measure == "count":
        return len(messages)
    function, _, field = measure.rstrip(")").partition("(")
    values = [group_value(message, field) for message in messages]
    values = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if function == "sum":
        return sum(values)
    if not values:
        return None
    if function in {"min", "max"}:
        return {"min": min, "max": max}[function](values)
    if function == "avg":
        return sum(values) / len(values)
    return sorted(values)[max(0, math.ceil(float(function[1:]) * len(values) / 100) - 1)]


def groups_of(result, by, measures):
    """The rows of an aggregate as `naive_groups` returns them."""
    groups = {}
    for row in result:
        key = tuple((type(row[field]) is bool, row[field]) for field in by)
        groups[(row.get("time_ms"), *key)] = {measure: row[measure] for measure in measures}
    return groups


def same_groups(left, right):
    """True if two aggregates are equal; sums of fractions only nearly."""
    if left.keys() != right.keys():
        return False
    return all(_close(left[key][name], right[key][name]) for key in left for name in left[key])


def _close(one, other):
    if isinstance(one, float) or isinstance(other, float):
        return one is not None and other is not None and math.isclose(one, other, rel_tol=1e-9)
    if type(one) is int and type(other) is int and abs(one) >= 2**53:
        return math.isclose(one, other)
    return one == other


def check_search(stream, query, where, span, limit):
    """Compare all pages of a search with the naive one."""
    since, until = span
    expected = naive_offsets(stream, query, where, since, until)
    offsets, after = [], None
    while True:
        page = stream.search(
            query, where=where, since=since, until=until, limit=limit, after=after, total=True
        )
        if after is None:
            assert page.total == (len(expected), True)
        offsets += [hit.record.offset for hit in page]
        assert page.coverage.complete
        if page.next is None:
            break
        after = page.next
    assert offsets == expected, (query, where, span)


def check_groups(stream, query, where, span, by, every):
    """Compare an aggregate with the naive one."""
    since, until = span
    every_ms = {None: None, "1s": 1_000, "2s": 2_000, "700ms": 700}[every]
    for measures in (MEASURES, PERCENTILES):
        result = stream.aggregate(
            query, by=by, every=every, measures=measures, where=where, since=since, until=until
        )
        expected = naive_groups(stream, by, every_ms, measures, query, where, since, until)
        found = groups_of(result, by, measures)
        assert same_groups(found, expected), (query, where, span, by, every, found, expected)
