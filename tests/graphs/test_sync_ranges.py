"""Reconciliation of ranges: both nodes find the whole difference, in few messages."""

from __future__ import annotations

import hashlib
from bisect import bisect_left

import pytest
from graph_nodes import take, write
from hypothesis import given, settings
from hypothesis import strategies as st

from fourfold.errors import InvalidInput, PackageRefused
from fourfold.models.graphs.sync import ranges
from fourfold.models.graphs.sync.entries import DomainEntries, _buckets_of, _shortest
from fourfold.models.graphs.sync.ranges import IdRange, RangeMessage, Summary


class ListedEntries:
    """A sorted list of ids."""

    def __init__(self, ids):
        self.all = sorted(ids)

    def ids(self, lower, upper):
        end = bisect_left(self.all, upper) if upper else len(self.all)
        return self.all[bisect_left(self.all, lower) : end]

    def summary(self, lower, upper):
        ids = self.ids(lower, upper)
        return Summary(len(ids), sum(int.from_bytes(each, "big") for each in ids))

    def bounds(self, lower, upper, parts):
        ids = self.ids(lower, upper)
        step = max(1, -(-len(ids) // parts))
        found = [_shortest(ids[at - 1], ids[at]) for at in range(step, len(ids), step)]
        return [bound for bound in found if bound > lower]


def ids_of(numbers):
    return {hashlib.sha256(str(number).encode()).digest() for number in numbers}


def reconciled(client, server):
    """What each side has besides, the round trips, and the bytes of all messages."""
    mine, theirs, trips, size = set(), set(), 0, 0
    message = ranges.begin(client)
    while message.ranges:
        assert trips < 64
        sent = ranges.encode_message(message)
        answer = ranges.encode_message(ranges.respond(server, ranges.decode_message(sent)))
        reply = ranges.decode_message(answer)
        message = ranges.respond(client, reply)
        trips, size = trips + 1, size + len(sent) + len(answer)
        theirs |= {entry[:12] for entry in reply.extra} | set(message.lacking)
        mine |= {entry[:12] for entry in message.extra} | set(reply.lacking)
    if message.extra or message.lacking:
        size += len(ranges.encode_message(message))
    return mine, theirs, trips, size


@settings(max_examples=60)
@given(
    common=st.integers(0, 3_000),
    left=st.integers(0, 400),
    right=st.integers(0, 400),
    salt=st.integers(0, 10),
)
def test_reconciliation_finds_the_whole_difference(common, left, right, salt):
    shared = ids_of(range(salt * 10_000, salt * 10_000 + common))
    mine, theirs = ids_of(range(-left, 0)), ids_of(range(-1_000 - right, -1_000))
    ours = reconciled(ListedEntries(shared | mine), ListedEntries(shared | theirs))
    assert ours[0] == {each[:12] for each in mine}
    assert ours[1] == {each[:12] for each in theirs}


def test_messages_stay_small_for_a_node_that_has_nothing(monkeypatch):
    monkeypatch.setattr(ranges, "IDS_MAX", 1_100)
    many = ids_of(range(5_000))
    for client, server in ((set(), many), (many, set())):
        mine, theirs, _, _ = reconciled(ListedEntries(client), ListedEntries(server))
        assert mine == {each[:12] for each in client}
        assert theirs == {each[:12] for each in server}


@pytest.mark.parametrize(
    "message",
    [
        RangeMessage(2, ()),
        RangeMessage(1, (IdRange(b"a"),)),
        RangeMessage(1, (IdRange(b""), IdRange(b""))),
        RangeMessage(1, (IdRange(b"b"), IdRange(b"a"), IdRange(b""))),
        RangeMessage(1, (IdRange(b"x" * 33), IdRange(b""))),
        RangeMessage(1, (IdRange(b"", b"short"),)),
        RangeMessage(1, (IdRange(b"", None, (b"short",)),)),
        RangeMessage(1, (), (b"short",)),
        RangeMessage(1, (), (), (b"short",)),
    ],
)
def test_message_that_is_not_valid_is_refused(message):
    with pytest.raises(PackageRefused):
        ranges.decode_message(ranges.encode_message(message))


def test_bytes_that_are_no_message_are_refused():
    for data in (b"", b"\xff" * 9, b"x" * (ranges.MESSAGE_BYTES_MAX + 1)):
        with pytest.raises(PackageRefused):
            ranges.decode_message(data)


def test_buckets_of_a_range_are_those_with_its_ids():
    assert list(_buckets_of(b"", b"")) == list(range(256))
    assert list(_buckets_of(b"\x10", b"\x12")) == [16, 17]
    assert list(_buckets_of(b"\x10\x80", b"\x11\x01")) == [16, 17]
    assert list(_buckets_of(b"\x10", b"\x10\x40")) == [16]
    assert list(_buckets_of(b"\xff\x01", b"")) == [255]


# The entries of a node


def fill(nodes, count):
    alice, bob, _ = nodes
    for number in range(count):
        write(alice, f"{number}")
    bob.pull_all(alice)
    return alice, bob


def test_equal_nodes_have_equal_heads(nodes):
    alice, bob = fill(nodes, 30)
    heads = alice.graphs.sync_heads("notes")
    assert heads.entries == 30
    assert bob.graphs.sync_heads("notes") == heads
    write(alice, "more")
    alice.graphs.sign_shared("notes", alice.signer)
    assert alice.graphs.sync_heads("notes") != heads


def test_entries_that_are_not_summed_yet_count(nodes):
    alice, bob = fill(nodes, 20)
    heads = bob.graphs.sync_heads("notes")
    write(alice, "more")
    bob.pull_all(alice)
    with bob.graphs.database.read() as snapshot:
        assert DomainEntries(snapshot, "notes").heads().entries == heads.entries + 1
        unsummed = DomainEntries(snapshot, "notes").heads()
    assert bob.graphs.sync_heads("notes") == unsummed
    assert bob.graphs.verify() == []


def test_wrong_sum_is_a_problem(nodes):
    alice, _ = fill(nodes, 3)
    alice.graphs.sync_heads("notes")
    with alice.graphs.transaction() as handle:
        handle.txn.execute("UPDATE sync_bucket SET count = count + 1")
    assert any("sync_bucket" in str(problem) for problem in alice.graphs.verify())


def test_nodes_reconcile_what_only_one_of_them_has(nodes):
    alice, bob = fill(nodes, 40)
    for node, text in ((alice, "a"), (bob, "b")):
        for number in range(7):
            write(node, f"{text}{number}")
        node.graphs.sign_shared("notes", node.signer)
    lacking, extra = set(), set()
    message = alice.graphs.reconcile("notes")
    while ranges.decode_message(message).ranges:
        answer = bob.graphs.reconcile("notes", message)
        message = alice.graphs.reconcile("notes", answer)
        for sent, other in ((answer, lacking), (message, extra)):
            other |= {each[:12] for each in ranges.decode_message(sent).extra}
        lacking |= set(ranges.decode_message(message).lacking)
        extra |= set(ranges.decode_message(answer).lacking)
    assert (len(lacking), len(extra)) == (7, 7)
    sent = bob.graphs.export_entries("notes", lacking)
    assert (sent.envelopes, sent.complete) == (7, True)
    assert take(alice, bob, sent.data).accepted == 7
    assert take(bob, alice, alice.graphs.export_entries("notes", extra).data).accepted == 7
    assert bob.graphs.sync_heads("notes") == alice.graphs.sync_heads("notes")


def test_entries_are_exported_within_size_and_only_of_their_domain(nodes):
    alice, _ = fill(nodes, 5)
    alice.graphs.define_domain("other", 2)
    with alice.graphs.database.read() as snapshot:
        ids = list(DomainEntries(snapshot, "notes").ids(b"", b""))
    first = alice.graphs.export_entries("notes", ids, max_bytes=10)
    assert (first.envelopes, first.complete) == (1, False)
    rest = alice.graphs.export_entries("notes", ids, after=first.position)
    assert (rest.envelopes, rest.complete) == (4, True)
    assert alice.graphs.export_entries("other", ids).envelopes == 0
    assert alice.graphs.export_entries("notes", [bytes(32)]).envelopes == 0
    for wrong in ([b"short"], [bytes(32)] * 1_001):
        with pytest.raises(InvalidInput):
            alice.graphs.export_entries("notes", wrong)
