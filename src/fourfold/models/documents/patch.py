"""The nine patch operations: all are checked first, and then all are applied or none.

They are replace, add, remove, move, splice, append, add-unique, remove-by-value and increment;
docs/reference/patches.md says what each of them does. What holds:

- `compile` checks every operation before any is applied, and refuses the list with the position
  and the path of the first that is wrong. Numbers are numbers: true is not 1, NaN is nothing.
- `apply` changes nothing that it was given. It copies the containers on the way to a change, once,
  and shares everything else with the document before, so that a patch costs its path and not the
  document. A document is therefore a value and must not be changed.
- If one operation of a list cannot be applied, the list is not applied.
- A `Draft` applies many lists in a row and copies a container at most once between two `take`s;
  what `take` gives is what the same lists give when `apply` is called for one after the other.
- No document gets deeper than `limits.CONTENT_DEPTH_MAX` by a patch, so it can always be encoded.

A list of patches as a program: every operation is checked before any is applied, and a list
with one that is wrong is refused with its position and its path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, NoReturn, TypeAlias

import msgspec

from fourfold import limits
from fourfold.content.json_pointer import (
    ABSENT,
    END,
    Path,
    Unfit,
    array_index,
    is_index,
    is_prefix,
    kind_of,
    known_pointer,
    lookup,
    measure,
    show_pointer,
)
from fourfold.errors import InvalidInput, Refused
from fourfold.models.documents.diff import equal, find_equal
from fourfold.models.documents.records import Document

_HINT_SHAPE = "See docs/reference/patches.md for the fields of each operation; nothing was written."


class PatchStep(msgspec.Struct, frozen=True, gc=False):
    """One operation, parsed: its paths, and its argument in the form in which it is applied."""

    op: str
    path: Path
    origin: Path | None
    argument: Any


class Program:
    """A valid list of patches, independent of a document.

    It is immutable, so it can be applied to any number of documents.
    """

    __slots__ = ("steps",)

    def __init__(self, steps: tuple[PatchStep, ...]) -> None:
        self.steps: Final = steps


def compile(patches: object, *, stored: bool = False) -> Program:  # noqa: A001 - it is what it does
    """Check the patches and prepare them for application.

    `stored` patches come from the log and were accepted before: their values are not checked again.
    """
    if type(patches) is not list and type(patches) is not tuple:
        raise InvalidInput(f"patches are a list, not {type(patches).__name__}", hint=_HINT_SHAPE)
    steps: list[PatchStep] = []
    try:
        for patch in patches:
            steps.append(parse_step(patch, stored=stored))  # noqa: PERF401  (its length names the wrong one)
    except (Unfit, InvalidInput) as unfit:
        position = len(steps)
        raise InvalidInput(
            f"patch {position}{_title(patches[position])}: {unfit}", hint=_HINT_SHAPE
        ) from None
    return Program(tuple(steps))


def parse_step(patch: Any, *, stored: bool) -> PatchStep:
    """Parse one operation; raise Unfit if it is not one."""
    try:
        op, text = patch["op"], patch["path"]
        fields, may_create, read = _FORMS[op]
    except (KeyError, IndexError, TypeError):
        raise _unfit(patch) from None
    if type(patch) is not dict:
        raise _unfit(patch)
    if patch.keys() != fields:
        _check_fields(patch, fields, may_create=may_create)
    return read(patch, op, known_pointer(text), stored)


def _unfit(patch: Any) -> Unfit:
    """Return the reason why a value is not a patch at all."""
    if type(patch) is not dict:
        return Unfit(f"a patch is an object, not {kind_of(patch)}")
    op = patch.get("op", ABSENT)
    if type(op) is str and op in _FORMS:
        fields, may_create, _ = _FORMS[op]
        _check_fields(patch, fields, may_create=may_create)
    names = ", ".join(_FORMS)
    what = "it has no `op`" if op is ABSENT else f"unknown operation {repr(op)[:60]}"
    return Unfit(f"{what}; there are {names}")


def _check_fields(patch: dict[Any, Any], fields: frozenset[str], *, may_create: bool) -> None:
    missing = [f"`{name}`" for name in sorted(fields - patch.keys())]
    if missing:
        raise Unfit(f"it lacks {' and '.join(missing)}")
    extra = patch.keys() - fields
    if may_create and "createsKey" in extra:
        # A hint of the writer. It changes nothing here, but must be a boolean.
        if type(patch["createsKey"]) is not bool:
            raise Unfit(f"`createsKey` is true or false, not {kind_of(patch['createsKey'])}")
        extra.discard("createsKey")
    if extra:
        shown = ", ".join(repr(name)[:60] for name in sorted(extra, key=repr)[:5])
        raise Unfit(f"it has fields that the operation does not know: {shown}")


def _read_value(patch: dict[str, Any], op: str, path: Path, stored: bool) -> PatchStep:
    value = patch["value"]
    if not stored:
        check_depth(len(path) + measure(value))
    return PatchStep(op, path, None, value)


def _read_remove(_patch: dict[str, Any], op: str, path: Path, _stored: bool) -> PatchStep:
    if not path:
        raise Unfit("the root cannot be removed; delete the entity instead")
    return PatchStep(op, path, None, None)


def _read_move(patch: dict[str, Any], op: str, path: Path, _stored: bool) -> PatchStep:
    origin = known_pointer(patch["from"])
    if not origin:
        raise Unfit("the root cannot be moved")
    if len(origin) < len(path) and is_prefix(origin, path):
        raise Unfit(f"a value cannot move into itself, and {show_pointer(origin)} is on the way")
    return PatchStep(op, path, origin, None)


def _read_splice(patch: dict[str, Any], op: str, path: Path, stored: bool) -> PatchStep:
    index, remove = patch["index"], patch["remove"]
    for name, number in (("index", index), ("remove", remove)):
        if type(number) is not int or number < 0:
            raise Unfit(f"`{name}` is a whole number from 0 on, not {repr(number)[:60]}")
    return PatchStep(op, path, None, (index, remove, _read_list(patch, "add", path, stored)))


def _read_values(patch: dict[str, Any], op: str, path: Path, stored: bool) -> PatchStep:
    return PatchStep(op, path, None, _read_list(patch, "values", path, stored))


def _read_list(patch: dict[str, Any], name: str, path: Path, stored: bool) -> list[Any]:
    values = patch[name]
    if type(values) is not list:
        raise Unfit(f"`{name}` is an array, not {kind_of(values)}")
    if not stored:
        check_depth(len(path) + measure(values))
    return values


def _read_increment(patch: dict[str, Any], op: str, path: Path, _stored: bool) -> PatchStep:
    by = patch["by"]
    if type(by) is not int and type(by) is not float:
        raise Unfit(f"`by` is a number, not {kind_of(by)}")
    measure(by)
    if not by:
        raise Unfit("`by` is zero, which changes nothing")
    if not path:
        raise Unfit("the root is a document and cannot be incremented")
    check_depth(len(path))
    return PatchStep(op, path, None, by)


_Reader: TypeAlias = Callable[[dict[str, Any], str, Path, bool], PatchStep]


def _form(*fields: str, may_create: bool, read: _Reader) -> tuple[frozenset[str], bool, _Reader]:
    return frozenset({"op", "path", *fields}), may_create, read


_FORMS: Final = {
    "replace": _form("value", may_create=False, read=_read_value),
    "add": _form("value", may_create=False, read=_read_value),
    "remove": _form(may_create=False, read=_read_remove),
    "move": _form("from", may_create=False, read=_read_move),
    "splice": _form("index", "remove", "add", may_create=False, read=_read_splice),
    "append": _form("values", may_create=True, read=_read_values),
    "add-unique": _form("values", may_create=True, read=_read_values),
    "remove-by-value": _form("value", may_create=False, read=_read_value),
    "increment": _form("by", may_create=True, read=_read_increment),
}
OPS: Final = tuple(_FORMS)
"""The names of the nine operations."""


def check_depth(depth: int) -> None:
    """Refuse a patch whose result would be nested too deeply."""
    if depth > limits.CONTENT_DEPTH_MAX:
        raise Unfit(f"the document would be deeper than {limits.CONTENT_DEPTH_MAX} levels")


def _title(patch: Any) -> str:
    """Return the operation and the path of a patch, for a message; it may have neither."""
    if type(patch) is not dict:
        return ""
    parts = [part for part in (patch.get("op"), patch.get("path")) if type(part) is str]
    shown = " ".join(part[:120] or '""' for part in parts)
    return f" ({shown})" if shown else ""


__all__ = ["OPS", "Draft", "PatchStep", "Program", "apply", "compile"]

_HINT_APPLY = "Read the document, and send patches that match it; nothing was written."


def apply(document: Document, patches: list[dict[str, Any]] | Program) -> Document:
    """Return the document after the patches; `document` is not changed."""
    draft = Draft(document)
    draft.apply(patches if isinstance(patches, Program) else compile(patches))
    return draft.take()


class Draft:
    """A document being changed: containers that it was given stay unchanged, its own copies change.

    `_owned` holds the ids of the containers that this draft created. Each of them is part of the
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
        """Apply patches from the log, each as it is read.

        They were checked together when they were accepted. The result is that of `apply`, in two
        thirds of the time.
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
        """Return the document as it is now; later patches do not change it."""
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

    def _replace(self, step: PatchStep) -> None:
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

    def _add(self, step: PatchStep) -> None:
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

    def _remove(self, step: PatchStep) -> None:
        self._disown(self._cut(step.path))

    def _cut(self, path: Path) -> Any:
        holder = self._holder(path)
        if type(holder) is dict:
            if path[-1] not in holder:
                _refuse_missing(path, len(path))
            return holder.pop(path[-1])
        return holder.pop(_existing_index(holder, path, len(path) - 1))

    def _move(self, step: PatchStep) -> None:
        assert step.origin is not None
        value = self._cut(step.origin)
        if len(step.path) > len(step.origin):
            # Only a value that goes deeper down than it was can make the document too deep.
            check_depth(len(step.path) + measure(value))
        self._put(step.path, value)

    def _splice(self, step: PatchStep) -> None:
        index, remove, values = step.argument
        array = self._array(step.path)
        if index > len(array):
            raise Unfit(f"index {index} is past the end of the array, which has {len(array)}")
        for old in array[index : index + remove]:
            self._disown(old)
        array[index : index + remove] = values

    def _append(self, step: PatchStep) -> None:
        self._array(step.path, create=True).extend(step.argument)

    def _add_unique(self, step: PatchStep) -> None:
        array = self._array(step.path, create=True)
        for value in step.argument:
            if find_equal(array, value) is None:
                array.append(value)

    def _remove_by_value(self, step: PatchStep) -> None:
        target = lookup(self._root, step.path)
        if type(target) is not list or find_equal(target, step.argument) is None:
            return
        array = self._array(step.path)
        remaining = []
        for item in array:
            if equal(item, step.argument):
                self._disown(item)
            else:
                remaining.append(item)
        array[:] = remaining

    def _increment(self, step: PatchStep) -> None:
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

    _OPERATIONS: ClassVar[dict[str, Callable[[Draft, PatchStep], None]]] = {
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
        """Return the container of the last segment of `path`, owned by the draft."""
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
        """Return the container of the last segment; create containers from segment `at` on."""
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
        """Return the array at `path`, owned by the draft."""
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
    """Return the index of an element of `array` that the segment `at` of `path` names."""
    index = array_index(path[at])
    if index is None:
        raise Unfit(f"{path[at]!r} is not an index of the array at {show_pointer(path[:at])}")
    if index >= len(array):
        _refuse_missing(path, at + 1)
    return index


def _insert_index(array: list[Any], path: Path) -> int:
    """Return the index in `array`, or just after its end, that the last segment of `path` names."""
    index = array_index(path[-1])
    if index is None:
        raise Unfit(f"{path[-1]!r} is not an index of the array at {show_pointer(path[:-1])}")
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
