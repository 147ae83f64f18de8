"""First part of the contract of a session store: sessions, appends, views and heads.

`session_contract` has the whole contract, and describes its use.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from fourfold import limits
from fourfold.content import PayloadRef, content_id, encode
from fourfold.errors import (
    AlreadyExists,
    FourfoldError,
    HeadMoved,
    InvalidInput,
    NotFound,
    PayloadMissing,
    PreconditionFailed,
    ReplayMismatch,
)
from fourfold.models.sessions import Event, Payload, Sessions, SessionView, Transient
from fourfold.models.sessions.fold import fold
from fourfold.models.sessions.records import GcReport

FAR = "sha256:" + "a" * 64
_VIEW_PARTS = ("session", "vars_ref", "error", "state")
_VIEW_LISTS = ("messages", "turns", "steps", "evals", "heads", "edges", "events")


def turn(**fields: Any) -> dict[str, Any]:
    """Return an event that starts a turn."""
    return {"type": "turn/started", "turn": {"status": "running", **fields}}


def message(content: Any = "hello", **fields: Any) -> dict[str, Any]:
    """Return an event that appends a message."""
    return {"type": "message/appended", "message": {"role": "user", "content": content, **fields}}


SCRIPT: list[dict[str, Any]] = [
    {"type": "session/started", "session": {"model": "any"}},
    turn(),
    {"type": "step/started", "step": {"turn_id": 1}},
    message(),
    {"type": "eval/added", "eval": {"code": "1 + 1", "status": "ok"}},
    {"type": "step/put", "step": {"id": 1, "turn_id": 1, "status": "done"}},
    {"type": "session/vars-snapshotted", "vars_ref": {"vars": {"x": 1}}},
    {"type": "turn/put", "turn": {"id": 1, "status": "final"}},
    {"type": "later/invented", "anything": [1, 2.0, None]},
]


def edge(origin: str, target: str, **fields: Any) -> dict[str, Any]:
    """Return a lineage edge."""
    return {
        "type": "invocation",
        "from_session": origin,
        "to_session": target,
        "to_head": FAR,
        **fields,
    }


def mutate(value: Any) -> None:
    """Change every dict and list in a value, in records and in whole views, in place.

    A store must not notice: readers own what they receive.
    """
    if isinstance(value, SessionView):
        for name in (*_VIEW_PARTS, *_VIEW_LISTS):
            mutate(getattr(value, name))
        mutate(list(value.kept_messages()))
        mutate(value.materialize())
    elif isinstance(value, Event):
        mutate(value.data)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            mutate(getattr(value, name))
    else:
        _mutate_container(value)


def _mutate_container(value: Any) -> None:
    if isinstance(value, dict):
        mutate(list(value.values()))
        value["mutated by a reader"] = True
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for item in value:
            mutate(item)
        if isinstance(value, list):
            value.append("mutated by a reader")


class SessionLogContract:
    """Requirements of every session store for its log."""

    @pytest.fixture
    def sessions(self) -> Sessions:
        """Return sessions without any event; a subclass overrides this fixture."""
        raise NotImplementedError("override the fixture `sessions`")

    def again(self, sessions: Sessions) -> Sessions:
        """Return the same sessions, reopened; a store in memory has nothing to reopen."""
        return sessions

    # What a server does by itself: override these for sessions without the calls.

    def verify(self, sessions: Sessions) -> list[Any]:
        """Return the problems of the log."""
        return sessions.verify()

    def dangling(self, sessions: Sessions, sid: str | None = None) -> list[Any]:
        """Return references to missing payloads."""
        return sessions.verify_no_dangling_refs(sid)

    def gc(self, sessions: Sessions, grace_s: float | None = None) -> GcReport:
        """Collect garbage."""
        return sessions.gc() if grace_s is None else sessions.gc(grace_s)

    def all_events(
        self, sessions: Sessions, after: int = 0, limit: int | None = None
    ) -> Sequence[Event]:
        """Return the events of all sessions after a position."""
        return sessions.all_events_since(after, limit=limit)

    def position(self, sessions: Sessions) -> int:
        """Return the newest position."""
        return sessions.position()

    # Sessions

    def test_sessions_are_listed_by_id_prefix(self, sessions: Sessions) -> None:
        for sid in ("a/1", "b/1", "a/2", "ab", "a/3"):
            sessions.create_session({"id": sid})
        sessions.delete_session("a/2")
        result = [info.id for info in sessions.list_sessions(prefix="a/")]
        assert result == ["a/1", "a/3"]
        every = sessions.list_sessions(prefix="a/", deleted=True, after="a/1", limit=1)
        assert [info.id for info in every] == ["a/2"]
        assert [info.id for info in sessions.list_sessions(prefix="c")] == []
        with pytest.raises(InvalidInput):
            sessions.list_sessions(prefix="/")

    def test_events_of_key_returns_the_events_of_a_request(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        batch = [{"type": "a/b", "n": number} for number in range(3)]
        stored = sessions.append_events("s", batch, key="k")
        sessions.append_event("s", batch[0])
        assert sessions.events_of_key("s", "k") == stored
        assert sessions.events_of_key("s", "another") == []
        with pytest.raises(NotFound):
            sessions.events_of_key("t", "k")
        with pytest.raises(InvalidInput):
            sessions.events_of_key("s", "")

    def test_create_session_is_idempotent(self, sessions: Sessions) -> None:
        first = sessions.create_session({"id": "s"})
        sessions.append_event("s", turn())
        second = sessions.create_session({"id": "s", "model": "another"})
        assert (first, first.created_at) == (second, second.created_at)
        assert sessions.current_view("s").counters.event == 1

    def test_session_without_an_id_gets_a_new_one(self, sessions: Sessions) -> None:
        one, other = sessions.create_session(), sessions.create_session({})
        assert one.id != other.id
        assert one.view().session is None

    def test_session_fields_become_the_first_event(self, sessions: Sessions) -> None:
        made = sessions.create_session({"id": "s", "model": "m"})
        assert made.view().session == {"id": "s", "model": "m", "status": "running"}
        assert [event.type for event in made.events_since()] == ["session/started"]

    def test_sessions_are_listed_in_the_order_of_creation(self, sessions: Sessions) -> None:
        for name in ("b", "a", "c"):
            sessions.create_session({"id": name})
        sessions.append_event("a", turn())
        listed = sessions.list_sessions()
        assert [(item.id, item.events) for item in listed] == [("b", 0), ("a", 1), ("c", 0)]
        assert [item.id for item in sessions.list_sessions(after="b", limit=1)] == ["a"]

    def test_unknown_session_raises_not_found(self, sessions: Sessions) -> None:
        calls: list[Callable[[], Any]] = [
            lambda: sessions.open_session("s"),
            lambda: sessions.append_event("s", turn()),
            lambda: sessions.append_events("s", []),
            lambda: sessions.publish_head("s"),
            lambda: sessions.append_lineage_edge("s", edge("s", "t")),
            lambda: sessions.current_view("s"),
            lambda: sessions.read_state("s"),
            lambda: sessions.view_at("s", 1),
            lambda: sessions.events_since("s", 0),
            lambda: sessions.peek_next_id("s", "turn"),
            lambda: sessions.notify_transient("s", {}),
            lambda: sessions.subscribe("s", print),
            lambda: sessions.lineage("s"),
            lambda: sessions.delete_session("s"),
            lambda: self.dangling(sessions, "s"),
            lambda: sessions.head(FAR),
            lambda: sessions.ancestors(FAR),
        ]
        for call in calls:
            with pytest.raises(NotFound):
                call()
        assert sessions.list_sessions() == []

    def test_deleted_session_id_cannot_be_reused(self, sessions: Sessions) -> None:
        for name in ("t", "s"):
            sessions.create_session({"id": name, "model": "m"})
        sessions.delete_session("s")
        sessions = self.again(sessions)
        for call in (sessions.open_session, sessions.current_view, sessions.delete_session):
            with pytest.raises(NotFound, match="was deleted"):
                call("s")
        with pytest.raises(NotFound, match="was deleted"):
            sessions.append_event("s", turn())
        with pytest.raises(AlreadyExists):
            sessions.create_session({"id": "s"})
        assert [list_session.id for list_session in sessions.list_sessions()] == ["t"]
        assert [list_session.id for list_session in sessions.list_sessions(deleted=True)] == [
            "t",
            "s",
        ]
        assert [event.session for event in self.all_events(sessions, 0)] == ["t"]
        assert self.gc(sessions, 0).events == 1
        # The newest position was deleted with the session, and is not reused.
        sessions = self.again(sessions)
        assert self.position(sessions) == 2
        assert sessions.append_event("t", turn()).position == 3
        assert self.verify(sessions) == []

    # Appending

    def test_store_assigns_all_ids(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        options = [{**item} for item in SCRIPT]
        options[1]["turn"] = {"id": 77, "status": "running"}
        events = sessions.append_events("s", options)
        assert [event.id for event in events] == list(range(1, len(SCRIPT) + 1))
        assert [event.entity_id for event in events] == [None, 1, 1, 1, 1, 1, None, 1, None]
        assert events[1].data == {"turn": {"id": 1, "status": "running"}}
        assert all(event.at for event in events)
        counters = sessions.current_view("s").counters
        assert (counters.event, counters.turn, counters.step) == (len(SCRIPT), 1, 1)
        assert (counters.message, counters.eval) == (1, 1)

    def test_append_returns_what_the_log_holds(self, sessions: Sessions) -> None:
        """Append batches of one and of several types, with all kinds of content."""
        sessions.create_session({"id": "s"})
        held: list[Any] = ["a", {"b": [1, None, {"c": True}]}, "~", {"~d": 1}, 1.5, "\n\u2028é😀"]
        alike = [{"type": "message/appended", "message": {"role": "user", "x": x}} for x in held]
        for batch in (alike, alike[:2], alike[:1], [*alike, turn()], [turn(), turn()], SCRIPT):
            for key in (None, 'k"%s~'):
                last = sessions.peek_next_id("s") - 1
                named = None if key is None else f"{key}{last}"
                stored = sessions.append_events("s", batch, key=named)
                result = sessions.events_since("s", last)
                assert (stored, result) == (result, stored)
                assert (len(stored), stored[-1], stored[1:]) == (
                    len(result),
                    result[-1],
                    result[1:],
                )
                assert [item.position for item in stored] == [item.position for item in result]
                assert [item.as_dict() for item in stored] == [item.as_dict() for item in result]
                assert len({item.digest for item in result}) == len(batch)
        single = sessions.append_event("s", alike[0])
        assert [single] == sessions.events_since("s", single.id - 1)
        assert sessions.current_view("s") == fold(None, sessions.events_since("s", 0))
        assert self.verify(sessions) == []

    def test_view_is_the_fold_of_the_events(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        sessions.append_events("s", SCRIPT)
        sessions.publish_head("s", {"turn_id": 1})
        sessions.append_lineage_edge("s", edge("s", "elsewhere"))
        for event in ({"type": "session/stop-requested"}, {"type": "session/stopped"}):
            sessions.append_event("s", event)
        sessions.append_event("s", {"type": "session/error", "error": {"type": "x"}})
        expected = fold(None, sessions.events_since("s", 0))
        for view in (sessions.current_view("s"), sessions.read_state("s")):
            assert view == expected
            assert view.materialize() == expected
        assert expected.session == {"id": "s", "model": "any", "status": "error"}
        assert expected.turns == [{"id": 1, "status": "final"}]
        assert self.again(sessions).current_view("s") == expected

    def test_view_does_not_change_after_later_events(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        sessions.append_events("s", SCRIPT)
        view, expected = sessions.current_view("s"), fold(None, sessions.events_since("s", 0))
        sessions.append_events(
            "s", [{"type": "turn/put", "turn": {"id": 1, "status": "x"}}, turn()]
        )
        sessions.publish_head("s")
        assert view == expected
        assert sessions.current_view("s") != expected

    def test_every_past_view_can_be_read(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        sessions.append_events("s", SCRIPT)
        head = sessions.publish_head("s", to_event_id=5)
        events = sessions.append_events("s", SCRIPT * (limits.SESSION_SNAPSHOT_EVENTS_MAX // 8))
        everything = sessions.events_since("s", 0)
        for at in (0, 1, 5, 9, 10, 200, events[-1].id):
            assert sessions.view_at("s", at) == fold(None, everything[:at])
        assert sessions.view_at("s", head.id).counters.event == 5
        with pytest.raises(NotFound):
            sessions.view_at("s", events[-1].id + 1)

    def test_lists_of_a_view_behave_like_lists(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        sessions.append_events("s", [message(number) for number in range(7)])
        result = sessions.current_view("s").messages
        plain = list(result)
        assert len(result) == len(plain) == 7
        assert (result[0], result[-1], result[2:5], result[::-2]) == (
            plain[0],
            plain[-1],
            plain[2:5],
            plain[::-2],
        )
        with pytest.raises(IndexError):
            result[7]
        with pytest.raises(IndexError):
            result[-8]

    def test_batch_is_appended_completely_or_not_at_all(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        sessions.append_event("s", turn())
        bad: list[Any] = [
            {"type": "turn/put", "turn": {"id": 2}},
            {"type": "message/appended", "message": {"content": object()}},
            message(PayloadRef(FAR, "message", 600)),
            {"type": "session/compacted", "vars_ref": 1, "message": {}, "compact_from_event_id": 9},
        ]
        for item in bad:
            with pytest.raises(FourfoldError):
                sessions.append_events("s", [message(), item, message()])
            assert sessions.current_view("s").counters.event == 1
            assert sessions.peek_next_id("s", "message") == 1
        assert [event.id for event in sessions.append_events("s", [message(), turn()])] == [2, 3]
        assert sessions.append_events("s", []) == []

    def test_put_may_refer_to_an_entity_of_its_batch(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        put = {"type": "turn/put", "turn": {"id": 1, "status": "final"}}
        assert [event.entity_id for event in sessions.append_events("s", [turn(), put])] == [1, 1]

    def test_peek_next_id_returns_the_next_id(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        sessions.append_events("s", SCRIPT)
        for counter, event in (("turn", turn()), ("message", message())):
            expected = sessions.peek_next_id("s", counter)
            next_event = sessions.peek_next_id("s")
            appended = sessions.append_event("s", event)
            assert (appended.id, appended.entity_id) == (next_event, expected)
        with pytest.raises(InvalidInput):
            sessions.peek_next_id("s", "head")

    def test_append_can_expect_the_last_event(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        sessions.append_event("s", turn(), expected_last_id=0)
        with pytest.raises(PreconditionFailed) as caught:
            sessions.append_event("s", turn(), expected_last_id=0)
        assert caught.value.details == {"session": "s", "expected": 0, "last": 1}
        assert sessions.append_event("s", turn(), expected_last_id=1).id == 2

    def test_request_with_a_key_is_appended_once(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        sessions.create_session({"id": "t"})
        put = {"type": "turn/put", "turn": {"id": 1}}
        first = sessions.append_events("s", [turn(), put], key="k", expected_last_id=0)
        sessions = self.again(sessions)
        assert sessions.append_events("s", [turn(), put], key="k", expected_last_id=0) == first
        for other in ([turn()], [turn(), turn()], [turn(), put, put], []):
            with pytest.raises(ReplayMismatch):
                sessions.append_events("s", other, key="k")
        assert sessions.append_event("t", turn(), key="k").id == 1
        assert sessions.current_view("s").counters.event == 2

    def test_store_shares_no_object_with_the_caller(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        held = {"list": [1]}
        options = message(held)
        event = sessions.append_event("s", options)
        assert options == message(held)
        inner: dict[str, Any] = {"type": "a/b", "inner": {"value": Payload("x" * 600)}}
        before = {**inner, "inner": {**inner["inner"]}}
        sessions.append_event("s", inner)
        assert inner == before
        held["list"].append(2)
        event.data["message"]["content"]["list"].append(3)
        assert sessions.current_view("s").messages[0]["content"] == {"list": [1]}
        assert sessions.events_since("s", 0)[0].data["message"]["content"] == {"list": [1]}

    def test_readers_own_what_they_receive(self, sessions: Sessions) -> None:
        first = {"id": "s", "model": {"name": "any"}, "tags": ["a"]}
        sessions.create_session(first)
        mutate(sessions.append_events("s", SCRIPT[1:]))
        mutate(sessions.append_event("s", {"type": "session/error", "error": {"why": ["x"]}}))
        mutate(sessions.append_event("s", {"type": "session/vars-snapshotted", "vars_ref": [[1]]}))
        mutate(sessions.append_event("s", message(Payload({"long": ["x" * 600]})), key="k"))
        retained = fold(None, sessions.events_since("s"))
        ref = retained.messages[-1]["content"]
        head = sessions.publish_head("s", {"note": {"a": [1]}, "final_ref": {"b": [2]}})
        stored = encode(head.content())
        for _ in range(2):
            for handed in (
                head,
                sessions.head(head.id),
                sessions.current_view("s"),
                sessions.read_state("s"),
                sessions.view_at("s", retained.counters.event),
                sessions.view_at("s", head.id),
                sessions.events_since("s"),
                sessions.events_of_key("s", "k"),
                sessions.append_event("s", message(Payload({"long": ["x" * 600]})), key="k"),
                self.all_events(sessions),
                sessions.lineage_graph("s"),
                sessions.read_payload(ref),
                list(sessions.follow("s", after=0, timeout=0)),
            ):
                mutate(handed)
            assert sessions.view_at("s", retained.counters.event) == retained
            assert (sessions.current_view("s").session or {})["model"] == {"name": "any"}
            assert encode(sessions.head(head.id).content()) == stored
            assert sessions.read_payload(ref) == {"long": ["x" * 600]}
            assert self.verify(sessions) == []
            sessions.append_events("s", [turn()] * limits.SESSION_SNAPSHOT_EVENTS_MAX)
            assert sessions.publish_head("s").vars_ref == [[1]]
            assert sessions.current_view("s") == fold(None, sessions.events_since("s"))
            sessions = self.again(sessions)

    def test_listeners_own_the_transient_items_they_receive(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        feeds = [sessions.follow("s"), sessions.follow_all(), sessions.follow("s")]
        item = {"type": "delta/token", "parts": ["a"]}
        sessions.notify_transient("s", item)
        for feed in feeds:
            received = feed.next(0)
            assert isinstance(received, Transient)
            assert received.item == {"type": "delta/token", "parts": ["a"]}
            mutate(received)
        assert item == {"type": "delta/token", "parts": ["a"]}

    def test_threads_and_coroutines_get_dense_ids(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})

        async def many() -> None:
            await asyncio.gather(*(sessions.append_event_async("s", turn()) for _ in range(40)))

        threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(2)]
        threads += [
            threading.Thread(
                target=lambda: [sessions.append_events("s", [turn()] * 4) for _ in range(10)]
            )
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        events = sessions.events_since("s", 0)
        assert [event.id for event in events] == list(range(1, 161))
        assert [event.entity_id for event in events] == list(range(1, 161))
        assert sessions.current_view("s").counters.turn == 160
        assert self.verify(sessions) == []

    # Heads

    def test_heads_are_content_addressed_and_tile_the_log(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        heads = []
        for number in range(4):
            sessions.append_events("s", [turn(), message()])
            last = sessions.peek_next_id("s") - 1
            to = None if number != 2 else last - 1
            heads.append(sessions.publish_head("s", {"turn_id": number + 1}, to_event_id=to))
        assert [head.event_range for head in heads] == [(1, 2), (3, 5), (6, 7), (8, 11)]
        assert [head.basis for head in heads] == [None, *(head.id for head in heads[:-1])]
        for head in heads:
            assert head.id == content_id(encode(head.content()))
            covered = sessions.events_since("s", 0)[head.event_range[1] - 1]
            assert head.events_digest == f"sha256:{covered.digest.hex()}"
            assert sessions.head(head.id) == head
        view = self.again(sessions).current_view("s")
        assert view.current_head == heads[-1].id
        assert list(view.heads) == heads

    def test_head_carries_the_state_at_its_boundary(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        first = sessions.append_event("s", {"type": "session/vars-snapshotted", "vars_ref": 40})
        sessions.append_event("s", {"type": "session/vars-snapshotted", "vars_ref": 600})
        head = sessions.publish_head("s", {"note": "kept"}, to_event_id=first.id)
        assert (head.vars_ref, head.kind, head.extra) == (40, "turn-final", {"note": "kept"})
        assert sessions.publish_head("s", {"vars_ref": None}).vars_ref is None

    def test_head_moves_only_from_its_expected_basis(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        sessions.append_event("s", turn())
        with pytest.raises(HeadMoved):
            sessions.publish_head("s", expected_basis=FAR)
        first = sessions.publish_head("s", expected_basis=None)
        with pytest.raises(HeadMoved) as caught:
            sessions.publish_head("s", expected_basis=None)
        assert caught.value.details == {"session": "s", "expected": None, "current": first.id}
        assert sessions.current_view("s").current_head == first.id
        second = sessions.publish_head("s", expected_basis=first.id)
        assert sessions.publish_head("s").basis == second.id

    def test_exactly_one_of_racing_heads_wins(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        sessions.append_event("s", turn())
        outcomes: list[object] = []

        async def publish(number: int) -> None:
            try:
                head = {"note": number}
                outcomes.append(await sessions.publish_head_async("s", head, expected_basis=None))
            except HeadMoved as error:
                outcomes.append(error.details["current"])

        async def race() -> None:
            await asyncio.gather(*(publish(number) for number in range(8)))

        asyncio.run(race())
        [won] = [outcome for outcome in outcomes if not isinstance(outcome, str)]
        assert outcomes.count(getattr(won, "id", "")) == 7
        assert len(sessions.current_view("s").heads) == 1

    def test_head_and_its_events_are_one_transaction(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        events = [turn(), {"type": "turn/put", "turn": {"id": 1, "answer": Payload("x" * 600)}}]
        bad_options: list[dict[str, Any]] = [
            {"expected_basis": FAR},
            {"to_event_id": 2},
            {"head": {"turn_id": 2}},
            {"head": {"final_ref": PayloadRef(FAR, "final", 600)}},
            {"events": [*events, {"type": "turn/put", "turn": {"id": 9}}]},
        ]
        for bad in bad_options:
            with pytest.raises((HeadMoved, InvalidInput, NotFound)):
                sessions.publish_head("s", **{"events": events, **bad})
            assert sessions.events_since("s") == []
        expected = {"turn_id": 1, "final_ref": Payload("x" * 600, "final")}
        head = sessions.publish_head("s", expected, expected_basis=None, events=events, key="k")
        assert (head.event_range, sessions.current_view("s").current_head) == ((1, 2), head.id)
        assert sessions.read_payload(head.final_ref) == "x" * 600
        assert sessions.publish_head("s", expected, events=events, key="k") == head
        again = asyncio.run(sessions.publish_head_async("s", events=[message()]))
        assert (again.basis, again.event_range) == (head.id, (3, 4))
        sessions = self.again(sessions)
        types = [event.type for event in sessions.events_since("s")]
        assert types == [
            "turn/started",
            "turn/put",
            "head/published",
            "message/appended",
            "head/published",
        ]
        assert self.verify(sessions) == []

    def test_head_must_cover_existing_events(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        with pytest.raises(InvalidInput):
            sessions.publish_head("s")
        sessions.append_events("s", [turn(), turn()])
        sessions.publish_head("s", to_event_id=1)
        bad: Any
        for bad in (0, 1, 4, "2", True, 2.0):
            with pytest.raises(InvalidInput):
                sessions.publish_head("s", to_event_id=bad)
        for options in (
            {"id": FAR},
            {"basis": None},
            {"kind": "No"},
            {"turn_id": "1"},
            {"x": {1j}},
        ):
            with pytest.raises(InvalidInput):
                sessions.publish_head("s", options)
        with pytest.raises(NotFound):
            sessions.publish_head("s", {"turn_id": 3})
        with pytest.raises(PayloadMissing):
            sessions.publish_head("s", {"final_ref": PayloadRef(FAR, "final", 600)})
        assert len(sessions.current_view("s").heads) == 1

    def test_head_with_a_key_is_published_once(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        sessions.append_event("s", turn())
        head = sessions.publish_head("s", {"turn_id": 1}, expected_basis=None, key="k")
        assert sessions.publish_head("s", {"turn_id": 1}, expected_basis=None, key="k") == head
        with pytest.raises(ReplayMismatch):
            sessions.publish_head("s", {"note": 1}, key="k")
