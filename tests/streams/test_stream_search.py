"""Search and aggregates of a stream in the log, against a naive model."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_streams import JSON

import fourfold
from fourfold.content.filters import parse_filter
from fourfold.errors import InvalidInput, LimitExceeded, StreamRecreated
from fourfold.models.streams.search import engine, measures
from fourfold.models.streams.search.query import SearchExpression
from fourfold.models.streams.search.ranking import Ranking
from support import naive_search as naive
from support.properties import examples

LOGS = [
    {"service": "auth", "status": 500, "message": "A slow plan", "ms": 12.5},
    {"service": "pay", "status": 200, "message": "done in Café Müller", "ms": 3},
    {"service": "auth", "status": "500", "message": "retrying, slowly", "tags": ["eu", "blue sky"]},
    {"service": None, "status": 404, "message": {"text": "slow"}, "ms": "12"},
    ["slow", 7],
    "plan",
]


@pytest.fixture
def logs(opened):
    stream = opened.streams.create("logs", JSON)
    stream.append(LOGS)
    return stream


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with fourfold.open(tmp_path_factory.mktemp("search") / "store") as store:
        yield store


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("slow", [4, 3, 0]),
        ("slow*", [4, 3, 2, 0]),
        ('"slow plan"', [0]),
        ('"plan slow"', []),
        ("cafe muller", [1]),
        ("eu", [2]),
        ("service:auth", [2, 0]),
        ("status:500", [2, 0]),
        ('status:"500"', [2]),
        ("status:>=404", [3, 0]),
        ("status:200..404", [3, 1]),
        ("ms:<10", [1]),
        ("ms:3.0", [1]),
        ("service:null", [3]),
        ("service:a*", [2, 0]),
        ("message:*low*", [2, 0]),
        ("message.text:slow", [3]),
        ("has:tags", [2]),
        ("-has:service", [5, 4]),
        ("NOT service:auth status:>1", [3, 1]),
        ("service:pay OR has:tags", [2, 1]),
        ("slow (service:auth OR -has:service)", [4, 0]),
        ("slow AND plan", [0]),
        ("tags.1:*sky*", [2]),
        ("  ", [5, 4, 3, 2, 1, 0]),
    ],
)
def test_queries_find_messages_newest_first(logs, query, expected):
    page = logs.search(query, total=True)
    assert [hit.record.offset for hit in page] == expected
    assert page.total == (len(expected), True)
    assert page.next is None
    assert page.coverage.complete


def test_text_fields_limit_bare_words_and_change_field_queries(logs):
    assert [hit.record.offset for hit in logs.search("message:slow")] == []
    logs.set_schema(search={"text": ["message"]})
    assert [hit.record.offset for hit in logs.search("slow")] == [0]
    assert [hit.record.offset for hit in logs.search("message:slow")] == [0]
    assert [hit.record.offset for hit in logs.search('message:="A slow plan"')] == [0]


@pytest.mark.parametrize(
    "query",
    ['"open', "(slow", "slow)", "OR slow", "slow OR", "--- ", "a..b:1", "x" * 2_001, "()", "NOT"],
)
def test_invalid_queries_are_refused(logs, query):
    with pytest.raises(InvalidInput) as info:
        logs.search(query)
    assert info.value.hint


@pytest.mark.parametrize(
    "options",
    [
        {"order": "oldest"},
        {"limit": 0},
        {"limit": 1_001},
        {"after": "x"},
        {"where": {"a": {"$no": 1}}},
        {"since": "soon"},
        {"timeout_s": 0},
        {"query": 7},
    ],
)
def test_invalid_options_are_refused(logs, options):
    with pytest.raises(InvalidInput):
        logs.search(**{"query": "slow", **options})


@pytest.mark.parametrize(
    "options",
    [
        {"by": "service"},
        {"by": ["time_ms"]},
        {"every": "1 week"},
        {"every": "400d"},
        {"measures": ["median(ms)"]},
        {"measures": []},
        {"measures": ["sum()"]},
    ],
)
def test_invalid_aggregates_are_refused(logs, options):
    with pytest.raises(InvalidInput):
        logs.aggregate(**options)


def test_only_json_streams_are_searched(opened):
    stream = opened.streams.create("text", "text/plain")
    with pytest.raises(InvalidInput, match="requires JSON"):
        stream.search("a")


def test_pages_cover_each_match_once_while_records_arrive(logs):
    offsets, after = [], None
    while True:
        page = logs.search("slow*", limit=1, after=after)
        offsets += [hit.record.offset for hit in page]
        logs.append({"message": "slow and new"})
        if page.next is None:
            break
        after = page.next
    assert offsets == [4, 3, 2, 0]
    with pytest.raises(InvalidInput, match="next of a page of this search"):
        logs.search("slow", limit=1, after=after)


def test_cursor_of_deleted_stream_is_refused(opened, logs):
    after = logs.search("slow", limit=1).next
    opened.streams.delete("logs")
    opened.streams.create("logs", JSON).append(LOGS)
    with pytest.raises(StreamRecreated):
        logs.search("slow", limit=1, after=after)


def test_search_sees_open_transaction(opened, logs):
    with opened.database.write():
        logs.append({"message": "slow inside"})
        assert [hit.record.offset for hit in logs.search("slow")] == [6, 4, 3, 0]
        assert logs.aggregate().rows == [{"count": 7}]


def test_snippets_show_what_matches(logs):
    [hit] = logs.search("cafe muller done")
    snippet = hit.snippets["message"]
    marked = [snippet.text[start:end] for start, end in snippet.highlights]
    assert marked == ["done", "Café", "Müller"]
    [hit] = logs.search('"blue sky"')
    assert hit.snippets.keys() == {"tags.1"}


def test_hits_belong_to_the_reader(logs):
    hit = logs.search("cafe").items[0]
    hit.snippets.clear()
    hit.value["service"] = "changed"
    again = logs.search("cafe").items[0]
    assert again.snippets
    assert again.value == LOGS[1]


def test_score_prefers_rare_words_and_short_texts(opened):
    stream = opened.streams.create("ranked", JSON)
    stream.append([{"m": "common common"}, {"m": "common rare"}, {"m": "common " + "long " * 30}])
    page = stream.search("common OR rare", order="score")
    assert [hit.record.offset for hit in page] == [1, 0, 2]
    assert page.items[0].score > page.items[1].score > page.items[2].score
    first = stream.search("common OR rare", order="score", limit=2)
    second = stream.search("common OR rare", order="score", limit=2, after=first.next)
    assert [hit.record.offset for hit in (*first, *second)] == [1, 0, 2]
    assert second.next is None


def test_budget_is_reported_and_the_next_page_continues(opened, monkeypatch):
    monkeypatch.setattr(engine, "SLICE_RECORDS", 10)
    stream = opened.streams.create("long", JSON)
    stream.append([{"n": number} for number in range(100)])
    offsets, after, pages = [], None, 0
    while True:
        page = stream.search("n:<5", max_bytes=1, after=after, total=True)
        offsets += [hit.record.offset for hit in page]
        pages += 1
        if page.next is None:
            break
        assert not page.coverage.complete
        assert page.total is None or not page.total.exact
        after = page.next
    assert offsets == [4, 3, 2, 1, 0]
    assert pages == 10
    partial = stream.aggregate(max_bytes=1)
    assert (partial.rows, partial.coverage.complete) == ([{"count": 10}], False)


@pytest.mark.parametrize("work", ["ranked", "aggregate"])
def test_long_work_pauses_after_few_messages(opened, monkeypatch, work):
    """A thread that handles thousands of messages at once delays every commit of the process."""
    monkeypatch.setattr(engine, "BLOCK_RECORDS", 10)
    stream = opened.streams.create("long", JSON)
    stream.append([{"m": f"word {number}"} for number in range(100)])
    ranked, grouped = (Ranking, "measure"), (measures.Accumulator, "add")
    owner, name = ranked if work == "ranked" else grouped
    handled, steps = [], []
    handle = getattr(owner, name)

    def count(self, *given):
        handled.append(1)
        return handle(self, *given)

    monkeypatch.setattr(owner, name, count)
    monkeypatch.setattr(opened.database.pauses, "pause", lambda: steps.append(len(handled)))
    if work == "ranked":
        assert stream.search("word", limit=3, order="score").items
    else:
        assert stream.aggregate(by=["m"]).coverage.complete
    assert len(handled) == 100
    assert max(after - before for before, after in itertools.pairwise([0, *steps])) <= 10
    assert steps[-1] == 100


def test_aggregates_group_and_measure(logs):
    result = logs.aggregate(by=["service"], measures=["count", "sum(ms)", "max(ms)", "p50(ms)"])
    assert result.rows == [
        {"service": None, "count": 3, "sum(ms)": 0, "max(ms)": None, "p50(ms)": None},
        {"service": "auth", "count": 2, "sum(ms)": 12.5, "max(ms)": 12.5, "p50(ms)": 12.5},
        {"service": "pay", "count": 1, "sum(ms)": 3, "max(ms)": 3, "p50(ms)": 3.0},
    ]
    assert result.columns == ("service", "count", "sum(ms)", "max(ms)", "p50(ms)")
    assert result.rows.to_arrow().column_names == list(result.columns)


def test_aggregate_without_groups_is_a_table_with_its_columns(logs):
    groups = logs.aggregate("nothing", by=["service"], every="1m", measures=["count", "max(ms)"])
    table = groups.rows.to_arrow()
    assert (len(groups), table.num_rows) == (0, 0)
    assert table.column_names == ["time_ms", "service", "count", "max(ms)"]
    assert [str(table.schema.field(name).type) for name in ("time_ms", "count")] == ["int64"] * 2


def test_aggregate_of_huge_integers_is_a_table(opened):
    stream = opened.streams.create("huge", JSON)
    stream.append([{"n": 2**64, "m": 2**64}, {"n": 2**64, "m": 1}, {"n": 1.5, "m": 10**400}])
    table = stream.aggregate(by=["n"], measures=["count", "sum(m)"]).rows.to_arrow()
    assert table.column("n").to_pylist() == ["1.5", str(2**64)]
    assert table.column("sum(m)").to_pylist() == [str(10**400), str(2**64 + 1)]


def test_field_and_measure_of_one_name_are_refused(logs):
    with pytest.raises(InvalidInput, match="'count' is also the name of a measure"):
        logs.aggregate(by=["count"])
    assert logs.aggregate(by=["count"], measures=["max(ms)"]).columns == ("count", "max(ms)")


def test_number_of_groups_is_limited(logs, monkeypatch):
    monkeypatch.setattr(measures, "GROUPS_MAX", 2)
    with pytest.raises(LimitExceeded):
        logs.aggregate(by=["service"])


def test_declared_timestamp_replaces_time_of_append(opened):
    stream = opened.streams.create("timed", JSON)
    stream.append([{"at": "2026-01-01T00:00:30Z"}, {"at": 1_767_225_690_000}, {"at": "?"}])
    assert len(stream.search(since="2026-01-01T00:00:00Z")) == 0
    stream.set_schema(search={"timestamp": "at"})
    assert [h.record.offset for h in stream.search(since="2026-01-01T00:00:00Z")] == [1, 0]
    rows = stream.aggregate(every="1m", since="2026-01-01T00:00:00Z").rows
    assert rows == [
        {"time_ms": 1_767_225_600_000, "count": 1},
        {"time_ms": 1_767_225_660_000, "count": 1},
    ]


@pytest.mark.parametrize(
    "search",
    [
        {"text": ["a", "a"]},
        {"text": ["a..b"]},
        {"columns": [f"c{number}" for number in range(33)]},
        {"timestamp": ""},
        {"rollups": [{"every": "soon"}]},
        {"rollups": [{"every": "1m", "unknown": 1}]},
        {"fields": "a"},
        {"words": ["a"]},
    ],
)
def test_invalid_declarations_are_refused(logs, search):
    with pytest.raises(InvalidInput):
        logs.set_schema(search=search)
    assert logs.schema().search is None


def test_declaration_is_stored_and_returned(logs):
    logs.set_schema(search=naive.DECLARATION)
    search = logs.schema().search
    assert (search.text, search.timestamp) == (["message", "note.text"], "time")
    assert search.rollups[0].every == "1s"
    search.text.clear()
    assert logs.schema().search.text == ["message", "note.text"]


@settings(max_examples=examples(60), deadline=None)
@given(
    messages=st.lists(naive.MESSAGES, max_size=12),
    raw=st.lists(naive.RAW, max_size=4),
    asked=st.lists(st.tuples(naive.QUERIES, naive.WHERES, naive.SPANS), min_size=1, max_size=6),
    declared=st.booleans(),
    limit=st.integers(1, 5),
    by=st.sampled_from([[], ["service"], ["service", "note.text"]]),
    every=st.sampled_from([None, "1s", "700ms"]),
)
def test_search_equals_naive_search(store, messages, raw, asked, declared, limit, by, every):
    store.streams.create("s", JSON)
    try:
        stream = store.streams.open("s")
        if declared:
            stream.set_schema(search=naive.DECLARATION)
        if messages:
            stream.append(list(messages))
        for payload in raw:
            naive.append_raw(stream, payload)
        for query, where, span in asked:
            naive.check_search(stream, query, where, span, limit)
            naive.check_groups(stream, query, where, span, by, every)
    finally:
        store.streams.delete("s")


SPELLED = [
    b'{"service":"\\u0061uth","duration":12}',
    b'{"service":"pay","service":"auth","duration":99,"duration":12}',
    b'{"service":"auth","service":"pay","duration":99,"duration":1}',
    b'{"s\\u0065rvice":"auth","duration":"12"}',
    '{"service":"über"}'.encode(),
    b'{"service":"\\u00fcber"}',
    b'[["auth"]]',
    b'{"x":{"service":"auth"}}',
    b'{"service":"a\\"b"}',
    b'{"duration":-0.0,"service":null}',
]


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"service": "auth"}, [3, 1, 0]),
        ({"service": "über"}, [5, 4]),
        ({"service": 'a"b'}, [8]),
        ({"service": {"$contains": '"'}}, [8]),
        ({"service": {"$prefix": "aut"}, "duration": {"$gt": 1}}, [1, 0]),
        ({"service": {"$exists": True}}, [9, 8, 5, 4, 3, 2, 1, 0]),
        ({"/0": "auth"}, [6]),
        ({"/x/service": "auth"}, [7]),
        ({"duration": {"$gt": 10}}, [1, 0]),
        ({"duration": {"$gte": 0}}, [9, 2, 1, 0]),
        ({"duration": {"$gt": "1"}}, [3]),
    ],
)
def test_filters_see_values_however_they_are_spelled(opened, where, expected, declared):
    stream = opened.streams.create("spelled", JSON)
    if declared:
        stream.set_schema(search=naive.DECLARATION)
    for payload in SPELLED:
        stream.append_bytes(payload)
    assert [hit.record.offset for hit in stream.search("", where=where)] == expected
    assert stream.aggregate(where=where).rows == [{"count": len(expected)}]
    naive.check_groups(stream, "", where, (None, None), ["service"], "1s")


def test_query_words_are_those_that_may_occur():
    query = SearchExpression(
        'slow -fast (pla* OR m:"a b")', ("m",), parse_filter({"n": {"$text": "x -y"}})
    )
    assert [(path, part.tokens, part.prefix) for path, part in query.words()] == [
        (("m",), ("slow",), False),
        (("m",), ("pla",), True),
        (("m",), ("a", "b"), False),
        (("n",), ("x",), False),
    ]
