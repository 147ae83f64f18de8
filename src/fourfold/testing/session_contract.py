"""Contract of every session store, as a pytest class.

Subclass it and override the fixture `sessions` with a new, empty store; a persistent store also
overrides `again`, which closes and reopens it:

    class TestMySessions(SessionContract):
        @pytest.fixture
        def sessions(self):
            return Sessions(MyLog())
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fourfold import limits
from fourfold.content import PayloadRef, encode
from fourfold.errors import ContentError, InvalidInput, NotFound, PayloadMissing, Refused
from fourfold.models.sessions import Event, Gap, LineageEdge, Payload, Sessions, Transient
from fourfold.models.sessions.fold import fold, kept_messages
from fourfold.testing.session_log_contract import (
    FAR,
    SCRIPT,
    SessionLogContract,
    edge,
    message,
    turn,
)

WAIT_S = 20.0
LARGE = "x" * (limits.SESSION_PAYLOAD_ROW_BYTES_MAX + 1)


class Recorder:
    """A subscriber that records items, and can be waited for."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._change = threading.Condition()

    def __call__(self, item: Any) -> None:
        with self._change:
            self.items.append(item)
            self._change.notify_all()

    def wait(self, enough: Callable[[list[Any]], bool]) -> list[Any]:
        """Wait until enough items were received, and return them."""
        with self._change:
            assert self._change.wait_for(lambda: enough(self.items), WAIT_S), self.items[-3:]
            return list(self.items)

    def ids(self) -> list[int]:
        """Return the ids of the received events."""
        return [item.id for item in self.items if isinstance(item, Event)]


class SessionContract(SessionLogContract):
    """Requirements of every session store."""

    # Compaction

    def test_compaction_restarts_the_transcript_and_deletes_nothing(
        self, sessions: Sessions
    ) -> None:
        sessions.create_session({"id": "s"})
        sessions.append_events("s", [message("one"), message("two")])
        boundary = sessions.peek_next_id("s")
        frame = {"role": "system", "content": "summary"}
        sessions.append_event("s", {"type": "session/compacted", "vars_ref": 7, "message": frame})
        head = sessions.publish_head("s", {"kind": "compaction"})
        sessions.append_event("s", message("three"))
        for _ in range(2):
            view = sessions.current_view("s")
            assert (view.compact_from_event_id, view.vars_ref) == (boundary, 7)
            stored = list(view.kept_messages())
            assert [item["content"] for item in stored] == ["summary", "three"]
            assert stored == kept_messages(view.materialize())
            assert [item["id"] for item in view.messages] == [1, 2, 3, 4]
            sessions = self.again(sessions)
        assert (head.compact_from_event_id, head.vars_ref) == (boundary, 7)

    # Payloads

    def test_values_up_to_512_canonical_bytes_stay_inline(self, sessions: Sessions) -> None:
        most, more = "x" * 510, "x" * 511
        assert (len(encode(most)), len(encode(more))) == (512, 513)
        sessions.create_session({"id": "s"})
        for value, retained in ((most, True), (more, False)):
            assert (sessions.maybe_intern(value) == value) is retained
            stored = sessions.append_event("s", message(Payload(value)))
            content = sessions.events_since("s", stored.id - 1)[0].data["message"]["content"]
            assert (content == value) is retained
            assert sessions.read_payload(content) == value

    @pytest.mark.parametrize("value", [None, 0, "hello", 2**80, [1, (2.0,)], {"~a": b"x"}, LARGE])
    def test_equal_values_share_one_payload(self, sessions: Sessions, value: Any) -> None:
        ref = sessions.intern_payload(value, "vars")
        again = asyncio.run(sessions.intern_payload_async(value, "final"))
        assert (again.id, again.size, again.kind) == (ref.id, len(encode(value)), "final")
        assert encode(self.again(sessions).read_payload(ref)) == encode(value)

    def test_read_payload_returns_other_values_unchanged(self, sessions: Sessions) -> None:
        looks = PayloadRef(FAR, "vars", 1).as_dict()
        assert sessions.read_payload(looks) is looks
        assert sessions.read_payload(None) is None
        with pytest.raises(PayloadMissing) as caught:
            sessions.read_payload(PayloadRef(FAR, "vars", 1))
        assert caught.value.details == {"payload": FAR}

    def test_dangling_reference_is_refused(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        for event in (
            message(PayloadRef(FAR, "message", 600)),
            {"type": "a/b", "deep": [{"x": [PayloadRef(FAR, "message", 600)]}]},
        ):
            with pytest.raises(PayloadMissing):
                sessions.append_event("s", event)
        ref = sessions.intern_payload("x")
        with pytest.raises(InvalidInput):
            sessions.append_event("s", message(PayloadRef(ref.id, ref.kind, ref.size + 1)))
        assert sessions.append_event("s", message(ref)).id == 1
        assert self.dangling(sessions, "s") == []

    def test_gc_removes_only_unreachable_payloads(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        inner = sessions.intern_payload(["inner", LARGE], "vars")
        outer = sessions.intern_payload({"inner": inner}, "vars")
        used = sessions.intern_payload("used")
        orphans = [sessions.intern_payload(item) for item in ("orphan", "orphan " + LARGE)]
        sessions.append_events("s", [message(used), message(Payload("y" * 600))])
        sessions.publish_head("s", {"vars_ref": outer})
        assert self.gc(sessions).payloads == 0
        done = self.gc(sessions, 0)
        assert (done.payloads, done.bytes) == (2, sum(ref.size for ref in orphans))
        for ref in orphans:
            with pytest.raises(PayloadMissing):
                sessions.read_payload(ref)
        sessions = self.again(sessions)
        assert self.dangling(sessions) == []
        assert sessions.read_payload(inner) == ["inner", LARGE]
        assert sessions.read_payload(outer) == {"inner": inner}
        assert sessions.intern_payload("orphan") == orphans[0]
        assert self.verify(sessions) == []

    def test_gc_removes_payloads_of_deleted_sessions(self, sessions: Sessions) -> None:
        for name in ("s", "t"):
            sessions.create_session({"id": name})
            sessions.append_events(name, [message(Payload(name * 600)), message(Payload(LARGE))])
        sessions.delete_session("s")
        done = self.gc(sessions, 0)
        assert (done.sessions, done.events, done.payloads) == (1, 2, 1)
        assert sessions.read_payload(sessions.current_view("t").messages[1]["content"]) == LARGE
        assert self.verify(sessions) == []

    # Lineage

    def test_lineage_is_walked_in_both_directions(self, sessions: Sessions) -> None:
        heads: dict[str, list[str]] = {}
        for name in ("root", "child", "leaf"):
            sessions.create_session({"id": name})
            heads[name] = []
            for _ in range(2):
                sessions.append_event(name, turn())
                heads[name].append(sessions.publish_head(name).id)
        for origin, target, kind in (
            ("root", "child", "invocation"),
            ("child", "leaf", "derivation"),
        ):
            fields = {"type": kind, "from_head": heads[origin][0], "to_head": heads[target][0]}
            sessions.append_lineage_edge(origin, {**fields, "to_session": target})
        sessions = self.again(sessions)
        assert sessions.ancestors(heads["leaf"][1]) == [
            heads["leaf"][0],
            heads["child"][0],
            heads["root"][0],
        ]
        assert set(sessions.descendants(heads["root"][0])) == {
            heads["root"][1],
            *heads["child"],
            *heads["leaf"],
        }
        assert [item.type for item in sessions.lineage("child")] == ["invocation", "derivation"]
        graph = sessions.lineage_graph("leaf")
        assert {head.id for head in graph.heads} == {
            item for many in heads.values() for item in many
        }
        assert len(graph.edges) == 2

    def test_lineage_stops_at_a_deleted_session(self, sessions: Sessions) -> None:
        heads: dict[str, list[str]] = {}
        for name in ("root", "gone", "leaf"):
            sessions.create_session({"id": name})
            heads[name] = []
            for _ in range(2):
                sessions.append_event(name, turn())
                heads[name].append(sessions.publish_head(name).id)
        for origin, target in (("root", "gone"), ("gone", "leaf")):
            fields = {"type": "derivation", "from_head": heads[origin][0]}
            edge = {**fields, "to_head": heads[target][0], "to_session": target}
            sessions.append_lineage_edge(origin, edge)
        assert heads["leaf"][1] in sessions.descendants(heads["root"][0])
        sessions.delete_session("gone")
        for _ in ("deleted", "collected"):
            assert sessions.descendants(heads["root"][0]) == [heads["root"][1], heads["gone"][0]]
            assert sessions.ancestors(heads["leaf"][1]) == [heads["leaf"][0]]
            self.gc(sessions, 0)

    def test_edge_id_is_derived_from_its_content(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        event = sessions.append_lineage_edge("s", edge("s", "far", task="t", from_head=None))
        again = sessions.append_lineage_edge("s", edge("s", "far", task="t"))
        assert event == again
        [result] = sessions.current_view("s").edges
        assert isinstance(result, LineageEdge)
        assert result == fold(None, [event]).edges[0]
        assert (result.extra, result.to_session) == ({"task": "t"}, "far")
        bad: Any
        for bad in (
            {"type": "invocation"},
            edge("s", "t", to_head=None),
            edge("s", "t", from_head="x"),
            edge("s", "t", id=FAR),
            edge("s", " "),
            [],
        ):
            with pytest.raises(InvalidInput):
                sessions.append_lineage_edge("s", bad)
        with pytest.raises(NotFound):
            sessions.append_lineage_edge("s", edge("far", "s"))
        assert sessions.current_view("s").counters.event == 1

    # Feeds

    def test_events_since_is_exact(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        sessions.append_events("s", SCRIPT)
        everything = sessions.events_since("s", 0)
        for after in range(len(SCRIPT) + 3):
            assert sessions.events_since("s", after) == everything[after:]
            assert sessions.events_since("s", after, limit=2) == everything[after : after + 2]
        bad: Any
        for bad in (-1, "1", 1.0, True, None, 2**63):
            with pytest.raises(InvalidInput):
                sessions.events_since("s", bad)

    def test_all_sessions_share_one_order(self, sessions: Sessions) -> None:
        for name in ("s", "t"):
            sessions.create_session({"id": name})
        for number in range(6):
            sessions.append_events("st"[number % 2], [turn()] * (number + 1))
        sessions = self.again(sessions)
        events = self.all_events(sessions, 0)
        assert [event.position for event in events] == list(range(1, 22))
        assert self.position(sessions) == 21
        assert [event.id for event in events if event.session == "s"] == list(range(1, 10))
        assert self.all_events(sessions, 5, limit=3) == events[5:8]

    @pytest.mark.parametrize("whole", [True, False])
    def test_subscriber_receives_every_event_once_in_order(
        self, sessions: Sessions, whole: bool
    ) -> None:
        sessions.create_session({"id": "s"})
        sessions.append_events("s", [turn()] * 300)
        recorder = Recorder()
        stop = (
            sessions.subscribe_all(recorder, after=10)
            if whole
            else sessions.subscribe("s", recorder, after=10)
        )
        for _ in range(50):
            sessions.append_event("s", message())
        recorder.wait(lambda items: len(items) >= 340)
        assert recorder.ids() == list(range(11, 351))
        assert stop.cursor == 350
        stop()
        sessions.append_event("s", message())
        assert not stop.active
        assert recorder.ids()[-1] == 350

    def test_late_or_slow_subscriber_misses_nothing(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        gate = threading.Event()
        slow, quick = Recorder(), Recorder()

        def held(item: Any) -> None:
            gate.wait(WAIT_S)
            slow(item)

        with_slow = sessions.subscribe("s", held, after=0, bound=2)
        with_quick = sessions.subscribe("s", quick, after=0)
        sessions.append_events("s", [turn()] * 1000)
        quick.wait(lambda items: len(items) == 1000)
        assert slow.items == []
        gate.set()
        slow.wait(lambda items: len(items) == 1000)
        assert slow.ids() == quick.ids() == list(range(1, 1001))
        with_slow.close()
        with_quick.close()

    def test_transient_items_arrive_in_order_and_are_not_stored(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        recorder = Recorder()
        stop = sessions.subscribe("s", recorder)
        sessions.append_event("s", turn())
        sessions.notify_transient("s", {"type": "delta/token", "text": "a"})
        sessions.append_event("s", turn())
        items = recorder.wait(lambda items: len(items) == 3)
        assert [type(item) for item in items] == [Event, Transient, Event]
        assert items[1].item == {"type": "delta/token", "text": "a"}
        stop()
        assert sessions.current_view("s").counters.event == 2
        with pytest.raises(InvalidInput):
            sessions.append_event("s", {"type": "delta/token", "text": "a"})

    def test_dropped_transients_leave_a_gap_but_lose_no_event(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        feed = sessions.follow("s", bound=16)
        sessions.append_event("s", turn())
        for number in range(200):
            sessions.notify_transient("s", number)
        sessions.append_events("s", [turn()] * 4)
        items = []
        while (item := feed.next(0.0)) is not None:
            items.append(item)
        assert [item.id for item in items if isinstance(item, Event)] == [1, 2, 3, 4, 5]
        assert [item.item for item in items if isinstance(item, Transient)] == [*range(184, 200)]
        assert [item for item in items if isinstance(item, Gap)] == [Gap(1, 184)]
        assert [type(item) for item in items[:3]] == [Event, Gap, Transient]

    def test_subscriber_cannot_append_and_fails_alone(self, sessions: Sessions) -> None:
        for name in ("s", "t"):
            sessions.create_session({"id": name})
        recorder = Recorder()

        def echo(_item: Any) -> None:
            sessions.append_event("t", turn())
            sessions.append_event("s", turn())

        failing, other = sessions.subscribe("s", echo), sessions.subscribe("s", recorder)
        sessions.append_events("s", [turn()] * 3)
        recorder.wait(lambda items: len(items) == 3)
        failing._thread.join(WAIT_S)  # noqa: SLF001
        assert isinstance(failing.error, Refused)
        assert not failing.active
        assert sessions.current_view("t").counters.event == 1
        other.close()

    def test_coroutines_can_follow(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})

        async def follow() -> list[Any]:
            result = []
            async for item in sessions.follow("s", after=0):
                result.append(item)
                if len(result) == 30:
                    break
            return result

        async def both() -> list[Any]:
            following = asyncio.create_task(follow())
            for _ in range(10):
                await sessions.append_events_async("s", [turn()] * 3)
            return await asyncio.wait_for(following, WAIT_S)

        assert [item.id for item in asyncio.run(both())] == list(range(1, 31))

    def test_feed_cannot_begin_in_the_future(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        with pytest.raises(InvalidInput):
            sessions.follow("s", after=1)
        with pytest.raises(InvalidInput):
            sessions.follow_all(after=1)
        bad: Any
        for bad in ("1", float("nan"), True):
            with pytest.raises(InvalidInput):
                sessions.follow("s", timeout=bad)
            with pytest.raises(InvalidInput):
                sessions.follow("s").next(bad)
        assert sessions.follow("s").next(0.0) is None

    # Bad input

    @pytest.mark.parametrize(
        "event",
        [
            None,
            "turn/started",
            [],
            {},
            {"type": None},
            {"type": "turn"},
            {"type": "Turn/Started"},
            {"type": "turn/started"},
            {"type": "turn/started", "turn": None},
            {"type": "turn/put", "turn": {}},
            {"type": "turn/put", "turn": {"id": True}},
            {"type": "session/started", "session": {"id": "another"}},
            {"type": "head/published", "head": {}},
            {"type": "lineage/edge-added", "edge": {}},
            {"type": "a/b", "id": 1},
            {"type": "a/" + "b" * 200},
            {"type": "a/b", "value": float("nan")},
            {"type": "a/b", "value": "\ud800"},
            {"type": "a/b", "\ud800": 1},
            {"type": "a/b", "value": object()},
            {"type": "a/b", "value": {1: 2}},
            {"type": "a/b", 1: 2},
            {"type": "a/b", "value": Payload(object())},
            {"type": "a/b", "value": Payload("x", "No Kind")},
            {"type": "a/b", "deep": {"deeper": {"x": Payload("x" * 600)}}},
            {"type": "a/b", "value": "x" * limits.SESSION_EVENT_BYTES_MAX},
        ],
        ids=lambda event: repr(event)[:40].encode("ascii", "replace").decode(),
    )
    def test_bad_event_is_refused_without_a_trace(self, sessions: Sessions, event: Any) -> None:
        sessions.create_session({"id": "s"})
        before = sessions.append_event("s", turn())
        for call in (
            lambda: sessions.append_event("s", event),
            lambda: sessions.append_events("s", [turn(), event]),
            lambda: asyncio.run(sessions.append_event_async("s", event)),
        ):
            with pytest.raises(InvalidInput):
                call()
        assert sessions.events_since("s", 0) == [before]
        assert sessions.append_event("s", turn()).id == 2

    def test_recursive_value_is_refused(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        cycle: list[Any] = []
        cycle.append(cycle)
        for call in (
            lambda: sessions.append_event("s", message(cycle)),
            lambda: sessions.intern_payload(cycle),
            lambda: sessions.publish_head("s", {"x": cycle}),
            lambda: sessions.append_lineage_edge("s", edge("s", "t", x=cycle)),
            lambda: sessions.create_session({"id": "t", "x": cycle}),
        ):
            with pytest.raises(ContentError):
                call()
        assert [list_session.id for list_session in sessions.list_sessions()] == ["s"]

    def test_huge_numbers_are_stored_exactly(self, sessions: Sessions) -> None:
        sessions.create_session({"id": "s"})
        values = [2**53 + 1, -(2**200), 1.0, 1, True, 5e-324]
        sessions.append_event("s", message(values))
        stored = self.again(sessions).current_view("s").messages[0]["content"]
        assert [(type(item), item) for item in stored] == [(type(item), item) for item in values]

    @pytest.mark.parametrize(
        "sid", ["", " ", "a b", "x" * 201, "\ud800", "-", None, 1, b"s", "s\n"]
    )
    def test_bad_id_is_refused(self, sessions: Sessions, sid: Any) -> None:
        for call in (
            lambda: sessions.append_event(sid, turn()),
            lambda: sessions.current_view(sid),
            lambda: sessions.events_since(sid, 0),
        ):
            with pytest.raises(InvalidInput):
                call()
        if sid is not None:
            with pytest.raises(InvalidInput):
                sessions.create_session({"id": sid})
        assert sessions.list_sessions() == []

    @pytest.mark.parametrize("key", ["", -1, b"k", "k" * 201, "\ud800"])
    def test_bad_key_or_expectation_is_refused(self, sessions: Sessions, key: Any) -> None:
        sessions.create_session({"id": "s"})
        with pytest.raises(InvalidInput):
            sessions.append_event("s", turn(), key=key)
        with pytest.raises(InvalidInput):
            sessions.append_event("s", turn(), expected_last_id=key)
        with pytest.raises(InvalidInput):
            sessions.publish_head("s", expected_basis=key)
        assert sessions.current_view("s").counters.event == 0
