"""Envelopes between nodes: what an author signed arrives as it is, and nothing else does."""

from __future__ import annotations

import shutil

import msgspec
import pytest
from forged_envelopes import opened, refusal, row, signed
from graph_nodes import (
    APP,
    SHARED,
    Node,
    everything,
    exported,
    open_graphs,
    shape,
    take,
    texts,
    write,
)

from fourfold.errors import (
    InvalidInput,
    NotFound,
    PackageRefused,
    PackageTampered,
    Refused,
    TooLarge,
)
from fourfold.kernel import backup
from fourfold.models.graphs import GLOBAL_SEQ, Query
from fourfold.models.graphs.sync import envelope as envelopes
from fourfold.models.graphs.sync import ingest
from fourfold.models.graphs.sync.incarnation import token_path
from fourfold.models.graphs.sync.keys import Ed25519Signer, to_bytes

# What arrives


def test_rows_of_all_kinds_arrive_unchanged(nodes):
    alice, bob, _ = nodes
    values = [
        {"value_number": 2.0**53}, {"value_number": 1.7e18}, {"value_number": -0.0},
        {"value_blob": b"\x00\xff"}, {"value_json": '{"b": 1.0, "a": 9007199254740993}'}, {},
    ]  # fmt: skip
    for value in values:
        write(alice, None, **(value or {"value_text": "é\u20ac"}))
    note, attr = write(alice, "last")
    of = {"owner_identity": alice.me, "sync_flags": SHARED}
    edge = {"type_id": alice.types["edge"], "src_parent_id": note, "dst_attr_id": attr, **of}
    alice.graphs.insert_edge(APP, edge)
    rating = {"type_id": alice.types["rating"], "target_attr_id": attr, "value_number": 3, **of}
    alice.graphs.insert_rating(APP, rating)
    bob.pull_all(alice)
    assert shape(bob) == shape(alice)
    assert bob.graphs.verify() == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_number_that_is_not_finite_is_refused_at_insert(nodes, value):
    with pytest.raises(InvalidInput, match="finite"):
        write(nodes[0], None, value_number=value)


def test_envelopes_are_forwarded_byte_for_byte(nodes):
    alice, bob, carol = nodes
    write(alice, "one")
    sent = exported(alice).data
    take(bob, alice, sent)
    assert bob.graphs.export_package("notes").data == sent
    carol.pull_all(bob)
    assert texts(carol) == ["one"]
    assert alice.pull_all(carol) == 0


def test_rows_that_are_not_shared_stay_at_home(nodes):
    alice, bob, _ = nodes
    write(alice, "private", flags=2)
    write(alice, "shared")
    bob.pull_all(alice)
    assert texts(bob) == ["shared"]


def test_package_may_be_repeated_reordered_and_lost(nodes):
    alice, bob, _ = nodes
    packages = []
    tips = None
    for n in range(4):
        write(alice, str(n))
        packages.append(exported(alice, tips=tips).data)
        tips = alice.graphs.sync_tips("notes")
    early = take(bob, alice, packages[2])
    assert [(each.kind, each.retryable) for each in early.refused] == [("gap", True)]
    assert take(bob, alice, packages[0]).accepted == 1
    again = take(bob, alice, packages[0])
    assert (again.known, again.accepted, again.added) == (1, 0, 0)
    bob.pull_all(alice)
    assert texts(bob) == ["0", "1", "2", "3"]


def test_one_refused_envelope_does_not_stop_the_others(nodes):
    alice, bob, _ = nodes
    write(alice, "one")
    write(bob, "two")
    both = opened(exported(alice).data) + opened(exported(bob).data)
    broken = msgspec.structs.replace(both[0], signature=bytes(64))
    done = take(nodes[2], alice, envelopes.pack([broken, both[1]]))
    assert [each.kind for each in done.refused] == ["bad_signature"]
    assert texts(nodes[2]) == ["two"]


def test_package_keeps_to_its_size_in_bytes(nodes):
    alice, bob, _ = nodes
    for n in range(8):
        write(alice, f"{n}" * 400)
    sent = exported(alice, max_bytes=3000)
    assert len(sent.data) <= 3100
    assert not sent.complete
    bob.pull_all(alice, max_bytes=3000)
    assert texts(bob) == texts(alice)


def test_transaction_of_many_rows_becomes_several_envelopes(nodes):
    alice, bob, _ = nodes
    of = {"type_id": alice.types["parent"], "owner_identity": alice.me, "sync_flags": SHARED}
    alice.graphs.insert_many_parents(APP, [of] * 2500)
    assert exported(alice).signed == 3
    bob.pull_all(alice)
    assert len(bob.graphs.select_parents(APP)) == 2500


def test_transaction_in_two_domains_is_whole_in_each(nodes):
    alice, bob, _ = nodes
    for node in (alice, bob):
        node.graphs.define_domain("extra", 2)
    bob.graphs.allow_peer(bob.peers[alice.path], "extra")
    with alice.graphs.transaction() as txn:
        for flags in (SHARED, 2, SHARED, 2):
            of = {"owner_identity": alice.me, "type_id": alice.types["parent"]}
            alice.graphs.insert_parent(APP, {**of, "sync_flags": flags}, txn=txn)
    for domain in ("extra", "notes"):
        assert bob.pull_all(alice, domain) == 1
    seqs = [(row.sync_flags, row.global_seq) for row in bob.graphs.select_parents(APP)]
    # The rows of each domain arrive under one seq; both domains together need two.
    assert len(set(seqs)) == 2
    assert sorted(flags for flags, _ in seqs) == [1, 1, 2, 2]


def test_shared_row_that_becomes_private_stops_nothing(nodes):
    alice, bob, _ = nodes
    note, _ = write(alice, "once")
    bob.pull_all(alice)
    alice.graphs.update_sync_flags(APP, "parent", [note], 0)
    write(alice, "later")
    bob.pull_all(alice)
    assert texts(bob) == ["later", "once"]


def test_value_that_does_not_fit_into_an_envelope_stops_nothing(nodes):
    alice, bob, _ = nodes
    write(alice, "x" * (2 << 20))
    write(alice, "small")
    (row_,) = exported(alice).not_shareable
    assert "envelope" in row_.reason
    bob.pull_all(alice)
    assert texts(bob) == ["small"]


# What is refused, in the order of the checks


def test_every_changed_byte_is_noticed(nodes):
    alice, bob, _ = nodes
    write(alice, "one")
    data = exported(alice).data
    before = everything(bob.graphs), bob.graphs.get_global_seq()
    for at in range(0, len(data), 3):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        try:
            done = take(bob, alice, changed)
            assert done.refused, at
            assert not done.accepted
        except (PackageRefused, PackageTampered):
            pass
    assert (everything(bob.graphs), bob.graphs.get_global_seq()) == before
    assert take(bob, alice, data).accepted == 1


def test_truncated_oversized_or_unknown_package_is_refused(nodes):
    alice, bob, _ = nodes
    write(alice, "one")
    with pytest.raises(PackageTampered, match="cut off"):
        take(bob, alice, exported(alice).data[:-1])
    with pytest.raises(PackageRefused, match="not a sync package"):
        take(bob, alice, b'{"format": 1}')
    with pytest.raises(TooLarge):
        take(bob, alice, bytes(5 << 20))
    with pytest.raises(NotFound, match="unknown peer"):
        bob.graphs.ingest_package(99, exported(alice).data)


FORGERIES = {
    "unknown_format": lambda a, b: signed(a, row(a), format=2),
    "malformed": lambda a, b: signed(a, row(a, nonce=b"short")),
    "bad_signature": lambda a, b: signed(b, row(a), author=to_bytes(a.signer.public_key)),
    "content_mismatch": lambda a, b: signed(a, row(a), rows=(bytes(32),)),
    "peer_not_allowed": lambda a, b: signed(a, row(a), domain="secret"),
    "system_app": lambda a, b: signed(a, row(a, app="system")),
    "app_not_in_domain": lambda a, b: signed(a, row(a, app="unknown")),
    "not_the_author": lambda a, b: signed(b, row(a)),
    "gap": lambda a, b: signed(a, row(a), seq=2, prev=bytes(32)),
}


@pytest.mark.parametrize("kind", FORGERIES)
def test_forged_envelope_is_refused_with_its_kind(nodes, kind):
    alice, bob, carol = nodes
    carol.graphs.define_domain("secret", 4)
    assert refusal(carol, alice, FORGERIES[kind](alice, bob)) == kind
    assert carol.graphs.verify() == []


MALFORMED = {
    "number": {"kind": "attr", "pointers": (bytes(32),), "value_number": float("nan")},
    "two values": {"kind": "attr", "pointers": (bytes(32),), "value_text": "a", "value_json": "1"},
    "time": {"created_at": "yesterday"},
    "pointers": {"pointers": (bytes(32),)},
    "version": {"version": 2},
    "value of a parent": {"value_text": "x"},
    "type": {"type": ""},
}


@pytest.mark.parametrize("name", MALFORMED)
def test_row_that_could_not_be_inserted_is_malformed(nodes, name):
    alice, _, carol = nodes
    assert refusal(carol, alice, signed(alice, row(alice, **MALFORMED[name]))) == "malformed"


def test_envelope_of_an_unknown_key_is_refused(nodes, tmp_path):
    alice, _, carol = nodes
    dave = Node(tmp_path / "d.db", 9)
    assert refusal(carol, alice, signed(dave, row(dave))) == "key_unknown"
    carol.graphs.add_identity(dave.signer.public_key)
    assert take(carol, alice, signed(dave, row(dave))).accepted == 1
    dave.graphs.database.close()


def object_of(node, data):
    """The id of the first row of a package."""
    return envelopes.decode_head(opened(data)[0].head).rows[0]


def test_peer_cannot_write_a_version_of_another_author_s_object(nodes):
    alice, bob, carol = nodes
    write(alice, "hers")
    data = exported(alice).data
    take(carol, alice, data)
    forged = row(bob, object=object_of(alice, data), version=9)
    assert refusal(carol, bob, signed(bob, forged)) == "not_the_owner"
    assert texts(carol) == ["hers"]


def test_version_cannot_change_what_is_fixed(nodes):
    alice, _, carol = nodes
    write(alice, "hers")
    data = exported(alice).data
    take(carol, alice, data)
    changed = row(alice, object=object_of(alice, data), version=2, type="other")
    assert refusal(carol, alice, signed(alice, changed)) == "field_changed"


def test_object_outside_of_the_domain_cannot_be_changed_through_it(nodes):
    alice, _, carol = nodes
    for node in (alice, carol):
        node.graphs.define_domain("diary", 2)
    carol.graphs.allow_peer(carol.peers[alice.path], "diary")
    write(alice, "diary", flags=2)
    data = exported(alice, "diary").data
    take(carol, alice, data)
    first = envelopes.decode_row(opened(data)[0].bodies[0])
    fields = {"created_at": first.created_at, "object": object_of(alice, data), "version": 2}
    assert refusal(carol, alice, signed(alice, row(alice, **fields))) == "object_not_in_domain"


def test_row_cannot_refer_to_a_row_of_another_kind(nodes, tmp_path):
    """Where what it refers to arrives first, last or with it, it is stored and never applied."""
    alice, bob, carol = nodes
    dora = Node(tmp_path / "d.db", 9)
    dora.meet(alice)
    write(alice, "hers")
    data = exported(alice).data
    attr = envelopes.decode_head(opened(data)[0].head).rows[1]
    forged = signed(alice, row(alice, kind="attr", type="x", pointers=(attr,), updated_at=None))
    together = envelopes.pack([*opened(data), *opened(forged)])
    for node, packages in ((bob, (forged, data)), (carol, (data, forged)), (dora, (together,))):
        assert sum(take(node, alice, package).accepted for package in packages) == 2
        assert texts(node) == ["hers"]
        (never,) = node.graphs.parked_rows()
        assert (never.missing, "not a parent" in never.reason) == (None, True)
        assert node.graphs.verify() == []
    dora.graphs.database.close()


def test_peer_without_the_right_is_refused(nodes):
    alice, bob, _ = nodes
    write(alice, "one")
    data = exported(alice).data
    bob.graphs.allow_peer(bob.peers[alice.path], "notes", may_write=False)
    assert refusal(bob, alice, data) == "peer_not_allowed"
    alice.graphs.allow_peer(alice.peers[bob.path], "notes", may_read=False)
    with pytest.raises(Refused, match="may not read"):
        exported(alice, peer_id=alice.peers[bob.path])


def test_domain_accepts_only_its_apps(nodes):
    alice, bob, _ = nodes
    other = bob.graphs.register_app("other", "Other").app_id
    bob.graphs.restrict_domain("notes", [other])
    write(alice, "one")
    data = exported(alice).data
    assert refusal(bob, alice, data) == "app_not_in_domain"
    bob.graphs.restrict_domain("notes", [other, APP])
    assert take(bob, alice, data).accepted == 1


def test_envelope_beyond_limit_of_app_is_refused_and_retried(nodes):
    alice, bob, _ = nodes
    write(alice, "one")
    bob.graphs.set_limits(APP, rows_max=1)
    data = exported(alice).data
    assert refusal(bob, alice, data) == "limit_exceeded"
    bob.graphs.set_limits(APP)
    assert take(bob, alice, data).accepted == 1


def test_identity_keys_never_change_by_sync(nodes):
    alice, _, carol = nodes
    before = carol.graphs.list_identities()
    fields = {"kind": "attr", "type": "pubkey", "pointers": (bytes(32),), "updated_at": None}
    key = row(alice, app="system", **fields)
    assert refusal(carol, alice, signed(alice, key)) == "system_app"
    assert carol.graphs.list_identities() == before
    assert carol.graphs.rebuild_identities().restored == 0


# Sharing late


def test_row_that_is_shared_late_follows_what_it_points_at(nodes):
    alice, bob, _ = nodes
    write(alice, "first")
    bob.pull_all(alice)
    note, attr = write(alice, "late", flags=0)
    bob.pull_all(alice)
    alice.graphs.update_sync_flags(APP, "attr", [attr], SHARED)
    (kept,) = exported(alice).not_shareable
    assert (kept.kind, kept.row_id) == ("attr", attr)
    assert bob.pull_all(alice) == 0
    alice.graphs.update_sync_flags(APP, "parent", [note], SHARED)
    bob.pull_all(alice)
    assert texts(bob) == ["first", "late"]


def test_domain_that_a_relay_learns_later_is_forwarded(nodes):
    alice, bob, carol = nodes
    write(alice, "both", flags=3)
    bob.pull_all(alice)
    for node in nodes:
        node.graphs.define_domain("extra", 2)
        for peer in node.peers.values():
            node.graphs.allow_peer(peer, "extra")
    bob.pull_all(alice, "extra")
    assert [each.sync_flags for each in bob.graphs.select_parents(APP)] == [3]
    note = alice.graphs.select_parents(APP)[0].object_id
    of = {"owner_identity": alice.me, "sync_flags": 2, "parent_id": note}
    alice.graphs.insert_attr(APP, {"type_id": alice.types["attr"], "value_text": "more", **of})
    bob.pull_all(alice, "extra")
    carol.pull_all(bob, "extra")
    assert texts(carol) == ["both", "more"]


def test_row_with_missing_target_waits_while_its_log_continues(nodes):
    alice, bob, carol = nodes
    write(alice, "hers")
    bob.pull_all(alice)
    note = bob.graphs.select_parents(APP)[0].object_id
    of = {"owner_identity": bob.me, "sync_flags": SHARED, "parent_id": note}
    bob.graphs.insert_attr(APP, {"type_id": bob.types["attr"], "value_text": "reply", **of})
    write(bob, "his")
    his = [each for each in opened(exported(bob).data) if head_of(each).author != key(alice)]
    done = take(carol, bob, envelopes.pack(his))
    assert (done.accepted, done.added, done.parked) == (2, 2, 1)
    assert texts(carol) == ["his"]
    (waiting,) = carol.graphs.parked_rows()
    assert waiting.kind == "attr"
    carol.pull_all(alice)
    assert carol.graphs.parked_rows() == ()
    assert texts(carol) == ["hers", "his", "reply"]
    assert carol.graphs.verify() == []


def head_of(envelope):
    return envelopes.decode_head(envelope.head)


def key(node):
    return to_bytes(node.signer.public_key)


def test_parked_rows_are_bounded(nodes, monkeypatch):
    alice, _, carol = nodes
    monkeypatch.setattr(ingest, "PARKED_MAX", 1)
    lost = [
        row(alice, kind="attr", type="x", pointers=(bytes([n]) * 32,), updated_at=None)
        for n in range(2)
    ]
    assert refusal(carol, alice, signed(alice, *lost)) == "limit_exceeded"


def test_rows_of_an_owner_without_a_key_stop_nothing(nodes):
    alice, bob, _ = nodes
    of = {"type_id": alice.types["parent"], "sync_flags": SHARED}
    alice.graphs.insert_parent(APP, {**of, "owner_identity": 0})
    write(alice, "mine")
    bob.pull_all(alice)
    assert texts(bob) == ["mine"]


# Restores, copies and forks


def incarnations(node):
    return {
        log["incarnation"] for log in msgspec.json.decode(node.graphs.sync_tips("notes"))["logs"]
    }


def restored(node, copy):
    """The node again, from a backup, in an empty folder."""
    node.graphs.database.close()
    folder = node.path.with_name(f"{node.path.stem}-restored")
    folder.mkdir()
    peers, path = node.peers, node.path
    node.path = folder / "backend.db"
    backup.restore(copy, node.path, (GLOBAL_SEQ,))
    node.open()
    node.peers = peers
    return path


def test_restored_node_starts_a_new_log_and_recovers_rows(nodes, tmp_path):
    alice, bob, _ = nodes
    write(alice, "one")
    bob.pull_all(alice)
    alice.graphs.backup(tmp_path / "copy.db")
    write(alice, "lost")
    bob.pull_all(alice)
    path = restored(alice, tmp_path / "copy.db")
    bob.peers[alice.path] = bob.peers[path]
    write(alice, "new")
    bob.pull_all(alice)
    assert texts(bob) == ["lost", "new", "one"]
    assert len(incarnations(bob)) == 2
    alice.pull_all(bob)
    assert texts(alice) == texts(bob)
    assert alice.graphs.verify() == bob.graphs.verify() == []
    assert bob.graphs.sync_forks() == ()


def test_row_that_was_signed_after_the_backup_is_not_doubled(nodes, tmp_path):
    alice, bob, _ = nodes
    write(alice, "one")
    alice.graphs.backup(tmp_path / "copy.db")
    bob.pull_all(alice)
    path = restored(alice, tmp_path / "copy.db")
    bob.peers[alice.path] = bob.peers[path]
    alice.pull_all(bob)
    bob.pull_all(alice)
    assert texts(alice) == texts(bob) == ["one"]


def test_row_that_was_shared_after_the_backup_is_recognized(nodes, tmp_path):
    alice, bob, _ = nodes
    note, attr = write(alice, "private", flags=0)
    alice.graphs.backup(tmp_path / "copy.db")
    alice.graphs.update_sync_flags(APP, "parent", [note], SHARED)
    alice.graphs.update_sync_flags(APP, "attr", [attr], SHARED)
    bob.pull_all(alice)
    path = restored(alice, tmp_path / "copy.db")
    bob.peers[alice.path] = bob.peers[path]
    alice.pull_all(bob)
    assert texts(alice) == texts(bob) == ["private"]
    assert [each.sync_flags for each in alice.graphs.select_attrs(APP)] == [SHARED]
    assert alice.graphs.verify() == []


def test_copied_folder_is_noticed(nodes, tmp_path):
    alice, bob, _ = nodes
    write(alice, "one")
    bob.pull_all(alice)
    alice.graphs.database.close()
    for file in (alice.path, token_path(alice.path)):
        shutil.copy2(file, file.with_name(file.name.replace("a.db", "copy.db")))
    alice.open()
    copy = open_graphs(tmp_path / "copy.db")
    of = {"type_id": alice.types["parent"], "owner_identity": alice.me, "sync_flags": SHARED}
    for graphs in (alice.graphs, copy):
        graphs.insert_parent(APP, of)
        assert take(bob, alice, graphs.export_package("notes", alice.signer).data).refused == ()
    assert len(incarnations(bob)) == 2
    assert bob.graphs.sync_forks() == ()
    copy.database.close()


def overwritten(node, copy):
    """Put an old copy back in place, byte by byte, so that nothing on the disk tells."""
    node.graphs.database.close()
    for side in ("-wal", "-shm"):
        node.path.with_name(node.path.name + side).unlink(missing_ok=True)
    with node.path.open("r+b") as file:
        file.truncate()
        file.write(copy.read_bytes())
    node.open()


def test_peer_that_has_more_of_this_incarnation_proves_a_restore(nodes, tmp_path):
    alice, bob, _ = nodes
    write(alice, "one")
    bob.pull_all(alice)
    alice.graphs.backup(tmp_path / "copy.db")
    write(alice, "lost")
    bob.pull_all(alice)
    overwritten(alice, tmp_path / "copy.db")
    alice.graphs.confirm_tips(alice.peers[bob.path], bob.graphs.sync_tips("notes"))
    write(alice, "new")
    bob.pull_all(alice)
    alice.pull_all(bob)
    assert texts(alice) == texts(bob) == ["lost", "new", "one"]
    assert bob.graphs.sync_forks() == ()


def test_fork_is_stored_shown_and_resolved_alike(nodes, tmp_path):
    alice, bob, carol = nodes
    _, attr = write(alice, "one")
    for node in (bob, carol):
        node.pull_all(alice)
    alice.graphs.backup(tmp_path / "copy.db")
    alice.graphs.update(APP, "attr", attr, {"value_text": "left"})
    bob.pull_all(alice)
    overwritten(alice, tmp_path / "copy.db")
    alice.graphs.update(APP, "attr", attr, {"value_text": "right"})
    carol.pull_all(alice)
    for _ in range(2):
        for node in nodes:
            for other in nodes:
                if other is not node:
                    node.pull_all(other)
    assert texts(alice) == texts(bob) == texts(carol)
    for node in (bob, carol):
        (fork,) = node.graphs.sync_forks()
        assert (fork.domain, fork.author, fork.seq) == ("notes", alice.signer.public_key, 2)
    every = {each.value_text for each in carol.graphs.select(Query(APP, "attr"))}
    assert every == {"one", "left", "right"}
    assert [node.graphs.verify() for node in nodes] == [[], [], []]


def test_two_devices_of_one_author_end_with_the_same_version(nodes, tmp_path):
    alice, bob, _ = nodes
    phone = Node(tmp_path / "phone.db", 1)
    for node, other in ((phone, alice), (phone, bob), (bob, phone), (alice, phone)):
        if node is phone:
            node.meet(other)
    bob.peers[phone.path] = bob.peers[alice.path]
    alice.peers[phone.path] = alice.peers[bob.path]
    _, attr = write(alice, "one")
    phone.pull_all(alice)
    (there,) = phone.graphs.current_attrs(APP)
    alice.graphs.update(APP, "attr", attr, {"value_text": "desk"})
    phone.graphs.update(APP, "attr", there.object_id, {"value_text": "phone"})
    for _ in range(2):
        bob.pull_all(alice)
        bob.pull_all(phone)
        alice.pull_all(phone)
        phone.pull_all(bob)
    assert texts(alice) == texts(bob) == texts(phone)
    assert phone.graphs.verify() == alice.graphs.verify() == []
    phone.graphs.database.close()


# Confirmations


def test_only_what_a_peer_confirmed_is_left_out(nodes):
    alice, bob, _ = nodes
    peer = alice.peers[bob.path]
    write(alice, "one")
    lost = exported(alice, peer_id=peer)
    assert exported(alice, peer_id=peer).data == lost.data
    take(bob, alice, lost.data)
    assert alice.graphs.confirm_tips(peer, bob.graphs.sync_tips("notes")) == 1
    assert exported(alice, peer_id=peer).envelopes == 0
    write(alice, "two")
    assert exported(alice, peer_id=peer).envelopes == 1
    with pytest.raises(PackageRefused, match="tips"):
        alice.graphs.confirm_tips(peer, b"{}")


def test_what_is_exported_survives_a_power_cut(nodes):
    alice, _, _ = nodes
    write(alice, "fresh")
    assert alice.graphs.database.durable(GLOBAL_SEQ) < alice.graphs.get_global_seq()
    exported(alice)
    assert alice.graphs.database.durable(GLOBAL_SEQ) == alice.graphs.get_global_seq()


def test_key_of_another_person_signs_nothing_of_mine(nodes):
    alice, _, _ = nodes
    write(alice, "mine")
    mallory = Ed25519Signer(bytes([9]) * 32)
    assert alice.graphs.export_package("notes", mallory).envelopes == 0
    with pytest.raises(NotFound, match="nowhere"):
        alice.graphs.export_package("nowhere", alice.signer)
