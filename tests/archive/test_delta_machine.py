"""Random writers, checkpoints and truncations of a Delta log against a naive model."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from delta_tables import created, txn
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from fourfold.archive.delta_actions import EMPTY, AddFile
from fourfold.archive.delta_log import CommitConflict, DeltaLog
from fourfold.errors import HistoryTruncated, NotFound
from fourfold.objects import MemoryStore
from fourfold.testing.faulty_store import Fault, FaultyStore
from support.properties import examples

LATER = datetime.now(UTC) + timedelta(days=30)
NAMES = st.sampled_from([f"{name} %é.parquet" for name in "abcdef"])


class DeltaLogMachine(RuleBasedStateMachine):
    """The model is a list of states: for each version its files, removals and transactions."""

    snapshots = Bundle("snapshots")

    def __init__(self):
        super().__init__()
        self.objects = MemoryStore()
        self.lose_responses = False
        self.log = DeltaLog(FaultyStore(self.objects, self.plan), "tables/t")
        self.model = []
        self.oldest = 0
        self.checkpoints = set()
        self.number = 0

    def plan(self, call):
        """Lose the response to the first put of a commit, if requested."""
        if self.lose_responses and call.op == "put" and call.key.endswith(".json"):
            self.lose_responses = False
            return Fault.TIME_OUT
        return None

    def actions(self, version, added, removed):
        files, tombstones, txns = self.model[-1] if self.model else ({}, {}, {})
        files, tombstones = dict(files), dict(tombstones)
        self.number += 1
        actions = [txn(self.number)]
        for path in removed - added:
            if path in files:
                actions.append(files.pop(path).removed(self.number, data_change=False))
                tombstones[path] = actions[-1]
        for path in added:
            files[path] = AddFile(path, self.number, 1, data_change=False)
            tombstones.pop(path, None)
            actions.append(files[path])
        state = (files, tombstones, {**txns, "app": txn(self.number)})
        return (created(*actions) if version == 0 else actions), state

    @rule(target=snapshots, added=st.sets(NAMES), removed=st.sets(NAMES), lost=st.booleans())
    def commit(self, added, removed, lost):
        version = len(self.model)
        actions, state = self.actions(version, added, removed)
        self.lose_responses = lost
        self.log.commit(actions, version, {"number": self.number})
        assert not self.lose_responses
        self.model.append(state)
        return self.log.snapshot()

    @rule(snapshot=snapshots, added=st.sets(NAMES))
    def commit_again(self, snapshot, added):
        """A writer with an old state gets the commit that is there, and changes nothing."""
        if snapshot.version + 1 >= len(self.model):
            return
        version = snapshot.version + 1
        if version < self.oldest:
            # Nothing is at a truncated version: a publisher reads the newest state first.
            return
        actions, _ = self.actions(version, added, set())
        with pytest.raises(CommitConflict) as caught:
            self.log.commit(actions, version)
        assert caught.value.commit.txn("app") == self.model[version][2]["app"].version

    @rule(snapshot=snapshots)
    def checkpoint(self, snapshot):
        if snapshot.version >= self.oldest:
            self.log.checkpoint(snapshot)
            self.checkpoints.add(snapshot.version)

    @rule(before=st.integers(0, 20))
    def truncate(self, before):
        usable = [version for version in self.checkpoints if version <= before]
        expected = max(usable, default=0)
        oldest = self.log.truncate(before, grace_s=0, now=LATER)
        if self.model:
            self.oldest = max(self.oldest, expected)
            assert oldest == self.oldest
            self.checkpoints = {v for v in self.checkpoints if v >= self.oldest}

    @rule(target=snapshots, snapshot=snapshots)
    def update(self, snapshot):
        updated = self.log.update(snapshot)
        self.check(updated, len(self.model) - 1)
        return updated

    @rule(target=snapshots, version=st.integers(0, 20))
    def read(self, version):
        if version >= len(self.model):
            with pytest.raises(NotFound):
                self.log.snapshot(version)
        elif version < self.oldest:
            with pytest.raises(HistoryTruncated):
                self.log.snapshot(version)
        else:
            snapshot = self.log.snapshot(version)
            self.check(snapshot, version)
            return snapshot
        return multiple()

    @invariant()
    def newest_state_is_readable(self):
        if not self.model:
            assert self.log.snapshot() == EMPTY
        else:
            self.check(self.log.snapshot(), len(self.model) - 1)

    def check(self, snapshot, version):
        assert snapshot.version == version
        assert (snapshot.files, snapshot.removed, snapshot.txns) == self.model[version]


DeltaLogMachine.TestCase.settings = settings(max_examples=examples(30), deadline=None)
TestDeltaLog = DeltaLogMachine.TestCase
