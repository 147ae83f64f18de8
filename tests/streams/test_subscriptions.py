"""Subscriptions: no append is missed, leases are exclusive, generations only increase."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opened_streams import JSON, PULL, Opened, fence

from fourfold.errors import (
    AckRefused,
    AlreadyClaimed,
    AlreadyExists,
    InvalidInput,
    LimitExceeded,
    NotFound,
    NothingPending,
    WakeFenced,
)
from fourfold.models.streams import Fork
from fourfold.models.streams.subscriptions import Ack, Subscribe
from fourfold.models.streams.subscriptions.leases import Fence, pause_ms
from fourfold.models.streams.subscriptions.members import check_pattern, literal_prefix, matches
from fourfold.models.streams.validation import format_offset

HOOK = Subscribe("hook", "webhook", "in/*", webhook_url="https://example.org/", lease_ttl_ms=1000)


@pytest.fixture
def opened(tmp_path):
    found = Opened(tmp_path / "wal.sqlite")
    found.streams.create("wakes", JSON)
    yield found
    assert list(found.streams.verify()) == []
    found.database.close()


def events(opened):
    chunk = opened.streams.open("wakes").read()
    return [json.loads(record.payload) for record in chunk.records]


# Patterns


@pytest.mark.parametrize(
    ("pattern", "name", "wanted"),
    [
        ("in/*", "in/a", True),
        ("in/*", "in/a/b", False),
        ("in/*", "in", False),
        ("in/**", "in", True),
        ("in/**", "in/a/b", True),
        ("**", "anything/at/all", True),
        ("*", "a/b", False),
        ("a/**/z", "a/z", True),
        ("a/**/z", "a/b/c/z", True),
        ("a/**/z", "a/b/c", False),
        ("user-*/log", "user-7/log", True),
        ("user-*/log", "users/log", False),
        ("*a*b*", "xxaxxbxx", True),
        ("*a*b*", "xxbxxaxx", False),
        ("a*a", "a", False),
    ],
)
def test_pattern_matches_names(pattern, name, wanted):
    assert matches(check_pattern(pattern), name) is wanted


PARTS = st.lists(st.sampled_from(["a", "b", "ab", "*", "a*", "*b", "**"]), min_size=1, max_size=5)


@given(PARTS, st.lists(st.sampled_from(["a", "b", "ab", "abb"]), min_size=1, max_size=5))
def test_pattern_matches_like_regular_expression(parts, name):
    pattern, text = "/".join(parts), "/".join(name)
    rule = "".join(
        "(?:/[^/]+)*" if part == "**" else "/" + part.replace("*", "[^/]*") for part in parts
    )
    assert matches(pattern, text) is (re.fullmatch(rule, "/" + text) is not None)
    if matches(pattern, text):
        assert text.startswith(literal_prefix(pattern))


@pytest.mark.parametrize("bad", ["", "/", "a//b", "a/../b", "a**", "**b/c", "x" * 2000, "a\nb", 7])
def test_invalid_pattern_is_rejected(bad):
    with pytest.raises(InvalidInput):
        check_pattern(bad)


# Followed streams


def test_subscription_starts_at_end_of_existing_streams(opened):
    opened.streams.create("in/old", JSON, body=b"[1,2]")
    opened.subscriptions.create(PULL)
    with pytest.raises(NothingPending):
        opened.subscriptions.claim("work", "me")
    opened.streams.create("in/new", JSON, body=b"[1,2,3]")
    wake = opened.subscriptions.claim("work", "me")
    assert [(link.stream, link.acked, link.tail) for link in wake.streams] == [("in/new", 0, 3)]


def test_create_is_idempotent_and_rejects_other_settings(opened):
    made = opened.subscriptions.create(PULL)
    assert made[1]
    assert opened.subscriptions.create(PULL) == (made[0], False)
    with pytest.raises(AlreadyExists):
        opened.subscriptions.create(PULL._replace(lease_ttl_ms=2000))


def test_named_stream_may_be_created_later(opened):
    opened.streams.create("source", JSON, body=b"[1,2]")
    opened.subscriptions.create(PULL._replace(pattern=None, streams=["x", "y"]))
    opened.streams.create("x", JSON, body=b"[1]")
    opened.streams.create("y", fork=Fork("source", None, 0))
    wake = opened.subscriptions.claim("work", "me")
    assert [(link.stream, link.tail) for link in wake.streams] == [("x", 1), ("y", 2)]


def test_recreated_stream_is_followed_from_its_start(opened):
    opened.streams.create("in/a", JSON, body=b"[1,2]")
    opened.streams.create("named", JSON, body=b"[1,2]")
    opened.subscriptions.create(PULL._replace(streams=["named"]))
    for name in ("in/a", "named"):
        opened.streams.delete(name)
        assert list(opened.streams.verify()) == []
        opened.streams.create(name, JSON, body=b"[3]")
    wake = opened.subscriptions.claim("work", "me")
    assert [(link.stream, link.acked) for link in wake.streams] == [("in/a", 0), ("named", 0)]


def test_removed_stream_is_still_followed_by_pattern(opened):
    opened.subscriptions.create(PULL)
    opened.streams.create("in/a", JSON)
    opened.subscriptions.reconcile()
    opened.subscriptions.add_streams("work", ["in/a", "b"])
    for name in ("in/a", "b", "never"):
        opened.subscriptions.remove_stream("work", name)
    assert [(link.stream, link.explicit) for link in opened.subscriptions.links("work")] == [
        ("in/a", False)
    ]


def test_subscription_never_follows_its_wake_stream(opened):
    opened.subscriptions.create(PULL._replace(pattern="**"))
    opened.streams.create("a", JSON, body=b"[1]")
    opened.subscriptions.reconcile()
    assert [link.stream for link in opened.subscriptions.links("work")] == ["a"]
    with pytest.raises(InvalidInput):
        opened.subscriptions.add_streams("work", ["wakes"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": ""},
        {"id": "a/b"},
        {"kind": "email"},
        {"pattern": None},
        {"lease_ttl_ms": 999},
        {"lease_ttl_ms": 600_001},
        {"lease_ttl_ms": True},
        {"wake_stream": None},
        {"webhook_url": "https://example.org"},
        {"streams": ["../up"]},
        {"streams": [7]},
        {"streams": [str(n) for n in range(1001)]},
        {"description": "x" * 3000},
    ],
)
def test_invalid_subscription_is_rejected(opened, wrong):
    with pytest.raises(InvalidInput):
        opened.subscriptions.create(PULL._replace(**wrong))
    assert opened.subscriptions.count() == 0


def test_pattern_with_too_many_streams_links_none(opened, monkeypatch):
    monkeypatch.setattr(
        "fourfold.models.streams.subscriptions.members.SUBSCRIPTION_BACKFILL_MAX", 2
    )
    for n in range(3):
        opened.streams.create(f"in/{n}", JSON)
    with pytest.raises(LimitExceeded):
        opened.subscriptions.create(PULL)
    assert opened.subscriptions.count() == 0


# Leases and fences


@pytest.fixture
def work(opened):
    """A subscription with one pending record."""
    opened.subscriptions.create(PULL)
    opened.streams.create("in/a", JSON, body=b"[1]")
    opened.subscriptions.reconcile()
    return opened


def test_wake_is_written_once_to_its_stream(work):
    work.subscriptions.reconcile()
    work.streams.open("in/a").append(b"2")
    work.subscriptions.reconcile()
    assert [(event["subscription_id"], event["stream"]) for event in events(work)] == [
        ("work", "in/a")
    ]


def test_only_one_worker_holds_a_lease_until_it_ends(work):
    first = work.subscriptions.claim("work", "one")
    with pytest.raises(AlreadyClaimed) as refused:
        work.subscriptions.claim("work", "two")
    assert refused.value.details["current_holder"] == "one"
    work.clock.ms += 30_000
    second = work.subscriptions.claim("work", "two")
    assert second.generation > first.generation
    with pytest.raises(WakeFenced):
        work.subscriptions.acknowledge("work", first, done=True)


def test_ack_extends_lease_and_late_ack_is_fenced(work):
    wake = work.subscriptions.claim("work", "one")
    for _ in range(3):
        work.clock.ms += 20_000
        work.subscriptions.acknowledge("work", fence(wake))
    work.clock.ms += 30_000
    acks = [Ack("in/a", format_offset(1))]
    with pytest.raises(WakeFenced):
        work.subscriptions.acknowledge("work", fence(wake), acks, done=True)
    assert work.subscriptions.links("work")[0].acked == 0


@pytest.mark.parametrize(
    "wrong", [{"wake_id": "w_other"}, {"generation": 99}, {"token_generation": 99}]
)
def test_every_part_of_fence_is_checked(work, wrong):
    wake = work.subscriptions.claim("work", "one")
    with pytest.raises(WakeFenced):
        work.subscriptions.acknowledge("work", fence(wake)._replace(**wrong), done=True)
    with pytest.raises(WakeFenced):
        work.subscriptions.release("work", fence(wake)._replace(**wrong))


def test_done_issues_wake_only_when_more_is_pending(work):
    wake = work.subscriptions.claim("work", "one")
    work.streams.open("in/a").append(b"2")
    first = [Ack("in/a", format_offset(1))]
    assert work.subscriptions.acknowledge("work", wake, first, done=True)
    wake = work.subscriptions.claim("work", "one")
    rest = [Ack("in/a", format_offset(2))]
    assert not work.subscriptions.acknowledge("work", wake, rest, done=True)
    with pytest.raises(NothingPending):
        work.subscriptions.claim("work", "one")


def test_release_issues_a_new_wake(work):
    wake = work.subscriptions.claim("work", "one")
    work.subscriptions.release("work", wake)
    work.subscriptions.reconcile()
    assert [event["generation"] for event in events(work)] == [1, 2]


@pytest.mark.parametrize(
    "ack",
    [
        Ack("in/a", "-1"),
        Ack("in/a", "now"),
        Ack("in/a", "nonsense"),
        Ack("in/a", format_offset(2)),
        Ack("in/other", format_offset(0)),
    ],
)
def test_invalid_offset_rejects_all_acks(work, ack):
    wake = work.subscriptions.claim("work", "one")
    with pytest.raises(AckRefused):
        work.subscriptions.acknowledge("work", fence(wake), [Ack("in/a", format_offset(1)), ack])
    assert work.subscriptions.links("work")[0].acked == 0


def test_cursor_never_moves_back(work):
    wake = work.subscriptions.claim("work", "one")
    work.subscriptions.acknowledge("work", fence(wake), [Ack("in/a", format_offset(1))])
    with pytest.raises(AckRefused):
        work.subscriptions.acknowledge("work", fence(wake), [Ack("in/a", format_offset(0))])


def test_leases_and_generations_survive_reopening(work):
    wake = work.subscriptions.claim("work", "one")
    work.reopen()
    with pytest.raises(AlreadyClaimed):
        work.subscriptions.claim("work", "two")
    assert not work.subscriptions.acknowledge(
        "work", fence(wake), [Ack("in/a", format_offset(1))], done=True
    )


def test_generations_increase_after_deletion(work):
    wake = work.subscriptions.claim("work", "one")
    assert work.subscriptions.delete("work")
    assert not work.subscriptions.delete("work")
    with pytest.raises(NotFound):
        work.subscriptions.acknowledge("work", fence(wake), done=True)
    work.subscriptions.create(PULL)
    work.streams.open("in/a").append(b"2")
    assert work.subscriptions.claim("work", "one").generation > wake.generation


def test_failed_wake_is_written_later(opened):
    opened.subscriptions.create(PULL._replace(wake_stream="later"))
    opened.streams.create("in/a", JSON, body=b"[1]")
    opened.subscriptions.reconcile()
    assert opened.subscriptions.get("work").failures == 1
    opened.streams.create("later", JSON)
    opened.subscriptions.reconcile()
    assert opened.streams.open("later").read().records == ()
    opened.clock.ms += 2_000
    opened.subscriptions.reconcile()
    assert len(opened.streams.open("later").read().records) == 1
    assert opened.subscriptions.get("work").failures == 0


# Webhooks, without HTTP


@pytest.fixture
def hook(opened):
    opened.subscriptions.create(HOOK)
    opened.streams.create("in/a", JSON, body=b"[1]")
    opened.subscriptions.reconcile()
    return opened


def test_webhook_done_acknowledges_only_its_wake(hook):
    wake = hook.subscriptions.attempt("hook")
    hook.streams.open("in/a").append(b"2")
    hook.subscriptions.delivered(wake, done=True)
    assert hook.subscriptions.links("hook")[0].acked == 1
    again = hook.subscriptions.attempt("hook")
    assert again.generation > wake.generation
    assert again.streams[0].tail == 2


def test_webhook_without_done_is_called_after_lease_expires(hook):
    wake = hook.subscriptions.attempt("hook")
    hook.subscriptions.delivered(wake, done=False)
    assert hook.subscriptions.webhooks(10) == ()
    hook.clock.ms += 1_000
    hook.subscriptions.reconcile()
    assert hook.subscriptions.webhooks(10) == (("hook", ""),)
    assert hook.subscriptions.attempt("hook").generation > wake.generation


def test_failed_webhook_is_retried_after_restart(hook):
    wake = hook.subscriptions.attempt("hook")
    hook.subscriptions.failed(wake)
    hook.reopen()
    assert hook.subscriptions.webhooks(10) == ()
    assert hook.subscriptions.get("hook").failures == 1
    hook.clock.ms += 1_200
    assert hook.subscriptions.webhooks(10) == (("hook", ""),)
    # Its lease had expired, so this is a new wake, and the old one is fenced.
    again = hook.subscriptions.attempt("hook")
    assert again.generation > wake.generation
    hook.subscriptions.delivered(wake, done=True)
    assert hook.subscriptions.links("hook")[0].acked == 0


def test_late_webhook_response_changes_nothing(hook):
    wake = hook.subscriptions.attempt("hook")
    acks = [Ack("in/a", format_offset(1))]
    assert not hook.subscriptions.acknowledge("hook", fence(wake), acks, kind="webhook", done=True)
    hook.subscriptions.failed(wake)
    hook.subscriptions.delivered(wake, done=False)
    found = hook.subscriptions.get("hook")
    assert (found.wake_id, found.failures, found.next_attempt_ms) == (None, 0, None)


def test_operations_require_matching_kind(hook, opened):
    opened.subscriptions.create(PULL)
    with pytest.raises(InvalidInput):
        hook.subscriptions.claim("hook", "me")
    with pytest.raises(InvalidInput):
        hook.subscriptions.acknowledge("work", Fence("w", 1, 1), kind="webhook")


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_retry_delay_grows_to_a_minute_with_jitter(failures, chance):
    pause = pause_ms(failures, chance)
    base = min(1000 * 2 ** min(failures, 10), 60_000)
    assert 0.8 * base - 1 <= pause <= 1.2 * base + 1


def test_verify_finds_wrong_cursor(opened):
    opened.subscriptions.create(PULL)
    opened.streams.create("in/a", JSON, body=b"[1]")
    opened.subscriptions.reconcile()
    for statement in (
        "UPDATE subscription_links SET pending = 0",
        "UPDATE subscription_links SET acked = 9",
        "UPDATE subscription_generation SET generation = 0",
    ):
        before = opened.database.transact(lambda txn: txn.all("SELECT * FROM subscription_links"))
        opened.database.transact(lambda txn, sql=statement: txn.execute(sql))
        assert opened.streams.verify()
        opened.database.transact(
            lambda txn, row=before[0]: txn.execute(
                "UPDATE subscription_links SET acked = ?1, pending = ?2", (row[4], row[5])
            )
        )
    opened.database.transact(
        lambda txn: txn.execute("UPDATE subscription_generation SET generation = 1")
    )
