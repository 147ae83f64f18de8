"""A research agent from its first turn to a copy of its whole lineage, over two processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runtime_child import CORPUS, SID, research_step

import fourfold
from fourfold.errors import (
    CapabilityDenied,
    CorruptData,
    HeadMoved,
    PayloadMissing,
    WriterLocked,
)
from fourfold.models.sessions import Gap
from fourfold.models.sessions.runtime import Runtime
from support.crash import child_environment

SCRIPT = Path(__file__).with_name("runtime_child.py")


@contextlib.contextmanager
def agent(root):
    """The first process: it has run two turns, waits for a line, and then never ends."""
    with subprocess.Popen(
        [sys.executable, SCRIPT, "research", root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env=child_environment(),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def story(tmp_path):
    """The agent is watched by a reader, and killed in its third turn; what was seen meanwhile."""
    root = tmp_path / "store"
    with agent(root) as process:
        heads = [process.stdout.readline().strip() for _ in range(2)]
        count, digest = process.stdout.readline().split()
        with fourfold.open(root, mode="r") as store:
            events = store.sessions.events_since(SID, 0)
            assert (len(events), events[-1].digest.hex()) == (int(count), digest)
            with fourfold.open(root) as second, pytest.raises(WriterLocked):
                second.sessions.create_session({"id": "mine"})
            feed = store.sessions.follow(SID, after=events[-1].id)
            process.stdin.write("go\n")
            assert process.stdout.readline() == "waiting\n"
            kinds = [feed.next(timeout=60).type for _ in range(5)]
            feed.close()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert kinds == [
        "message/appended",
        "turn/started",
        "step/started",
        "step/put",
        "step/started",
    ]
    return root, heads


def check_two_turns(sessions, heads):
    view = sessions.current_view(SID)
    first, second = (sessions.head(each) for each in heads)
    assert (first.event_range[0], first.basis, second.basis) == (1, None, first.id)
    assert second.event_range[0] == first.event_range[1] + 1
    assert [len(each.turns) for each in (view, sessions.view_at(SID, first.id))] == [3, 1]
    listed = [info.id for info in sessions.list_sessions()]
    assert len(listed) == 14
    edges = list(view.edges)
    assert len(edges) == 11
    assert {(edge.type, edge.from_head) for edge in edges} == {("invocation", first.id)}
    [nesting] = {sid.rpartition("/")[0] for sid in listed if sid.count("/") == 2}
    [inner] = sessions.current_view(nesting).edges
    assert inner.from_head is None
    assert view.turns[1]["usage"] == {"tokens": 7}
    statuses = sessions.read_payload(second.final_ref)
    assert (statuses.count("final"), statuses[4]) == (11, "error")
    assert len(list(sessions.files.ids())) == 1


def check_flood(sessions):
    """A slow subscriber delays no writer, receives a gap, and misses no event."""
    sessions.create_session({"id": "flood"})
    heard = []
    subscription = sessions.subscribe("flood", heard.append, after=0, bound=16)
    for number in range(50):
        sessions.append_events("flood", [{"type": "a/b", "n": number}] * 100)
        for token in range(20):
            sessions.notify_transient("flood", token)
    last = sessions.peek_next_id("flood") - 1
    while subscription.cursor < last:
        assert subscription.active
    subscription()
    ids = [item.id for item in heard if hasattr(item, "digest")]
    assert ids == list(range(1, 5001))
    assert all(item.dropped for item in heard if isinstance(item, Gap))


def test_a_research_agent_is_killed_resumed_compacted_forked_and_copied(story, tmp_path):
    root, heads = story
    with fourfold.open(root) as store:
        sessions = store.sessions
        check_two_turns(sessions, heads)
        # The third turn is still running; the variables are those of the second head.
        runtime = Runtime(sessions, research_step, summarize=lambda kept: f"{len(kept)} messages")
        assert sessions.current_view(SID).turns[-1]["status"] == "running"
        assert (runtime.interrupted(SID), runtime.vars(SID)["corpus"]) == (3, CORPUS)
        assert runtime.abandon(SID) == 3
        fourth = runtime.run_turn(SID, "go on")
        assert (fourth.turn_id, fourth.value) == (4, ["go on", len(CORPUS)])
        assert sessions.head(fourth.head).basis == heads[1]
        assert [turn["status"] for turn in sessions.current_view(SID).turns] == [
            "final",
            "final",
            "error",
            "final",
        ]
        # Compaction: one event, one head, nothing removed.
        messages = len(sessions.current_view(SID).messages)
        compacted = runtime.compact(SID)
        assert sessions.head(compacted).kind == "compaction"
        assert [each["content"] for each in runtime.messages(SID)] == [f"{messages} messages"]
        assert len(sessions.current_view(SID).messages) == messages + 1
        events = sessions.events_since(SID, 0)
        assert [event.id for event in events] == list(range(1, len(events) + 1))
        # Attaching to the first head, three heads back.
        attached = runtime.attach(
            heads[0], "look back", sid="look-back", capability=["read", "write"]
        )
        assert attached.value == ["look back", len(CORPUS)]
        assert "answers" not in runtime.vars("look-back")
        [edge] = sessions.lineage("look-back")
        assert (edge.type, edge.from_head) == ("derivation", heads[0])
        assert sessions.current_view(SID).current_head == compacted
        count = len(sessions.list_sessions())
        with pytest.raises(CapabilityDenied):
            runtime.attach(SID, "more", sid="richer", capability=["read"])
        assert len(sessions.list_sessions()) == count
        # Two publish from the same head: one wins, and the other tries again.
        won = sessions.publish_head(SID, {"kind": "by-hand"}, expected_basis=compacted)
        with pytest.raises(HeadMoved) as moved:
            sessions.publish_head(SID, {"kind": "by-hand-too"}, expected_basis=compacted)
        assert moved.value.details["current"] == won.id
        sessions.publish_head(SID, {"kind": "by-hand-too"}, expected_basis=won.id)
        check_flood(sessions)
        check_copy(sessions, tmp_path)
        check_damage(sessions)


def check_copy(sessions, tmp_path):
    """The whole lineage, in an empty store: the same heads, the same edges, the same payloads."""
    path = tmp_path / "bundle.ndjson"
    path.write_bytes(b"".join(sessions.export_bundle(SID)))
    with fourfold.open(tmp_path / "copy") as other:
        copy = other.sessions
        assert copy.import_bundle(path).sessions == 14
        assert copy.verify() == []
        assert copy.lineage_graph(SID).heads == sessions.lineage_graph(SID).heads
        assert Runtime(copy, research_step).run_turn(SID, "there").value == ["there", len(CORPUS)]


def check_damage(sessions):
    """A missing file and a changed byte are named; everything else works."""
    ref = sessions.intern_payload("another " * 20_000)
    sessions.append_event(SID, {"type": "a/b", "ref": ref})
    orphan = sessions.intern_payload("nothing refers to this " * 10_000)
    path = sessions.files.path(ref.id)
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    assert any(ref.id in problem.message for problem in sessions.verify())
    with pytest.raises(CorruptData):
        sessions.read_payload(ref)
    path.unlink()
    assert sessions.verify_no_dangling_refs() == [ref]
    with pytest.raises(PayloadMissing):
        sessions.read_payload(ref)
    path.write_bytes(data)
    assert sessions.verify() == []
    assert sessions.gc(0).payloads == 1
    with pytest.raises(PayloadMissing):
        sessions.read_payload(orphan)
    assert sessions.verify() == []
