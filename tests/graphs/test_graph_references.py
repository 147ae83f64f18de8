"""What rows point at: it is checked before anything is written, however a row comes in."""

from __future__ import annotations

import pytest
from graph_nodes import APP
from test_inserts import attr, dump, parent

from fourfold.cli.main import run
from fourfold.errors import CorruptData, NotFound, Refused
from fourfold.models.graphs import intervals
from fourfold.models.graphs.verify import is_dangling, problems
from fourfold.store import open_store, restore


@pytest.fixture
def notes(graphs, types):
    """A parent 1 with an attribute 1, and their types."""
    graphs.insert_parent(APP, parent(types))
    graphs.insert_attr(APP, attr(types, 1))
    return types


def own(types, kind, pointers):
    return {"type_id": types[kind], "owner_identity": 1, **pointers}


BAD = {
    "attr.parent_id": ("attr", {"parent_id": 999}),
    "edge.src_parent_id": ("edge", {"src_parent_id": 999, "dst_parent_id": 1}),
    "edge.dst_parent_id": ("edge", {"src_parent_id": 1, "dst_parent_id": 999}),
    "edge.dst_attr_id": ("edge", {"src_parent_id": 1, "dst_attr_id": 999}),
    "rating.target_parent_id": ("rating", {"target_parent_id": 999}),
    "rating.target_attr_id": ("rating", {"target_attr_id": 999}),
}


def insert_one(graphs, kind, row):
    getattr(graphs, f"insert_{kind}")(APP, row)


def insert_few(graphs, kind, row):
    graphs.insert(APP, kind, [row] * 2)


def insert_many(graphs, kind, row):
    getattr(graphs, f"insert_many_{kind}s")(APP, [row] * 100)


def in_transaction(graphs, kind, row):
    with graphs.transaction() as txn:
        graphs.insert(APP, kind, [row], txn=txn)


def apply(graphs, kind, row):
    payload = {name: row[name] for name in row if name not in {"type_id", "owner_identity"}}
    op = {"op": f"{kind}_create", "app_id": APP, "type_id": row["type_id"], "owner_identity": 1}
    graphs.apply({"trace_id": "t", "ops": [{**op, "payload": payload}]})


@pytest.mark.parametrize("write", [insert_one, insert_few, insert_many, in_transaction, apply])
@pytest.mark.parametrize(("kind", "pointers"), BAD.values(), ids=BAD)
def test_dangling_reference_is_refused_by_name(graphs, notes, write, kind, pointers):
    before = dump(graphs)
    (reference,) = (name for name, value in BAD.items() if value == (kind, pointers))
    with pytest.raises(NotFound, match=rf"{reference}: app 1 has no \w+ 999"):
        write(graphs, kind, own(notes, kind, pointers))
    assert dump(graphs) == before


def test_refused_reference_writes_nothing_in_a_transaction_that_goes_on(graphs, notes):
    with graphs.transaction() as txn:
        second = graphs.insert_parent(APP, parent(notes), txn=txn)
        for rows in ([attr(notes, 999)], [attr(notes, second)] * 40 + [attr(notes, 999)]):
            with pytest.raises(NotFound, match="parent 999"):
                graphs.insert(APP, "attr", rows, txn=txn)
        graphs.insert_many_attrs(APP, [attr(notes, second)] * 40, txn=txn)
    assert len(graphs.select_attrs(APP)) == 41


def test_rows_of_the_same_transaction_can_be_referred_to(graphs, notes):
    with graphs.transaction() as txn:
        ids = graphs.insert_many_parents(APP, [parent(notes)] * 600, txn=txn)
        attrs = graphs.insert_many_attrs(APP, [attr(notes, each) for each in ids], txn=txn)
        row = own(notes, "edge", {"src_parent_id": ids[0], "dst_attr_id": attrs[-1]})
        graphs.insert_edge(APP, row, txn=txn)
        graphs.insert_attr(APP, attr(notes, ids[-1]), txn=txn)
    with graphs.database.read() as snapshot:
        assert problems(snapshot, "graphs", graphs.node) == []


def test_version_is_not_an_object_to_refer_to(graphs, notes):
    graphs.update(APP, "parent", 1, {"updated_at": "2026-01-01T00:00:00+00:00"})
    with pytest.raises(NotFound, match="no parent 2"):
        graphs.insert_attr(APP, attr(notes, 2))


# Identities


def identity_types(graphs):
    return {(each.kind, each.type_key): each.id for each in graphs.list_types(0)}


@pytest.mark.parametrize("how", ["update", "apply", "insert", "insert many", "handle"])
def test_identities_change_only_with_their_cache(graphs, how):
    me = graphs.add_identity("ed25519:me", "Me")
    types = identity_types(graphs)
    pubkey = {"type_id": types["attr", "pubkey"], "owner_identity": me.id, "parent_id": me.id}
    update = {"attr_id": 1, "value": "ed25519:evil"}
    op = {"op": "attr_update", "app_id": 0, "type_key": "pubkey", "owner_identity": me.id}
    calls = {
        "update": lambda: graphs.update(0, "attr", 1, {"value_text": "ed25519:evil"}),
        "apply": lambda: graphs.apply({"trace_id": "t", "ops": [{**op, "payload": update}]}),
        "insert": lambda: graphs.insert_attr(0, {**pubkey, "value_text": "ed25519:evil"}),
        "insert many": lambda: graphs.insert_many_parents(
            0, [{"type_id": types["parent", "identity"], "owner_identity": 1}] * 30
        ),
        "handle": lambda: graphs.with_transaction(
            lambda handle: handle.update(0, "attr", 1, {"value_text": "ed25519:evil"})
        ),
    }
    before = dump(graphs)
    with pytest.raises(Refused, match="identit") as caught:
        calls[how]()
    assert "add_identity" in caught.value.hint
    assert dump(graphs) == before


def test_other_types_of_the_system_app_can_be_written(graphs):
    me = graphs.add_identity("ed25519:me")
    kind = graphs.register_type(0, "attr", "colour")
    row = {"type_id": kind, "owner_identity": me.id, "parent_id": me.id, "value_text": "red"}
    note = graphs.insert_attr(0, row)
    graphs.update(0, "attr", note, {"value_text": "blue"})
    with graphs.database.read() as snapshot:
        assert problems(snapshot, "graphs", graphs.node) == []


# Stores of earlier versions, which accepted such rows


@pytest.fixture
def old_store(tmp_path):
    """A store with an attribute of a parent that does not exist."""
    root = tmp_path / "store"
    with open_store(root) as store:
        graphs = store.graphs
        app = graphs.register_app("notes", "Notes").app_id
        types = {kind: graphs.register_type(app, kind, kind) for kind in ("parent", "attr")}
        graphs.insert_attr(app, attr(types, graphs.insert_parent(app, parent(types))))
        with graphs.database.write() as txn:
            txn.execute("UPDATE app_1_attr SET parent_id = 999")
            intervals.rebuild(txn)
    return root


def test_verify_does_not_advise_a_restore_for_a_dangling_reference(old_store, capsys):
    assert run(["verify", str(old_store)]) == 8
    shown = "".join(capsys.readouterr())
    assert "parent_id of row 1 refers to parent 999, which does not exist" in shown
    assert "fourfold restore" not in shown
    assert "a backup does not help" in shown


def test_store_with_a_dangling_reference_can_be_restored(old_store, tmp_path):
    with open_store(old_store) as store:
        store.backup(tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again")
    with open_store(tmp_path / "again") as store:
        (row,) = store.graphs.select_attrs(1)
        assert row.parent_id == 999
        report = store.verify()
    assert not report.ok
    assert all(map(is_dangling, report.problems))
    report.raise_if_bad()


def test_damage_beside_a_dangling_reference_still_advises_a_restore(old_store, capsys):
    with open_store(old_store) as store, store.graphs.database.write() as txn:
        txn.execute("UPDATE app_usage SET rows = 7 WHERE app_id = 1")
    with open_store(old_store) as store, pytest.raises(CorruptData):
        store.verify().raise_if_bad()
    assert run(["verify", str(old_store)]) == 8
    assert "fourfold restore" in "".join(capsys.readouterr())
