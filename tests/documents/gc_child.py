"""A process that collects a space until it is killed.

collect ROOT KEEP            one collection, in small transactions; says so when it is done
live ROOT HISTORY SEED       commit, fork and collect in turns, one line for each thing acknowledged
"""

from __future__ import annotations

import json
import random
import sys
import threading

import fourfold
from fourfold import limits
from fourfold.models.documents.gc.policy import GcPolicy
from support.crash import acknowledge, ready

DID = "did:key:z6MkMachine"


def small():
    limits.GC_BATCH_ROWS = 4
    limits.MAINTENANCE_PAGE_ROWS = 5


def collect(root, keep):
    small()
    policy = GcPolicy(keep_seqs=int(keep), snapshots=1, blobs=True, blob_age_s=0)
    with fourfold.open(root) as store:
        space = store.space(DID)
        ready()
        space.gc(policy)
        acknowledge("done")


def live(root, history, seed):
    small()
    store = fourfold.open(root)
    space = store.space(DID, history=history)
    ready()
    threads = [
        threading.Thread(target=write, args=(space, seed), daemon=True),
        threading.Thread(target=gather, args=(space,), daemon=True),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def write(space, seed):
    rng = random.Random(seed)
    count = 0
    while True:
        count += 1
        patches = [
            {"op": "increment", "path": "/n", "by": 1},
            {"op": "add", "path": f"/{seed}", "value": count},
        ]
        operations = [
            {"op": "set", "id": seed, "value": {"n": count, "text": "x" * rng.randrange(600)}},
            {"op": "patch", "id": "shared", "patches": patches},
        ]
        commit = space.transact(operations, session=seed, local_seq=count)
        acknowledge(json.dumps(["commit", commit.seq, seed, count]))
        if rng.random() < 0.03:
            branch = space.branches.create(f"b{seed}-{count}")
            shown = space.read("shared", branch.name).document["n"]
            acknowledge(json.dumps(["branch", branch.name, shown]))


def gather(space):
    while True:
        done = space.gc(GcPolicy(keep_seqs=20))
        acknowledge(json.dumps(["horizon", done.horizon]))


if __name__ == "__main__":
    {"collect": collect, "live": live}[sys.argv[1]](*sys.argv[2:])
