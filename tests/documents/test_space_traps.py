"""Every trap of the specifications of documents, and proof that each has a test of its name.

A trap is a place where the printed text, taken by its word, fails or silently does something else.
The tests of a trap are called `test_<trap>_...`; the modules `test_space_traps_*` hold them. They
run on both kinds of history, except where only one of them has what the trap is about.
"""

from __future__ import annotations

import re
from pathlib import Path

TRAPS = {
    # The printed SQL
    "a1": "commit is a reserved word",
    "a2": "a page size that is set after the WAL is ignored",
    "a3": "foreign keys are switched on for each connection, and never inside a transaction",
    "a4": "a column declared JSON rewrites what looks like a number",
    "a5": "nothing inserts the default branch",
    "a6": "a seq taken from the heads of the branches comes twice",
    "a7": "a deferred transaction cannot become a writer after another connection was one",
    "a8": "some of the indexes repeat a primary key",
    "a9": "tables refer to each other in both directions of their order",
    "a10": "with synchronous=NORMAL a power cut may take an acknowledged commit, and its seq",
    "a11": "times have one second, and clocks go back",
    "a12": "the two specifications disagree about the columns of blobs",
    "a13": "the view of the state shows pointers, or patches, and no states",
    "a14": "rows are deleted by a rowid that the table may not have",
    # Branches
    "b1": "the first patch on a child starts from nothing instead of from what it inherits",
    "b2": "the parent replays the patches of its children",
    "b3": "siblings, and grandparents after the fork, leak into a nested branch",
    "b4": "the caps of nested forks must add up, and heads of parents may be beyond them",
    "b5": "deleting the rows of a branch orphans its children",
    "b6": "a conflict with an inherited change is missed",
    "b7": "the birth of a branch has a seq of its own, or none",
    "b8": "a quiet branch cannot be read at the newest seq",
    "b9": "a fork at a seq that is not there",
    "b10": "heads that are copied to a child look like changes of it",
    "b11": "a snapshot of the parent beyond the fork is used by the child",
    "b12": "a seq without revisions",
    "b13": "a request that is sent again after its branch has ended",
    "b14": "a second merge does not know of the first",
    "b15": "a diff misses what only one side changed",
    # Replay
    "c1": "a snapshot is preferred to a later set",
    "c2": "patches after a delete bring back what was deleted",
    "c3": "several operations on one entity in one commit have no order",
    "c4": "a snapshot between two operations of one commit loses the later ones",
    "c5": "a point in time inside a commit",
    "c6": "a wrong snapshot is never corrected",
    "c7": "tombstones cannot be snapshots, and snapshots of sets are waste",
    "c8": "a replay that goes back beyond the last set",
    "c9": "the search for the base walks over every patch",
    "c10": "points before the newest snapshot are slow to read",
    "c11": "a collection takes the base of the oldest state that is left",
    "c12": "a snapshot depends on what patches meant when it was made",
    # Commits
    "d1": "patches are stored without being applied",
    "d2": "a patch on nothing, or on a tombstone",
    "d3": "a refused request leaves no trace, so its name may be used again",
    "d4": "two texts of one request",
    "d5": "two equal commits have one hash",
    "d6": "one fact on two branches has one hash",
    "d7": "the facts that nothing refers to are the heads",
    "d8": "orphaned values are looked for before their last reference goes",
    "d9": "a value is collected while a writer is about to use it again",
    "d10": "an entity that patches made, or that is inherited, counts as absent",
    "d11": "a read at a seq of the future is believed",
    "d12": "an insertion moves the elements after it, and their readers do not notice",
    "d13": "reads are kept without their paths",
    "d14": "facts refer to their commit, so it must come first",
    "d15": "the search for conflicts goes through all of history",
    "d16": "the requests of one session come out of order",
    "d17": "references have two spellings",
    "d18": "how many patches make a snapshot worth its bytes",
    "d19": "the first operation on an entity may be a patch",
    "d20": "a DID becomes a path",
}


def named_tests():
    found = {}
    for path in Path(__file__).parent.glob("test_space_traps_*.py"):
        for name in re.findall(
            r"^def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            trap = re.match(r"test_([abcd]\d+)_", name)
            if trap:
                found.setdefault(trap.group(1), []).append(f"{path.name}::{name}")
    return found


def test_every_trap_has_a_test_of_its_name():
    found = named_tests()
    assert not [f"{trap}: {what}" for trap, what in TRAPS.items() if trap not in found]


def test_no_test_is_named_after_trap_that_is_not_listed():
    assert named_tests().keys() <= TRAPS.keys()
