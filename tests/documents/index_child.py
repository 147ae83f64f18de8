"""A process that writes to a space with indexes, or builds one, until it is killed.

write ROOT HISTORY SEED      commit at random to a space with indexes, also on branches
build ROOT HISTORY KIND      declare indexes over the documents that exist, one after the other
"""

from __future__ import annotations

import random
import sys

import fourfold
from fourfold.models.documents.indexes import builder
from support.crash import acknowledge, ready

DID = "did:key:z6MkCrash"
PATHS = {"value": "/n", "text": "/text", "vector": "/vector"}


def write(root, history, seed):
    space = fourfold.open(root).space(DID, history=history)
    if "by_n" not in space.indexes:
        space.indexes.create("by_n", "/n")
        space.indexes.create("by_tag", ["/tags/*", "/n"])
        space.indexes.create("meaning", "/vector", kind="vector")
        space.indexes.create("words", "/text", kind="text")
    ready()
    rng = random.Random(seed)
    branch = ""
    while True:
        if rng.random() < 0.05:
            branch = f"b{space.seq()}"
            space.branches.create(branch)
        entity = f"e{rng.randrange(20)}"
        number = rng.randrange(5)
        document = {"n": number, "tags": rng.sample("abc", 2)}
        document |= {"vector": [number, 1], "text": f"word{number}"}
        commit = space.set(entity, document, branch=rng.choice(["", branch]))
        acknowledge(str(commit.seq))


def build(root, history, kind):
    builder.BUILD_STEP_ENTITIES = 3
    # A step ends by its entities, however slow the machine is.
    builder.BUILD_STEP_S = 60.0
    space = fourfold.open(root).space(DID, history=history)
    ready()
    for number in range(100):
        space.indexes.create(f"i{number % 30}-{number}", PATHS[kind], kind=kind)
        space.indexes.wait(f"i{number % 30}-{number}")
        acknowledge(str(number))
        space.indexes.drop(f"i{number % 30}-{number}")


if __name__ == "__main__":
    {"write": write, "build": build}[sys.argv[1]](*sys.argv[2:])
