"""Blobs of a space: bytes by content, and an entity that says what is known about them."""

from __future__ import annotations

import hashlib

import pytest

import fourfold
from fourfold import limits
from fourfold.content import parse_content_id
from fourfold.errors import BranchEnded, ContentError, InvalidInput, NotFound
from fourfold.models.documents.blobs import meta_id
from fourfold.testing.blob_contract import BlobStoreContract

DATA = b"some bytes"
HASH = "sha256:" + hashlib.sha256(DATA).hexdigest()


class TestTheTableOfASpace(BlobStoreContract):
    """What lies under `space.blobs` is a blob store like any other."""

    @pytest.fixture
    def store(self, root, history):
        with fourfold.open(root) as opened:
            yield opened.space("did:key:zBlobs", history=history).blobs.table

    def damage(self, store, blob_id, data):
        parameters = (data, parse_content_id(blob_id))
        store.database.transact(
            lambda txn: txn.execute("UPDATE blob_store SET data = ? WHERE hash = ?", parameters)
        )


def rows(space):
    with space.view() as view:
        return view.all("SELECT hash, data, content_type, size FROM blob_store")


def test_bytes_come_back_under_their_hash(space):
    assert space.blobs.put(DATA, "text/plain") == HASH
    assert space.blobs.get(HASH) == DATA
    assert space.blobs.has(HASH)
    stat = space.blobs.stat(HASH)
    assert (stat.hash, stat.size, stat.content_type) == (HASH, len(DATA), "text/plain")
    assert rows(space) == [(HASH.removeprefix("sha256:"), DATA, "text/plain", len(DATA))]
    assert list(space.blobs.ids()) == [HASH]


def test_a_blob_has_no_history(space):
    space.blobs.put(DATA)
    assert (space.seq(), space.blobs.meta(HASH)) == (0, None)


def test_equal_bytes_are_stored_once_with_the_first_content_type(space):
    space.blobs.put(DATA, "text/plain")
    space.blobs.put(bytearray(DATA), "text/html", metadata={"again": True})
    assert len(rows(space)) == 1
    assert space.blobs.stat(HASH).content_type == "text/plain"


def test_metadata_is_an_entity_written_with_the_bytes(space):
    space.blobs.put(DATA, "text/plain", metadata={"labels": ["a"]})
    entity = "urn:blob-meta:" + HASH.removeprefix("sha256:")
    assert meta_id(HASH) == entity
    assert space.seq() == 1
    assert space.read(entity) == space.blobs.meta(HASH)
    assert space.blobs.meta(HASH).document["value"] == {
        "blob": HASH,
        "content_type": "text/plain",
        "size": len(DATA),
        "labels": ["a"],
    }


def test_blob_too_large_for_a_commit_is_written_with_metadata(space):
    data = bytes(limits.GROUP_BYTES_MAX + 1)
    found = space.blobs.put(data, metadata={"zeros": True})
    assert space.blobs.stat(found).size == len(data)
    assert space.blobs.meta(found).document["value"]["zeros"] is True


def test_metadata_has_branches_and_history_like_any_entity(space):
    space.blobs.put(DATA, metadata={"title": "one"})
    space.branches.create("work")
    space.blobs.describe(HASH, {"title": "two"}, branch="work")
    space.branches.create("nested", "work")
    space.branches.delete("work")
    title = [
        space.blobs.meta(HASH, name).document["value"]["title"] for name in ("", "work", "nested")
    ]
    assert title == ["one", "two", "two"]
    assert space.blobs.meta(HASH, at=1).document["value"]["title"] == "one"
    assert space.branches.merge("nested", "").commit is not None
    assert space.blobs.meta(HASH).document["value"]["title"] == "two"


def test_deleting_the_metadata_leaves_the_bytes(space):
    space.blobs.put(DATA, metadata={})
    space.delete(meta_id(HASH))
    assert space.blobs.get(HASH) == DATA
    assert space.blobs.meta(HASH).deleted


def test_refused_metadata_leaves_no_bytes(space):
    space.branches.create("dead")
    space.branches.delete("dead")
    before = space.seq()
    with pytest.raises(BranchEnded):
        space.blobs.put(DATA, metadata={}, branch="dead")
    with pytest.raises(NotFound):
        space.blobs.put(DATA, metadata={}, branch="nowhere")
    with pytest.raises(InvalidInput):
        space.blobs.put(DATA, metadata={"blob": "another"})
    with pytest.raises(InvalidInput):
        space.blobs.put(DATA, metadata=["a list"])
    with pytest.raises(ContentError):
        space.blobs.put(DATA, metadata={"nan": float("nan")})
    assert (rows(space), space.seq()) == ([], before)


def test_bad_questions_are_refused(space):
    with pytest.raises(NotFound):
        space.blobs.get(HASH)
    with pytest.raises(NotFound):
        space.blobs.stat(HASH)
    with pytest.raises(NotFound):
        space.blobs.describe(HASH, {})
    with pytest.raises(ContentError):
        space.blobs.get("not a hash")
    with pytest.raises(InvalidInput):
        space.blobs.put(DATA, 3)
    assert not space.blobs.has(HASH)
    assert space.verify() == []
