"""The jobs of a space that a crash may interrupt, beside plain commits; each runs until it is
killed, and says what was acknowledged.

    maintain ROOT HISTORY        patch, make snapshots, drop snapshots
    merge ROOT HISTORY           fork, change both sides, merge, end the branch
    blobs ROOT HISTORY           put bytes, with and without metadata
    index ROOT HISTORY           create, rebuild and drop indexes of values and of words
    replay ROOT HISTORY          import one export into one new space after the other
    carry ROOT HISTORY           carry a space with the other history over into new spaces

Run as a script it is the child. Imported, it gives the tests the same names and the same contents.
"""

from __future__ import annotations

import hashlib
import json
import sys
from itertools import count
from pathlib import Path

import fourfold
from fourfold.errors import Conflict, FourfoldError
from fourfold.models.documents import bundle
from support.crash import acknowledge, ready

SCRIPT = Path(__file__)
DID = "did:key:z6MkJobs"
SOURCE = "did:key:z6MkSource"
TARGET = "did:key:z6MkTarget"
OTHER = {"revisions": "facts", "facts": "revisions"}
EXPORTED = "export.ndjson"
SETTINGS = {"kernel.checkpoint_bytes": 8 * 4096, "documents.page_size": 4096}


def say(kind, *rest):
    acknowledge(json.dumps([kind, *rest]))


def add(path, value):
    return [{"op": "add", "path": path, "value": value}]


def refused(space):
    """A transaction that fails after it has begun to write, so that there is something to undo."""
    try:
        space.transact(
            [
                {"op": "set", "id": "refused", "value": {}},
                {"op": "patch", "id": "n", "patches": [{"op": "remove", "path": "/nowhere"}]},
            ]
        )
    except FourfoldError:
        return
    raise AssertionError("a patch that does not fit was accepted")


def maintain(space):
    for number in count(1):
        commit = space.patch("n", add("/n", [space.seq() + 1, "x" * (number % 40)]))
        say("commit", commit.seq)
        if number % 9 == 0:
            refused(space)
            space.maintain(("all", 1, "log", 2)[number // 9 % 4])
            say("maintained")


def merge(space):
    began = space.seq()
    for number in count(1):
        branch = f"b{began}-{number}"
        space.branches.create(branch)
        say("branch", branch)
        key = f"{began}-{number}"
        for _ in range(3):
            space.patch("n", add(f"/{key}", {"branch": branch}), branch=branch)
        say("commit", space.patch("n", add("/n", [space.seq() + 1, ""])).seq)
        space.set("both", {"n": key}, branch=branch)
        space.set("both", {"n": f"not {key}"})
        undecided(space, branch)
        refused(space)
        merged = space.branches.merge(
            branch, resolutions={"both": {"n": key}}, session="m", local_seq=space.seq()
        )
        say("merge", branch, merged.commit.seq, key)
        space.branches.delete(branch)
        say("end", branch)


def undecided(space, branch):
    try:
        space.branches.merge(branch)
    except Conflict:
        return
    raise AssertionError("both sides changed it, and no resolution was passed")


def blob_of(number):
    """Bytes that both sides can make, now and then larger than many pages."""
    return hashlib.sha256(str(number).encode()).digest() * (1 + number * 37 % 400)


def blobs(space):
    for number in count(space.seq() * 1000):
        refused(space)
        metadata = {"number": number} if number % 2 else None
        blob = space.blobs.put(blob_of(number), "text/plain", metadata=metadata)
        say("blob", blob, number)


def index(space):
    kinds = {"words": "text", "numbers": "value", "more": "text"}
    for number in count(space.seq()):
        seq = space.seq() + 1
        say("commit", space.patch("n", add("/n", [seq, f"seq{seq}"])).seq)
        space.set(f"e{number % 5}", {"n": ["", f"other{number}"]})
        refused(space)
        name = ("words", "more", "numbers", "words")[number % 4]
        if name not in space.indexes:
            space.indexes.create(name, "/n/1", kind=kinds[name])
        elif number % 3:
            space.indexes.rebuild(name)
        else:
            space.indexes.drop(name)


def replay(store, root, history):
    lines = (Path(root) / EXPORTED).read_bytes().splitlines(keepends=True)
    for number in count(len(store.spaces())):
        refused(store.space(SOURCE))
        target = store.space(f"{TARGET}{number}", history=history)
        bundle.replay(target, lines)
        say("target", target.did)


def carry(store, root, history):
    source = store.space(SOURCE)
    assert source.history_kind.name == OTHER[history]
    for number in count(len(store.spaces())):
        refused(source)
        target = store.space(f"{TARGET}{number}", history=history)
        bundle.carry_over(source, target)
        say("target", target.did)


def main(job, root, history):
    # Small pages of commits, so that there is much to come between.
    bundle.EXPORT_PAGE_COMMITS = 4
    store = fourfold.open(root, settings=SETTINGS)
    ready()
    if job in ("replay", "carry"):
        {"replay": replay, "carry": carry}[job](store, root, history)
    else:
        space = store.space(DID, history=history)
        {"maintain": maintain, "merge": merge, "blobs": blobs, "index": index}[job](space)


if __name__ == "__main__":
    main(*sys.argv[1:])
