"""The nine patch operations: checked as a whole first, then applied as a whole or not at all.

They are replace, add, remove, move, splice, append, add-unique, remove-by-value and increment;
docs/reference/patches.md says what each of them does. What holds:

- `compile` looks at every operation before any is applied, and refuses the list with the position
  and the path of the first that is wrong. Numbers are numbers: true is not 1, NaN is nothing.
- `apply` changes nothing that it was given. It copies the containers on the way to a change, once,
  and shares everything else with the document before, so that a patch costs its path and not the
  document. A document is therefore a value: whoever holds one must not change it.
- If one operation of a list cannot be applied, the list is not applied.
- A `Draft` applies many lists in a row and copies a container at most once between two `take`s;
  what `take` gives is what the same lists give when `apply` is called for one after the other.
- No document gets deeper than `limits.CONTENT_DEPTH_MAX` by a patch, so it can always be encoded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NoReturn

from fourfold import limits
from fourfold.errors import InvalidInput, Refused
from fourfold.models.documents.difference import equal, find_equal
from fourfold.models.documents.patch_program import (
    OPS,
    Program,
    Step,
    check_depth,
    compile,  # noqa: A004
    parse_step,
)
from fourfold.models.documents.pointer import (
    ABSENT,
    END,
    Path,
    Unfit,
    array_index,
    is_index,
    kind_of,
    known_pointer,
    lookup,
    measure,
    show_pointer,
)
from fourfold.models.documents.records import Document

__all__ = ["OPS", "Draft", "Program", "Step", "apply", "compile"]

_HINT_APPLY = "Read the document, and send patches that fit what is there; nothing was written."


def apply(document: Document, patches: list[dict[str, Any]] | Program) -> Document:
    """The document that the patches make of `document`, which stays as it is."""
    draft = Draft(document)
    draft.apply(patches if isinstance(patches, Program) else compile(patches))
    return draft.take()


class Draft:
    """A document under change: what it was given stays as it is, what it copied it changes freely.

    `_owned` holds the ids of the containers that this draft made. Each of them is part of the
    document, at one place, inside containers that are owned too. So none is freed while its id is
    in the set, and an id cannot come to mean another object.
    """

    __slots__ = ("_owned", "_root")

    def __init__(self, document: Document) -> None:
        if type(document) is not dict:
            raise InvalidInput(f"a document is an object, not {kind_of(document)}")
        self._root: Any = document
        self._owned: set[int] = set()

    def apply(self, program: Program) -> None:
        """Apply every operation. After an error the draft is spent and answers no more."""
        self._check_unspent()
        operations = self._OPERATIONS
        position = 0
        try:
            for step in program.steps:
                operations[step.op](self, step)
                position += 1
        except (Unfit, RecursionError) as unfit:
            self._root = ABSENT
            failed = program.steps[position]
            where = f"patch {position} ({failed.op} {show_pointer(failed.path)})"
            raise InvalidInput(f"{where}: {unfit}", hint=_HINT_APPLY) from None
        except BaseException:
            self._root = ABSENT
            raise
        self._check_whole()

    def _check_whole(self) -> None:
        if type(self._root) is not dict:
            left, self._root = kind_of(self._root), ABSENT
            raise InvalidInput(
                f"the patches leave {left}, and a document is an object", hint=_HINT_APPLY
            )

    def repeat(self, patches: Iterable[Any]) -> None:
        """Apply patches out of the log, each as it is read: they were looked at together when they
        were accepted. It leaves what `apply` leaves, in two thirds of the time.
        """
        self._check_unspent()
        operations = self._OPERATIONS
        position = 0
        try:
            for patch in patches:
                if type(patch) is dict and len(patch) == 3 and patch.get("op") == "replace":
                    # Most patches of most logs.
                    self._replace_at(known_pointer(patch["path"]), patch["value"])
                else:
                    step = parse_step(patch, stored=True)
                    operations[step.op](self, step)
                position += 1
        except (Unfit, InvalidInput, KeyError, RecursionError) as unfit:
            self._root = ABSENT
            raise InvalidInput(f"patch {position}: {unfit}", hint=_HINT_APPLY) from None
        self._check_whole()

    def take(self) -> Document:
        """The document as it is now; later patches do not change what was taken."""
        self._check_unspent()
        self._owned.clear()
        document: Document = self._root
        return document

    def _check_unspent(self) -> None:
        if self._root is ABSENT:
            raise Refused(
                "a patch of this draft could not be applied, so it holds no document",
                hint="Start a new draft from the document.",
            )

    def _replace(self, step: Step) -> None:
        self._replace_at(step.path, step.argument)

    def _replace_at(self, path: Path, value: Any) -> None:
        if not path:
            self._set_root(value)
            return
        holder = self._holder(path)
        key: Any = path[-1]
        if type(holder) is dict:
            old = holder.get(key)
        else:
            key = _existing_index(holder, path, len(path) - 1)
            old = holder[key]
        if type(old) is dict or type(old) is list:
            self._disown(old)
        holder[key] = value

    def _add(self, step: Step) -> None:
        self._put(step.path, step.argument)

    def _put(self, path: Path, value: Any) -> None:
        if not path:
            self._set_root(value)
            return
        holder = self._holder(path, create=True)
        key = path[-1]
        if type(holder) is dict:
            old = holder.get(key)
            if type(old) is dict or type(old) is list:
                self._disown(old)
            holder[key] = value
        elif key == END:
            holder.append(value)
        else:
            holder.insert(_insert_index(holder, path), value)

    def _remove(self, step: Step) -> None:
        self._disown(self._cut(step.path))

    def _cut(self, path: Path) -> Any:
        holder = self._holder(path)
        if type(holder) is dict:
            if path[-1] not in holder:
                _refuse_missing(path, len(path))
            return holder.pop(path[-1])
        return holder.pop(_existing_index(holder, path, len(path) - 1))

    def _move(self, step: Step) -> None:
        assert step.origin is not None
        value = self._cut(step.origin)
        if len(step.path) > len(step.origin):
            # Only a value that goes deeper down than it was can make the document too deep.
            check_depth(len(step.path) + measure(value))
        self._put(step.path, value)

    def _splice(self, step: Step) -> None:
        index, remove, values = step.argument
        array = self._array(step.path)
        if index > len(array):
            raise Unfit(f"index {index} is past the end of the array, which has {len(array)}")
        for old in array[index : index + remove]:
            self._disown(old)
        array[index : index + remove] = values

    def _append(self, step: Step) -> None:
        self._array(step.path, create=True).extend(step.argument)

    def _add_unique(self, step: Step) -> None:
        array = self._array(step.path, create=True)
        for value in step.argument:
            if find_equal(array, value) is None:
                array.append(value)

    def _remove_by_value(self, step: Step) -> None:
        found = lookup(self._root, step.path)
        if type(found) is not list or find_equal(found, step.argument) is None:
            return
        array = self._array(step.path)
        kept = []
        for item in array:
            if equal(item, step.argument):
                self._disown(item)
            else:
                kept.append(item)
        array[:] = kept

    def _increment(self, step: Step) -> None:
        path = step.path
        holder = self._holder(path, create=True)
        key: Any = path[-1]
        if type(holder) is dict:
            number = holder.get(key, 0)
        else:
            key = _insert_index(holder, path)
            if key == len(holder):
                holder.append(0)
            number = holder[key]
        if type(number) is not int and type(number) is not float:
            raise Unfit(f"there is {kind_of(number)} and not a number")
        holder[key] = _sum(number, step.argument)

    _OPERATIONS: ClassVar[dict[str, Callable[[Draft, Step], None]]] = {
        "replace": _replace,
        "add": _add,
        "remove": _remove,
        "move": _move,
        "splice": _splice,
        "append": _append,
        "add-unique": _add_unique,
        "remove-by-value": _remove_by_value,
        "increment": _increment,
    }

    def _holder(self, path: Path, *, create: bool = False) -> Any:
        """The container that has, or shall have, the last segment of `path`; the draft owns it."""
        owned = self._owned
        node = self._root
        kind = type(node)
        if kind is not dict and kind is not list:
            _refuse_descent(node, path, 0)
        if id(node) not in owned:
            node = self._root = node.copy()
            owned.add(id(node))
        key: Any
        for at in range(len(path) - 1):
            if kind is dict:
                key = path[at]
                child = node.get(key, ABSENT)
                if child is ABSENT:
                    if not create:
                        _refuse_missing(path, at + 1)
                    return self._make_way(node, path, at)
            else:
                key = _existing_index(node, path, at)
                child = node[key]
            kind = type(child)
            if kind is not dict and kind is not list:
                _refuse_descent(child, path, at + 1)
            if id(child) not in owned:
                child = child.copy()
                owned.add(id(child))
                node[key] = child
            node = child
        return node

    def _make_way(self, node: Document, path: Path, at: int) -> Any:
        """The holder of the last segment, in new containers from the segment `at` of `node` on."""
        for further in range(at + 1, len(path) - 1):
            # A new array is empty, so no element of it can be on the way.
            if path[further] == END or is_index(path[further]):
                _refuse_missing(path, further + 1)
        for segment in path[at : len(path) - 2]:
            child: Document = {}
            self._owned.add(id(child))
            node[segment] = child
            node = child
        last = path[-1]
        holder: Any = [] if last == END or is_index(last) else {}
        node[path[-2]] = holder
        self._owned.add(id(holder))
        return holder

    def _array(self, path: Path, *, create: bool = False) -> list[Any]:
        """The array at `path`, owned."""
        if create and path:
            holder = self._holder(path, create=True)
            if type(holder) is dict:
                if path[-1] not in holder:
                    holder[path[-1]] = []
            elif _insert_index(holder, path) == len(holder):
                holder.append([])
        array = self._holder((*path, END))
        if type(array) is not list:
            raise Unfit(f"{show_pointer(path)} is {kind_of(array)} and not an array")
        return array

    def _set_root(self, value: Any) -> None:
        self._owned.clear()
        self._root = value

    def _disown(self, value: Any) -> None:
        """Forget the containers of a part that leaves the document."""
        owned = self._owned
        leaving = [value]
        while leaving:
            part = leaving.pop()
            if id(part) in owned:
                owned.discard(id(part))
                leaving.extend(part.values() if type(part) is dict else part)


def _existing_index(array: list[Any], path: Path, at: int) -> int:
    """The index that the segment `at` of `path` names in `array`, where there is an element."""
    index = array_index(path[at])
    if index is None:
        raise Unfit(f"{path[at]!r} is no index of the array at {show_pointer(path[:at])}")
    if index >= len(array):
        _refuse_missing(path, at + 1)
    return index


def _insert_index(array: list[Any], path: Path) -> int:
    """The index that the last segment of `path` names in `array`, or just behind its end."""
    index = array_index(path[-1])
    if index is None:
        raise Unfit(f"{path[-1]!r} is no index of the array at {show_pointer(path[:-1])}")
    if index > len(array):
        raise Unfit(f"index {path[-1]} is out of bounds: the array has {len(array)} elements")
    return index


def _refuse_missing(path: Path, upto: int) -> NoReturn:
    raise Unfit(f"nothing is at {show_pointer(path[:upto])}")


def _refuse_descent(leaf: Any, path: Path, upto: int) -> NoReturn:
    raise Unfit(f"{show_pointer(path[:upto])} is {kind_of(leaf)}, neither an object nor an array")


def _sum(number: float, by: float) -> float:
    if type(number) is int and type(by) is int:
        count = number + by
        if count.bit_length() <= limits.DOCUMENT_INTEGER_BITS_MAX:
            return count
    else:
        try:
            total = number + by
        except OverflowError:
            total = math.inf
        if math.isfinite(total):
            return total
    raise Unfit("the sum is too large for a number")
