"""The rules of a random life that change nothing that may be read: upkeep, collections, moving into
another kind of history, closing and opening.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from fourfold.errors import HistoryTruncated
from fourfold.models.documents import HISTORIES
from fourfold.models.documents.bundle import carry_over
from fourfold.models.documents.gc.policy import GcPolicy
from support.document_model import text

MOVES_MAX = 2


class UpkeepRules(RuleBasedStateMachine):
    """Part of `SpaceMachine`, which has the space, the model, and what compares them."""

    moves = 0

    @rule(retention=st.sampled_from(["all", "log", 1, 2]))
    def maintain(self, retention):
        self.space.maintain(retention)

    @rule(
        keep=st.integers(1, 25),
        pin_age=st.integers(0, 30) | st.none(),
        snapshots=st.sampled_from(["all", "log", 1]),
        requests=st.booleans(),
    )
    def collect(self, keep, pin_age, snapshots, requests):
        """What the model calls readable stays as it was; the model itself forgets nothing."""
        model = self.model
        pins = set() if pin_age is None else {max(0, model.seq - pin_age)}
        policy = GcPolicy(keep_seqs=keep, pins=tuple(pins), snapshots=snapshots, requests=requests)
        known = {
            self.readable(name, pin) for name in model.lines for pin in pins if self.born(name, pin)
        }
        if None in known:
            return
        if False in known:
            self.refused(HistoryTruncated, lambda: self.space.gc(policy))
            return
        done = self.space.gc(policy)
        model.collect(keep, pins)
        assert done.horizon == self.space.horizon() == model.horizon
        assert self.space.seq() == model.seq

    @rule()
    def reopen(self):
        self.close()
        self.open()

    @rule()
    def verify(self):
        assert self.space.verify() == []

    @precondition(lambda self: self.moves < MOVES_MAX)
    @rule()
    def move(self):
        """The life goes on in a space with the other kind of history."""
        self.moves += 1
        self.carry_over()

    def carry_over(self):
        """The same life as another kind of history keeps it; refused when something is gone."""
        kind = next(name for name in sorted(HISTORIES) if name != self.kind)
        other = self.store.space(f"{self.did}{kind[0]}", history=kind)
        if self.model.horizon:
            self.refused(HistoryTruncated, lambda: carry_over(self.space, other))
            return False
        carry_over(self.space, other)
        self.did, self.kind, self.space = other.did, kind, other
        return True

    def born(self, branch, at):
        return self.model.lines[branch].created_seq <= at

    def readable(self, branch, at):
        """Whether a collection left a point; None when only the next merge knows."""
        if at is None or self.model.readable(branch, at):
            return True
        return None if (branch, at) in self.merged else False

    def same_history(self, entity, branch, at):
        """Every revision above the horizon; and all of them, unless some were taken."""
        model = self.model
        expected = model.history(branch, entity, at)
        for after in (0, model.horizon):
            try:
                found = self.space.history(entity, branch, after=after, at=at)
            except HistoryTruncated:
                assert after < model.horizon
                assert len([each for each in expected if each.seq <= model.horizon]) > 1
            else:
                assert [
                    (each.branch, each.id, each.seq, each.op_index, each.op, text(each.data))
                    for each in found
                ] == [each for each in expected if each.seq > after]
