"""Several worker processes on LangGraph threads of one server: suspended and killed."""

from __future__ import annotations

import random
import signal
import subprocess
from pathlib import Path

import pytest
from served_streams import Served

import fourfold
from fourfold.adapters.langgraph import FourfoldSaver
from support.crash import child_environment
from support.forked_process import ForkedProcess

SCRIPT = Path(__file__).with_name("langgraph_worker.py")

SLOW = pytest.mark.timeout(1_800)


def start(*arguments):
    environment = child_environment()
    return ForkedProcess([SCRIPT, *map(str, arguments)], stdout=subprocess.PIPE, env=environment)


def lines_of(worker):
    """Return the lines of a worker until it ends."""
    output, _ = worker.communicate(timeout=60)
    return output.decode().split()


def check_chain(saver, thread, log):
    """Check that every checkpoint of a thread is the child of the one before it."""
    config = {"configurable": {"thread_id": thread}}
    checkpoints = list(saver.list(config))
    ids = [item.checkpoint["id"] for item in checkpoints]
    parents = [
        item.parent_config and item.parent_config["configurable"]["checkpoint_id"]
        for item in checkpoints
    ]
    assert parents == [*ids[1:], None]
    assert checkpoints[0].checkpoint["channel_values"]["log"] == log


@pytest.fixture
def server(tmp_path):
    served = Served(tmp_path / "store")
    yield served
    served.kill()


@pytest.mark.parametrize(("mode", "refusal"), [("claimed", "lease_lost"), ("free", "head_moved")])
def test_suspended_worker_is_refused_and_the_faster_answer_stays(server, tmp_path, mode, refusal):
    url, go = f"http://127.0.0.1:{server.port}", tmp_path / "go"
    slow = start("one", url, "t", "slow", go, mode)
    assert slow.stdout.readline() == b"waiting\n"
    slow.send_signal(signal.SIGSTOP)
    go.touch()
    assert lines_of(start("one", url, "t", "fast", go, mode)) == ["waiting", "second-by-fast"]
    with fourfold.connect(url) as store:
        before = [(info.id, info.events) for info in store.sessions.list()]
        slow.send_signal(signal.SIGCONT)
        assert lines_of(slow) == [refusal]
        after = [(info.id, info.events) for info in store.sessions.list()]
        if mode == "claimed":
            assert after == before
        log = ["turn 0", "first by slow", "second by fast"]
        check_chain(FourfoldSaver(store.sessions), "t", log)


@pytest.mark.parametrize(
    ("workers", "threads", "turns", "kills"),
    [(3, 4, 2, 4), pytest.param(8, 100, 3, 40, marks=[pytest.mark.slow, SLOW])],
)
def test_killed_workers_leave_unforked_chains(tmp_path, workers, threads, turns, kills):
    """Workers take threads from each other by claims; all begin with the same empty threads."""
    chance = random.Random(1)
    server = Served(tmp_path / "store")
    url = f"http://127.0.0.1:{server.port}"

    with fourfold.connect(url) as store:
        running = [start("many", url, threads, turns) for _ in range(workers)]
        with store.sessions.follow_all(after=0, timeout=60) as events:
            for _ in range(kills):
                # A turn has more events than that, so the last kill is long before the end.
                for _event, _ in zip(events, range(4 * threads * turns // kills), strict=False):
                    pass
                victim = chance.randrange(workers)
                running[victim].kill()
                lines_of(running[victim])
                running[victim] = start("many", url, threads, turns)
        for worker in running:
            assert worker.wait(600) == 0
            assert lines_of(worker) == ["done"]
        saver = FourfoldSaver(store.sessions)
        for thread in range(threads):
            turn = ["first by any", "second by any"]
            log = [entry for number in range(turns) for entry in (f"turn {number}", *turn)]
            check_chain(saver, str(thread), log)
    server.kill()
    with fourfold.open(tmp_path / "store") as store:
        assert store.sessions.verify() == []
        assert store.sessions.verify_no_dangling_refs() == []
