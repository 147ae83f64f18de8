"""Sessions over HTTP are those in process: the same program has the same result."""

from __future__ import annotations

import itertools
import json
import re

import msgspec
import pytest
from both_fronts import Front
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served_sessions import ServedSessions, message, turn

from fourfold.content import decode, encode, from_json
from fourfold.errors import FourfoldError
from fourfold.models.sessions import UNSET, Sessions
from fourfold.server.session_values import (
    edge_record,
    event_record,
    head_record,
    session_record,
    view_record,
)

_programs = itertools.count()
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5),
    lambda part: (
        st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=3), part, max_size=3)
    ),
    max_leaves=5,
)
_EVENTS = st.one_of(
    st.builds(message, _VALUES),
    st.builds(turn),
    st.builds(
        lambda n: {"type": "turn/put", "turn": {"id": n, "status": "final"}}, st.integers(0, 3)
    ),
    st.builds(lambda v: {"type": "app/note", "value": v}, _VALUES),
    st.just({"type": "session/stopped"}),
    st.just({"type": "session/compacted", "vars_ref": {"n": 1}, "message": {"content": "s"}}),
    st.just({"type": "not a type"}),
)
_POINTS = st.none() | st.integers(0, 6)
_STEPS = st.one_of(
    st.tuples(st.just("append"), st.lists(_EVENTS, min_size=1, max_size=3), st.booleans()),
    st.tuples(st.just("publish"), st.lists(_EVENTS, max_size=2), st.booleans()),
    st.tuples(st.just("fork"), _POINTS),
    st.tuples(st.just("view"), _POINTS),
    st.tuples(st.just("delete")),
)


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    front = Front(tmp_path_factory.mktemp("equality") / "store", fast=True)
    yield front
    front.stop()


class InProcess:
    """A program on the sessions of a store."""

    def __init__(self, sessions, sid):
        self.sessions, self.sid = sessions, sid
        sessions.create({"id": sid})

    def run(self, step):
        try:
            return getattr(self, step[0])(*step[1:])
        except FourfoldError as error:
            return error.kind

    def append(self, events, stale):
        last = 99 if stale else UNSET
        values = [from_json(event) for event in events]
        return list(
            map(event_record, self.sessions.append_events(self.sid, values, expected_last_id=last))
        )

    def publish(self, events, stale):
        values = [from_json(event) for event in events]
        basis = f"sha256:{'0' * 64}" if stale else UNSET
        head = self.sessions.publish_head(self.sid, {}, expected_basis=basis, events=values)
        return head_record(head)

    def fork(self, at):
        fork = self.sessions.fork(self.sid, {"id": f"{self.sid}/f"}, at=at)
        graph = self.sessions.lineage_graph(fork.id)
        return (
            session_record(self.sessions.info(fork.id)),
            list(map(edge_record, graph.edges)),
            list(map(head_record, graph.heads)),
            list(map(event_record, fork.log())),
        )

    def view(self, at):
        view = self.sessions.view_at(self.sid, at)
        boundary = view.compact_from_event_id
        kept = (
            0
            if boundary is None
            else self.sessions.view_at(self.sid, boundary - 1).counters.message
        )
        lists = [list(getattr(view, name)) for name in ("messages", "turns")]
        return view_record(view, self.sessions.open(self.sid).created_at, kept), *lists

    def delete(self):
        self.sessions.delete_session(self.sid)


class OverHttp:
    """The same program on a server."""

    def __init__(self, port, sid):
        self.sessions = ServedSessions(port)
        self.session = self.sessions.create(sid)

    def run(self, step):
        answers = getattr(self, step[0])(*step[1:])
        for answer in answers:
            if answer.status >= 400:
                return answer.value["kind"]
        values = [answer.value if answer.text else None for answer in answers]
        return getattr(self, f"{step[0]}_result", lambda value: value)(*values)

    def append(self, events, stale):
        return [self.session.append(*events, **({"if_match": '"99"'} if stale else {}))]

    @staticmethod
    def append_result(value):
        return value["events"]

    def publish(self, events, stale):
        headers = {"if_match": f'"sha256:{"0" * 64}"'} if stale else {}
        return [self.session.publish({}, events, **headers)]

    def fork(self, at):
        made = self.session.post("forks", {"session": {"id": f"{self.session.sid}/f"}, "at": at})
        if made.status >= 400:
            return [made]
        fork = self.sessions.create(made.value["id"])
        return [made, fork.get("lineage"), fork.get("events")]

    @staticmethod
    def fork_result(made, lineage, events):
        return made, lineage["edges"], lineage["heads"], events["items"]

    def view(self, at):
        query = "" if at is None else f"at={at}"
        return [self.session.get(verb, query) for verb in ("view", "messages", "turns")]

    @staticmethod
    def view_result(view, messages, turns):
        return view, messages["items"], turns["items"]

    def delete(self):
        return [self.sessions.ask("DELETE", f"/v1/session/{self.session.sid}")]


def comparable(value):
    """Return a result as text, without times and what follows from them."""
    text = json.dumps(json.loads(msgspec.json.encode(value)), sort_keys=True)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r'"position": \d+', '"position": 0', text)
    return re.sub(r"[0-9a-f]{64}", "HASH", text)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_STEPS, min_size=1, max_size=8))
def test_same_program_has_the_same_result(front, steps):
    sid = f"program-{next(_programs)}"
    here = InProcess(Sessions(), sid)
    there = OverHttp(front.port, sid)
    for step in steps:
        assert comparable(there.run(step)) == comparable(here.run(step)), step


@given(_VALUES)
def test_value_is_read_from_any_spelling(value):
    assert from_json(json.loads(encode(value))) == decode(encode(value))
