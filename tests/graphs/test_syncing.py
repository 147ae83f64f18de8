"""Packages between nodes: taken in once, in order, whole, and only as their sender signed them."""

from __future__ import annotations

import base64
import json

import pytest
from graph_nodes import APP, SHARED, Node, everything

from fourfold.content import encode_jcs
from fourfold.errors import (
    InvalidInput,
    NotFound,
    PackageGap,
    PackageOverlaps,
    PackageRegresses,
    PackageReplayed,
    PackageTampered,
    Refused,
)
from fourfold.models.graphs import GLOBAL_SEQ, Query
from fourfold.models.graphs.sync.package import Ed25519Signer


@pytest.fixture
def nodes(tmp_path):
    """Alice, who wrote ten notes, and Bob, who knows her."""
    alice, bob = Node(tmp_path / "a.db", 1), Node(tmp_path / "b.db", 2)
    alice.meet(bob)
    bob.meet(alice)
    for n in range(10):
        write(alice, str(n))
    yield alice, bob
    alice.graphs.database.close()
    bob.graphs.database.close()


def write(node, text, flags=SHARED):
    with node.graphs.transaction() as txn:
        of = {"owner_identity": node.me, "sync_flags": flags}
        note = node.graphs.insert_parent(APP, {"type_id": node.types["parent"], **of}, txn=txn)
        body = {"type_id": node.types["attr"], "parent_id": note, "value_text": text, **of}
        node.graphs.insert_attr(APP, body, txn=txn)
    return note


def texts(node):
    return [row.value_text for row in node.graphs.current_attrs(APP)]


def package(alice, after, limit=1):
    sent = alice.graphs.export_package("notes", alice.signer, after=after, limit=limit)
    assert sent is not None
    return sent.data


def take(bob, alice, data):
    return bob.graphs.ingest_package(bob.peers[alice.path], data)


def refused(bob, alice, data, error):
    before = everything(bob.graphs), bob.cursor(alice), bob.graphs.get_global_seq()
    with pytest.raises(error) as caught:
        take(bob, alice, data)
    assert (everything(bob.graphs), bob.cursor(alice), bob.graphs.get_global_seq()) == before
    return caught.value


def test_pages_of_any_size_bring_every_row_once_and_numbers_whole(nodes):
    alice, bob = nodes
    while bob.pull(alice, limit=3):
        for rows in everything(bob.graphs).values():
            assert len({(row.origin, row.origin_seq, row.position) for row in rows}) == len(rows)
        assert len(everything(bob.graphs)["parent"]) == len(everything(bob.graphs)["attr"])
    assert texts(bob) == texts(alice)
    assert bob.cursor(alice) == alice.graphs.get_global_seq()


def test_rows_that_are_not_shared_stay_at_home(nodes):
    alice, bob = nodes
    write(alice, "private", flags=2)
    write(alice, "shared")
    bob.pull_all(alice)
    assert "private" not in texts(bob)
    assert "shared" in texts(bob)
    # The window covers the number of what was left out.
    assert bob.cursor(alice) == alice.graphs.get_global_seq()


def test_the_same_package_again_is_a_replay(nodes):
    alice, bob = nodes
    data = package(alice, 0)
    take(bob, alice, data)
    error = refused(bob, alice, data, PackageReplayed)
    # Alice's first numbers made her and Bob known; the first note came third.
    assert error.details == {"from_seq": 1, "to_seq": 3, "last_seq": 3}


def test_a_package_that_comes_too_early_is_a_gap(nodes):
    alice, bob = nodes
    refused(bob, alice, package(alice, 3), PackageGap)


def test_a_package_that_was_overtaken_regresses(nodes):
    alice, bob = nodes
    old = package(alice, 0)
    take(bob, alice, package(alice, 0, limit=100))
    refused(bob, alice, old, PackageRegresses)


def test_a_package_that_is_partly_known_overlaps(nodes):
    alice, bob = nodes
    take(bob, alice, package(alice, 0))
    refused(bob, alice, package(alice, 0, limit=100), PackageOverlaps)


def test_every_changed_byte_of_a_package_is_noticed_before_it_is_believed(nodes):
    alice, bob = nodes
    data = package(alice, 0)
    for at in range(0, len(data), 7):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        refused(bob, alice, changed, PackageTampered)
    take(bob, alice, data)


def test_signature_of_another_key_is_refused(nodes):
    alice, bob = nodes
    mallory = Ed25519Signer(bytes([9]) * 32)
    sent = alice.graphs.export_package("notes", mallory)
    refused(bob, alice, sent.data, PackageTampered)


def test_a_domain_or_an_app_that_is_not_here_is_refused(nodes):
    alice, bob = nodes
    alice.graphs.define_domain("secret", SHARED)
    sent = alice.graphs.export_package("secret", alice.signer)
    assert "secret" in refused(bob, alice, sent.data, NotFound).message
    with pytest.raises(NotFound, match="nowhere"):
        alice.graphs.export_package("nowhere", alice.signer)


def test_an_update_travels_and_wins_over_what_it_was_made_from(nodes):
    alice, bob = nodes
    bob.pull_all(alice)
    body = alice.graphs.current_attrs(APP)[0]
    alice.graphs.update(APP, "attr", body.object_id, {"value_text": "new", "sync_flags": SHARED})
    bob.pull_all(alice)
    assert texts(bob) == texts(alice)
    assert texts(bob).count("new") == 1


def test_two_updates_made_at_once_end_the_same_on_both_nodes(nodes):
    alice, bob = nodes
    bob.pull_all(alice)
    for node, text in ((alice, "hers"), (bob, "his")):
        row = next(r for r in node.graphs.current_attrs(APP) if r.value_text == "4")
        changes = {"value_text": text, "sync_flags": SHARED}
        node.graphs.update(APP, "attr", row.object_id, changes)
    alice.pull_all(bob)
    bob.pull_all(alice)
    assert sorted(texts(alice)) == sorted(texts(bob))
    # The one that lost is still there to be read.
    lost = {row.value_text for row in alice.graphs.select(Query(APP, "attr"))}
    assert {"hers", "his"} <= lost


def test_package_cannot_change_the_owner_of_an_object(nodes):
    alice, bob = nodes
    bob.pull_all(alice)
    body = alice.graphs.current_attrs(APP)[0]
    alice.graphs.update(APP, "attr", body.object_id, {"value_text": "x", "sync_flags": SHARED})
    sent = json.loads(package(alice, bob.cursor(alice)))
    sent["rows"][0]["owner"] = bob.signer.public_key
    refused(bob, alice, signed(alice, sent), InvalidInput)


def test_what_points_at_something_that_was_not_sent_is_refused(nodes):
    alice, bob = nodes
    sent = json.loads(package(alice, 0))
    sent["rows"] = [row for row in sent["rows"] if row["kind"] != "parent"]
    refused(bob, alice, signed(alice, sent), NotFound)


def test_sharing_a_part_of_what_is_private_is_noticed_by_the_sender(nodes):
    alice, _ = nodes
    note = write(alice, "private", flags=2)
    attr = alice.graphs.select_attrs(APP, parent_ids=[note])[0]
    alice.graphs.update_sync_flags(APP, "attr", [attr.id], SHARED)
    with pytest.raises(Refused, match="not shared"):
        alice.graphs.export_package("notes", alice.signer, limit=1000)


def test_nothing_leaves_that_a_power_cut_could_take_back(nodes):
    alice, _ = nodes
    write(alice, "fresh")
    assert alice.graphs.database.durable(GLOBAL_SEQ) < alice.graphs.get_global_seq()
    sent = alice.graphs.export_package("notes", alice.signer, limit=1000)
    assert sent.to_seq == alice.graphs.get_global_seq()
    assert alice.graphs.database.durable(GLOBAL_SEQ) == sent.to_seq


def signed(node, body):
    """A package with a body of our own making."""
    body.pop("signature")
    body["signature"] = base64.b64encode(node.signer.sign(encode_jcs(body))).decode()
    return encode_jcs(body)
