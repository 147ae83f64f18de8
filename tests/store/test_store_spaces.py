"""Spaces as part of a store: listed, verified, backed up and restored like all that is in it."""

from __future__ import annotations

import apsw
import pytest

import fourfold
from fourfold import errors

DID = "did:key:z6MkStoreTest"


@pytest.fixture
def filled(root):
    with fourfold.open(root) as store:
        space = store.space(DID)
        space.set("urn:a", {"value": {"n": 0}})
        for _ in range(12):
            space.patch("urn:a", [{"op": "increment", "path": "/value/n", "by": 1}])
    return root


def test_a_store_names_its_spaces_and_opens_each_once(filled):
    with fourfold.open(filled) as store:
        assert store.spaces() == [DID]
        assert store.space(DID) is store.space(DID)


@pytest.mark.parametrize("did", ["", "x", "did:key:", "did:key:../up", "did:key:a/b", "DID:key:a"])
def test_a_bad_did_is_refused_before_a_path_is_built(root, did):
    with fourfold.open(root) as store, pytest.raises(errors.InvalidInput):
        store.space(did)
    assert not (root / "spaces").exists()


def test_verify_looks_inside_a_space(filled):
    with fourfold.open(filled) as store:
        assert store.verify().ok
    path = filled / "spaces" / f"{DID}.sqlite"
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE revision SET data = replace(data, '1', '2') WHERE seq = 5")
    connection.close()
    with fourfold.open(filled) as store:
        report = store.verify()
    assert any("commit 5" in problem.message for problem in report.problems)


def test_restored_space_has_every_past_state_and_goes_on_above(filled, tmp_path):
    with fourfold.open(filled) as store:
        store.backup(tmp_path / "copy")
        store.space(DID).delete("urn:a")
    with pytest.raises(errors.SequenceRegression):
        fourfold.restore(tmp_path / "copy", filled)
    fourfold.restore(tmp_path / "copy", filled, advance=True)
    with fourfold.open(filled) as store:
        space = store.space(DID)
        assert [space.read("urn:a", at=at).document["value"]["n"] for at in range(1, 14)] == [
            *range(13)
        ]
        assert space.set("urn:b", {}).seq == 15
        assert space.verify() == []


def test_space_keeps_page_size_that_it_was_made_with(root):
    with fourfold.open(root, settings={"documents.page_size": 4096}) as store:
        store.space(DID).set("urn:a", {})
    with fourfold.open(root) as store, store.space(DID).database.read() as snapshot:
        assert snapshot.value("PRAGMA page_size") == 4096
