"""Random lives of a session store, compared with a dumb model of it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from session_scripts import EVENT, EVENTS, IDS, SID

import fourfold
from fourfold.errors import (
    AlreadyExists,
    FourfoldError,
    HeadMoved,
    InvalidInput,
    NotFound,
    PreconditionFailed,
    ReplayMismatch,
)
from fourfold.kernel import failpoints
from fourfold.models.sessions import Event, Payload, Sessions
from fourfold.models.sessions.fold import fold
from fourfold.testing.session_log_contract import mutate
from support.session_model import Refusal, SessionModel

POINTS = (
    "kernel.begin.before",
    "kernel.begin.after",
    "kernel.statement.before",
    "kernel.statement.after",
    "kernel.commit.before",
)
SIZES = (100, 600, 70_000)


def as_stored(sid, events):
    """What the store makes of the session entity before it numbers anything."""
    out = []
    for event in events:
        new = dict(event)
        if new["type"] == "session/started":
            new["session"] = {"status": "running", **new["session"], "id": sid}
        out.append(new)
    return out


class MemoryMachine(RuleBasedStateMachine):
    """One life of the store in memory."""

    def __init__(self):
        super().__init__()
        self.model = SessionModel()
        self.heads = {}
        self.sent = {}
        self.feeds = {}
        self.made = 0
        self.deleted = 0
        self.requests = 0
        self.open()

    def open(self):
        self.sessions = Sessions()

    def close(self):
        self.sessions.close()

    @initialize()
    def begin(self):
        for sid in IDS:
            self.sessions.create_session({"id": sid})
            self.model.create(sid)
            self.feeds[sid] = (self.sessions.follow(sid, after=0), [])

    # Writing

    @rule(sid=SID, events=EVENTS, last=st.sampled_from(["any", "right", "wrong"]))
    def append(self, sid, events, last):
        known = len(self.model.logs[sid])
        expected = {"any": None, "right": known, "wrong": known + 1}[last]
        arguments = {} if expected is None else {"expected_last_id": expected}
        done = self.both(
            lambda: self.model.append(sid, as_stored(sid, events), last=expected),
            lambda: self.sessions.append_events(sid, events, **arguments),
        )
        mutate(done)

    @rule(events=EVENTS, more=EVENTS)
    def append_together(self, events, more):
        """Several coroutines at once: each is appended whole, in the order in which they asked."""

        async def all_at_once():
            calls = [
                self.sessions.append_events_async(sid, batch)
                for sid, batch in (("s", events), ("t", more), ("s", more))
            ]
            return await asyncio.gather(*calls, return_exceptions=True)

        outcomes = asyncio.run(all_at_once())
        for (sid, batch), outcome in zip(
            (("s", events), ("t", more), ("s", more)), outcomes, strict=True
        ):
            try:
                expected = self.model.append(sid, as_stored(sid, batch))
            except Refusal:
                assert isinstance(outcome, (NotFound, InvalidInput)), outcome
            else:
                assert [event.as_dict() | {"at": ""} for event in outcome] == [
                    each | {"at": ""} for each in expected
                ]

    @rule(sid=SID, key=st.sampled_from(["a", "b"]), events=EVENTS)
    def append_with_a_key(self, sid, key, events):
        known = self.sent.get((sid, key))
        if known is None:
            done = self.both(
                lambda: self.model.append(sid, as_stored(sid, events)),
                lambda: self.sessions.append_events(sid, events, key=key),
            )
            if done is not None:
                self.sent[sid, key] = (events, done)
            return
        assert self.sessions.append_events(sid, known[0], key=key) == known[1]
        try:
            self.sessions.append_events(sid, [*known[0], {"type": "one/more"}], key=key)
        except ReplayMismatch:
            return
        raise AssertionError("another request came through under a used key")

    @rule(sid=SID, size=st.sampled_from(SIZES), letter=st.sampled_from("xy"))
    def append_a_payload(self, sid, size, letter):
        value = letter * size
        self.model.append(sid, [{"type": "message/appended", "message": {"content": value}}])
        event = {"type": "message/appended", "message": {"content": Payload(value)}}
        self.sessions.append_event(sid, event)

    @rule(
        sid=SID,
        expected=st.sampled_from(["any", "right", "stale"]),
        back=st.integers(0, 3),
        note=st.integers(0, 2),
    )
    def publish(self, sid, expected, back, note):
        heads = self.heads.setdefault(sid, [])
        basis = {"any": "any", "right": heads[-1] if heads else None, "stale": "sha256:" + "0" * 64}
        wanted = basis[expected]
        name = f"{sid}#{len(heads) - 1}" if heads and wanted == heads[-1] else wanted
        to = None if back == 0 else len(self.model.logs[sid]) - back
        arguments = {} if wanted == "any" else {"expected_basis": wanted}
        head = self.both(
            lambda: self.model.publish(sid, to, name, {"note": note}),
            lambda: self.sessions.publish_head(sid, {"note": note}, to_event_id=to, **arguments),
        )
        if head is not None:
            heads.append(head.id)
            mutate(head)

    @rule(sid=SID, other=SID, note=st.integers(0, 1))
    def join(self, sid, other, note):
        for heads in (self.heads.get(other) or ["sha256:" + "0" * 64],):
            edge = {"type": "invocation", "to_session": other, "to_head": heads[-1], "note": note}
        known = [each["edge"] for each in self.model.logs[sid] if "edge" in each]
        try:
            self.sessions.append_lineage_edge(sid, edge)
        except NotFound:
            assert not self.heads.get(other)
            return
        if edge not in known:
            self.model.append(sid, [{"type": "lineage/edge-added", "edge": edge}])

    @rule(sid=SID, one=EVENT, other=EVENT, keyed=st.booleans())
    def write_the_same_again_after_another(self, sid, one, other, keyed):
        """A, B, A: the third is an event of its own, and what it sets is set."""
        for event in (one, other, one):
            self.requests += 1
            arguments = {"key": f"again-{self.requests}"} if keyed else {}
            self.both(
                lambda event=event: self.model.append(sid, as_stored(sid, [event])),
                lambda event=event, arguments=arguments: self.sessions.append_events(
                    sid, [event], **arguments
                ),
            )
            self.compare(sid, self.sessions.current_view(sid), None)

    @rule(sid=SID)
    def bad_input(self, sid):
        for events in ([{"type": "a/b", "x": object()}], [{"type": "a/b"}, {"type": "turn/put"}]):
            try:
                self.sessions.append_events(sid, events)
            except InvalidInput:
                continue
            raise AssertionError(events)

    @rule(events=EVENTS, collect=st.booleans())
    def delete_and_recreate(self, events, collect):
        """A deleted session is gone, its id is used up, and its positions come never again."""
        sid = self.sessions.create_session({"id": self.fresh()}).id
        with suppress(NotFound, InvalidInput):
            self.deleted += len(self.sessions.append_events(sid, events))
        feed = self.sessions.follow(sid, after=0)
        self.sessions.delete_session(sid)
        if collect:
            self.sessions.gc(0)
        assert self.sessions.position() == len(self.model.order) + self.deleted
        for call in (
            lambda: self.sessions.create_session({"id": sid}),
            lambda: self.sessions.append_events(sid, events),
            lambda: self.sessions.publish_head(sid),
            lambda: self.sessions.current_view(sid),
            lambda: self.sessions.view_at(sid, 0),
            lambda: self.sessions.events_since(sid),
            lambda: feed.next(0.0),
        ):
            try:
                call()
            except (AlreadyExists, NotFound):
                continue
            raise AssertionError("a deleted session answers")

    @rule(grace=st.sampled_from([0, 3600.0]))
    def collect(self, grace):
        self.sessions.gc(grace)
        assert self.sessions.verify_no_dangling_refs() == []

    # Looking

    @rule(sid=SID)
    def look(self, sid):
        self.compare(sid, self.sessions.current_view(sid), None)

    @rule(sid=SID, at=st.integers(0, 40))
    def mutate_all(self, sid, at):
        """Change everything that a reader receives; the log must not notice."""
        last = len(self.model.logs[sid])
        for handed in (
            self.sessions.current_view(sid),
            self.sessions.read_state(sid),
            self.sessions.view_at(sid, min(at, last)),
            self.sessions.events_since(sid, 0),
            *map(self.sessions.head, self.heads.get(sid, ())),
            self.sessions.lineage(sid),
        ):
            mutate(handed)
        self.compare(sid, self.sessions.current_view(sid), None)

    @rule(sid=SID, at=st.integers(0, 40))
    def look_back(self, sid, at):
        at = min(at, len(self.model.logs[sid]))
        self.compare(sid, self.sessions.view_at(sid, at), at)

    @rule(sid=SID, items=st.integers(1, 30))
    def listen(self, sid, items):
        feed, heard = self.feeds[sid]
        for _ in range(items):
            item = feed.next(0.0)
            if item is None:
                break
            if isinstance(item, Event):
                heard.append(item.id)
        assert heard == list(range(1, len(heard) + 1))
        assert len(heard) <= len(self.model.logs[sid])

    @rule(sid=SID)
    def whisper(self, sid):
        self.sessions.notify_transient(sid, {"type": "delta/token"})

    def compare(self, sid, view, at):
        expected = self.model.view(sid, at)
        assert view.session == expected["session"]
        assert view.error == expected["error"]
        assert view.vars_ref == expected["vars_ref"]
        assert view.compact_from_event_id == expected["compact_from_event_id"]
        assert view.counters.event == len(view.events) == expected["events"]
        for name in ("turns", "steps", "evals"):
            assert list(getattr(view, name)) == expected[name]
        assert [self.read(each) for each in view.messages] == expected["messages"]
        assert [self.read(each) for each in view.kept_messages()] == expected["kept"]
        heads = list(view.heads)
        assert [(list(head.event_range), head.extra) for head in heads] == [
            (each["range"], {"note": each["note"]}) for each in expected["heads"]
        ]
        assert view.current_head == (heads[-1].id if heads else None)
        assert len(view.edges) == len(expected["edges"])

    def fresh(self):
        self.made += 1
        return f"new-{self.made}"

    def read(self, message):
        if "content" not in message:
            return message
        return {**message, "content": self.sessions.read_payload(message["content"])}

    def both(self, model, store):
        """The model's answer decides whether the store must refuse."""
        try:
            expected = model()
        except Refusal:
            try:
                store()
            except (NotFound, InvalidInput, PreconditionFailed, HeadMoved):
                return None
            raise AssertionError("the store did what the model refuses") from None
        done = store()
        if expected is not None:
            found = [event.as_dict() | {"at": ""} for event in done]
            assert found == [each | {"at": ""} for each in expected]
        return done

    def teardown(self):
        for sid in IDS:
            if sid not in self.model.logs:
                continue
            self.compare(sid, self.sessions.current_view(sid), None)
            events = self.sessions.events_since(sid, 0)
            assert self.sessions.read_state(sid) == fold(None, events)
            feed, heard = self.feeds[sid]
            while (item := feed.next(0.0)) is not None:
                if isinstance(item, Event):
                    heard.append(item.id)
            assert heard == [event.id for event in events]
        order = [(event.session, event.id) for event in self.sessions.all_events_since(0)]
        assert order == self.model.order
        assert self.sessions.position() == len(order) + self.deleted
        assert self.sessions.verify() == []
        self.close()


class StoreMachine(MemoryMachine):
    """One life of the store on disk, which fails now and then and is opened again."""

    def __init__(self):
        self.root = Path(tempfile.mkdtemp(prefix="fourfold-sessions-"))
        self.restored = 0
        super().__init__()

    def open(self):
        self.store = fourfold.open(self.root / f"store-{self.restored}")
        self.sessions = self.store.sessions

    def close(self):
        self.store.close()
        shutil.rmtree(self.root)

    @rule(sid=SID, event=EVENT)
    def restore(self, sid, event):
        """Go on with a copy of the store, which was restored from a backup; what was appended after
        the backup never was.
        """
        self.restored += 1
        copy = self.root / f"copy-{self.restored}"
        self.store.backup(copy)
        with suppress(NotFound, InvalidInput):
            self.sessions.append_event(sid, event)
        fourfold.restore(copy, self.root / f"store-{self.restored}")
        self.reopen()

    @rule(
        parts=st.lists(st.tuples(SID, EVENTS), min_size=1, max_size=3),
        head=st.none() | SID,
        fails=st.booleans(),
    )
    def calls_inside_a_transaction(self, parts, head, fails):
        """They join it: reads in between spoil nothing, and a rollback takes all of them back."""
        logs, order = dict(self.model.logs), list(self.model.order)
        heads = {sid: list(published) for sid, published in self.heads.items()}
        with suppress(ZeroDivisionError), self.sessions.log.database.write():
            for sid, events in parts:
                self.both(
                    lambda sid=sid, events=events: self.model.append(sid, as_stored(sid, events)),
                    lambda sid=sid, events=events: self.sessions.append_events(sid, events),
                )
                mutate(self.sessions.current_view(sid))
                self.sessions.events_since(sid, 0)
                self.sessions.position()
            if head is not None:
                published = self.both(
                    lambda: self.model.publish(head, None, "any", {"note": 1}),
                    lambda: self.sessions.publish_head(head, {"note": 1}),
                )
                if published is not None:
                    self.heads.setdefault(head, []).append(published.id)
            if fails:
                self.model.logs, self.model.order, self.heads = logs, order, heads
                raise ZeroDivisionError
        for sid in IDS:
            self.compare(sid, self.sessions.current_view(sid), None)

    @rule()
    def reopen(self):
        self.store.close()
        self.open()
        for sid, (feed, heard) in list(self.feeds.items()):
            # A feed goes on from where the one before it was.
            assert feed.cursor == (heard[-1] if heard else 0)
            self.feeds[sid] = (self.sessions.follow(sid, after=feed.cursor), heard)

    @rule(
        sid=SID,
        events=EVENTS,
        point=st.sampled_from(POINTS),
        action=st.sampled_from(["raise", "full"]),
        at=st.integers(1, 3),
        call=st.sampled_from(["events", "head", "payload", "create"]),
    )
    def fail(self, sid, events, point, action, at, call):
        failpoints.arm(point, action, at=at, repeat=True)
        calls = {
            "events": lambda: self.sessions.append_events(sid, events),
            "head": lambda: self.sessions.publish_head(sid, {"note": 1}),
            "payload": lambda: self.sessions.append_event(
                sid, {"type": "a/b", "value": Payload("z" * 1000)}
            ),
            "create": lambda: self.sessions.create_session({"id": self.fresh(), "model": "m"}),
        }
        model = {
            "events": lambda: self.model.append(sid, as_stored(sid, events)),
            "head": lambda: self.model.publish(sid, None, "any", {"note": 1}),
            "payload": lambda: self.model.append(sid, [{"type": "a/b", "value": None}]),
            "create": lambda: None,
        }
        try:
            done = calls[call]()
        except FourfoldError:
            pass
        else:
            # The point was not reached often enough.
            model[call]()
            if call == "head":
                self.heads.setdefault(sid, []).append(done.id)
            if call == "create":
                self.model.order.append((done.id, 1))
        finally:
            failpoints.disarm()
