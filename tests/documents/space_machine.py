"""Random lives of a space, compared with a dumb model of it that keeps full copies of everything.

`SpaceMachine` has a `history`; a subclass says another one, and may add rules of its own.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from space_indexes import IndexRules
from space_laws import LawRules
from space_operations import (
    DOCUMENTS,
    ENTITIES,
    ENTITY,
    NEVER,
    OPERATION,
    PATCHES,
    PICK,
    READ_PATHS,
)
from space_upkeep import UpkeepRules

import fourfold
from fourfold import limits
from fourfold.errors import (
    AlreadyExists,
    BranchEnded,
    FourfoldError,
    HistoryTruncated,
    InvalidInput,
    MergeConflicted,
    NotFound,
    PreconditionFailed,
    Refused,
    ReplayMismatch,
    StaleRead,
)
from fourfold.models.documents import patch
from support.document_model import ABSENT, Refusal, apply_patches, text
from support.merge_model import MergingModel

DID = "did:key:z6MkMachine"
BRANCHES_MAX = 6
SESSIONS = ("s", "t")


def well_formed(operations):
    """Whether every patch has the right shape, whatever it is applied to."""
    try:
        for operation in operations:
            patch.compile(operation.get("patches", []))
    except InvalidInput:
        return False
    return True


class SpaceMachine(UpkeepRules, LawRules, IndexRules):
    """One life of a space."""

    history = "revisions"

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="fourfold-machine-"))
        self.root = self.folder / "store"
        self.model = MergingModel()
        self.sent = {}
        self.merged = set()
        self.did, self.kind = DID, self.history
        self.open()

    @initialize(document=DOCUMENTS)
    def begin(self, document):
        self.transact("", [{"op": "set", "id": "a", "value": document}])

    # Writing

    @rule(pick=PICK, entity=ENTITY, document=DOCUMENTS)
    def set(self, pick, entity, document):
        self.transact(self.branch(pick), [{"op": "set", "id": entity, "value": document}])

    @rule(pick=PICK, entity=ENTITY, patches=PATCHES)
    def patch(self, pick, entity, patches):
        self.transact(self.branch(pick), [{"op": "patch", "id": entity, "patches": patches}])

    @rule(pick=PICK, entity=ENTITY)
    def delete(self, pick, entity):
        self.transact(self.branch(pick), [{"op": "delete", "id": entity}])

    @rule(pick=PICK, operations=st.lists(OPERATION, min_size=1, max_size=6))
    def several_operations(self, pick, operations):
        self.transact(self.branch(pick), operations)

    @rule(
        pick=PICK,
        entity=ENTITY,
        count=st.integers(5, 14),
        together=st.booleans(),
        then=st.sampled_from(["nothing", "set", "delete"]),
    )
    def many_patches(self, pick, entity, count, together, then):
        """Long enough a chain of patches that snapshots appear in it, and something after them."""
        branch = self.branch(pick)
        made = [
            {
                "op": "patch",
                "id": entity,
                "patches": [{"op": "append", "path": "/chain", "values": ["link", number]}],
            }
            for number in range(count)
        ]
        for operations in [made] if together else [[each] for each in made]:
            self.transact(branch, operations)
        if then != "nothing":
            whole = {"op": then, "id": entity, **({"value": {"n": 1}} if then == "set" else {})}
            self.transact(branch, [whole])
            self.transact(branch, made[:1])

    # Named requests

    @rule(
        pick=PICK,
        session=st.sampled_from(SESSIONS),
        local_seq=st.integers(1, 4),
        operations=st.lists(OPERATION, min_size=1, max_size=2),
    )
    def named_request(self, pick, session, local_seq, operations):
        branch = self.branch(pick)
        asked = text([branch, operations])
        known = self.model.requests.get((session, local_seq))
        if known is None:
            seq = self.transact(branch, operations, session=session, local_seq=local_seq)
            if seq is not None:
                self.model.requests[session, local_seq] = (asked, seq)
                self.sent[session, local_seq] = (branch, operations)
            return
        if known[0] != asked:
            # A patch of the wrong shape is refused before anybody looks for the request's name.
            self.refused(
                ReplayMismatch if well_formed(operations) else InvalidInput,
                lambda: self.space.transact(
                    operations, session=session, local_seq=local_seq, branch=branch
                ),
            )

    @precondition(lambda self: self.sent)
    @rule(pick=PICK)
    def replay(self, pick):
        session, local_seq = sorted(self.sent)[pick % len(self.sent)]
        branch, operations = self.sent[session, local_seq]
        before = self.space.seq()
        commit = self.space.transact(
            operations, session=session, local_seq=local_seq, branch=branch
        )
        assert commit.replayed
        assert commit.seq == self.model.requests[session, local_seq][1]
        assert [text(each.data) for each in commit.revisions] == [
            text(each.get("value", each.get("patches"))) for each in operations
        ]
        assert self.space.seq() == before

    # Reads that a transaction depends on

    @rule(
        pick=PICK,
        entity=ENTITY,
        path=READ_PATHS | st.just([]),
        shape=st.booleans(),
        age=st.integers(0, 6),
    )
    def confirmed_read(self, pick, entity, path, shape, age):
        branch = self.branch(pick)
        self.depend(branch, entity, path, max(0, self.model.seq - age), shape=shape)

    @rule(pick=PICK, entity=ENTITY, path=READ_PATHS, shape=st.booleans(), patches=PATCHES)
    def change_after_a_read(self, pick, entity, path, shape, patches):
        branch, seen = self.branch(pick), self.model.seq
        self.transact(branch, [{"op": "patch", "id": entity, "patches": patches}])
        self.depend(branch, entity, path, seen, shape=shape)

    def depend(self, branch, entity, path, seen, *, shape):
        """What is accepted saw nothing change; what is refused had something written after it."""
        model = self.model
        if not model.lines[branch].active:
            return
        newer = [each for each in model.history(branch, entity, model.seq) if each.seq > seen]
        read = {"id": entity, "seq": seen, "path": path, "shape": shape}
        operations = [{"op": "set", "id": "b", "value": {"n": len(path)}}]
        then, now = (model.value(branch, entity, path, at, shape=shape) for at in (seen, model.seq))
        try:
            commit = self.space.transact(operations, reads={"confirmed": [read]}, branch=branch)
        except StaleRead as stale:
            details = stale.details
        else:
            assert then == now
            assert all(each.op == "patch" for each in newer)
            assert commit.seq == model.transact(branch, operations)
            return
        assert (details["entity"], details["read_seq"]) == (entity, seen)
        assert details["conflict_seq"] in {each.seq for each in newer}
        assert self.space.seq() == model.seq

    @precondition(lambda self: self.sent)
    @rule(pick=PICK, entity=ENTITY, path=READ_PATHS, age=st.integers(0, 6), unknown=st.booleans())
    def pending_read(self, pick, entity, path, age, unknown):
        model = self.model
        session, local_seq = sorted(self.sent)[pick % len(self.sent)]
        branch = self.sent[session, local_seq][0]
        if not model.lines[branch].active:
            return
        named = [local_seq, 99] if unknown else [local_seq]
        basis = max(0, model.seq - age)
        own = model.requests[session, local_seq][1]
        newer = [
            each
            for each in model.history(branch, entity, model.seq)
            if each.seq > basis and each.seq != own
        ]
        reads = {"pending": [{"id": entity, "local_seqs": named, "basis_seq": basis, "path": path}]}
        operations = [{"op": "set", "id": "b", "value": {"n": age}}]
        number = 1000 + model.seq
        try:
            commit = self.space.transact(
                operations, reads=reads, session=session, local_seq=number, branch=branch
            )
        except StaleRead:
            assert unknown or newer
            assert self.space.seq() == model.seq
        else:
            assert not unknown
            assert all(each.op == "patch" for each in newer)
            assert commit.seq == model.transact(branch, operations)
            resolution = self.space.log(after=commit.seq - 1)[0].resolution
            assert resolution["resolved_pending_reads"] == [{"local_seq": local_seq, "seq": own}]

    @rule(pick=PICK, entity=st.sampled_from([*ENTITIES, NEVER]), off=st.integers(0, 1))
    def preconditions(self, pick, entity, off):
        model, branch = self.model, self.branch(pick)
        if not model.lines[branch].active:
            return
        state = model.state(branch, entity)
        at = 0 if state is None else state.seq
        operations = [{"op": "set", "id": "b", "value": {"n": off}}]
        for condition, holds in (
            ({"kind": "absent", "id": entity}, state is None),
            ({"kind": "seq", "id": entity, "seq": at + off}, off == 0),
        ):
            try:
                commit = self.space.transact(operations, branch=branch, preconditions=[condition])
            except PreconditionFailed:
                assert not holds
            else:
                assert holds
                assert commit.seq == model.transact(branch, operations)
                return

    # Branches

    @precondition(lambda self: len(self.model.lines) < BRANCHES_MAX)
    @rule(pick=PICK, age=st.integers(0, 12) | st.none())
    def create_branch(self, pick, age):
        model = self.model
        parent = self.branch(pick)
        if model.depth(parent) >= limits.BRANCH_DEPTH_MAX:
            return
        name = f"branch/{len(model.lines)}"
        at = None if age is None else max(0, model.seq - age)
        readable = self.readable(parent, at)
        if readable is not True and self.born(parent, at):
            if readable is False:
                self.refused(HistoryTruncated, lambda: self.space.branches.create(name, parent, at))
            return
        try:
            seq = model.create_branch(name, parent, at)
        except Refusal:
            self.refused(NotFound, lambda: self.space.branches.create(name, parent, at))
            return
        made = self.space.branches.create(name, parent, at)
        line = model.lines[name]
        assert (made.name, made.parent, made.fork_seq) == (name, parent, line.fork_seq)
        assert (made.created_seq, made.head_seq, made.active) == (seq, seq, True)

    @rule(pick=PICK)
    def delete_branch(self, pick):
        name = self.branch(pick)
        try:
            self.model.delete_branch(name)
        except Refusal:
            self.refused(BranchEnded if name else Refused, lambda: self.space.branches.delete(name))
            return
        assert not self.space.branches.delete(name).active

    @rule(pick=PICK)
    def names_are_used_once(self, pick):
        name = self.branch(pick)
        error = AlreadyExists if name else InvalidInput
        self.refused(error, lambda: self.space.branches.create(name))

    @rule(source_pick=PICK, target_pick=PICK, field_level=st.booleans())
    def merge(self, source_pick, target_pick, field_level):
        """The result is that of a graph of commits. After a collection there may be more conflicts,
        where the operations are gone, and never fewer.
        """
        model = self.model
        source, target = self.branch(source_pick), self.branch(target_pick)
        before = model.seq
        if source == target or not model.lines[target].active:
            error = InvalidInput if source == target else BranchEnded
            self.refused((error, BranchEnded), lambda: self.space.branches.merge(source, target))
            return
        expected = model.graph.merge(source, target, field_level=field_level)
        try:
            result = self.space.branches.merge(source, target, field_level=field_level)
        except MergeConflicted as error:
            found = {each["entity"]: each["paths"] for each in error.details["conflicts"]}
            assert model.horizon or found == expected.conflicts
            assert self.space.seq() == before
            return
        assert expected.conflicts == {}
        if result.commit is not None:
            assert result.commit.seq == model.transact(target, list(result.operations), source)
            self.merged.add((source, result.source.seq))
        for entity, document in expected.documents.items():
            now = model.state(target, entity)
            assert text(None if now is None else now.document) == text(
                None if document is ABSENT else document
            )

    # Reading

    @rule(a_pick=PICK, b_pick=PICK, a_age=st.integers(0, 9), b_age=st.integers(0, 9))
    def diff(self, a_pick, b_pick, a_age, b_age):
        model = self.model
        a, b = self.branch(a_pick), self.branch(b_pick)
        at_a = max(model.lines[a].created_seq, model.seq - a_age)
        at_b = max(model.lines[b].created_seq, model.seq - b_age)
        try:
            found = self.space.branches.diff(a, b, at_a, at_b)
        except HistoryTruncated:
            assert min(at_a, at_b) < model.horizon
            return
        assert False not in {self.readable(a, at_a), self.readable(b, at_b)}
        changes = {each.id: each for each in found}
        for entity in ENTITIES:
            one, other = (
                None if state is None else state.text
                for state in (model.state(a, entity, at_a), model.state(b, entity, at_b))
            )
            assert (entity in changes) == (one != other)
            if one == other:
                continue
            operation = changes[entity].operation
            if operation["op"] == "delete":
                assert other is None
            elif operation["op"] == "set":
                assert text(operation["value"]) == other
            else:
                assert text(apply_patches(json.loads(one), operation["patches"])) == other

    @rule(pick=PICK, age=st.integers(0, 30))
    def read_at(self, pick, age):
        branch = self.branch(pick)
        at = max(self.model.lines[branch].created_seq, self.model.seq - age)
        self.compare(branch, at)

    @rule(pick=PICK)
    def read_now(self, pick):
        branch = self.branch(pick)
        for entity in (*ENTITIES, NEVER):
            self.same(self.space.read(entity, branch), self.model.state(branch, entity))

    @rule()
    def read_the_unborn(self):
        for name, line in self.model.lines.items():
            if name:
                at = line.created_seq - 1
                self.refused(NotFound, lambda name=name, at=at: self.space.read("a", name, at))
        beyond = self.model.seq + 1
        self.refused(InvalidInput, lambda: self.space.read("a", at=beyond))

    def teardown(self):
        try:
            self.everything_is_as_it_was()
        finally:
            self.close()
            shutil.rmtree(self.folder)

    def everything_is_as_it_was(self):
        """Every state that the model knows is read back equal: now, and after a reopen."""
        model = self.model
        assert self.space.seq() == model.seq
        branches = {each.name: each for each in self.space.branches.list(deleted=True)}
        assert branches.keys() == model.lines.keys()
        for name, line in model.lines.items():
            found = branches[name]
            assert (found.parent, found.fork_seq) == (line.parent, line.fork_seq)
            assert (found.created_seq, found.head_seq) == (line.created_seq, line.head_seq)
            assert found.active == line.active
        self.close()
        self.open()
        for name, line in model.lines.items():
            for at in range(line.created_seq, model.seq + 1):
                self.compare(name, at)
        assert [each.seq for each in self.space.log()] == list(range(1, model.seq + 1))
        assert self.space.verify() == []
        if self.carry_over():
            for name, line in model.lines.items():
                for at in range(line.created_seq, model.seq + 1, 3):
                    self.compare(name, at)

    # The parts of rules

    def open(self):
        self.store = fourfold.open(self.root)
        self.space = self.store.space(self.did, history=self.kind)

    def close(self):
        self.store.close()

    def branch(self, pick):
        names = list(self.model.lines)
        return names[pick % len(names)]

    def transact(self, branch, operations, **request):
        """The same transaction on both sides; its seq, or None if both refused it."""
        try:
            expected = self.model.transact(branch, operations)
        except Refusal:
            active = self.model.lines[branch].active
            error = InvalidInput if active else (BranchEnded, InvalidInput)
            self.refused(error, lambda: self.space.transact(operations, branch=branch, **request))
            return None
        commit = self.space.transact(operations, branch=branch, **request)
        assert commit.seq == expected
        assert commit.branch == branch
        assert not commit.replayed
        assert [(each.id, each.op, each.op_index) for each in commit.revisions] == [
            (each["id"], each["op"], index) for index, each in enumerate(operations)
        ]
        return expected

    def refused(self, error, call):
        """The call raises, and nothing was written."""
        try:
            call()
        except FourfoldError as raised:
            assert isinstance(raised, error), raised  # noqa: PT017
        else:
            raise AssertionError(f"{error} was expected")
        assert self.space.seq() == self.model.seq

    def compare(self, branch, at):
        """Everything that a reader of the branch sees at a seq."""
        model, space = self.model, self.space
        wanted = (*ENTITIES, NEVER)
        try:
            many = space.read_many(wanted, branch, at)
        except HistoryTruncated:
            assert self.readable(branch, at) is not True
            for call in (space.ids, lambda *there: space.read("a", *there)):
                self.refused(HistoryTruncated, lambda call=call: call(branch, at))
            return
        assert self.readable(branch, at) is not False
        assert list(many) == list(wanted)
        for entity in wanted:
            expected = model.state(branch, entity, at)
            self.same(many[entity], expected)
            self.same(space.read(entity, branch, at), expected)
            self.same_history(entity, branch, at)
        assert space.ids(branch, at) == model.ids(branch, at)

    @staticmethod
    def same(found, expected):
        if expected is None:
            assert found is None
            return
        assert found is not None
        document = None if found.document is None else text(found.document)
        assert (document, found.op, found.seq) == expected
