"""Random branches that are merged in all directions, compared with a graph of commits.

Documents and conflicts must be those of the model: no conflict more, and none fewer.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from space_operations import PICK

import fourfold
from fourfold import limits
from fourfold.errors import InvalidInput, MergeConflicted
from fourfold.models.documents import OURS, THEIRS
from support.document_model import ABSENT, Refusal, text
from support.merge_model import MergingModel

BRANCHES_MAX = 8
ENTITIES = ("a", "b")
ENTITY = st.sampled_from(("a", "a", "b"))
WORDS = st.sampled_from(["x", "y", 1])
ADDING = st.one_of(
    st.fixed_dictionaries(
        {
            "op": st.just("increment"),
            "path": st.sampled_from(["/n", "/n", "/o/n", "/l/0"]),
            "by": st.sampled_from([1, 1, 2, -1, 0.5]),
        }
    ),
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["append", "append", "add-unique"]),
            "path": st.sampled_from(["/l", "/l", "/o/l"]),
            "values": st.lists(WORDS, min_size=1, max_size=2),
        }
    ),
    st.fixed_dictionaries({"op": st.just("add"), "path": st.just("/l/-"), "value": WORDS}),
    st.fixed_dictionaries(
        {"op": st.just("remove-by-value"), "path": st.just("/l"), "value": WORDS}
    ),
)
OTHER = st.one_of(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["replace", "add"]),
            "path": st.sampled_from(["/n", "/o", "/l", "/t"]),
            "value": st.sampled_from([0, 1, {"n": 1}, ["x"], "t"]),
        }
    ),
    st.fixed_dictionaries({"op": st.just("remove"), "path": st.sampled_from(["/n", "/o", "/l/0"])}),
    st.fixed_dictionaries(
        {
            "op": st.just("splice"),
            "path": st.just("/l"),
            "index": st.just(0),
            "remove": st.integers(0, 1),
            "add": st.lists(WORDS, max_size=1),
        }
    ),
    st.fixed_dictionaries(
        {"op": st.just("move"), "from": st.just("/n"), "path": st.sampled_from(["/o/n", "/t"])}
    ),
)
DOCUMENT = st.fixed_dictionaries(
    {"n": st.integers(0, 2), "l": st.lists(WORDS, max_size=2), "o": st.just({"n": 0})}
)
CHOICE = st.sampled_from([OURS, THEIRS, None]) | DOCUMENT


class MergeMachine(RuleBasedStateMachine):
    """One life of the branches of a space."""

    history = "revisions"

    def __init__(self):
        super().__init__()
        self.store = fourfold.open(":memory:")
        self.space = self.store.space("did:key:z6MkMerges", history=self.history)
        self.model = MergingModel()
        start = {"n": 0, "l": [], "o": {"n": 0}, "t": "t"}
        self.transact("", [{"op": "set", "id": "a", "value": start}])
        for name in ("one", "two"):
            self.fork(name, "", None)

    def teardown(self):
        try:
            for name in self.model.lines:
                self.compare(name)
            assert self.space.verify() == []
        finally:
            self.store.close()

    @rule(pick=PICK, entity=ENTITY, patches=st.lists(ADDING, min_size=1, max_size=2))
    def add(self, pick, entity, patches):
        self.transact(self.branch(pick), [{"op": "patch", "id": entity, "patches": patches}])

    @rule(pick=PICK, other_pick=PICK, entity=ENTITY, patches=st.lists(ADDING, min_size=1))
    def add_on_two_branches(self, pick, other_pick, entity, patches):
        for each in (pick, other_pick):
            self.transact(self.branch(each), [{"op": "patch", "id": entity, "patches": patches}])

    @rule(pick=PICK, entity=ENTITY, patches=st.lists(OTHER | ADDING, min_size=1, max_size=2))
    def patch(self, pick, entity, patches):
        self.transact(self.branch(pick), [{"op": "patch", "id": entity, "patches": patches}])

    @rule(pick=PICK, entity=ENTITY, document=DOCUMENT)
    def set(self, pick, entity, document):
        self.transact(self.branch(pick), [{"op": "set", "id": entity, "value": document}])

    @rule(pick=PICK, entity=ENTITY)
    def delete(self, pick, entity):
        self.transact(self.branch(pick), [{"op": "delete", "id": entity}])

    @rule(pick=PICK, entity=ENTITY, document=DOCUMENT)
    def there_and_back(self, pick, entity, document):
        """A, B, A: the value is that of before, and was written all the same."""
        branch = self.branch(pick)
        before = self.model.state(branch, entity)
        self.transact(branch, [{"op": "set", "id": entity, "value": document}])
        if before is not None and before.document is not None:
            self.transact(branch, [{"op": "set", "id": entity, "value": before.document}])

    @precondition(lambda self: len(self.model.lines) < BRANCHES_MAX)
    @rule(pick=PICK, age=st.integers(0, 8))
    def fork_the_past(self, pick, age):
        parent = self.branch(pick)
        at = max(self.model.lines[parent].created_seq, self.model.seq - age)
        self.fork(f"branch/{len(self.model.lines)}", parent, at)

    @precondition(lambda self: len(self.model.lines) < BRANCHES_MAX - 1)
    @rule(pick=PICK)
    def fork_an_idle_parent_twice(self, pick):
        """Both show one state of the parent, from two seqs."""
        for _ in range(2):
            self.fork(f"branch/{len(self.model.lines)}", self.branch(pick), None)

    @rule(source_pick=PICK, target_pick=PICK, field_level=st.booleans(), choice=CHOICE)
    def merge(self, source_pick, target_pick, field_level, choice):
        self.merge_and_compare(
            self.branch(source_pick), self.branch(target_pick), choice, field_level=field_level
        )

    @precondition(lambda self: len(self.model.lines) < BRANCHES_MAX - 1)
    @rule(pick=PICK, other_pick=PICK, choice=CHOICE, patches=st.lists(ADDING, min_size=1))
    def cross(self, pick, other_pick, choice, patches):
        """Each of two branches merges what the other had before it merged itself."""
        names = self.branch(pick), self.branch(other_pick)
        if names[0] == names[1]:
            return
        for name in names:
            self.transact(name, [{"op": "patch", "id": "a", "patches": patches}])
        copies = [f"branch/{len(self.model.lines) + index}" for index in range(2)]
        for copy, name in zip(copies, names, strict=True):
            self.fork(copy, name, None)
        self.merge_and_compare(copies[0], names[1], choice)
        self.merge_and_compare(copies[1], names[0], choice)
        self.merge_and_compare(*names, choice)

    def merge_and_compare(self, source, target, choice, *, field_level=True):
        if source == target:
            return
        model, before = self.model, self.space.seq()
        expected = model.graph.merge(source, target, field_level=field_level)
        resolutions = dict.fromkeys(expected.conflicts, choice)
        try:
            result = self.space.branches.merge(source, target, field_level=field_level)
        except MergeConflicted as error:
            found = {each["entity"]: each["paths"] for each in error.details["conflicts"]}
            assert found == expected.conflicts
            assert self.space.seq() == before
            result = self.space.branches.merge(
                source, target, field_level=field_level, resolutions=resolutions
            )
        else:
            assert expected.conflicts == {}
        if result.commit is not None:
            assert result.commit.seq == model.transact(target, list(result.operations), source)
        self.compare(target)
        for entity, document in expected.documents.items():
            if entity not in resolutions:
                state = self.space.read(entity, target)
                now = None if state is None else state.document
                assert text(now) == text(None if document is ABSENT else document)

    def compare(self, branch):
        for entity in ENTITIES:
            state, expected = self.space.read(entity, branch), self.model.state(branch, entity)
            document = None if state is None else state.document
            assert text(document) == text(None if expected is None else expected.document)

    def transact(self, branch, operations):
        try:
            expected = self.model.transact(branch, operations)
        except Refusal:
            try:
                self.space.transact(operations, branch=branch)
            except InvalidInput:
                return
            raise AssertionError("the model refused this") from None
        assert self.space.transact(operations, branch=branch).seq == expected

    def fork(self, name, parent, at):
        if self.model.depth(parent) < limits.BRANCH_DEPTH_MAX:
            self.model.create_branch(name, parent, at)
            self.space.branches.create(name, parent, at)

    def branch(self, pick):
        names = list(self.model.lines)
        return names[pick % len(names)]
