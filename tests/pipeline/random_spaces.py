"""Random spaces, each compared with a simple model that keeps full copies."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from hypothesis import strategies as st

from fourfold.errors import Conflict, HistoryTruncated
from fourfold.models.documents.gc.policy import GcPolicy
from support.document_model import DocumentModel, Refusal, text

ENTITIES = ("a", "b", "of:c", "é\u20ac")
BRANCHES_MAX = 6
LEAVES = st.sampled_from([None, True, 0, 1, 1.0, -2, "x", "é", 2**70, 0.1, '"\\\n'])
VALUES = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(st.sampled_from("nlo"), LEAVES)
DOCUMENTS = st.dictionaries(st.sampled_from(["n", "l", "o", "value"]), VALUES, max_size=3)
PATHS = st.sampled_from(["/n", "/l", "/l/0", "/l/-", "/o", "/o/n", "/o/l", "/value", "/x/y"])


def _patch(op, **fields):
    return st.fixed_dictionaries({"op": st.just(op), "path": PATHS, **fields})


PATCHES = st.lists(
    st.one_of(
        _patch("add", value=VALUES),
        _patch("replace", value=VALUES),
        _patch("append", values=st.lists(VALUES, max_size=2)),
        _patch("increment", by=st.sampled_from([1, -1, 0.5])),
        _patch("add-unique", values=st.lists(LEAVES, max_size=3)),
        _patch("remove"),
        _patch("remove-by-value", value=LEAVES),
        _patch("move", **{"from": PATHS}),
    ),
    min_size=1,
    max_size=2,
)
# One of them more often, so that it gets a long history.
ENTITY = st.sampled_from(("a", "a", *ENTITIES))
OPERATION = st.one_of(
    st.fixed_dictionaries({"op": st.just("set"), "id": ENTITY, "value": DOCUMENTS}),
    st.fixed_dictionaries({"op": st.just("patch"), "id": ENTITY, "patches": PATCHES}),
    st.fixed_dictionaries({"op": st.just("delete"), "id": ENTITY}),
)
PICK = st.integers(0, 1000)
STEPS = st.one_of(
    st.tuples(st.just("commit"), PICK, st.lists(OPERATION, min_size=1, max_size=4)),
    st.tuples(st.just("commit"), PICK, st.lists(OPERATION, min_size=1, max_size=4)),
    st.tuples(st.just("burst"), PICK, st.tuples(ENTITY, st.integers(2, 14), st.booleans())),
    st.tuples(st.just("fork"), PICK, st.integers(0, 12) | st.none()),
    st.tuples(st.just("end"), PICK, st.just(None)),
    st.tuples(st.just("merge"), PICK, PICK),
    st.tuples(st.just("tidy"), st.sampled_from(["all", "log", 1]), st.just(None)),
    st.tuples(st.just("collect"), st.integers(1, 9), st.just(None)),
)
LIVES = st.lists(STEPS, min_size=3, max_size=16)


@dataclass
class Life:
    """A space and its model, with the same operations applied."""

    space: object
    model: DocumentModel = field(default_factory=DocumentModel)

    def live(self, steps):
        self.transact("", [{"op": "set", "id": "a", "value": {"l": [], "n": 0}}])
        for kind, one, other in steps:
            getattr(self, f"_{kind}")(one, other)

    def transact(self, branch, operations):
        try:
            seq = self.model.transact(branch, operations)
        except Refusal:
            return
        assert self.space.transact(operations, branch=branch).seq == seq

    def _branch(self, pick):
        names = list(self.model.lines)
        return names[pick % len(names)]

    def _commit(self, pick, operations):
        self.transact(self._branch(pick), operations)

    def _burst(self, pick, burst):
        """Write enough patches for snapshots to be created."""
        entity, count, together = burst
        made = [
            {
                "op": "patch",
                "id": entity,
                "patches": [{"op": "append", "path": "/chain", "values": ["link", number]}],
            }
            for number in range(count)
        ]
        for operations in [made] if together else [[each] for each in made]:
            self.transact(self._branch(pick), operations)

    def _fork(self, pick, age):
        model, parent = self.model, self._branch(pick)
        name = f"branch/{len(model.lines)}"
        at = None if age is None else max(self.space.horizon(), model.seq - age)
        if len(model.lines) >= BRANCHES_MAX:
            return
        try:
            model.create_branch(name, parent, at)
        except Refusal:
            return
        self.space.branches.create(name, parent, at)

    def _end(self, pick, _):
        try:
            self.model.delete_branch(self._branch(pick))
        except Refusal:
            return
        self.space.branches.delete(self._branch(pick))

    def _merge(self, one, other):
        source, target = self._branch(one), self._branch(other)
        if source == target or not self.model.lines[target].active:
            return
        try:
            merged = self.space.branches.merge(source, target)
        except (Conflict, HistoryTruncated):
            return
        if merged.commit is not None:
            assert merged.commit.seq == self.model.transact(target, list(merged.operations))

    def _tidy(self, retention, _):
        self.space.maintain(retention)

    def _collect(self, kept, _):
        self.space.gc(GcPolicy(keep_seqs=kept))

    def states(self, mark):
        """Return the states of every branch at the point of a bound; space and model agree."""
        result = {}
        for branch in self._branches(mark.seq):
            for entity, expected in self.model.states(branch, mark.seq).items():
                online = self.space.read(entity, branch, mark.seq)
                document = None if online.document is None else text(online.document)
                assert (document, online.op, online.seq) == expected
                if expected.seq > mark.since:
                    result[mark.space, branch, entity] = expected
        return result

    def versions(self, mark):
        """Return every version of every entity on a branch, with its seq."""
        since = max(mark.since, self.space.horizon() - 1)
        return {
            (mark.space, branch, entity, seq): state
            for branch in self._branches(mark.seq)
            for seq in range(since + 1, mark.seq + 1)
            for entity, state in self.model.states(branch, seq).items()
            if state.seq == seq
        }

    def _branches(self, at):
        """Return the branches that existed at a seq."""
        return [name for name, line in self.model.lines.items() if line.created_seq <= at]


def same_states(rows, expected):
    """Assert that the rows of `state`, dicts, are exactly the expected ones."""
    result = {(row["space"], row["branch"], row["id"]): row for row in rows}
    assert len(result) == len(rows)
    assert {key: _shown(row) for key, row in result.items()} == expected


def same_versions(rows, expected):
    result = {(row["space"], row["branch"], row["id"], row["seq"]): row for row in rows}
    assert len(result) == len(rows)
    assert {key: _shown(row) for key, row in result.items()} == expected


def _shown(row):
    document = None if row["document"] is None else text(json.loads(row["document"]))
    return (document, row["op"], row["seq"])
