"""A process that commits to a space until it is killed, and says what was acknowledged.

write ROOT HISTORY SEED      commit at random from several threads, one line for each commit
watch ROOT HISTORY COUNT     open for reading, and wait until the counter is there
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time

import fourfold
from support.crash import acknowledge, ready

DID = "did:key:z6MkCrash"
THREADS = 3


def write(root, history, seed):
    store = fourfold.open(root)
    space = store.space(DID, history=history)
    ready()
    threads = [
        threading.Thread(target=work, args=(space, f"{seed}-{number}"), daemon=True)
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def work(space, name):
    """Each thread counts on an entity of its own and on one that all share."""
    rng = random.Random(name)
    branch = ""
    count = 0
    while True:
        chance = rng.random()
        if chance < 0.02:
            branch = f"b{name}-{count}"
            made = space.branches.create(branch)
            acknowledge(json.dumps(["branch", branch, made.created_seq]))
        elif chance < 0.03 and branch:
            space.branches.delete(branch)
            acknowledge(json.dumps(["end", branch, 0]))
            branch = ""
        count += 1
        operations = [
            {"op": "set", "id": name, "value": {"n": count, "text": "x" * rng.randrange(2000)}},
            {
                "op": "patch",
                "id": "shared",
                "patches": [
                    {"op": "increment", "path": "/n", "by": 1},
                    {"op": "add", "path": f"/{name}", "value": count},
                ],
            },
        ]
        commit = space.transact(operations, session=name, local_seq=count, branch=branch)
        acknowledge(json.dumps(["commit", branch, commit.seq, name, count]))


def watch(root, history, count):
    with fourfold.open(root, mode="r") as store:
        space = store.space(DID, history=history)
        ready()
        while True:
            state = space.read("counter")
            number = 0 if state is None else state.document["n"]
            # The same through every way of reading: nothing older is remembered.
            assert space.read_many(["counter"])["counter"].document["n"] >= number
            if number >= int(count):
                acknowledge(str(number))
                return
            time.sleep(0.002)


if __name__ == "__main__":
    {"write": write, "watch": watch}[sys.argv[1]](*sys.argv[2:])
