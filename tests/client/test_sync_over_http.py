"""Sync over HTTP: nodes with servers pull, push and reconcile, and a runner keeps them in step."""

from __future__ import annotations

import shutil
import threading
from contextlib import ExitStack, contextmanager

import msgspec
import pytest
from sync_servers import ServedNode, serve_nodes

import fourfold
from fourfold.client import sync_runner
from fourfold.client.sync_round import PeerSync
from fourfold.client.sync_runner import SyncRunner
from fourfold.errors import BadAnswer, Forbidden, NotFound, PackageRefused, Unauthorized
from fourfold.models.graphs.sync import envelope as envelopes
from fourfold.models.graphs.sync.envelope import SignedEnvelope
from fourfold.models.graphs.sync.keys import to_bytes
from fourfold.server.auth import Access


@pytest.fixture
def nodes(tmp_path):
    two = serve_nodes(tmp_path, 2)
    yield two
    for node in two:
        node.stop()


@contextmanager
def peer(node, other, *, signs=True):
    """Rounds of a node with another one."""
    with fourfold.connect(other.url, node.keys[other.root], retry_for=0) as store:
        signer = node.signer if signs else None
        yield PeerSync(node.graphs, store.graphs.sync, node.peers[other.root], signer)


def sign(node):
    return node.graphs.sign_shared("talk", node.signer)


def test_round_brings_both_nodes_in_step(nodes):
    alice, bob = nodes
    for number in range(3):
        alice.write(f"a{number}")
        bob.write(f"b{number}")
    sign(bob)
    with peer(alice, bob) as sync:
        report = sync.run("talk")
        assert (report.pulled, report.pushed, report.in_step) == (3, 3, True)
        assert sync.run("talk") == report._replace(pulled=0, pushed=0)
    assert alice.texts() == bob.texts() == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert alice.graphs.verify() == bob.graphs.verify() == []


def count_requests(sync, monkeypatch):
    """The operations of the requests of a peer from now on."""
    connection, made = sync._remote._connection, []
    send = connection.transport.send

    def record(call):
        made.append(call.url.split("/v1/sync/")[1].split("/")[0])
        return send(call)

    monkeypatch.setattr(connection.transport, "send", record)
    return made


def test_equal_nodes_need_one_request(nodes, monkeypatch):
    alice, bob = nodes
    alice.write("one")
    with peer(alice, bob) as sync:
        sync.run("talk")
        made = count_requests(sync, monkeypatch)
        assert sync.run("talk").in_step
        assert made == ["heads"]
        bob.write("two")
        sign(bob)
        assert sync.run("talk").pulled == 1
        assert made[1:] == ["heads", "pull"]


def test_new_entries_are_sent_once(nodes, monkeypatch):
    alice, bob = nodes
    with peer(alice, bob) as sync:
        for number in range(4):
            alice.write(f"a{number}")
            bob.write(f"b{number}")
            # Each is ahead of the other in its own log.
            sign(alice)
            sign(bob)
            ingested = []
            original = alice.graphs.ingest_package
            monkeypatch.setattr(
                alice.graphs,
                "ingest_package",
                lambda peer_id, data, original=original, to=ingested: (
                    to.append(original(peer_id, data)) or to[-1]
                ),
            )
            assert sync.run("talk").in_step
            assert [(each.accepted, each.known) for each in ingested] == [(1, 0)]
            monkeypatch.undo()


def test_pull_and_push_are_one_direction_each(nodes):
    alice, bob = nodes
    alice.write("hers")
    bob.write("his")
    sign(bob)
    with peer(alice, bob) as sync:
        assert sync.pull("talk").pulled == 1
        assert bob.texts() == ["his"]
        report = sync.push("talk")
        assert (report.pushed, report.in_step) == (1, True)
    assert bob.texts() == ["hers", "his"]


def test_packages_are_pulled_in_parts(nodes):
    alice, bob = nodes
    for number in range(12):
        alice.write(f"{number}" * 9_000)
        bob.write(f"{number}" * 9_000)
    sign(bob)
    with peer(alice, bob) as sync:
        first = sync._remote.pull("talk", max_bytes=20_000)
        assert (first.envelopes, first.complete) == (2, False)
        assert sync.run("talk").in_step


def test_peer_lists_only_its_own_refused_rows(nodes, tmp_path):
    alice, bob = nodes
    carol = ServedNode(tmp_path / "carol", 9)
    for node, other in ((carol, bob), (bob, carol)):
        node.meet(other)
    bob.graphs.set_limits(bob.graphs.app("talk").app_id, rows_max=0)
    alice.write("hers")
    with peer(alice, bob) as sync, peer(carol, bob) as other:
        sync.push("talk")
        (refused,) = sync._remote.refusals()
        assert (refused.kind, refused.retryable) == ("limit_exceeded", True)
        assert (refused.domain, refused.author) == ("talk", alice.signer.public_key)
        assert other._remote.refusals() == ()
        bob.graphs.set_limits(bob.graphs.app("talk").app_id)
        sync.push("talk")
        assert sync._remote.refusals() == ()
    carol.stop()


def test_branches_of_a_fork_are_found_by_ranges(nodes, tmp_path):
    alice, bob = nodes
    carol = ServedNode(tmp_path / "carol", 9)
    for node, other in ((carol, alice), (alice, carol), (carol, bob), (bob, carol)):
        node.meet(other)
    carol.write("root")
    sign(carol)
    with peer(alice, carol) as sync:
        sync.run("talk")
    with peer(bob, carol) as sync:
        sync.run("talk")
    # Two copies of Carol that do not notice it: the same incarnation writes two branches.
    log = carol.graphs.sync_tips("talk")
    incarnation = bytes.fromhex(msgspec.json.decode(log)["logs"][0]["incarnation"])
    for node in (alice, bob):
        prev = bytes.fromhex(msgspec.json.decode(log)["logs"][0]["tips"][0][1])
        for number in range(2):
            data, prev = forged_entry(carol, incarnation, 2 + number, prev, f"{node.root.name}")
            done = node.graphs.ingest_package(node.peers[carol.root], data)
            assert not done.refused
    with peer(alice, bob) as sync:
        report = sync.run("talk")
        assert report.in_step
        assert (report.pulled, report.pushed) == (2, 2)
    assert len(alice.graphs.sync_forks()) == len(bob.graphs.sync_forks()) == 1
    carol.stop()


def forged_entry(node, incarnation, seq, prev, name):
    """A package with one entry of a node's own log, and the id of the entry."""
    author = to_bytes(node.signer.public_key)
    row = envelopes.RowBody(
        "talk", "parent", "note", author, f"{name}{seq}".encode().ljust(16, b"."), None, 1, (),
        "2026-01-31T12:00:00+00:00", "2026-01-31T12:00:00+00:00", None, None, None, None,
    )  # fmt: skip
    body = envelopes.encode_row(row)
    head = envelopes.EnvelopeHead(
        1, author, incarnation, "talk", seq, prev, (envelopes.digest(body),), len(body)
    )
    signed = envelopes.sign(head, [body], node.signer)
    return envelopes.pack([signed]), envelopes.digest(signed.head)


# Rights and refusals


def test_key_is_for_one_peer_and_its_rights(nodes):
    alice, bob = nodes
    bob.graphs.allow_peer(bob.peers[alice.root], "talk", may_write=False)
    alice.write("hers")
    with peer(alice, bob) as sync, pytest.raises(Forbidden, match="may not write"):
        sync.push("talk")
    bob.graphs.allow_peer(bob.peers[alice.root], "talk", may_read=False)
    with peer(alice, bob) as sync:
        for request in (
            lambda: sync._remote.heads("talk"),
            lambda: sync._remote.pull("talk"),
            lambda: sync._remote.reconcile("talk", alice.graphs.reconcile("talk")),
            lambda: sync._remote.heads("unknown"),
        ):
            with pytest.raises(Forbidden, match="may not read"):
                request()


def test_key_without_a_peer_is_refused(nodes):
    alice, bob = nodes
    with Access(bob.root) as access:
        secrets = {
            name: access.add(scopes, prefix, models=("graphs",))[1]
            for name, scopes, prefix in (
                ("of no peer", ("sync",), "ed25519:unknown"),
                ("of everything", ("sync",), ""),
                ("another scope", ("read", "write", "admin"), ""),
            )
        }
    for name, error in (
        ("of no peer", NotFound),
        ("of everything", NotFound),
        ("another scope", Forbidden),
    ):
        with fourfold.connect(bob.url, secrets[name]) as store, pytest.raises(error):
            store.graphs.sync.heads("talk")
    with fourfold.connect(bob.url, "ff_wrong") as store, pytest.raises(Unauthorized):
        store.graphs.sync.heads("talk")
    # The key of a peer does nothing else.
    with fourfold.connect(bob.url, alice.keys[bob.root]) as store, pytest.raises(Forbidden):
        store.graphs.list()


def test_refused_envelopes_are_listed_and_the_others_accepted(nodes):
    alice, bob = nodes
    other = alice.graphs.create("extra")
    kind = other.register_type("parent", "thing")
    row = {"type_id": kind, "owner_identity": alice.me, "sync_flags": 1}
    alice.write("one")
    other.insert("parent", [row])
    alice.write("two")
    with peer(alice, bob) as sync:
        report = sync.run("talk")
        assert not report.in_step
        assert {refusal.kind for refusal in report.refused_by_peer} >= {"app_not_in_domain"}
        assert bob.texts() == ["one"]
        # Nothing changed, so nothing is sent again; an audit tries it.
        assert sync.run("talk").refused_by_peer == ()
        bob.graphs.create("extra")
        assert sync.run("talk", audit=True).in_step
    assert bob.texts() == ["one", "two"]


def test_changed_envelope_is_refused_alone(nodes):
    alice, bob = nodes
    alice.write("hers")
    alice.write("again")
    sign(alice)
    data = alice.graphs.export_package("talk").data
    opened = [msgspec.msgpack.decode(raw, type=SignedEnvelope) for raw in envelopes.unpack(data)]
    broken = msgspec.structs.replace(opened[1], signature=bytes(64))
    with peer(alice, bob) as sync:
        report = sync._remote.push("talk", envelopes.pack([opened[0], broken]))
        assert report.accepted == 1
        assert [(each.envelope, each.kind) for each in report.refused] == [(1, "bad_signature")]
        for wrong in (b"", b"x" * 100):
            with pytest.raises(PackageRefused):
                sync._remote.push("talk", wrong)
        with pytest.raises(PackageRefused):
            sync._remote.reconcile("talk", b"\x93\x01")


def test_response_that_is_too_large_is_not_read(nodes, monkeypatch):
    alice, bob = nodes
    bob.write("x" * 5_000)
    sign(bob)
    with peer(alice, bob) as sync:
        call = sync._remote._calls.pull("talk", None, (), 0, 1_000)
        with pytest.raises(BadAnswer, match="larger than 1000"):
            sync._remote._connection.send(call._replace(response_max=1_000))


# Hints and the runner


def test_hints_name_the_domains_that_changed(nodes):
    alice, bob = nodes
    bob.graphs.define_domain("secret", 2)
    with peer(alice, bob) as sync:
        follower = sync._remote.events()
        assert follower.next(20).domain == "talk"
        bob.write("one")
        sign(bob)
        assert follower.next(20) == bob.graphs.sync_heads("talk")
        follower.close()


@pytest.fixture
def impatient(monkeypatch):
    """Runners that take a peer for gone at once."""
    monkeypatch.setattr(sync_runner, "SYNC_RETRY_S", 0.0)


class Rounds:
    """Waits for rounds of runners."""

    def __init__(self):
        self._change = threading.Condition()

    def notify(self, _status):
        with self._change:
            self._change.notify_all()

    def until(self, is_done):
        with self._change:
            assert self._change.wait_for(is_done, 60), "the nodes are not in step"


def run_all(stack, nodes, rounds):
    """Runners of all nodes with all others."""
    for node in nodes:
        targets = [node.target(other) for other in nodes if other is not node]
        runner = SyncRunner(node.graphs, targets, node.signer, on_status=rounds.notify)
        stack.enter_context(runner)


def test_runner_keeps_three_nodes_in_step(tmp_path):
    nodes = serve_nodes(tmp_path, 3)
    rounds = Rounds()
    texts = [f"{number}-{node.root.name}" for number in range(3) for node in nodes]
    with ExitStack() as stack:
        run_all(stack, nodes, rounds)
        for number in range(3):
            for node in nodes:
                node.write(f"{number}-{node.root.name}")
        rounds.until(lambda: all(node.texts() == sorted(texts) for node in nodes))
    for node in nodes:
        assert node.graphs.verify() == []
        node.stop()


def test_runner_reaches_a_peer_that_comes_back(nodes, impatient):
    alice, bob = nodes
    rounds = Rounds()
    port = bob.front.port
    with SyncRunner(
        alice.graphs, [alice.target(bob)], alice.signer, on_status=rounds.notify
    ) as runner:
        alice.write("one")
        rounds.until(lambda: runner.status()[0].in_step)
        bob.stop()
        alice.write("two")
        rounds.until(lambda: runner.status()[0].error is not None)
        bob.start(port)
        rounds.until(lambda: runner.status()[0].in_step)
        bob_texts = bob.texts()
    assert bob_texts == ["one", "two"]


def test_runner_continues_after_an_unexpected_error(nodes, monkeypatch):
    alice, bob = nodes
    rounds, failed, run = Rounds(), [], PeerSync.run

    def fail_once(self, domain, *, audit=False):
        if not failed:
            failed.append(domain)
            raise ZeroDivisionError
        return run(self, domain, audit=audit)

    monkeypatch.setattr(PeerSync, "run", fail_once)
    alice.write("one")
    with SyncRunner(
        alice.graphs, [alice.target(bob)], alice.signer, on_status=rounds.notify
    ) as runner:
        rounds.until(lambda: runner.status()[0].in_step)
    assert failed == ["talk"]
    assert bob.texts() == ["one"]


def test_peer_that_is_gone_does_not_delay_another(tmp_path, impatient):
    nodes = alice, bob, carol = serve_nodes(tmp_path, 3)
    targets = [alice.target(bob), alice.target(carol)]
    bob.stop()
    rounds = Rounds()
    with SyncRunner(alice.graphs, targets, alice.signer, on_status=rounds.notify) as runner:
        alice.write("one")
        rounds.until(lambda: carol.texts() == ["one"])
        rounds.until(lambda: runner.status()[0].error is not None)
    bob.start()
    for node in nodes:
        node.stop()


def test_restored_node_gets_back_what_it_lost(nodes, tmp_path):
    alice, bob = nodes
    alice.write("one")
    with peer(alice, bob) as sync:
        sync.run("talk")
    alice.stop()
    shutil.copytree(alice.root, tmp_path / "backup")
    alice.start()
    alice.write("two")
    with peer(alice, bob) as sync:
        assert sync.run("talk").pushed == 1
    alice.stop()
    shutil.rmtree(alice.root)
    shutil.copytree(tmp_path / "backup", alice.root)
    alice.start()
    assert alice.texts() == ["one"]
    alice.write("three")
    with peer(alice, bob) as sync:
        report = sync.run("talk")
        assert (report.pulled, report.pushed, report.in_step) == (1, 1, True)
    assert alice.texts() == bob.texts() == ["one", "three", "two"]
    assert alice.graphs.sync_forks() == bob.graphs.sync_forks() == ()
