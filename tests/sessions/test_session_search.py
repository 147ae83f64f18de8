"""Search: hits are the events whose text matches, at every point, indexed or not."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fourfold
from fourfold.content.text import parse_text_query
from fourfold.errors import Busy, InvalidInput, NotFound
from fourfold.kernel.pauses import PacedBlock
from fourfold.models.sessions import Payload, Sessions, search, text_index
from fourfold.testing.session_log_contract import message

START = datetime(2026, 3, 1, tzinfo=UTC)


def places(hits):
    return [(hit.session, hit.event) for hit in hits]


def write_conversation(sessions):
    sessions.create({"id": "support/1"})
    sessions.create({"id": "support/2"})
    sessions.create({"id": "other"})
    call = {"type": "tool_call", "name": "lookup", "args": {"order": "4711"}}
    sessions.append_events(
        "support/1", [message("Crème brûlée, order 4711!"), message(call, role="assistant")]
    )
    result = Payload("refund granted " + "x" * 600, "eval-result")
    sessions.append_events(
        "support/2",
        [
            {"type": "turn/started", "turn": {"status": "running"}},
            {"type": "eval/added", "eval": {"name": "pay", "status": "ok", "result_ref": result}},
            {"type": "turn/put", "turn": {"id": 1, "status": "final", "final_ref": "paid"}},
            {"type": "session/compacted", "vars_ref": None, "message": {"content": "summary"}},
            {"type": "session/error", "error": {"message": "card declined"}},
        ],
    )
    sessions.append_event("other", message("nothing about an order"))


def test_search_finds_words_phrases_and_prefixes_of_every_kind(sessions):
    write_conversation(sessions)
    found = {
        query: sorted(places(sessions.search(query)))
        for query in (
            *("brulee", "order", '"order 4711"', "order -nothing", "look*", "refund grant*"),
            *("pay", "paid", "summary", "declined", "absent", "BRÛLÉE"),
        )
    }
    assert found == {
        "brulee": [("support/1", 1)],
        "BRÛLÉE": [("support/1", 1)],
        "order": [("other", 1), ("support/1", 1), ("support/1", 2)],
        '"order 4711"': [("support/1", 1), ("support/1", 2)],
        "order -nothing": [("support/1", 1), ("support/1", 2)],
        "look*": [("support/1", 2)],
        "refund grant*": [("support/2", 2)],
        "pay": [("support/2", 2)],
        "paid": [("support/2", 3)],
        "summary": [("support/2", 4)],
        "declined": [("support/2", 5)],
        "absent": [],
    }
    assert places(sessions.search("order", kinds=["call"])) == []
    assert [hit.kind for hit in sessions.search("p*", prefix="support/2", order="newest")] == [
        "turn",
        "call",
    ]
    assert sorted(places(sessions.search("order", prefix="support/"))) == [
        ("support/1", 1),
        ("support/1", 2),
    ]
    assert places(sessions.search("order", sid="other")) == [("other", 1)]
    [hit] = sessions.open("support/1").search("brulee")
    assert [hit.text[start:end] for start, end in hit.highlights] == ["brûlée"]
    assert (hit.kind, hit.title) == ("message", "user")


def test_search_shows_what_had_been_appended_at_a_point(tmp_path):
    times = itertools.count()
    with fourfold.open(tmp_path / "store") as store:
        sessions = Sessions(
            store.sessions.log,
            files=store.sessions.files,
            clock=lambda: START + timedelta(seconds=next(times)),
        )
        for number in range(4):
            sessions.create({"id": f"s{number % 2}"})
            sessions.append_event(f"s{number % 2}", message(f"word number{number}"))
        at = datetime.fromisoformat(sessions.events("s0")[1].at)
        assert sorted(places(sessions.search("word", at=at))) == [("s0", 1), ("s0", 2), ("s1", 1)]
        assert places(sessions.search("word", at=START - timedelta(days=1))) == []
        assert places(sessions.search("word", sid="s0", at=1)) == [("s0", 1)]
        assert places(sessions.search("word", sid="s0", at=at)) != []
        head = sessions.publish_head("s0", {"kind": "turn-final"}, to_event_id=1)
        assert places(sessions.search("word", sid="s0", at=head.id)) == [("s0", 1)]
        with pytest.raises(NotFound, match="no event 9"):
            sessions.search("word", sid="s0", at=9)
        with pytest.raises(InvalidInput, match="at must be a time"):
            sessions.search("word", at=1)


WORDS = st.sampled_from(["ant", "bee", "Cat", "catfish", "é"])
TEXTS = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
QUERIES = st.sampled_from(["ant", "cat", "cat*", '"ant bee"', "bee -ant", "e cat*"])


@given(
    texts=st.lists(st.tuples(st.sampled_from("ab"), TEXTS), max_size=12),
    indexed=st.integers(0, 12),
    query=QUERIES,
    limit=st.integers(1, 3),
    order=st.sampled_from(["score", "newest"]),
)
def test_pages_have_each_match_once(tmp_path_factory, texts, indexed, query, limit, order):
    root = tmp_path_factory.mktemp("search") / "store"
    with fourfold.open(root) as store:
        sessions = store.sessions
        expected = []
        for number, (name, text) in enumerate(texts):
            if number == indexed:
                sessions.index_texts()
            sessions.create({"id": name})
            [event] = [sessions.append_event(name, message(text))]
            if parse_text_query(query).matches(text):
                expected.append((name, event.id))
    # A reader cannot index the rest, and reads it.
    with fourfold.open(root, mode="r") as store:
        if not texts:
            return
        assert sorted(pages(store.sessions, query, limit, order)) == sorted(expected)
        if order == "newest":
            assert pages(store.sessions, query, limit, order) == expected[::-1]
    with fourfold.open(root) as store:
        assert sorted(pages(store.sessions, query, limit, order)) == sorted(expected)
        assert store.sessions.verify() == []


def pages(sessions, query, limit, order):
    hits, after = [], None
    while True:
        page = sessions.search(query, limit=limit, after=after, order=order)
        assert len(page) <= limit
        hits += places(page)
        if page.next is None:
            return hits
        after = page.next


def test_later_pages_do_not_change_when_events_are_appended(sessions):
    sessions.create({"id": "s"})
    sessions.append_events("s", [message(f"word {number}") for number in range(6)])
    first = sessions.search("word", limit=3, order="newest")
    sessions.append_events("s", [message("word later")] * 3)
    rest = sessions.search("word", limit=10, order="newest", after=first.next)
    assert places(first) + places(rest) == [("s", number) for number in range(6, 0, -1)]
    with pytest.raises(InvalidInput, match="after: must be `next` of a page of this search"):
        sessions.search("other", after=first.next)


def test_better_matches_come_first(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        sessions = store.sessions
        sessions.create({"id": "s"})
        texts = ["one zebra among many other words of a long text", "zebra zebra", *["none"] * 8]
        sessions.append_events("s", list(map(message, texts)))
        hits = sessions.search("zebra").items
        assert places(hits) == [("s", 2), ("s", 1)]
        assert hits[0].score > hits[1].score > 0
        # The scores of a search of one session are those of all sessions.
        assert [hit.score for hit in sessions.search("zebra", sid="s")] == pytest.approx(
            [hit.score for hit in hits], rel=0.2
        )


def test_append_does_not_touch_the_index(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        sessions = store.sessions
        sessions.create({"id": "s"})
        sessions.append_event("s", message("word"))
        with sessions.log.read() as reading:
            assert (reading.text_until(), reading.position()) == (0, 1)
        assert sessions.index_texts(1) == text_index.IndexProgress(1, 0)
        with sessions.log.read() as reading:
            assert reading.text_until() == 1


def test_deleted_sessions_have_no_hits_and_leave_no_words(sessions):
    write_conversation(sessions)
    assert len(sessions.search("order")) == 3
    sessions.delete_session("support/1")
    assert places(sessions.search("order")) == [("other", 1)]
    assert sessions.gc(0).events == 2
    assert places(sessions.search("order")) == [("other", 1)]
    assert sessions.verify() == []


def test_purge_deletes_the_words(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        write_conversation(store.sessions)
        store.sessions.search("order")
        store.sessions.delete_session("support/1")
        store.sessions.gc(0)
        rows = store.sessions.log.database.read
        with rows() as snapshot:
            ids = [row[0] for row in snapshot.all("SELECT id FROM event_text_docsize", ())]
            first = store.sessions.events("support/2", limit=1)[0].position
        assert ids
        assert min(ids) >= first


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("DELETE FROM event_text WHERE rowid = 1", "has no row in the index of words"),
        (
            (
                "DELETE FROM event_text WHERE rowid = 1;"
                "INSERT INTO event_text (rowid, session, text) VALUES (1, 's1', 'other')"
            ),
            "its words differ from those of the index",
        ),
        (
            (
                "DELETE FROM event_text WHERE rowid = 1;"
                "INSERT INTO event_text (rowid, session, text) VALUES (1, 's2', 'word')"
            ),
            "its words differ from those of the index",
        ),
        (
            "INSERT INTO event_text (rowid, session, text) VALUES (2, 's1', 'x')",
            "has no text, but a row",
        ),
        (
            "INSERT INTO event_text (rowid, session, text) VALUES (99, 's1', 'x')",
            "has a row for position 99, beyond its end",
        ),
        ("UPDATE event_text_state SET until = 50", "is complete until position 50"),
    ],
)
def test_verify_reports_damage_of_the_index(tmp_path, damage, problem):
    with fourfold.open(tmp_path / "store") as store:
        sessions = store.sessions
        sessions.create({"id": "s"})
        sessions.append_events("s", [message("word"), {"type": "app/note", "n": 1}])
        sessions.index_texts()
        assert sessions.verify() == []
        with sessions.log.database.write() as txn:
            for statement in damage.split(";"):
                txn.execute(statement)
        assert any(problem in str(found) for found in sessions.verify())


def test_reader_refuses_a_long_scan(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "SESSION_SCAN_EVENTS_MAX", 2)
    with fourfold.open(tmp_path / "store") as store:
        store.sessions.create({"id": "s"})
        store.sessions.append_events("s", [message("word")] * 3)
    with (
        fourfold.open(tmp_path / "store", mode="r") as store,
        pytest.raises(Busy, match="3 events are not in the index of words yet"),
    ):
        store.sessions.search("word")
    with fourfold.open(tmp_path / "store") as store:
        assert len(store.sessions.search("word")) == 3


def test_text_beyond_the_limit_is_not_searched(sessions):
    sessions.create({"id": "s"})
    text = "early " + "x " * (text_index.SESSION_TEXT_CHARS_MAX // 2) + "late"
    sessions.append_event("s", message(Payload(text)))
    assert len(sessions.search("early")) == 1
    assert len(sessions.search("late")) == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"query": "-only"}, "has no word that must occur"),
        ({"query": "x", "sid": "a", "prefix": "b"}, "not both"),
        ({"query": "x", "kinds": ["note"]}, "kinds must be some of"),
        ({"query": "x", "kinds": []}, "kinds must be some of"),
        ({"query": "x", "limit": 0}, "limit"),
        ({"query": "x", "limit": 1_001}, "limit must be from 1 to 1000"),
        ({"query": "x", "after": "?"}, "after: must be"),
    ],
)
def test_invalid_searches_are_refused(sessions, arguments, problem):
    with pytest.raises(InvalidInput, match=problem):
        sessions.search(**arguments)


def test_indexing_pauses_between_events(tmp_path, monkeypatch):
    steps = []
    monkeypatch.setattr(PacedBlock, "end_step", lambda _: steps.append(True))
    with fourfold.open(tmp_path) as store:
        sessions = store.sessions
        sessions.create({"id": "s"})
        sessions.append_events("s", [message(f"word {number}") for number in range(50)])
        assert sessions.index_texts().left == 0
    assert len(steps) > 50
