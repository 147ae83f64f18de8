"""Checks whether a later revision may have changed what was read.

A read names a path. A *recursive* read saw everything at and below it; a *shape* read saw whether
something is there and what kind of thing, the keys of an object or the length of an array, but not
what is below. A leaf has no below, so its shape is its value.

`conflicts` answers from the operation alone, without the documents, and errs on one side only: it
may see a conflict where the value stayed the same, and never misses one that changed.

    set, delete    conflict with every read of the entity
    patch          conflicts with a recursive read when a place that it touches is the path, is
                   above it or is below it; with a shape read when it is the path or above it

Which places a patch touches:

    replace, increment             the path
    add, remove, move              the path (and `from`), or the array around it when the last
                                   segment may be an index: what comes after that element shifts
    splice, append, add-unique,    the array
    remove-by-value

Keys appear and vanish around a path, too, and a shape read sees that. A replace may create the last
key of its path. An add, the target of a move, an append, an add-unique or an increment may create
every key on the way. Only the document can tell whether it did; `createsKey`, which the writer sets
to say so, can be absent or outdated. So for a shape read above its path such a patch counts as a
change, whatever `createsKey` says. Who has the documents before and after can ask `changed`, which
is exact for one revision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fourfold.content.json_pointer import END, Path, is_index, is_prefix, lookup
from fourfold.models.documents.diff import Patch, identical
from fourfold.models.documents.patch import PatchStep, Program, compile  # noqa: A004


class Touch(NamedTuple):
    """A place that a patch may change, and how far above it keys may appear or vanish.

    Every ancestor from the depth `keys_from` on may gain or lose a key: `len(path)` means none,
    `len(path) - 1` the parent, and 0 all of them up to the root.
    """

    path: Path
    keys_from: int


def conflicts(
    op: str, patches: Sequence[Patch] | Program, path: Sequence[str], *, shape: bool = False
) -> bool:
    """Return True if a revision may have changed what a read of `path` saw before it.

    `patches` are those of a stored patch; they are ignored for a set or a delete.
    """
    if op != "patch":
        return True
    read = tuple(path)
    program = patches if isinstance(patches, Program) else compile(list(patches), stored=True)
    if not read and all(step.op == "remove-by-value" for step in program.steps):
        # The one kind of patch that can do nothing still makes a document where there was none.
        return True
    return any(_meets(touch, read, shape=shape) for touch in touches(program))


def changed(before: Any, after: Any, path: Sequence[str], *, shape: bool = False) -> bool:
    """Return True if a read of `path` sees a difference between two documents.

    Pass `ABSENT` for an entity without a document.
    """
    was, now = lookup(before, path), lookup(after, path)
    if not shape:
        return not identical(was, now)
    if type(was) is not type(now):
        return True
    if type(was) is dict:
        return bool(was.keys() != now.keys())
    if type(was) is list:
        return len(was) != len(now)
    return not identical(was, now)


def touches(program: Program) -> Iterator[Touch]:
    """Yield the places that the patches may change, in the order of the patches."""
    for step in program.steps:
        yield from _touches_of(step)


def _touches_of(step: PatchStep) -> Iterator[Touch]:
    path, parent = step.path, step.path[:-1]
    if step.op in ("splice", "remove-by-value"):
        yield Touch(path, len(path))
    elif step.op == "replace":
        yield Touch(path, len(parent))
    elif step.op == "remove":
        yield Touch(parent if _may_shift(path) else path, len(parent))
    else:
        yield Touch(parent if step.op in ("add", "move") and _may_shift(path) else path, 0)
        if step.origin is not None:
            above = step.origin[:-1]
            yield Touch(above if _may_shift(step.origin) else step.origin, len(above))


def _may_shift(path: Path) -> bool:
    # The root is an object, so a single segment is always a key.
    return len(path) > 1 and (path[-1] == END or is_index(path[-1]))


def _meets(touch: Touch, read: Path, *, shape: bool) -> bool:
    if is_prefix(touch.path, read):
        return True
    if not is_prefix(read, touch.path):
        return False
    return not shape or len(read) >= touch.keys_from
