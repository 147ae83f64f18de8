"""The kernel against a dumb model: a list of committed rows, and snapshots of that list.

Hypothesis chooses what happens in which order; after every step the database and the list agree.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import ledger
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from fourfold.errors import Conflict, SequenceRegression, WriterLocked
from fourfold.kernel import Options, inspection, verify_backup
from support.properties import examples

BODIES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.binary(max_size=2_000),
)


class Oops(Exception):
    """What a work raises when it changes its mind."""


def stay_with_it(good):
    if not good:
        raise Oops


class Machine(RuleBasedStateMachine):
    snapshots = Bundle("snapshots")
    backups = Bundle("backups")

    @initialize()
    def start(self):
        self.folder = Path(tempfile.mkdtemp(prefix="fourfold-machine-"))
        self.path = self.folder / "ledger.db"
        self.rows = []
        self.taken = 0
        self.held = {}
        self.open()

    def open(self):
        # So few pages that the background checkpointer has a part in this.
        self.db = ledger.open_ledger(self.path, options=Options(checkpoint_bytes=4096 * 8))

    def teardown(self):
        for stack, _, _ in getattr(self, "held", {}).values():
            stack.close()
        if hasattr(self, "db"):
            self.db.close()
            shutil.rmtree(self.folder)

    def next_rows(self, bodies):
        return [(len(self.rows) + n, body) for n, body in enumerate(bodies, start=1)]

    # Writing

    @rule(body=BODIES, in_loop=st.booleans())
    def transact(self, body, in_loop):
        if in_loop:
            seq = ledger.transact_in_loop(self.db, ledger.put(body))
        else:
            seq = self.db.transact(ledger.put(body))
        self.rows += self.next_rows([body])
        assert seq == len(self.rows)

    @rule(body=BODIES, when=st.sampled_from(["before", "after", "constraint"]))
    def transact_that_fails(self, body, when):
        def work(txn):
            if when == "before":
                raise Oops
            seq = ledger.put(body)(txn)
            if when == "constraint":
                txn.execute("INSERT INTO entry VALUES (?, ?)", (seq, body))
            raise Oops

        with pytest.raises((Oops, Conflict)):
            self.db.transact(work)

    @rule(outcomes=st.lists(st.tuples(BODIES, st.booleans()), min_size=2, max_size=6))
    def transact_together(self, outcomes):
        """A group, some of whose members write and then fail."""

        def work(body, good):
            def run(txn):
                seq = ledger.put(body)(txn)
                if not good:
                    raise Oops
                return seq

            return run

        async def call():
            calls = [self.db.transact_async(work(*outcome)) for outcome in outcomes]
            return await asyncio.gather(*calls, return_exceptions=True)

        results = asyncio.run(call())
        for (body, good), result in zip(outcomes, results, strict=True):
            if good:
                self.rows += self.next_rows([body])
                assert result == len(self.rows)
            else:
                assert isinstance(result, Oops)

    @rule(
        steps=st.lists(st.tuples(st.lists(BODIES, max_size=3), st.booleans()), max_size=4),
        good=st.booleans(),
    )
    def write_with_steps(self, steps, good):
        """A transaction of its own; each step is a nested one, and may be undone alone."""
        kept = []
        try:
            with self.db.write() as txn:
                for bodies, keep in steps:
                    try:
                        with self.db.write() as step:
                            for body in bodies:
                                ledger.put(body)(step)
                            stay_with_it(keep)
                        kept += bodies
                    except Oops:
                        assert txn.value("SELECT count(*) FROM entry") == len(self.rows) + len(kept)
                stay_with_it(good)
        except Oops:
            kept = []
        self.rows += self.next_rows(kept)

    @rule(bodies=st.lists(BODIES, max_size=300))
    def insert_many(self, bodies):
        def work(txn):
            if bodies:
                first = txn.claim(ledger.ENTRY, len(bodies))
                rows = [(first + n, body) for n, body in enumerate(bodies)]
                txn.insert_many("entry", ("seq", "body"), rows)

        self.db.transact(work)
        self.rows += self.next_rows(bodies)

    # Reading

    @rule(target=snapshots)
    def hold_a_snapshot(self):
        if len(self.held) == 4:
            return multiple()
        self.taken += 1
        stack = ExitStack()
        snapshot = stack.enter_context(self.db.read())
        self.held[self.taken] = (stack, snapshot, list(self.rows))
        return self.taken

    @rule(name=snapshots)
    def look_again(self, name):
        if name in self.held:
            _, snapshot, rows = self.held[name]
            assert snapshot.all("SELECT seq, body FROM entry ORDER BY seq") == rows

    @rule(name=consumes(snapshots))
    def let_go(self, name):
        if name in self.held:
            stack, _, _ = self.held.pop(name)
            stack.close()

    # Upkeep

    @rule(mode=st.sampled_from(["PASSIVE", "FULL", "RESTART", "TRUNCATE"]))
    def checkpoint(self, mode):
        done = self.db.checkpoint(mode)
        if not self.held:
            assert not done.busy

    @rule()
    def reopen(self):
        for stack, _, _ in self.held.values():
            stack.close()
        self.held.clear()
        self.db.close()
        assert not self.path.with_name("ledger.db-wal").exists()
        self.open()

    @precondition(lambda self: not self.held)
    @rule()
    def vacuum(self):
        self.db.vacuum()

    @rule(target=backups)
    def back_up(self):
        self.taken += 1
        copy = self.folder / f"copy-{self.taken}.db"
        sidecar = self.db.backup(copy)
        assert sidecar.sequences == {"entry": len(self.rows)}
        assert verify_backup(copy) == sidecar
        with ledger.open_ledger(copy, mode="r") as db:
            assert ledger.entries(db) == self.rows
        return copy, list(self.rows)

    @rule(backup=backups)
    def restore(self, backup):
        """Refused while it is open; then refused if it would lower the sequence, or done."""
        copy, rows = backup
        with pytest.raises(WriterLocked):
            inspection.restore(copy, self.path)
        for stack, _, _ in self.held.values():
            stack.close()
        self.held.clear()
        self.db.close()
        if len(rows) < len(self.rows):
            with pytest.raises(SequenceRegression):
                inspection.restore(copy, self.path)
        else:
            inspection.restore(copy, self.path)
        self.open()

    # What always holds

    @invariant()
    def the_database_holds_the_rows_of_the_model(self):
        if hasattr(self, "db"):
            assert ledger.entries(self.db) == self.rows
            ledger.assert_dense(self.db, len(self.rows))

    @invariant()
    def snapshots_keep_their_view(self):
        for _, snapshot, rows in getattr(self, "held", {}).values():
            assert snapshot.value("SELECT count(*) FROM entry") == len(rows)
            assert snapshot.value(ledger.ENTRY.read) == len(rows)


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

TestKernelMachine = Machine.TestCase
TestKernelMachine.settings = settings(
    max_examples=examples(25), stateful_step_count=25, deadline=None, suppress_health_check=QUIET
)


@pytest.mark.slow
class TestKernelMachineForLong(Machine.TestCase):
    settings = settings(
        max_examples=examples(120),
        stateful_step_count=60,
        deadline=None,
        suppress_health_check=QUIET,
    )
