"""The rules of a random life that hold whatever a caller does with what it was given.

What was handed out is the reader's own; the same value written again is a change of its own; calls
inside an open transaction join it; a time taken before a commit does not show it; a life goes on
after a restore, and in a space that was deleted and made again under its name.
"""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from space_operations import DOCUMENTS, ENTITIES, ENTITY, OPERATION, PICK

from fourfold.errors import HistoryTruncated, InvalidInput
from fourfold.models.documents import bundle
from fourfold.models.documents.model import MODEL
from fourfold.store.backup import restore
from support.document_model import Refusal, apply_patches, text

MOVES_MAX = 2


FILTERS = {
    "{}": lambda _document: True,
    '{"a": {"$exists": true}}': lambda document: "a" in document,
    '{"a": 1}': lambda document: type(document.get("a")) in {int, float} and document["a"] == 1,
    '{"$not": {"b": {"$type": "string"}}}': lambda document: type(document.get("b")) is not str,
}


def spoil(value):
    """Change everything that can be changed in what a reader was given."""
    if isinstance(value, dict):
        for part in list(value.values()):
            spoil(part)
        value.clear()
        value["spoilt"] = True
    elif isinstance(value, list):
        for part in value:
            spoil(part)
        value.append("spoilt")
    elif isinstance(value, msgspec.Struct | tuple):
        parts = value
        if isinstance(value, msgspec.Struct):
            parts = [getattr(value, name) for name in value.__struct_fields__]
        for part in parts:
            spoil(part)


class LawRules(RuleBasedStateMachine):
    """Part of `SpaceMachine`, which has the space, the model, and what compares them."""

    restores = recreations = 0

    @rule(pick=PICK, age=st.integers(0, 6), operations=st.lists(OPERATION, min_size=1, max_size=3))
    def spoil_what_was_handed_out(self, pick, age, operations):
        """What a caller does to documents that it gave or was given changes nothing."""
        branch, space = self.branch(pick), self.space
        at = max(self.model.lines[branch].created_seq, self.model.seq - age)
        after = self.model.seq
        given = [*msgspec.json.decode(msgspec.json.encode(operations))]
        if self.transact(branch, given) is not None:
            spoil(given)
            for commit in space.watch(after=after, branch=branch, timeout=0):
                spoil(list(commit.revisions))
            for commit in space.watch(after=after, branch=branch, where={}, timeout=0):
                spoil(list(commit.changes))
        for entity in ENTITIES:
            spoil(space.read(entity, branch))
        spoil(space.read_many(ENTITIES, branch))
        spoil(list(space.log(after=after)))
        if self.readable(branch, at) is True:
            spoil(space.read_many(ENTITIES, branch, at))
            for entity in ENTITIES:
                spoil(space.read(entity, branch, at))
                spoil(space.history(entity, branch, after=max(at, self.model.horizon)))
            spoil([each.operation for each in space.diff(branch, at, None)])
        self.compare(branch, self.model.seq)
        self.compare(branch, at)
        for entity in ENTITIES:
            self.same(space.read(entity, branch), self.model.state(branch, entity))

    @rule(pick=PICK, entity=ENTITY, one=DOCUMENTS, other=DOCUMENTS)
    def write_the_same_again_after_another(self, pick, entity, one, other):
        branch = self.branch(pick)
        for document in (one, other, one):
            self.transact(branch, [{"op": "set", "id": entity, "value": document}])
            self.same(self.space.read(entity, branch), self.model.state(branch, entity))

    @rule(
        pick=PICK,
        parts=st.lists(st.lists(OPERATION, min_size=1, max_size=2), min_size=1, max_size=3),
    )
    def calls_inside_a_transaction(self, pick, parts):
        """They join it: reads in between spoil neither its commits nor what is remembered."""
        branch = self.branch(pick)
        if not self.model.lines[branch].active:
            return
        with self.space.database.write():
            for operations in parts:
                # Reads show what is committed, so `transact` of the machine cannot compare yet.
                try:
                    expected = self.model.transact(branch, operations)
                except Refusal:
                    with pytest.raises(InvalidInput):
                        self.space.transact(operations, branch=branch)
                else:
                    assert self.space.transact(operations, branch=branch).seq == expected
                self.space.read("a", branch)
                self.space.read_many(ENTITIES, branch)
                self.space.ids(branch, limit=2)
                self.space.branches.list()
                self.space.find({"n": 1}, branch=branch)
                self.space.count({"n": 1}, branch=branch)
                self.space.facets("n", branch=branch)
                self.space.explain({"n": 1}, branch=branch)
                self.space.indexes.list()
                self.space.watch(timeout=0).next(timeout=0)
        self.compare(branch, self.model.seq)
        for entity in ENTITIES:
            self.same(self.space.read(entity, branch), self.model.state(branch, entity))

    @rule(pick=PICK, document=DOCUMENTS)
    def time_before_a_commit(self, pick, document):
        branch, seen = self.branch(pick), self.model.seq
        if not self.born(branch, seen) or self.readable(branch, seen) is not True:
            return
        before = datetime.now(UTC)
        self.transact(branch, [{"op": "set", "id": "a", "value": document}])
        for entity in ENTITIES:
            self.same(
                self.space.read(entity, branch, before), self.model.state(branch, entity, seen)
            )
        assert self.space.ids(branch, before) == self.model.ids(branch, seen)

    @precondition(lambda self: self.restores < MOVES_MAX)
    @rule(document=DOCUMENTS)
    def restore_and_continue(self, document):
        """The life goes on in a restored store; what came after the backup never was."""
        self.restores += 1
        copy = self.folder / "backup"
        self.store.backup(copy)
        self.space.set("a", document)
        self.close()
        shutil.rmtree(self.root)
        restore(copy, self.root)
        shutil.rmtree(copy)
        self.open()
        assert self.space.seq() == self.model.seq

    @precondition(lambda self: self.recreations < MOVES_MAX and not self.model.horizon)
    @rule()
    def recreate_under_the_same_name(self):
        """A new space of that name is empty; an import gives it the life of the old one."""
        self.recreations += 1
        lines = list(bundle.export(self.space))
        self.close()
        path = MODEL.location.path(self.root, f"spaces/{self.did}")
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink()
        self.open()
        assert (self.space.seq(), self.space.ids()) == (0, [])
        assert [self.space.read(entity) for entity in ENTITIES] == [None] * len(ENTITIES)
        bundle.replay(self.space, lines)

    @rule(pick=PICK)
    def follow_from_the_start(self, pick):
        """From 0, or after a collection from the horizon on, a watch leads to the state of now."""
        branch, space, model = self.branch(pick), self.space, self.model
        start = max(model.horizon, model.lines[branch].created_seq)
        if self.readable(branch, start) is not True:
            return
        if model.horizon:
            self.refused(HistoryTruncated, lambda: space.watch(after=0, branch=branch))
        found = {entity: space.read(entity, branch, start) for entity in ENTITIES}
        documents = {entity: state and state.document for entity, state in found.items()}
        for commit in space.watch(after=start, branch=branch, timeout=0):
            for change in commit.revisions:
                if change.op == "patch":
                    document = apply_patches(documents.get(change.id) or {}, change.data)
                else:
                    document = change.data if change.op == "set" else None
                documents[change.id] = document
        for entity in ENTITIES:
            state = model.state(branch, entity)
            assert text(documents[entity]) == text(None if state is None else state.document)

    @rule(pick=PICK, where=st.sampled_from(sorted(FILTERS)))
    def follow_a_filter(self, pick, where):
        """What enters, changes in and leaves a filter is what the states before and after say."""
        branch, model, matches = self.branch(pick), self.model, FILTERS[where]

        def matched(entity, seq):
            state = model.state(branch, entity, seq)
            return state is not None and state.text is not None and matches(state.document)

        expected = {}
        for row in model.lines[branch].written:
            kinds = {(False, True): "enter", (True, True): "change", (True, False): "leave"}
            kind = kinds.get((matched(row.id, row.seq - 1), matched(row.id, row.seq)))
            if row.seq > model.horizon and kind:
                state = model.state(branch, row.id, row.seq)
                expected.setdefault(row.seq, {})[row.id] = (kind, state.op, text(state.document))
        commits = self.space.watch(
            after=model.horizon, branch=branch, where=json.loads(where), timeout=0
        )
        shown = {
            commit.seq: {row.id: (row.kind, row.op, text(row.document)) for row in commit.changes}
            for commit in commits
        }
        assert shown == expected

    @rule(
        pick=PICK,
        age=st.integers(0, 9),
        prefix=st.sampled_from(["", *ENTITIES]),
        after=st.sampled_from(["", *ENTITIES]),
        limit=st.integers(0, 3),
    )
    def page_of_ids(self, pick, age, prefix, after, limit):
        branch = self.branch(pick)
        at = max(self.model.lines[branch].created_seq, self.model.seq - age)
        try:
            found = self.space.ids(branch, at, prefix=prefix, after=after, limit=limit)
        except HistoryTruncated:
            assert self.readable(branch, at) is not True
            return
        every = [each for each in self.model.ids(branch, at) if each.startswith(prefix)]
        assert found == [each for each in every if each > after][:limit]
