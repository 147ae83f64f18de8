"""Merges, computed naively on a graph of commits with full copies.

Every commit has its parents, its operations and all documents after it. The past of a commit is a
set of commits, so the bases of two are the intersection of their pasts, without commits in the past
of another such commit. Nothing is shared with the real merge but the rules:

- a field that one side did not change since the base is taken from the other;
- if both changed a field, their operations since the base decide, if all of them commute and lead
  from the base to the values of the sides: the operations of the source are then applied to the
  target;
- if they do not, and both added something, there is a conflict;
- otherwise equal results are taken, and different ones are a conflict;
- several bases are merged with each other first, and where they contradict each other the two
  sides must be equal.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.document_model import (
    ABSENT,
    Document,
    DocumentModel,
    Path,
    Refusal,
    apply_patches,
    find,
    same,
    segments,
    text,
)

UNKNOWN: Any = object()
UNDECIDED: Any = object()
CONTESTED: Any = object()
Patches = list[dict[str, Any]]


@dataclass
class Node:
    """A commit: `operations` is None for a merge."""

    seq: int
    parents: tuple[int, ...]
    operations: Sequence[dict[str, Any]] | None
    documents: dict[str, Document]


@dataclass
class Outcome:
    """Documents of the target after a merge, and the paths of its conflicts."""

    documents: dict[str, Any] = field(default_factory=dict)
    conflicts: dict[str, list[str]] = field(default_factory=dict)


class CommitGraph:
    """All commits of a space; every branch is a list of them."""

    def __init__(self) -> None:
        self.nodes = {0: Node(0, (), (), {})}
        self.lines: dict[str, list[int]] = {"": [0]}
        self._pasts: dict[int, frozenset[int]] = {}

    def commit(
        self,
        branch: str,
        seq: int,
        operations: Sequence[dict[str, Any]],
        documents: dict[str, Document],
        merged: int | None = None,
    ) -> None:
        """Add a commit to a branch; `merged` is the head that a merge took in."""
        parents = (self.lines[branch][-1], *(() if merged is None else (merged,)))
        # The caller may change what it passed in.
        operations_copy = copy.deepcopy(list(operations)) if merged is None else None
        self.nodes[seq] = Node(seq, parents, operations_copy, documents)
        self.lines[branch].append(seq)

    def fork(self, name: str, parent: str, at: int) -> None:
        """Fork a branch at a seq."""
        self.lines[name] = [seq for seq in self.lines[parent] if seq <= at]

    def head(self, branch: str) -> int:
        """Return the last commit of a branch."""
        return self.lines[branch][-1]

    def past(self, seq: int) -> frozenset[int]:
        """Return a commit and all before it."""
        if seq not in self._pasts:
            parents = (self.past(parent) for parent in self.nodes[seq].parents)
            self._pasts[seq] = frozenset({seq}).union(*parents)
        return self._pasts[seq]

    def all_past(self, seqs: Iterable[int]) -> frozenset[int]:
        """Return the union of the pasts of commits."""
        return frozenset().union(*map(self.past, seqs))

    def bases(self, ones: Sequence[int], others: Sequence[int]) -> list[int]:
        """Return the merge bases of two sides, newest first."""
        shared = self.all_past(ones) & self.all_past(others)
        return sorted(
            (
                seq
                for seq in shared
                if not any(seq in self.past(other) for other in shared if other != seq)
            ),
            reverse=True,
        )

    def merge(self, source: str, target: str, *, field_level: bool = True) -> Outcome:
        """Merge a branch into another and return the outcome."""
        ours, theirs = [self.head(target)], [self.head(source)]
        bases = self.bases(ours, theirs)
        outcome = Outcome()
        every = {entity for seq in (*ours, *theirs) for entity in self.nodes[seq].documents}
        for entity in sorted(every | set(self.nodes[bases[0]].documents)):
            merge = Merge(self, entity, bases, ours, theirs, field_level=field_level)
            sides = [self.virtual(at, entity, field_level) for at in (bases, ours, theirs)]
            document = sides[1] if alike(sides[0], sides[2]) else merge.value((), *sides)
            if merge.conflicts:
                outcome.conflicts[entity] = sorted(merge.conflicts)
            outcome.documents[entity] = document
        return outcome

    def virtual(self, seqs: Sequence[int], entity: str, field_level: bool) -> Any:
        """Return the document that several commits have when merged with each other."""
        if len(seqs) == 1:
            return self.nodes[seqs[0]].documents.get(entity, ABSENT)
        ours, theirs = list(seqs[:-1]), list(seqs[-1:])
        bases = self.bases(ours, theirs)
        merge = Merge(
            self, entity, bases, ours, theirs, field_level=field_level, unresolved=UNKNOWN
        )
        return merge.value(
            (), *(self.virtual(at, entity, field_level) for at in (bases, ours, theirs))
        )

    def done(self, entity: str, side: Sequence[int], bases: Sequence[int]) -> Patches | None:
        """Return the patches of an entity since the bases, or None if it was replaced."""
        patches: Patches = []
        for seq in sorted(self.all_past(side) - self.all_past(bases)):
            for operation in self.nodes[seq].operations or ():
                if operation["id"] == entity:
                    if operation["op"] != "patch":
                        return None
                    patches += operation["patches"]
        return patches


class Merge:
    """The merge of one entity."""

    def __init__(
        self,
        graph: CommitGraph,
        entity: str,
        bases: Sequence[int],
        ours: Sequence[int],
        theirs: Sequence[int],
        *,
        field_level: bool,
        unresolved: Any = None,
    ) -> None:
        self.conflicts: list[str] = []
        self._logs = [graph.done(entity, side, bases) for side in (ours, theirs)]
        self._several = len(bases) > 1
        self._field_level = field_level
        self._unresolved = unresolved

    def value(self, path: tuple[str, ...], base: Any, ours: Any, theirs: Any) -> Any:
        """Merge the values of a path."""
        known = base is not UNKNOWN
        if known and alike(base, theirs):
            return ours
        if known and alike(base, ours):
            return theirs
        objects = isinstance(ours, dict) and isinstance(theirs, dict)
        if self._field_level and objects and (isinstance(base, dict) or base in (ABSENT, UNKNOWN)):
            return self._fields(path, base, ours, theirs)
        combined = self._combine(list(path), base, ours, theirs)
        if combined is UNDECIDED and alike(ours, theirs):
            return ours
        if combined is not UNDECIDED and combined is not CONTESTED:
            return combined
        if self._unresolved is None:
            self.conflicts.append("".join(f"/{segment}" for segment in path))
        return self._unresolved

    def _fields(self, path: tuple[str, ...], base: Any, ours: Any, theirs: Any) -> Any:
        merged = {}
        for key in {**(base if isinstance(base, dict) else {}), **ours, **theirs}:
            was = base.get(key, ABSENT) if isinstance(base, dict) else base
            value = self.value((*path, key), was, ours.get(key, ABSENT), theirs.get(key, ABSENT))
            if value is not ABSENT:
                merged[key] = value
        return merged

    def _combine(self, path: Path, base: Any, ours: Any, theirs: Any) -> Any:
        if not self._field_level or not path or None in self._logs:
            return UNDECIDED
        mine, others = (patches_at(log or [], path) for log in self._logs)
        if mine is None or others is None:
            return UNDECIDED
        if (
            (mine or others)
            and base is not UNKNOWN
            and commute(mine, others)
            and self._explains(path, base, mine, ours)
            and self._explains(path, base, others, theirs)
        ):
            merged = apply_at(path, ours, others)
            if merged is not UNDECIDED:
                return merged
        countable = isinstance(ours, int | float | list) and not isinstance(ours, bool)
        adding = [
            any(patch["op"] in ("increment", "append") for patch in log) for log in (mine, others)
        ]
        return CONTESTED if countable and all(adding) else UNDECIDED

    def _explains(self, path: Path, base: Any, patches: Patches, state: Any) -> bool:
        if not patches and not self._several:
            return alike(base, state)
        result = apply_at(path, base, patches)
        if isinstance(result, list) and isinstance(state, list):
            return sorted(map(text, result)) == sorted(map(text, state))
        if isinstance(result, float) and isinstance(state, float):
            return math.isclose(result, state, rel_tol=1e-9, abs_tol=1e-9)
        return alike(result, state)


def alike(one: Any, other: Any) -> bool:
    """Return True if two values are the same, including the markers."""
    marks = (ABSENT, UNKNOWN, UNDECIDED, None)
    if any(one is mark or other is mark for mark in marks):
        return one is other
    return _plain(one) and _plain(other) and text(one) == text(other)


def _plain(value: Any) -> bool:
    """Return True if a value has no unknown part."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is not UNKNOWN and all(map(_plain, parts))


def patches_at(patches: Patches, path: Path) -> Patches | None:
    """Return the patches at or below a path; None if one there does not commute."""
    result: Patches = []
    for patch in patches:
        where = segments(patch["path"])
        if patch["op"] == "add" and len(where) > 1 and where[-1] == "-":
            above = patch["path"].rpartition("/")[0]
            patch = {"op": "append", "path": above, "values": [patch["value"]]}  # noqa: PLW2901
            where = where[:-1]
        adds = patch["op"] in ("increment", "append", "add-unique", "remove-by-value")
        if adds and where[: len(path)] == path:
            result.append(patch)
        elif any(_meet(place, path) for place in _touched(patch)):
            return None
    return result


def _touched(patch: dict[str, Any]) -> list[Path]:
    places = [segments(patch["path"])]
    if patch["op"] == "move":
        places.append(segments(patch["from"]))
    shifts = patch["op"] in ("add", "remove", "move")
    return [
        place[:-1]
        if shifts and len(place) > 1 and (place[-1] == "-" or place[-1].isdigit())
        else place
        for place in places
    ]


def _meet(one: Path, other: Path) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def commute(mine: Patches, others: Patches) -> bool:
    """Return True if the patches of two sides commute."""
    everything = [*mine, *others]
    for one in everything:
        for other in everything:
            first, second = segments(one["path"]), segments(other["path"])
            if first != second and _meet(first, second):
                return False
            if first == second and (one["op"] == "increment") != (other["op"] == "increment"):
                return False
    return not any(_clash(one, other) for one in mine for other in others) and not any(
        _clash(other, one) for one in mine for other in others
    )


def _clash(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return True if one patch adds once, or removes, what the other adds to the same array."""
    if one["path"] != other["path"] or other["op"] not in ("append", "add-unique"):
        return False
    if one["op"] == "remove-by-value":
        values = [one["value"]]
    elif one["op"] == "add-unique" and other["op"] == "append":
        values = one["values"]
    else:
        return False
    return any(same(value, added) for value in values for added in other["values"])


def apply_at(path: Path, value: Any, patches: Patches) -> Any:
    """Apply patches to a value at a path; UNDECIDED if that is refused."""
    document: Document = {}
    holder = document
    for segment in path[:-1]:
        holder = holder.setdefault(segment, {})
    if value is not ABSENT:
        if not _plain(value):
            return UNDECIDED
        holder[path[-1]] = value
    try:
        return find(apply_patches(document, patches), path)
    except Refusal:
        return UNDECIDED


@dataclass
class MergingModel(DocumentModel):
    """A naive space with merges."""

    graph: CommitGraph = field(default_factory=CommitGraph)

    def transact(
        self, branch: str, operations: Sequence[dict[str, Any]], merged: str | None = None
    ) -> int:
        """Apply all operations; `merged` is the branch whose merge they are."""
        seq = super().transact(branch, operations)
        documents = {
            entity: state.document
            for entity, state in self.states(branch, seq).items()
            if state.document is not None
        }
        source = None if merged is None else self.graph.head(merged)
        self.graph.commit(branch, seq, operations, documents, source)
        return seq

    def create_branch(self, name: str, parent: str, at: int | None) -> int:
        """Fork a branch."""
        seq = super().create_branch(name, parent, at)
        fork = self.lines[name].fork_seq
        assert fork is not None
        self.graph.fork(name, parent, fork)
        return seq
