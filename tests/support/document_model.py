"""A naive space: every branch stores a full copy of every entity for every seq.

It shares no code with the real one. Patches are applied to deep copies, forks copy everything that
they inherit, a read is a dictionary lookup. Results of a space are compared with those of this
model; `text` makes that comparison strict (1, 1.0 and true are three values).
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
    """The model requires that a call is refused."""


class State(NamedTuple):
    """An entity at a seq: its document as text (None if deleted), last operation and its seq."""

    text: str | None
    op: str
    seq: int

    @property
    def document(self) -> Document | None:
        """The document, or None if the entity is deleted."""
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
    """For every seq of the space: every entity that is visible on this branch."""
    written: list[Written] = field(default_factory=list)


@dataclass
class DocumentModel:
    """The reference result of a space with this history of calls."""

    seq: int = 0
    lines: dict[str, Line] = field(default_factory=dict)
    requests: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    """Content and seq of each request with a session."""
    horizon: int = 0
    """A space may refuse reads below it; the model retains everything."""
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
        """Fork a branch."""
        origin = self.lines[parent]
        fork = self.seq if at is None else at
        if name in self.lines or not origin.created_seq <= fork <= self.seq:
            raise Refusal(f"{name} cannot fork {parent} at {fork}")
        visible = origin.states[fork]
        self._advance()
        seq = self.seq
        states = {past: copy.deepcopy(origin.states[min(past, fork)]) for past in range(seq)}
        states[seq] = copy.deepcopy(visible)
        written = [entry for entry in origin.written if entry.seq <= fork]
        self.lines[name] = Line(name, parent, fork, seq, seq, states=states, written=written)
        return seq

    def delete_branch(self, name: str) -> int:
        """Delete a branch."""
        if not name or not self.lines[name].active:
            raise Refusal(f"{name} cannot be deleted")
        self._advance()
        self.lines[name].active = False
        return self.seq

    def collect(self, keep: int, pins: set[int]) -> None:
        """Truncate history to the newest `keep` seqs and the pinned ones."""
        self.horizon = max(self.horizon, self.seq - keep + 1)
        self.pins = set(pins)

    def readable(self, branch: str, at: int) -> bool:
        """Return True if a branch must be readable at a seq.

        That is above the horizon, at forks and at pins. Bases of merges may be readable too.
        """
        forks = {line.fork_seq for line in self.lines.values() if line.parent == branch}
        pinned = at in self.pins and self.lines[branch].created_seq <= at
        return at >= self.horizon or at == 0 or at in forks or pinned

    def states(self, branch: str, at: int) -> dict[str, State]:
        """Return all entities of a branch at a seq."""
        return self.lines[branch].states[at]

    def state(self, branch: str, entity: str, at: int | None = None) -> State | None:
        """Return an entity of a branch, or None."""
        return self.lines[branch].states[self.seq if at is None else at].get(entity)

    def ids(self, branch: str, at: int) -> list[str]:
        """Return the ids of the entities that are not deleted."""
        visible = self.states(branch, at)
        return sorted(entity for entity, state in visible.items() if state.op != "delete")

    def history(self, branch: str, entity: str, at: int) -> list[Written]:
        """Return the operations on an entity up to a seq."""
        return [
            entry for entry in self.lines[branch].written if entry.id == entity and entry.seq <= at
        ]

    def value(
        self, branch: str, entity: str, path: Sequence[str], at: int, *, shape: bool = False
    ) -> str:
        """Return the value at a path as text, or only its shape.

        The shape is the keys of an object or the length of an array. An absent value differs from
        all others.
        """
        state = self.state(branch, entity, at)
        value = find(ABSENT if state is None else state.document, path)
        if value is ABSENT:
            return "nothing"
        if shape and isinstance(value, dict):
            return f"object {sorted(value)}"
        if shape and isinstance(value, list):
            return f"array {len(value)}"
        return text(value)

    def depth(self, branch: str) -> int:
        """Return the number of branches from the root to a branch."""
        parent = self.lines[branch].parent
        return 1 if parent is None else 1 + self.depth(parent)

    def _advance(self) -> None:
        """Begin a new seq, at which every branch is unchanged."""
        for line in self.lines.values():
            line.states[self.seq + 1] = line.states[self.seq]
        self.seq += 1


def text(value: Any) -> str:
    """Return a value as text that distinguishes every two values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def find(document: Any, path: Sequence[str]) -> Any:
    """Return the value at a path, or ABSENT."""
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
    return State(text(apply_patches(document or {}, operation["patches"])), op, seq)


def apply_patches(document: Document, patches: Sequence[dict[str, Any]]) -> Document:
    """Apply patches to a deep copy, one after the other."""
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
            value = _remove(root, origin)
            _add(root, path, value)
        elif op == "remove":
            _remove(root, path)
        elif op == "add":
            _add(root, path, patch["value"])
        elif op == "replace":
            _replace(root, path, patch["value"])
        else:
            _change(root, path, patch)
    if not isinstance(root, dict):
        raise Refusal("a document is an object")
    return root


def segments(pointer: str) -> Path:
    """Parse a JSON pointer."""
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise Refusal(f"invalid pointer {pointer}")
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
    """Return the container of the last segment; with `create`, create missing containers."""
    if not path:
        raise Refusal("the root has no container")
    node = root
    for index, segment in enumerate(path[:-1]):
        child = _child(node, segment)
        if child is ABSENT:
            following = path[index + 1]
            array = following == "-" or _index(following) is not None
            last = index + 2 == len(path)
            if not create or not isinstance(node, dict) or (array and not last):
                raise Refusal(f"nothing is at {segment}")
            child = node[segment] = [] if array else {}
        node = child
    if not isinstance(node, dict | list):
        raise Refusal("neither an object nor an array")
    return node


def _remove(root: Any, path: Path) -> Any:
    holder = _holder(root, path)
    if _child(holder, path[-1]) is ABSENT:
        raise Refusal(f"nothing is at {path[-1]}")
    return holder.pop(path[-1] if isinstance(holder, dict) else _index(path[-1]))


def _replace(root: Any, path: Path, value: Any) -> None:
    holder = _holder(root, path)
    if isinstance(holder, dict):
        holder[path[-1]] = value
        return
    index = _index(path[-1])
    if index is None or index >= len(holder):
        raise Refusal(f"{path[-1]} is not an element")
    holder[index] = value


def _add(root: Any, path: Path, value: Any) -> None:
    holder = _holder(root, path, create=True)
    if isinstance(holder, dict):
        holder[path[-1]] = value
        return
    index = len(holder) if path[-1] == "-" else _index(path[-1])
    if index is None or index > len(holder):
        raise Refusal(f"{path[-1]} is not an insertable position")
    holder.insert(index, value)


def _change(root: Any, path: Path, patch: dict[str, Any]) -> None:
    """Apply a patch that needs the current value: splice, append, increment and others."""
    op = patch["op"]
    target: Any = root
    if op == "remove-by-value":
        for segment in path:
            target = _child(target, segment)
        if isinstance(target, list):
            target[:] = [item for item in target if not same(item, patch["value"])]
    elif op == "splice":
        target = _child(_holder(root, path), path[-1])
        if not isinstance(target, list) or patch["index"] > len(target):
            raise Refusal("no such place in an array")
        target[patch["index"] : patch["index"] + patch["remove"]] = patch["add"]
    elif op == "increment":
        holder, key, target = _get_or_create(root, path, 0)
        if isinstance(target, bool) or not isinstance(target, int | float):
            raise Refusal("not a number")
        holder[key] = target + patch["by"]
    else:
        _, _, target = _get_or_create(root, path, [])
        if not isinstance(target, list):
            raise Refusal("not an array")
        _extend(target, patch["values"], unique=op == "add-unique")


def _extend(array: list[Any], values: list[Any], *, unique: bool) -> None:
    for value in values:
        if not unique or not any(same(item, value) for item in array):
            array.append(value)


def _get_or_create(root: Any, path: Path, new: Any) -> tuple[Any, Any, Any]:
    """Return the container, the key and the value there; `new` is added if there is none."""
    holder = _holder(root, path, create=True)
    key: Any = path[-1] if isinstance(holder, dict) else _index(path[-1])
    value = _child(holder, path[-1])
    if value is not ABSENT:
        return holder, key, value
    if isinstance(holder, dict):
        holder[key] = new
    elif key == len(holder):
        holder.append(new)
    else:
        raise Refusal(f"{path[-1]} is not an insertable position")
    return holder, key, new


def same(one: Any, other: Any) -> bool:
    """Return True if two values are equal as JSON: 1 is 1.0, and neither is true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
