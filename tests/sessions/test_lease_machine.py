"""Random claims, renewals, releases and writes, compared with a naive model under one clock."""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

import fourfold
from fourfold.errors import AlreadyClaimed, LeaseLost
from fourfold.models.sessions import Sessions, SqliteLog

SIDS = ("s", "t")
BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


class LeaseModel:
    """A lease by the rules in words: the last claim counts, until it is released."""

    def __init__(self) -> None:
        self.holder: str | None = None
        self.epoch: int | None = None
        self.until = BEGIN
        self.events = 0


class LeaseMachine(RuleBasedStateMachine):
    """A store in memory and one on disk, each beside the model."""

    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGIN
        self.folder = Path(tempfile.mkdtemp())
        self.memory = Sessions(clock=lambda: self.now)
        self.open()
        self.models = {sid: LeaseModel() for sid in SIDS}
        self.issued: set[tuple[str, int]] = set()
        for sid in SIDS:
            for sessions in self.both():
                sessions.create({"id": sid})

    def open(self) -> None:
        self.store = fourfold.open(self.folder / "store")
        log = SqliteLog(self.store.sessions.log.database)
        self.stored = Sessions(log, clock=lambda: self.now)

    def both(self) -> tuple[Sessions, Sessions]:
        return self.memory, self.stored

    def teardown(self) -> None:
        for sessions in self.both():
            assert sessions.verify() == []
        self.store.close()
        shutil.rmtree(self.folder)

    @rule(seconds=st.sampled_from([0.001, 1, 9, 10, 11, 60]))
    def wait(self, seconds):
        self.now += timedelta(seconds=seconds)

    @rule(seconds=st.sampled_from([1, 100]))
    def set_clock_back(self, seconds):
        self.now -= timedelta(seconds=seconds)

    @rule()
    def reopen(self):
        self.store.close()
        self.open()

    @rule(
        target=claims,
        sid=st.sampled_from(SIDS),
        holder=st.sampled_from("ab"),
        ttl_s=st.sampled_from([1, 10]),
        steal=st.booleans(),
    )
    def claim(self, sid, holder, ttl_s, steal):
        model = self.models[sid]
        if model.holder is not None and self.now < model.until and not steal:
            for sessions in self.both():
                with pytest.raises(AlreadyClaimed) as refused:
                    sessions.claim(sid, holder, ttl_s)
                assert refused.value.details["holder"] == model.holder
            return multiple()
        one, other = [s.claim(sid, holder, ttl_s, steal=steal) for s in self.both()]
        assert one == other
        assert (one.session, one.holder) == (sid, holder)
        assert one.epoch > max([0, *(epoch for name, epoch in self.issued if name == sid)])
        self.issued.add((sid, one.epoch))
        model.holder, model.epoch = holder, one.epoch
        model.until = self.now + timedelta(seconds=ttl_s)
        return (sid, one.epoch)

    @rule(claim=claims, ttl_s=st.sampled_from([1, 10]))
    def renew(self, claim, ttl_s):
        sid, epoch = claim
        model = self.models[sid]
        if self.check(claim, lambda sessions: sessions.renew(sid, epoch, ttl_s)):
            model.until = max(model.until, self.now + timedelta(seconds=ttl_s))

    @rule(claim=claims)
    def release(self, claim):
        sid, epoch = claim
        model = self.models[sid]
        if model.epoch == epoch:
            for sessions in self.both():
                sessions.release(sid, epoch)
            model.holder = None
        else:
            assert not self.check(claim, lambda sessions: sessions.release(sid, epoch))

    @rule(claim=claims, head=st.booleans())
    def write(self, claim, head):
        sid, epoch = claim

        def work(sessions):
            if head:
                sessions.publish_head(sid, events=[{"type": "a/b"}], epoch=epoch)
            else:
                sessions.append_events(sid, [{"type": "a/b"}, {"type": "a/c"}], epoch=epoch)

        if self.check(claim, work):
            self.models[sid].events += 2

    @rule(sid=st.sampled_from(SIDS))
    def write_without_an_epoch(self, sid):
        for sessions in self.both():
            sessions.append_event(sid, {"type": "a/b"})
        self.models[sid].events += 1

    def check(self, claim, work):
        """Do it on both stores; return True if the model says that the claim is the owner's."""
        sid, epoch = claim
        model = self.models[sid]
        owner = model.holder is not None and model.epoch == epoch
        for sessions in self.both():
            try:
                work(sessions)
            except LeaseLost:
                assert not owner
            else:
                assert owner
        return owner

    @invariant()
    def leases_and_logs_are_those_of_the_model(self):
        for sessions in self.both():
            held = sessions.list_leases()
            assert [lease.session for lease in held] == [
                sid for sid in SIDS if self.models[sid].holder is not None
            ]
            for lease in held:
                model = self.models[lease.session]
                assert (lease.holder, lease.epoch) == (model.holder, model.epoch)
                assert datetime.fromisoformat(lease.expires_at) == model.until
                assert sessions.find_lease(lease.session) == lease
            for sid in SIDS:
                assert sessions.peek_next_id(sid) - 1 == self.models[sid].events


TestLeases = LeaseMachine.TestCase
TestLeases.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
