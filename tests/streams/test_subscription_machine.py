"""State machine of workers, appends, deletions and time, checked against a simple model."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from opened_streams import JSON, PULL, Opened, fence

from fourfold.errors import AckRefused, AlreadyClaimed, NothingPending, WakeFenced
from fourfold.models.streams import Append
from fourfold.models.streams.subscriptions import Ack
from fourfold.models.streams.validation import format_offset
from support.properties import examples


class SubscriptionMachine(RuleBasedStateMachine):
    """Workers, appends and time in any order: nothing is missed, cursors never move back."""

    folder = None
    count = 0

    @initialize()
    def begin(self):
        type(self).count += 1
        self.opened = Opened(self.folder / f"{self.count}.sqlite")
        self.opened.streams.create("wakes", JSON)
        self.opened.subscriptions.create(PULL._replace(lease_ttl_ms=1000))
        self.tails, self.acked, self.wakes, self.generation = {}, {}, [], 0

    @rule(name=st.sampled_from("abc"))
    def append(self, name):
        if name not in self.tails:
            self.opened.streams.create(f"in/{name}", JSON, body=b"[1]")
            self.tails[name], self.acked[name] = 1, 0
        else:
            self.opened.streams.append(f"in/{name}", Append([b"1"], JSON))
            self.tails[name] += 1

    @precondition(lambda self: self.tails)
    @rule(data=st.data())
    def delete(self, data):
        name = data.draw(st.sampled_from(sorted(self.tails)))
        self.opened.streams.delete(f"in/{name}")
        del self.tails[name], self.acked[name]

    @rule(ms=st.sampled_from([1, 400, 1000]))
    def time_passes(self, ms):
        self.opened.clock.ms += ms

    @rule()
    def settle(self):
        self.opened.subscriptions.reconcile()

    @rule()
    def reopen(self):
        self.opened.reopen()

    @rule(worker=st.sampled_from(["one", "two"]))
    def claim(self, worker):
        pending = {name for name in self.tails if self.tails[name] > self.acked[name]}
        try:
            wake = self.opened.subscriptions.claim("work", worker)
        except NothingPending:
            assert not pending
        except AlreadyClaimed:
            assert self.wakes
            assert self.opened.clock.ms < self.wakes[-1][1]
        else:
            assert {link.stream for link in wake.streams} == {f"in/{name}" for name in pending}
            assert wake.generation > self.generation
            self.generation = wake.generation
            self.wakes.append((wake, self.opened.clock.ms + 1000))

    @precondition(lambda self: self.wakes)
    @rule(data=st.data(), done=st.booleans())
    def acknowledge(self, data, done):
        wake, until = data.draw(st.sampled_from(self.wakes))
        current = wake is self.wakes[-1][0] and self.opened.clock.ms < until
        acks = [
            Ack(link.stream, format_offset(link.tail, link.incarnation_number))
            for link in wake.streams
            if link.tail <= self.tails.get(link.stream[3:], 0)
            and link.tail >= self.acked.get(link.stream[3:], 0)
        ]
        try:
            self.opened.subscriptions.acknowledge("work", fence(wake), acks, done=done)
        except WakeFenced:
            assert not current
        except AckRefused:
            # The stream was deleted and recreated since.
            assert current
        else:
            assert current
            for ack in acks:
                self.acked[ack.stream[3:]] = int(ack.offset[-16:])
            # After done this wake has ended; the next work has a new wake.
            self.wakes[-1] = (wake, 0 if done else self.opened.clock.ms + 1000)

    @invariant()
    def nothing_contradicts_itself(self):
        if hasattr(self, "opened"):
            assert list(self.opened.streams.verify()) == []
            assert self.opened.subscriptions.get("work").generation >= self.generation

    def teardown(self):
        if hasattr(self, "opened"):
            self.opened.database.close()


def test_subscription_misses_nothing_and_cursors_never_move_back(tmp_path):
    SubscriptionMachine.folder = tmp_path
    machine = SubscriptionMachine.TestCase
    machine.settings = settings(max_examples=examples(25), stateful_step_count=25, deadline=None)
    machine("runTest").runTest()
