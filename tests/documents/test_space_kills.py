"""Random lives of a space with indexes whose process is killed within commits.

A kill leaves the files as they are. The machine copies them at a point of a commit, gives up the
store, and continues with the copy; all other rules of the machine apply to what is left.
"""

from __future__ import annotations

import contextlib
import shutil

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from space_machine import ENTITY, PICK, SpaceMachine
from space_operations import DOCUMENTS
from test_space_machine import QUICK, machine

from fourfold.errors import FourfoldError
from fourfold.kernel import failpoints
from fourfold.models.documents import HISTORIES
from fourfold.models.documents.indexes.declaration import SQL
from support.properties import examples

POINTS = ["kernel.statement.after", "kernel.commit.before", "kernel.commit.after"]


class _KilledError(Exception):
    """The process is dead at a fault point."""


class KilledSpaceMachine(SpaceMachine):
    """A life with kills: it continues with the files as they were at a point of a commit."""

    lives = 0

    @rule(
        pick=PICK,
        entity=ENTITY,
        document=DOCUMENTS,
        point=st.sampled_from(POINTS),
        at=st.integers(1, 12),
    )
    def kill(self, pick, entity, document, point, at):
        branch, before = self.branch(pick), self.model.seq
        if not self.model.lines[branch].active or self.is_dropping():
            return
        operations = [{"op": "set", "id": entity, "value": document}]
        is_killed = self.die(point, at, lambda: self.space.transact(operations, branch=branch))
        if not is_killed or self.space.seq() > before:
            # The commit did not reach the point, or was on disk before it.
            assert self.model.transact(branch, operations) == self.space.seq()
        assert self.space.seq() == self.model.seq
        assert all(info.state == "ready" for info in self.space.indexes)
        assert self.space.verify() == []
        self.compare(branch, self.model.seq)

    def is_dropping(self):
        """Return True while entries of a dropped index are being deleted, in another thread."""
        with self.space.view() as view:
            return bool(view.all(SQL.dropped))

    def die(self, point, at, work):
        """Run some work; if it reaches the point, continue with the files of that instant."""
        images = []

        def copy(_point):
            if not images:
                self.lives += 1
                image = self.folder / f"life{self.lives}"
                skip = shutil.ignore_patterns("*.lock", "*-shm")
                shutil.copytree(self.root, image, ignore=skip)
                images.append(image)
            raise _KilledError

        failpoints.arm(point, copy, at=at, repeat=True)
        try:
            with contextlib.suppress(_KilledError, FourfoldError):
                work()
        finally:
            failpoints.disarm()
        if not images:
            return False
        with contextlib.suppress(FourfoldError):
            self.close()
        self.root = images[0]
        self.open()
        return True


@pytest.mark.parametrize("kind", sorted(HISTORIES))
def test_index_and_log_agree_after_kills_in_a_random_life(kind):
    lives = settings(QUICK, max_examples=examples(15))
    run_state_machine_as_test(machine(kind, KilledSpaceMachine), settings=lives)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kind", sorted(HISTORIES))
def test_index_and_log_agree_after_kills_in_many_random_lives(kind):
    lives = settings(QUICK, max_examples=200, stateful_step_count=30)
    run_state_machine_as_test(machine(kind, KilledSpaceMachine), settings=lives)
