"""A dumb space: every branch keeps a full copy of every entity for every seq, and nothing is
clever.

It shares no code with the real one. Patches are applied to deep copies, forks copy everything that
they inherit, a read is a look into a dictionary. What a space answers is compared with what this
one answers; `text` makes that comparison strict (1, 1.0 and true are three values).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Document = dict[str, Any]
Path = list[str]
ABSENT: Any = object()


class Refusal(Exception):
    """The model would not do that."""


class State(NamedTuple):
    """An entity at some seq: its document as text (None if it is deleted), the last operation and
    its seq.
    """

    text: str | None
    op: str
    seq: int

    @property
    def document(self) -> Document | None:
        return None if self.text is None else json.loads(self.text)


class Written(NamedTuple):
    """One operation that a reader of a branch can see."""

    branch: str
    id: str
    seq: int
    op_index: int
    op: str
    data: str


@dataclass
class Line:
    """A branch, with a copy of everything that it ever showed."""

    name: str
    parent: str | None
    fork_seq: int | None
    created_seq: int
    head_seq: int
    active: bool = True
    states: dict[int, dict[str, State]] = field(default_factory=dict)
    """For every seq of the space: every entity that is visible here."""
    written: list[Written] = field(default_factory=list)


@dataclass
class DocumentModel:
    """The reference: what a space with this history of calls must say."""

    seq: int = 0
    lines: dict[str, Line] = field(default_factory=dict)
    requests: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    """What each named request asked for, and the seq that it became."""
    horizon: int = 0
    """A space may refuse what lies below; the model forgets nothing."""
    pins: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.lines[""] = Line("", None, None, 0, 0, states={0: {}})

    def transact(self, branch: str, operations: Sequence[dict[str, Any]]) -> int:
        """Apply all operations, or raise Refusal and change nothing."""
        line = self.lines[branch]
        if not line.active:
            raise Refusal(f"{branch} has ended")
        seq = self.seq + 1
        states = dict(line.states[self.seq])
        for operation in operations:
            states[operation["id"]] = _after(states.get(operation["id"]), operation, seq)
        self._advance()
        line.states[seq] = states
        line.head_seq = seq
        for index, operation in enumerate(operations):
            data = operation.get("value", operation.get("patches"))
            line.written.append(
                Written(branch, operation["id"], seq, index, operation["op"], text(data))
            )
        return seq

    def create_branch(self, name: str, parent: str, at: int | None) -> int:
        origin = self.lines[parent]
        fork = self.seq if at is None else at
        if name in self.lines or not origin.created_seq <= fork <= self.seq:
            raise Refusal(f"{name} cannot fork {parent} at {fork}")
        shown = origin.states[fork]
        self._advance()
        seq = self.seq
        states = {each: copy.deepcopy(origin.states[min(each, fork)]) for each in range(seq)}
        states[seq] = copy.deepcopy(shown)
        written = [each for each in origin.written if each.seq <= fork]
        self.lines[name] = Line(name, parent, fork, seq, seq, states=states, written=written)
        return seq

    def delete_branch(self, name: str) -> int:
        if not name or not self.lines[name].active:
            raise Refusal(f"{name} cannot be deleted")
        self._advance()
        self.lines[name].active = False
        return self.seq

    def collect(self, keep: int, pins: set[int]) -> None:
        """Let go of all but the newest `keep` seqs and the pinned ones."""
        self.horizon = max(self.horizon, self.seq - keep + 1)
        self.pins = set(pins)

    def readable(self, branch: str, at: int) -> bool:
        """Whether a branch must still be readable at a seq: above the horizon, where it was forked,
        and where it is pinned. Bases of merges may be, too.
        """
        forks = {line.fork_seq for line in self.lines.values() if line.parent == branch}
        pinned = at in self.pins and self.lines[branch].created_seq <= at
        return at >= self.horizon or at == 0 or at in forks or pinned

    def states(self, branch: str, at: int) -> dict[str, State]:
        return self.lines[branch].states[at]

    def state(self, branch: str, entity: str, at: int | None = None) -> State | None:
        return self.lines[branch].states[self.seq if at is None else at].get(entity)

    def ids(self, branch: str, at: int) -> list[str]:
        shown = self.states(branch, at)
        return sorted(entity for entity, state in shown.items() if state.op != "delete")

    def history(self, branch: str, entity: str, at: int) -> list[Written]:
        return [each for each in self.lines[branch].written if each.id == entity and each.seq <= at]

    def value(
        self, branch: str, entity: str, path: Sequence[str], at: int, *, shape: bool = False
    ) -> str:
        """What a reader of this path sees, as text: all of it, or only its shape (the keys of an
        object, the length of an array). What is not there looks like nothing else.
        """
        state = self.state(branch, entity, at)
        found = find(ABSENT if state is None else state.document, path)
        if found is ABSENT:
            return "nothing"
        if shape and isinstance(found, dict):
            return f"object {sorted(found)}"
        if shape and isinstance(found, list):
            return f"array {len(found)}"
        return text(found)

    def depth(self, branch: str) -> int:
        parent = self.lines[branch].parent
        return 1 if parent is None else 1 + self.depth(parent)

    def _advance(self) -> None:
        """A new seq, at which every branch still shows what it showed."""
        for line in self.lines.values():
            line.states[self.seq + 1] = line.states[self.seq]
        self.seq += 1


def text(value: Any) -> str:
    """A value as text that tells every two values apart."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def find(document: Any, path: Sequence[str]) -> Any:
    """What is at a path; ABSENT if there is nothing."""
    for segment in path:
        document = _child(document, segment)
    return document


def _after(before: State | None, operation: dict[str, Any], seq: int) -> State:
    op = operation["op"]
    if op == "delete":
        return State(None, op, seq)
    if op == "set":
        return State(text(operation["value"]), op, seq)
    document = before.document if before is not None else None
    return State(text(patched(document or {}, operation["patches"])), op, seq)


def patched(document: Document, patches: Sequence[dict[str, Any]]) -> Document:
    """The patches applied to a deep copy, one after the other, as simply as can be."""
    root = copy.deepcopy(document)
    for patch in copy.deepcopy(list(patches)):
        path = segments(patch["path"])
        op = patch["op"]
        if op in {"replace", "add"} and not path:
            root = patch["value"]
        elif op == "move":
            origin = segments(patch["from"])
            if not origin or (len(path) > len(origin) and path[: len(origin)] == origin):
                raise Refusal("a value cannot move into itself")
            value = _removed(root, origin)
            _added(root, path, value)
        elif op == "remove":
            _removed(root, path)
        elif op == "add":
            _added(root, path, patch["value"])
        elif op == "replace":
            _replaced(root, path, patch["value"])
        else:
            _changed(root, path, patch)
    if not isinstance(root, dict):
        raise Refusal("a document is an object")
    return root


def segments(pointer: str) -> Path:
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise Refusal(f"{pointer} is no pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def _index(segment: str) -> int | None:
    plain = segment.isascii() and segment.isdigit() and (segment == "0" or segment[0] != "0")
    return int(segment) if plain else None


def _child(holder: Any, segment: str) -> Any:
    if isinstance(holder, dict):
        return holder.get(segment, ABSENT)
    if isinstance(holder, list):
        index = _index(segment)
        return holder[index] if index is not None and index < len(holder) else ABSENT
    return ABSENT


def _holder(root: Any, path: Path, *, create: bool = False) -> Any:
    """The container of the last segment; with `create`, missing keys on the way are made."""
    if not path:
        raise Refusal("the root has no container")
    node = root
    for at, segment in enumerate(path[:-1]):
        child = _child(node, segment)
        if child is ABSENT:
            following = path[at + 1]
            array = following == "-" or _index(following) is not None
            last = at + 2 == len(path)
            if not create or not isinstance(node, dict) or (array and not last):
                raise Refusal(f"nothing is at {segment}")
            child = node[segment] = [] if array else {}
        node = child
    if not isinstance(node, dict | list):
        raise Refusal("neither an object nor an array")
    return node


def _removed(root: Any, path: Path) -> Any:
    holder = _holder(root, path)
    if _child(holder, path[-1]) is ABSENT:
        raise Refusal(f"nothing is at {path[-1]}")
    return holder.pop(path[-1] if isinstance(holder, dict) else _index(path[-1]))


def _replaced(root: Any, path: Path, value: Any) -> None:
    holder = _holder(root, path)
    if isinstance(holder, dict):
        holder[path[-1]] = value
        return
    index = _index(path[-1])
    if index is None or index >= len(holder):
        raise Refusal(f"{path[-1]} is no element")
    holder[index] = value


def _added(root: Any, path: Path, value: Any) -> None:
    holder = _holder(root, path, create=True)
    if isinstance(holder, dict):
        holder[path[-1]] = value
        return
    index = len(holder) if path[-1] == "-" else _index(path[-1])
    if index is None or index > len(holder):
        raise Refusal(f"{path[-1]} is no place for an element")
    holder.insert(index, value)


def _changed(root: Any, path: Path, patch: dict[str, Any]) -> None:
    """Splice, append, add-unique, remove-by-value, increment: they need what is there."""
    op = patch["op"]
    found: Any = root
    if op == "remove-by-value":
        for segment in path:
            found = _child(found, segment)
        if isinstance(found, list):
            found[:] = [each for each in found if not same(each, patch["value"])]
    elif op == "splice":
        found = _child(_holder(root, path), path[-1])
        if not isinstance(found, list) or patch["index"] > len(found):
            raise Refusal("no such place in an array")
        found[patch["index"] : patch["index"] + patch["remove"]] = patch["add"]
    elif op == "increment":
        holder, key, found = _made(root, path, 0)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise Refusal("not a number")
        holder[key] = found + patch["by"]
    else:
        _, _, found = _made(root, path, [])
        if not isinstance(found, list):
            raise Refusal("not an array")
        _joined(found, patch["values"], unique=op == "add-unique")


def _joined(array: list[Any], values: list[Any], *, unique: bool) -> None:
    for value in values:
        if not unique or not any(same(each, value) for each in array):
            array.append(value)


def _made(root: Any, path: Path, new: Any) -> tuple[Any, Any, Any]:
    """The container, the key in it and what is there; `new` is put there if nothing is."""
    holder = _holder(root, path, create=True)
    key: Any = path[-1] if isinstance(holder, dict) else _index(path[-1])
    found = _child(holder, path[-1])
    if found is not ABSENT:
        return holder, key, found
    if isinstance(holder, dict):
        holder[key] = new
    elif key == len(holder):
        holder.append(new)
    else:
        raise Refusal(f"{path[-1]} is no place for an element")
    return holder, key, new


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1 is 1.0, and neither is true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
