"""A list of patches as a program: every operation is looked at before any is applied, and a list
with one that is wrong is refused with its position and its path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.documents.pointer import (
    ABSENT,
    Path,
    Unfit,
    is_prefix,
    kind_of,
    known_pointer,
    measure,
    show_pointer,
)

_HINT_SHAPE = "See docs/reference/patches.md for the fields of each operation; nothing was written."


class Step(msgspec.Struct, frozen=True, gc=False):
    """One operation, parsed: its paths, and its argument in the form in which it is applied."""

    op: str
    path: Path
    origin: Path | None
    argument: Any


class Program:
    """A list of patches that has the right shape. It belongs to no document and is never changed,
    so it can be applied to any number of them.
    """

    __slots__ = ("steps",)

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.steps: Final = steps


def compile(patches: object, *, stored: bool = False) -> Program:  # noqa: A001 - it is what it does
    """The patches, checked and ready to be applied.

    `stored` says that they were accepted before and come out of the log: then their values are not
    looked into again.
    """
    if type(patches) is not list and type(patches) is not tuple:
        raise InvalidInput(f"patches are a list, not {type(patches).__name__}", hint=_HINT_SHAPE)
    steps: list[Step] = []
    try:
        for patch in patches:
            steps.append(parse_step(patch, stored=stored))  # noqa: PERF401  (its length names the wrong one)
    except (Unfit, InvalidInput) as unfit:
        position = len(steps)
        raise InvalidInput(
            f"patch {position}{_title(patches[position])}: {unfit}", hint=_HINT_SHAPE
        ) from None
    return Program(tuple(steps))


def parse_step(patch: Any, *, stored: bool) -> Step:
    """One operation, looked at; Unfit when it is none."""
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
    """Why something cannot even be looked at as a patch."""
    if type(patch) is not dict:
        return Unfit(f"a patch is an object, not {kind_of(patch)}")
    op = patch.get("op", ABSENT)
    if type(op) is str and op in _FORMS:
        fields, may_create, _ = _FORMS[op]
        _check_fields(patch, fields, may_create=may_create)
    known = ", ".join(_FORMS)
    what = "it has no `op`" if op is ABSENT else f"unknown operation {repr(op)[:60]}"
    return Unfit(f"{what}; there are {known}")


def _check_fields(patch: dict[Any, Any], fields: frozenset[str], *, may_create: bool) -> None:
    missing = [f"`{name}`" for name in sorted(fields - patch.keys())]
    if missing:
        raise Unfit(f"it lacks {' and '.join(missing)}")
    extra = patch.keys() - fields
    if may_create and "createsKey" in extra:
        # A hint of the writer. It changes nothing here, but a hint that is no boolean is a mistake.
        if type(patch["createsKey"]) is not bool:
            raise Unfit(f"`createsKey` is true or false, not {kind_of(patch['createsKey'])}")
        extra.discard("createsKey")
    if extra:
        shown = ", ".join(repr(name)[:60] for name in sorted(extra, key=repr)[:5])
        raise Unfit(f"it has fields that the operation does not know: {shown}")


def _read_value(patch: dict[str, Any], op: str, path: Path, stored: bool) -> Step:
    value = patch["value"]
    if not stored:
        check_depth(len(path) + measure(value))
    return Step(op, path, None, value)


def _read_remove(_patch: dict[str, Any], op: str, path: Path, _stored: bool) -> Step:
    if not path:
        raise Unfit("the root cannot be removed; delete the entity instead")
    return Step(op, path, None, None)


def _read_move(patch: dict[str, Any], op: str, path: Path, _stored: bool) -> Step:
    origin = known_pointer(patch["from"])
    if not origin:
        raise Unfit("the root cannot be moved")
    if len(origin) < len(path) and is_prefix(origin, path):
        raise Unfit(f"a value cannot move into itself, and {show_pointer(origin)} is on the way")
    return Step(op, path, origin, None)


def _read_splice(patch: dict[str, Any], op: str, path: Path, stored: bool) -> Step:
    index, remove = patch["index"], patch["remove"]
    for name, number in (("index", index), ("remove", remove)):
        if type(number) is not int or number < 0:
            raise Unfit(f"`{name}` is a whole number from 0 on, not {repr(number)[:60]}")
    return Step(op, path, None, (index, remove, _read_list(patch, "add", path, stored)))


def _read_values(patch: dict[str, Any], op: str, path: Path, stored: bool) -> Step:
    return Step(op, path, None, _read_list(patch, "values", path, stored))


def _read_list(patch: dict[str, Any], name: str, path: Path, stored: bool) -> list[Any]:
    values = patch[name]
    if type(values) is not list:
        raise Unfit(f"`{name}` is an array, not {kind_of(values)}")
    if not stored:
        check_depth(len(path) + measure(values))
    return values


def _read_increment(patch: dict[str, Any], op: str, path: Path, _stored: bool) -> Step:
    by = patch["by"]
    if type(by) is not int and type(by) is not float:
        raise Unfit(f"`by` is a number, not {kind_of(by)}")
    measure(by)
    if not by:
        raise Unfit("`by` is zero, which changes nothing")
    if not path:
        raise Unfit("the root is a document and cannot be incremented")
    check_depth(len(path))
    return Step(op, path, None, by)


_Reader: TypeAlias = Callable[[dict[str, Any], str, Path, bool], Step]


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
    if depth > limits.CONTENT_DEPTH_MAX:
        raise Unfit(f"the document would be deeper than {limits.CONTENT_DEPTH_MAX} levels")


def _title(patch: Any) -> str:
    """The operation and the path of a patch that may have neither."""
    if type(patch) is not dict:
        return ""
    parts = [part for part in (patch.get("op"), patch.get("path")) if type(part) is str]
    shown = " ".join(part[:120] or '""' for part in parts)
    return f" ({shown})" if shown else ""
