"""Blobs go when nothing that can be read mentions them and their metadata was deleted; never
before.
"""

from __future__ import annotations

import pytest
from gc_life import NEWEST

from fourfold import limits
from fourfold.content import parse_content_id
from fourfold.models.documents.blobs import GC_BLOB_TOUCH_S
from fourfold.models.documents.gc import sweep
from fourfold.models.documents.gc.policy import GC_BLOB_AGE_S, GcPolicy

POLICY = GcPolicy(keep_seqs=1, blobs=True, blob_age_s=0)


def swept(space, **fields):
    """Whether a collection would take each blob; what it took is gone."""
    return space.gc(GcPolicy(**{"keep_seqs": 1, "blobs": True, "blob_age_s": 0, **fields})).blobs


def test_blob_that_nothing_mentions_goes_only_if_policy_says_so(space):
    blob = space.blobs.put(b"bytes")
    space.set("a", {})
    space.gc(NEWEST)
    assert space.blobs.has(blob)
    assert swept(space, blob_age_s=3600).count == 0
    taken = swept(space)
    assert (taken.count, taken.bytes) == (1, 5)
    assert not space.blobs.has(blob)
    assert space.verify() == []


@pytest.mark.parametrize(
    "mention",
    [
        lambda space, blob: space.set("a", {"value": {"$blob": blob}}),
        lambda space, blob: space.set("a", {"value": {"$blob": parse_content_id(blob)}}),
        lambda space, blob: space.set("a", {"value": f"see {parse_content_id(blob)}0 there"}),
        lambda space, blob: space.set("a", {"value": {parse_content_id(blob): 1}}),
        lambda space, blob: space.set(f"file:{parse_content_id(blob)}", {}),
        lambda space, blob: space.patch("a", [{"op": "add", "path": "/x", "value": blob}]),
        lambda space, blob: space.blobs.describe(blob, {"name": "x"}),
    ],
)
def test_a_mention_of_any_kind_keeps_a_blob(space, mention):
    blob = space.blobs.put(b"bytes")
    space.branches.create("f")
    mention(space, blob)
    assert swept(space).count == 0
    assert space.blobs.get(blob) == b"bytes"


def test_mention_keeps_blob_as_long_as_it_can_be_read(space):
    blob = space.blobs.put(b"bytes")
    space.set("a", {"$blob": blob})
    space.branches.create("f")
    space.set("a", {})
    # The fork still shows it.
    assert swept(space).count == 0
    space.set("a", {}, branch="f")
    space.set("a", {"n": 1})
    assert swept(space).count == 0
    assert space.read("a", at=1).document == {"$blob": blob}


def test_mention_that_only_collapsed_chain_of_patches_holds_keeps_blob(space):
    """The patch that brought it is gone; the document that took its place mentions it."""
    blob = space.blobs.put(b"bytes")
    space.patch("a", [{"op": "add", "path": "/blob", "value": blob}])
    for number in range(30):
        space.patch("a", [{"op": "add", "path": "/n", "value": number}])
    done = space.gc(POLICY)
    assert done.revisions.count > 20
    assert done.blobs.count == 0
    assert space.blobs.has(blob)


def test_blob_and_its_metadata_go_together_or_not_at_all(space):
    blob = space.blobs.put(b"bytes", metadata={"name": "x"})
    space.branches.create("f")
    meta = f"urn:blob-meta:{parse_content_id(blob)}"
    space.set("other", {})
    assert swept(space).count == 0
    space.delete(meta)
    # On the other branch it is still described.
    assert swept(space).count == 0
    assert space.blobs.meta(blob, "f").document["value"]["name"] == "x"
    space.delete(meta, branch="f")
    # The fork of the branch shows the metadata as it was.
    assert swept(space).count == 0
    assert space.blobs.has(blob)


def test_blob_goes_once_its_metadata_was_deleted_for_every_reader(space):
    blob = space.blobs.put(b"bytes", metadata={"name": "x"})
    meta = f"urn:blob-meta:{parse_content_id(blob)}"
    space.delete(meta)
    # Above the horizon it can still be seen.
    assert swept(space, keep_seqs=2).count == 0
    space.set("other", {})
    assert swept(space).count == 1
    # That it was deleted is a state of the entity like any other, and stays.
    assert space.read(meta).deleted
    assert not space.blobs.has(blob)
    assert space.verify() == []


def test_mention_that_comes_while_blobs_are_looked_at_keeps_them(space, monkeypatch):
    blob = space.blobs.put(b"bytes")
    space.set("a", {})
    look = sweep._strike_mentioned

    def late(*arguments):
        look(*arguments)
        space.set("b", {"$blob": blob})

    monkeypatch.setattr(sweep, "_strike_mentioned", late)
    assert swept(space).count == 0
    assert space.blobs.has(blob)


def test_a_blob_that_is_put_again_counts_as_new(space, monkeypatch):
    blob = space.blobs.put(b"bytes")
    space.set("a", {})
    with space.database.write() as txn:
        txn.execute("UPDATE blob_store SET created_at = '2020-01-01T00:00:00.000Z'")
    assert space.blobs.put(b"bytes") == blob
    assert swept(space, blob_age_s=3600).count == 0
    with space.database.write() as txn:
        txn.execute("UPDATE blob_store SET created_at = '2020-01-01T00:00:00.000Z'")
    assert swept(space, blob_age_s=3600).count == 1
    assert GC_BLOB_TOUCH_S < GC_BLOB_AGE_S


def test_many_blobs_are_looked_at_page_by_page(space, monkeypatch):
    monkeypatch.setattr(limits, "MAINTENANCE_PAGE_ROWS", 3)
    blobs = [space.blobs.put(f"{number}".encode()) for number in range(20)]
    for number, blob in enumerate(blobs):
        if number % 2:
            space.set(f"e{number}", {"$blob": blob})
    taken = swept(space)
    assert taken.count == 10
    assert [space.blobs.has(blob) for blob in blobs] == [False, True] * 10
