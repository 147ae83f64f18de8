"""A small store with an example of everything that tables show, in both kinds of history."""

from __future__ import annotations

import fourfold

SPACES = {"did:web:old.example": "revisions", "did:web:new.example": "facts"}


def build(root):
    """Write the store and close it."""
    with fourfold.open(root, settings={"documents.page_size": 4096}) as store:
        for did, history in SPACES.items():
            fill(store.space(did, history))


def fill(space):
    """Write sets, patches, a delete, several operations in one commit, nested branches, a snapshot,
    an ended branch, and a blob.
    """
    for number in range(5):
        space.set(f"note-{number}", {"n": number, "text": f"Ünïcode 'quoted' {number}"})
    for _ in range(15):
        space.patch("note-1", [{"op": "increment", "path": "/n", "by": 1}])
    space.transact(
        [
            {"op": "set", "id": "note-2", "value": {"n": 20}},
            {
                "op": "patch",
                "id": "note-2",
                "patches": [{"op": "add", "path": "/more", "value": None}],
            },
            {"op": "delete", "id": "note-3"},
        ]
    )
    space.branches.create("draft")
    space.patch("note-1", [{"op": "increment", "path": "/n", "by": 100}], branch="draft")
    space.delete("note-4", branch="draft")
    space.branches.create("draft/deeper", parent="draft")
    space.patch("note-1", [{"op": "increment", "path": "/n", "by": 1000}], branch="draft/deeper")
    space.branches.create("gone")
    space.set("only-here", {"n": 0}, branch="gone")
    space.branches.delete("gone")
    space.set("note-0", {"n": 7})
    space.blobs.put(b"hello", "text/plain")
    space.blobs.put(b"\x00\xff")
