"""Real processes are killed in the middle of appends: nothing acknowledged is lost, what is left is
sound, and another process goes on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random

import pytest

import fourfold
from fourfold.errors import WriterLocked
from fourfold.models.sessions import Payload, Sessions
from support.crash import Moment, child_environment, random_kill_time, run
from support.properties import THOROUGH, repeats

SCRIPT = Path(__file__).with_name("session_child.py")
POINTS = (
    "kernel.statement.after",
    "kernel.commit.before",
    "kernel.commit.after",
    "kernel.acknowledge.before",
)


def check(root, acknowledged):
    """Everything that was acknowledged is there, and nothing contradicts itself."""
    with fourfold.open(root) as store:
        sessions = store.sessions
        assert sessions.verify() == []
        assert sessions.verify_no_dangling_refs() == []
        for info in sessions.list_sessions(limit=1000):
            events = sessions.events_since(info.id, 0)
            assert [event.id for event in events] == list(range(1, len(events) + 1))
            view = sessions.current_view(info.id)
            assert view == view.materialize()
            ends = [head.event_range for head in view.heads]
            starts = [1, *(last + 1 for _, last in ends)]
            assert [first for first, _ in ends] == starts[: len(ends)]
        positions = [event.position for event in sessions.all_events_since(0)]
        assert positions == list(range(1, sessions.position() + 1))
        for line in acknowledged:
            kind, sid, *rest = line
            if kind == "append":
                ids, count = rest
                found = sessions.events_since(sid, ids[0] - 1, limit=len(ids))
                message = found[0].data["message"]
                assert message["n"] == count
                assert f" {count} " in sessions.read_payload(message["content"])[:40]
            else:
                head = sessions.head(rest[0])
                assert (head.session, list(head.event_range)) == (sid, rest[1])
        # Whole batches or nothing: each brought one message and two turns.
        for info in sessions.list_sessions(limit=1000):
            if info.id != "shared":
                counters = sessions.current_view(info.id).counters
                assert counters.turn == 2 * counters.message
        # A writer that died between a payload and its event leaves an orphan, which can go.
        sessions.gc(0)
        assert sessions.verify() == []
        sessions.create_session({"id": "after"})
        assert sessions.append_event("after", {"type": "a/b"}).position == len(positions) + 1


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_a_chosen_point_loses_nothing_acknowledged(tmp_path, point):
    crash = run(SCRIPT, "write", str(tmp_path / "store"), point, fault=f"{point}=kill@40")
    assert crash.killed, crash
    check(tmp_path / "store", [json.loads(line) for line in crash.lines])


def write_bundle(path):
    """Write a bundle of a session with heads and of two that it was forked into."""
    ticks = count()
    sessions = Sessions(clock=lambda: datetime.fromtimestamp(1e9 + next(ticks), UTC))
    sessions.create_session({"id": "root"})
    for number in range(60):
        message = {"content": Payload("x" * 700 + str(number)), "n": number}
        batch = [{"type": "message/appended", "message": message}, *2 * [turn(number)]]
        sessions.append_events("root", batch)
        if number % 3 == 0:
            sessions.publish_head("root", {"note": number})
    for name in ("one", "two"):
        sessions.fork("root", {"id": name})
        for number in range(15):
            sessions.append_event(name, {"type": "a/b", "n": number})
    path.write_bytes(b"".join(sessions.export_bundle("root")))
    return sessions


def turn(number):
    return {"type": "turn/started", "turn": {"n": number}}


@pytest.mark.parametrize("point", [point for point in POINTS if "acknowledge" not in point])
@pytest.mark.parametrize("hit", [2, 5, 9, 12])
def test_import_that_is_killed_is_completed_by_the_next_one(tmp_path, point, hit):
    path, root = tmp_path / "bundle", tmp_path / "store"
    source = write_bundle(path)
    with fourfold.open(root) as store:
        store.sessions.create_session({"id": "before"})
    at = 40 * hit if point == "kernel.statement.after" else hit
    crash = run(SCRIPT, "import", str(root), str(path), fault=f"{point}=kill@{at}")
    assert crash.killed, crash
    with fourfold.open(root) as store:
        sessions = store.sessions
        assert sessions.verify() == []
        # What is there is a state that the session had: no head is missing after its events.
        for info in sessions.list_sessions():
            if info.id != "before":
                events = source.events_since(info.id)
                last = sessions.peek_next_id(info.id) - 1
                assert list(sessions.events_since(info.id)) == list(events[:last])
                after = events[last : last + 1]
                assert [event.type for event in after] != ["head/published"]
        assert sessions.import_bundle(path).sessions == 3
        for info in source.list_sessions():
            assert [event.digest for event in sessions.events_since(info.id)] == [
                event.digest for event in source.events_since(info.id)
            ]
        assert sessions.verify() == []
        assert sessions.verify_no_dangling_refs() == []
        positions = [event.position for event in sessions.all_events_since(0)]
        assert positions == list(range(1, sessions.position() + 1))


def lives(root, seed, kills):
    random, acknowledged = Random(seed), []
    for life in range(kills):
        crash = run(SCRIPT, "write", str(root), f"{seed}-{life}", kill=random_kill_time(random))
        assert crash.killed, crash
        acknowledged += [json.loads(line) for line in crash.lines]
        check(root, acknowledged)


def test_several_lives_end_at_any_moment(tmp_path):
    lives(tmp_path / "store", 7, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(repeats(4)))
def test_many_lives_end_at_any_moment(tmp_path, seed):
    lives(tmp_path / "store", seed, 15)


def call(*arguments):
    done = subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_second_writer_takes_over_after_the_first_dies(tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        store.sessions.create_session({"id": "s", "model": "m"})
        kind, error, message = call("try", root)
        assert (kind, error) == ("refused", "writer_locked")
        assert "has the database open for writing" in message
        # Reading needs no lock.
        with fourfold.open(root, mode="r") as reading:
            assert reading.sessions.current_view("s").counters.event == 1
    crash = run(SCRIPT, "hold", str(root), kill=Moment(acknowledgements=1))
    assert crash.killed, crash
    assert call("try", root) == ["appended", 2]


def test_a_held_store_says_who_holds_it(tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store, fourfold.open(root) as other:
        assert store.sessions.list_sessions() == []
        with pytest.raises(WriterLocked, match="this process"):
            other.sessions.list_sessions()


def test_another_process_follows_what_is_appended(tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        store.sessions.create_session({"id": "s", "model": "m"})
        with subprocess.Popen(
            [sys.executable, SCRIPT, "follow", str(root), "60"],
            env=child_environment(),
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout.readline() == "ready\n"
            for number in range(59):
                event = {"type": "message/appended", "message": {"n": number}}
                store.sessions.append_event("s", event)
            lines = child.stdout.read().split()
        assert child.returncode == 0
    assert [int(line) for line in lines] == list(range(1, 61))


@pytest.mark.parametrize("point", ["kernel.statement.after", "kernel.commit.after"])
def test_collection_goes_on_after_a_kill(tmp_path, point):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        for sid in ("gone", "kept"):
            store.sessions.create_session({"id": sid, "model": "any"})
            for _ in range(10):
                store.sessions.append_events(sid, [{"type": "turn/started", "turn": {}}] * 9)
                store.sessions.publish_head(sid)
        store.sessions.delete_session("gone")
        position = store.sessions.position()
    left = []
    for hit in range(2, 60, 1 if THOROUGH else 3):
        crash = run(SCRIPT, "purge", str(root), fault=f"{point}=kill@{hit}")
        with fourfold.open(root) as store:
            assert store.sessions.verify() == []
            assert store.sessions.position() == position
            assert len(store.sessions.events_since("kept")) == 101
            with store.sessions.log.audit() as audit:
                left.append(sum(1 for _ in audit.events(1)))
        if not crash.killed:
            break
    assert left[-1] == 0
    assert left == sorted(left, reverse=True)
    assert any(0 < count < 101 for count in left)
