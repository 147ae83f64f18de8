"""Random programs have equal results on this checkpointer and on LangGraph's own.

The programs write a value, another one, and the first one again; they continue with an empty cache,
as a new process does, or with a cache of one thread; and other programs append to the sessions of
the threads in between. On a store, they also continue from backups.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_calls import checkpoint, config, put, values

import fourfold
from fourfold.adapters.langgraph import FourfoldSaver
from fourfold.adapters.langgraph.saver import ADAPTER_THREADS_MAX, TIP
from fourfold.errors import Refused
from fourfold.models.sessions import Sessions
from fourfold.models.sessions.sqlite_log import SqliteLogReader
from fourfold.testing.session_log_contract import mutate
from support.properties import examples

TASK = "00000000-0000-0000-0000-000000000000"
THREADS = st.sampled_from(["t", "u", "v"])
SPACES = st.sampled_from(["", "child"])
NAMES = st.sampled_from(["c1", "c2", "c3"])
VALUES = st.sampled_from(["yes", "no", "m" * 600])
SPECIAL = st.sampled_from(["__resume__", "__interrupt__", "__error__"])


def resumed(saver, thread="t", name="c1"):
    return [value for _, _, value in saver.get_tuple(config(thread, name)).pending_writes]


def test_writes_keep_the_newest_value_when_it_equals_the_first(sessions):
    put(FourfoldSaver(sessions), "c1", x=1)
    for answer in ("no", "yes", "no"):
        FourfoldSaver(sessions).put_writes(config("t", "c1"), [("__resume__", answer)], TASK)
        assert resumed(FourfoldSaver(sessions)) == [answer]


def test_writes_keep_the_newest_value_when_the_thread_was_evicted(sessions, monkeypatch):
    monkeypatch.setattr("fourfold.adapters.langgraph.saver.ADAPTER_THREADS_MAX", 2)
    saver = FourfoldSaver(sessions)
    put(saver, "c1", x=1)
    for answer in ("no", "yes", "no"):
        saver.put_writes(config("t", "c1"), [("__resume__", answer)], TASK)
        for other in range(3):
            put(saver, "c1", f"t{other}", x=1)
    assert resumed(saver) == ["no"]


def test_replaced_checkpoint_keeps_newest_content_when_equal_to_first(sessions):
    for number in (1, 2, 1, 1, 2):
        put(FourfoldSaver(sessions), "c1", x=number)
        assert values(FourfoldSaver(sessions)) == {"x": number}


def test_repeated_request_writes_nothing(sessions):
    put(FourfoldSaver(sessions), "c1", x=1)
    FourfoldSaver(sessions).put_writes(config("t", "c1"), [("__resume__", "no")], TASK)
    before = sessions.position()
    put(FourfoldSaver(sessions), "c1", x=1)
    FourfoldSaver(sessions).put_writes(config("t", "c1"), [("__resume__", "no")], TASK)
    assert sessions.position() == before


CALLS = {
    "the first of all": lambda saver: len(list(saver.list(None, limit=1))),
    "the run of one": lambda saver: len(list(saver.list(None, filter={"run_id": "r3"}))),
    "one by another key": lambda saver: len(list(saver.list(None, filter={"n": 3}, limit=1))),
    "deleting a run": lambda saver: saver.delete_for_runs(["r4"]) or 1,
    "deleting no run": lambda saver: saver.delete_for_runs(["no such run"]) or 1,
}


@pytest.mark.parametrize("name", CALLS)
def test_call_over_all_threads_costs_the_same_with_more_threads(tmp_path, monkeypatch, name):
    costs = []
    for count in (30, 300):
        with fourfold.open(tmp_path / str(count)) as store:
            saver = FourfoldSaver(store.sessions)
            for number in range(count):
                metadata = {"run_id": f"r{number}", "n": number}
                put(saver, "c1", f"t{number}", metadata=metadata, x=number)
            calls = Counter()
            for method in ("session", "last_event", "events", "snapshot_before"):
                count_calls(monkeypatch, SqliteLogReader, method, calls)
            saver = FourfoldSaver(store.sessions)
            assert CALLS[name](saver) == 1
            costs.append(calls.total())
    assert costs[0] == costs[1]


def count_calls(monkeypatch, kind, name, calls):
    method = getattr(kind, name)

    def counted(*args, **options):
        calls[name] += 1
        return method(*args, **options)

    monkeypatch.setattr(kind, name, counted)


class Programs(RuleBasedStateMachine):
    """One program, run on both checkpointers."""

    def __init__(self):
        super().__init__()
        self.sessions = Sessions()
        self.memory = InMemorySaver()
        self.saver = FourfoldSaver(self.sessions)
        self.known = set()
        self.rewritten = False

    @rule(thread=THREADS, ns=SPACES, name=NAMES, parent=NAMES, value=VALUES, run=st.integers(0, 2))
    def put(self, thread, ns, name, parent, value, run):
        # One version for one value: the checkpointer of LangGraph stores values by their versions.
        made = checkpoint(name, x=value, messages=[value, {"a": value}])
        made["channel_versions"] = dict.fromkeys(made["channel_values"], value)
        base = config(thread, parent if (thread, ns, parent) in self.known else None, ns)
        for saver in (self.memory, self.saver):
            versions = dict(made["channel_versions"])
            saver.put(base, {**made}, {"step": 1, "run_id": f"r{run}"}, versions)
        self.known.add((thread, ns, name))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), task=st.sampled_from("12"), channel=SPECIAL, value=VALUES)
    def put_special_write(self, data, task, channel, value):
        self.put_writes(data, task, [(channel, value)])

    @precondition(lambda self: self.known)
    @rule(data=st.data(), task=st.sampled_from("12"), given=st.lists(VALUES, max_size=2))
    def put_plain_writes(self, data, task, given):
        self.put_writes(data, task, [("x", value) for value in given])

    @precondition(lambda self: self.known)
    @rule(data=st.data(), task=st.sampled_from("12"), channel=SPECIAL, one=VALUES, other=VALUES)
    def put_the_same_again_after_another(self, data, task, channel, one, other):
        """A, B, A: the last one counts, whatever this checkpointer remembers of the first."""
        place = data.draw(st.sampled_from(sorted(self.known)))
        for value in (one, other, one):
            self.put_writes(data, task, [(channel, value)], place)
            if data.draw(st.booleans()):
                self.restart()

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def mutate_what_was_handed_out(self, data):
        """What a reader does to checkpoints that it was given changes none of them."""
        thread, ns, name = data.draw(st.sampled_from(sorted(self.known)))
        for place in (config(thread, name, ns), config(thread, None, ns)):
            mutate(self.saver.get_tuple(place))
        for result in self.saver.list(None):
            mutate(result)

    def put_writes(self, data, task, writes, place=None):
        thread, ns, name = place or data.draw(st.sampled_from(sorted(self.known)))
        for saver in (self.memory, self.saver):
            saver.put_writes(config(thread, name, ns), writes, task, f"path-{task}")

    @rule()
    def restart(self):
        self.saver = FourfoldSaver(self.sessions)

    @rule()
    def evict(self):
        """Evict every thread from the cache, as many other threads would."""
        for number in range(ADAPTER_THREADS_MAX):
            self.saver._cache_log(f"other-{number}", "", None)

    @precondition(lambda self: self.known)
    @rule(
        data=st.data(),
        event=st.sampled_from(
            [
                {"type": "app/note", "text": "hello"},
                {"type": "session/compacted", "vars_ref": {}, "message": {"content": "all"}},
                {"type": "step/started", "step": {"status": "running"}},
                {"type": "message/appended", "message": {"content": "hello"}},
                None,
            ]
        ),
    )
    def append_foreign_event(self, data, event):
        thread, ns, _ = data.draw(st.sampled_from(sorted(self.known)))
        sid = self.saver._log(thread, ns).sid
        if event is None:
            self.sessions.publish_head(sid)
        else:
            self.sessions.append_event(sid, event)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def delete_thread(self, data):
        thread = data.draw(st.sampled_from(sorted({item[0] for item in self.known})))
        for saver in (self.memory, self.saver):
            saver.delete_thread(thread)
        self.known = {item for item in self.known if item[0] != thread}

    @rule(run=st.integers(0, 2))
    def delete_run(self, run):
        self.saver.delete_for_runs([f"r{run}"])
        for result in list(self.memory.list(None)):
            named = result.config["configurable"]
            if result.metadata["run_id"] == f"r{run}":
                place = (named["thread_id"], named["checkpoint_ns"], named["checkpoint_id"])
                del self.memory.storage[place[0]][place[1]][place[2]]
                self.memory.writes.pop(place, None)
                self.known.discard(place)
                self.rewritten = True

    @rule()
    def collect(self):
        self.sessions.gc(0)

    @rule(limit=st.none() | st.integers(0, 4), run=st.none() | st.integers(0, 2))
    def list_all(self, limit, run):
        expected = None if run is None else {"run_id": f"r{run}"}
        limit = None if self.rewritten else limit
        self.same(lambda saver: saver.list(None, limit=limit, filter=expected))

    @rule(thread=THREADS, before=NAMES, limit=st.none() | st.integers(0, 2))
    def list_thread(self, thread, before, limit):
        if thread in {item[0] for item in self.known}:
            end = config(thread, before)
            self.same(lambda saver: saver.list(config(thread), before=end, limit=limit))

    def same(self, ask):
        mine, theirs = list(map(describe, ask(self.saver))), list(map(describe, ask(self.memory)))
        if self.rewritten:
            # A thread that lost checkpoints begins again in this store, after the others.
            mine, theirs = sorted(mine, key=repr), sorted(theirs, key=repr)
        assert mine == theirs

    def teardown(self):
        for thread, ns, name in self.known:
            for saver in (self.saver, FourfoldSaver(self.sessions)):
                for result in (config(thread, name, ns), config(thread, None, ns)):
                    mine, theirs = saver.get_tuple(result), self.memory.get_tuple(result)
                    assert describe(mine) == describe(theirs)
        self.same(lambda saver: saver.list(None))
        assert self.sessions.verify() == []
        self.sessions.close()


def describe(found):
    place = found.config["configurable"]
    return (
        {name: value for name, value in place.items() if name != TIP},
        found.checkpoint,
        found.metadata,
        found.parent_config,
        sorted(found.pending_writes),
    )


class StorePrograms(Programs):
    """The same on a store, which is restored from backups."""

    def __init__(self):
        super().__init__()
        self.sessions.close()
        self.root = Path(tempfile.mkdtemp(prefix="fourfold-programs-"))
        self.copies = 0
        self.open()

    def open(self):
        self.store = fourfold.open(self.root / f"store-{self.copies}")
        self.sessions = self.store.sessions
        self.saver = FourfoldSaver(self.sessions)

    @rule(thread=THREADS, name=NAMES, value=VALUES)
    def restore(self, thread, name, value):
        """Continue from a backup: what was put after it never was."""
        self.copies += 1
        backup = self.root / f"backup-{self.copies}"
        self.store.backup(backup)
        put(self.saver, name, thread, x=value)
        self.store.close()
        fourfold.restore(backup, self.root / f"store-{self.copies}")
        self.open()

    @rule(thread=THREADS, name=NAMES, value=VALUES)
    def write_inside_a_transaction(self, thread, name, value):
        """Writes are refused there, and reads show what is committed."""
        calls = (
            lambda: put(self.saver, name, thread, x=value),
            lambda: self.saver.put_writes(config(thread, name), [("__resume__", value)], TASK),
            lambda: self.saver.delete_thread(thread),
            lambda: self.saver.copy_thread(thread, "new"),
            lambda: self.saver.prune([thread]),
        )
        with self.sessions.log.database.write():
            for call in calls:
                with pytest.raises(Refused, match="inside a transaction"):
                    call()
            self.same(lambda saver: saver.list(None))

    def teardown(self):
        try:
            super().teardown()
        finally:
            self.store.close()
            shutil.rmtree(self.root)


TestPrograms = Programs.TestCase
TestPrograms.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)
TestStorePrograms = StorePrograms.TestCase
TestStorePrograms.settings = settings(
    max_examples=examples(20), stateful_step_count=20, deadline=None
)
