"""Leases: one worker may write a session, and a stale one writes nothing."""

from __future__ import annotations

import asyncio

import pytest

import fourfold
from fourfold.errors import (
    AlreadyClaimed,
    AlreadyExists,
    InvalidInput,
    LeaseLost,
    NotFound,
    Refused,
)
from fourfold.models.sessions.leases import RESUMPTIONS_MAX
from fourfold.store.backup import restore
from fourfold.testing.session_log_contract import message, turn


@pytest.fixture
def session(sessions):
    return sessions.create({"id": "s", "model": "any"})


def test_writes_of_the_holder_are_accepted(sessions, session):
    claim = session.claim("one", 60)
    assert sessions.find_lease("s") == claim
    sessions.append_event("s", turn(), epoch=claim.epoch)
    sessions.append_events("s", [message(), message()], epoch=claim.epoch)
    session.append([message()], epoch=claim.epoch)
    head = sessions.publish_head("s", events=[message()], epoch=claim.epoch)
    assert head.event_range == (1, 6)


def test_stale_epoch_writes_nothing(sessions, session):
    old = session.claim("one", 60)
    new = session.claim("two", 60, steal=True)
    assert new.epoch > old.epoch
    edge = {"type": "invocation", "to_session": "t", "to_head": "sha256:" + "a" * 64}
    writes = [
        lambda: sessions.append_event("s", message(), epoch=old.epoch),
        lambda: sessions.append_events("s", [message()], epoch=old.epoch, key="k"),
        lambda: sessions.publish_head("s", epoch=old.epoch),
        lambda: sessions.publish_head("s", events=[message()], epoch=old.epoch),
        lambda: sessions.append_lineage_edge("s", edge, epoch=old.epoch),
        lambda: sessions.renew("s", old.epoch),
        lambda: sessions.release("s", old.epoch),
        lambda: asyncio.run(sessions.append_event_async("s", message(), epoch=old.epoch)),
        lambda: asyncio.run(sessions.publish_head_async("s", epoch=old.epoch)),
        lambda: asyncio.run(sessions.renew_async("s", old.epoch)),
        lambda: asyncio.run(sessions.release_async("s", old.epoch)),
    ]
    for write in writes:
        with pytest.raises(LeaseLost) as lost:
            write()
        assert lost.value.details["current"] == new.epoch
        assert lost.value.details["holder"] == "two"
    assert len(session) == 1
    assert sessions.find_lease("s") == new


def test_replayed_request_of_a_stale_worker_is_refused(sessions, session):
    old = session.claim("one", 60)
    sessions.append_events("s", [message()], epoch=old.epoch, key="k")
    assert sessions.append_events("s", [message()], epoch=old.epoch, key="k")[0].id == 2
    session.claim("two", 60, steal=True)
    with pytest.raises(LeaseLost):
        sessions.append_events("s", [message()], epoch=old.epoch, key="k")


def test_same_name_does_not_share_a_lease(session):
    session.claim("one", 60)
    with pytest.raises(AlreadyClaimed) as refused:
        session.claim("one", 60)
    assert 0 < refused.value.retry_after <= 60


def test_released_lease_writes_nothing_and_its_epoch_is_not_reused(sessions, session):
    first = session.claim("one")
    session.release(first.epoch)
    session.release(first.epoch)
    assert (sessions.find_lease("s"), sessions.list_leases()) == (None, [])
    for write in (
        lambda: sessions.append_event("s", message(), epoch=first.epoch),
        lambda: sessions.renew("s", first.epoch),
    ):
        with pytest.raises(LeaseLost):
            write()
    assert session.claim("two").epoch > first.epoch


def test_session_may_require_ownership(sessions):
    owned = sessions.create({"id": "owned", "ownership": "required"})
    edge = {"type": "invocation", "to_session": "t", "to_head": "sha256:" + "a" * 64}
    for write in (
        lambda: sessions.append_event("owned", message()),
        lambda: sessions.publish_head("owned"),
        lambda: sessions.append_lineage_edge("owned", edge),
    ):
        with pytest.raises(Refused, match="writes require an epoch"):
            write()
    epoch = owned.claim("one").epoch
    sessions.append_event("owned", message(), epoch=epoch)
    sessions.append_lineage_edge("owned", edge, epoch=epoch)
    assert len(owned) == 3
    fork = sessions.fork("owned", {"id": "fork"})
    with pytest.raises(Refused):
        fork.append(message())


def test_lease_of_one_session_stands_for_others(sessions, session):
    sessions.create({"id": "t"})
    old = session.claim("one", 60)
    sessions.append_event("s", message(), epoch=old)
    sessions.append_events("t", [message()], epoch=old)
    sessions.publish_head("t", events=[message()], epoch=old)
    new = session.claim("two", 60, steal=True)
    before = sessions.position()
    edge = {"type": "invocation", "to_session": "u", "to_head": "sha256:" + "a" * 64}
    for write in (
        lambda: sessions.append_event("t", message(), epoch=old),
        lambda: sessions.append_events("t", [message()], epoch=old, key="k"),
        lambda: sessions.publish_head("t", events=[message()], epoch=old),
        lambda: sessions.append_lineage_edge("t", edge, epoch=old),
        lambda: sessions.append_event("t", message(), epoch=old.epoch),
        lambda: asyncio.run(sessions.append_event_async("t", message(), epoch=old)),
    ):
        with pytest.raises(LeaseLost) as lost:
            write()
        assert lost.value.details["session"] in {"s", "t"}
    assert sessions.position() == before
    assert sessions.open("t").append(message(), epoch=new)[0].id == 4
    session.delete()
    with pytest.raises(NotFound):
        sessions.append_event("t", message(), epoch=new)


def test_lease_of_another_session_is_not_accepted(sessions, session):
    sessions.create({"id": "owned", "ownership": "required"})
    with pytest.raises(Refused, match="got one of session 's'"):
        sessions.append_event("owned", message(), epoch=session.claim("one"))
    claim = sessions.claim("owned", "one")
    sessions.append_event("owned", message(), epoch=claim)


@pytest.mark.parametrize(
    "arguments",
    [
        ("s", ""),
        ("s", 7),
        ("s", "x" * 201),
        ("s", "a\nb"),
        ("s", "one", 0),
        ("s", "one", -1),
        ("s", "one", float("nan")),
        ("s", "one", 86_401),
        ("s", "one", "30"),
        ("s", "one", True),
    ],
)
def test_invalid_claim_is_refused(sessions, session, arguments):
    del session
    with pytest.raises(InvalidInput):
        sessions.claim(*arguments)
    assert sessions.find_lease("s") is None


def test_invalid_epoch_and_ownership_are_refused(sessions, session):
    for epoch in (0, -1, "1", 1.0, True):
        with pytest.raises(InvalidInput):
            sessions.append_event("s", message(), epoch=epoch)
        with pytest.raises(InvalidInput):
            sessions.publish_head("s", epoch=epoch)
        with pytest.raises(InvalidInput):
            sessions.release("s", epoch)
    with pytest.raises(InvalidInput, match="ownership must be"):
        sessions.create({"id": "t", "ownership": "requierd"})
    assert len(session) == 1


def test_deleted_session_has_no_lease_and_reserves_its_name(sessions, session):
    claim = session.claim("one")
    session.delete()
    assert sessions.list_leases() == []
    for call in (
        lambda: sessions.claim("s", "two"),
        lambda: sessions.renew("s", claim.epoch),
        lambda: sessions.find_lease("s"),
        lambda: sessions.append_event("s", message(), epoch=claim.epoch),
    ):
        with pytest.raises(NotFound):
            call()
    with pytest.raises(AlreadyExists):
        sessions.create({"id": "s"})


def test_leases_are_listed_by_session_id(sessions):
    for sid in ("b/2", "a/1", "b/1", "c/1"):
        sessions.create({"id": sid})
    claims = {sid: sessions.claim(sid, f"worker of {sid}") for sid in ("b/2", "a/1", "b/1")}
    assert sessions.list_leases() == [claims["a/1"], claims["b/1"], claims["b/2"]]
    assert sessions.list_leases(prefix="b/") == [claims["b/1"], claims["b/2"]]
    assert sessions.list_leases(after="a/1", limit=1) == [claims["b/1"]]


def test_claims_while_a_turn_runs_are_resumptions(sessions):
    sessions.create({"id": "s"})
    sessions.append_event("s", {"type": "message/appended", "message": {"role": "user"}})
    first = sessions.claim("s", "one")
    sessions.release("s", first.epoch)
    sessions.append_event("s", {"type": "turn/started", "turn": {"status": "running"}})
    assert sessions.resumptions("s") == []
    two = sessions.claim("s", "two")
    sessions.append_event("s", {"type": "a/b"}, epoch=two.epoch)
    three = sessions.claim("s", "three", steal=True)
    sessions.renew("s", three.epoch)
    sessions.release("s", three.epoch)
    rows = sessions.resumptions("s")
    assert [(row.after, row.epoch, row.holder) for row in rows] == [
        (2, two.epoch, "two"),
        (3, three.epoch, "three"),
    ]
    sessions.append_event("s", {"type": "turn/put", "turn": {"id": 1, "status": "final"}})
    sessions.claim("s", "four")
    assert sessions.resumptions("s") == rows


def test_newest_resumptions_are_stored(sessions):
    sessions.create({"id": "s"})
    sessions.append_event("s", {"type": "turn/started", "turn": {"status": "running"}})
    for number in range(RESUMPTIONS_MAX + 2):
        sessions.claim("s", str(number), steal=True)
    rows = sessions.resumptions("s")
    assert len(rows) == RESUMPTIONS_MAX
    assert (rows[0].holder, rows[-1].holder) == ("2", str(RESUMPTIONS_MAX + 1))


def test_claim_in_a_failed_transaction_is_undone(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        store.sessions.create({"id": "s"})

        def fail(_txn):
            store.sessions.claim("s", "one")
            raise ValueError

        with pytest.raises(ValueError):
            store.sessions.log.database.transact(fail)
        assert store.sessions.find_lease("s") is None


def test_lease_survives_restart_and_backup(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        store.sessions.create({"id": "s"})
        claim = store.sessions.claim("s", "one", 3_600)
    with fourfold.open(tmp_path / "store") as store:
        assert store.sessions.find_lease("s") == claim
        with pytest.raises(AlreadyClaimed):
            store.sessions.claim("s", "two")
        store.backup(tmp_path / "backup")
        lost = store.sessions.claim("s", "two", steal=True)
    restore(tmp_path / "backup", tmp_path / "restored")
    with fourfold.open(tmp_path / "restored") as store:
        assert store.sessions.find_lease("s") == claim
        # The backup does not know the epoch of `lost`, and does not issue it again.
        assert store.sessions.claim("s", "three", steal=True).epoch > lost.epoch
