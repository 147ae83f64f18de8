"""Several worker processes on the sessions of one server: suspended, killed, and started again."""

from __future__ import annotations

import random
import signal
import subprocess
from pathlib import Path

import pytest
from served_streams import Served

import fourfold
from fourfold.models.sessions.runtime import Final, Runtime
from support.crash import child_environment
from support.forked_process import ForkedProcess

SCRIPT = Path(__file__).with_name("session_worker.py")


def start(*arguments):
    return ForkedProcess([SCRIPT, *arguments], stdout=subprocess.PIPE, env=child_environment())


def lines_of(worker):
    """Return the lines of a worker until it ends."""
    output, _ = worker.communicate(timeout=60)
    return output.decode().split()


def test_suspended_worker_loses_its_turn_and_writes_nothing(served, name, tmp_path):
    url, go = f"http://127.0.0.1:{served.port}", tmp_path / "go"
    with fourfold.connect(url) as store:
        sessions = store.sessions
        Runtime(sessions, lambda turn: Final(None)).start({"id": name, "ownership": "required"})
        slow = start("one", url, name, "slow", go)
        assert slow.stdout.readline() == b"waiting\n"
        slow.send_signal(signal.SIGSTOP)
        go.touch()
        assert lines_of(start("one", url, name, "fast", go)) == ["waiting", "fast"]
        view, events = sessions.current_view(name), sessions.events(name)
        slow.send_signal(signal.SIGCONT)
        assert lines_of(slow) == ["lease_lost"]
        assert sessions.events(name) == events
        assert [turn["status"] for turn in view.turns] == ["final"]
        assert [message["content"] for message in view.messages] == [
            "go",
            "step 1 by slow",
            "step 2 by slow",
            "the end by fast",
        ]
        assert view.vars_ref == sessions.head(view.current_head).vars_ref
        assert sessions.find_lease(name) is None


@pytest.mark.parametrize(
    ("workers", "threads", "turns", "kills"),
    [(3, 6, 3, 5), pytest.param(8, 100, 3, 40, marks=pytest.mark.slow)],
)
def test_killed_workers_leave_unforked_chains(tmp_path, workers, threads, turns, kills):
    chance = random.Random(1)
    server = Served(tmp_path / "store")
    url = f"http://127.0.0.1:{server.port}"
    with fourfold.connect(url) as store:
        sids = [f"w-{index}" for index in range(threads)]
        for sid in sids:
            store.sessions.create({"id": sid, "ownership": "required"})
        running = [start("many", url, "w-", turns) for _ in range(workers)]
        with store.sessions.follow_all(after=0, timeout=60) as events:
            for _ in range(kills):
                # A turn has more events than that, so the last kill is long before the end.
                for _event, _ in zip(events, range(4 * threads * turns // kills), strict=False):
                    pass
                victim = chance.randrange(workers)
                running[victim].kill()
                lines_of(running[victim])
                running[victim] = start("many", url, "w-", turns)
        for worker in running:
            assert lines_of(worker) == ["done"]
        for sid in sids:
            view = store.sessions.current_view(sid)
            assert [turn["status"] for turn in view.turns] == ["final"] * turns
            heads = [head for head in view.heads if head.kind == "turn-final"]
            assert [head.basis for head in heads] == [None, *(head.id for head in heads[:-1])]
            runtime = Runtime(store.sessions, lambda turn: Final(None))
            assert runtime.vars(sid)["done"] == [*range(turns)]
    server.kill()
    with fourfold.open(tmp_path / "store") as store:
        assert store.sessions.verify() == []
        assert store.sessions.verify_no_dangling_refs() == []
