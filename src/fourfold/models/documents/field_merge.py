"""Three-way merge of a document, field by field.

Two sides changed one base. Field by field, what only one side changed is taken from that side,
and what both changed alike is taken as it is. What both changed differently is a conflict, which
names the path and the three values there.

- Objects are merged key by key, to any depth; so are two objects that both sides created where the
  base has nothing. Everything else is one value. An array in particular is atomic: if both sides
  changed it, and not alike, that is a conflict, since it is unknown whether an element moved or
  changed.
- Absence is a value of its own and is not null. A field or a whole document that one side removed
  and the other changed is a conflict; if the other left it alone, it is removed. Pass `ABSENT` for
  an entity that was never written or is deleted.
- Values are the same only if their types are: 1, 1.0 and True differ.
- The two sides are equals. Exchanging them exchanges the names in the conflicts and nothing else;
  only `combine`, if it is given, may tell them apart.
- `combine` is asked first where both sides changed a value, even if they look the same: it may know
  what they did. See `operation_merge`.
- `UNKNOWN` in the base stands for a value that the bases of a criss-cross merge do not agree on. It
  is like nothing, so the two sides must be alike there.

The result shares the parts that did not change with what it was made of; nothing is changed in
place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from fourfold.content.json_pointer import (
    ABSENT,
    Absence,
    Path,
    as_path,
    check_document,
    kind_of,
    show_pointer,
)
from fourfold.errors import InvalidInput
from fourfold.models.documents.diff import identical
from fourfold.models.documents.records import Document


class Choice(Enum):
    """Side that a resolution selects: the target of a merge is ours, its source theirs."""

    OURS = "ours"
    THEIRS = "theirs"

    def __repr__(self) -> str:
        return self.name


OURS: Final = Choice.OURS
THEIRS: Final = Choice.THEIRS


class Verdict(Enum):
    """Marker for a path without a value."""

    UNKNOWN = "unknown"
    UNDECIDED = "undecided"
    CONTESTED = "contested"

    def __repr__(self) -> str:
        return self.name


UNKNOWN: Final = Verdict.UNKNOWN
"""Value of a base whose own bases differ."""
UNDECIDED: Final = Verdict.UNDECIDED
"""Leaves a place to the states."""
CONTESTED: Final = Verdict.CONTESTED
"""Makes a place a conflict, even if the two sides look the same."""

Side: TypeAlias = Document | Absence | Verdict
"""A document, or `ABSENT` for an entity that has none; `UNKNOWN` for an unknown base."""
Combine: TypeAlias = Callable[[Path, Any, Any, Any], Any]
"""Given a path, the base, ours and theirs: the merged value, `UNDECIDED` or `CONTESTED`."""


class FieldConflict(NamedTuple):
    """A path that both sides changed differently. `ABSENT` is a missing value."""

    path: Path
    base: Any
    ours: Any
    theirs: Any


class FieldMerge(NamedTuple):
    """The merged document, or `ABSENT` if the entity is deleted.

    It is valid only without conflicts; at a conflict it has the value of the base.
    """

    document: Side
    conflicts: tuple[FieldConflict, ...]

    @property
    def clean(self) -> bool:
        """True if there is no conflict."""
        return not self.conflicts


def merge(
    base: Side,
    ours: Side,
    theirs: Side,
    resolutions: Mapping[Any, Any] | None = None,
    *,
    otherwise: Choice | Verdict | None = None,
    combine: Combine | None = None,
    whole: bool = False,
) -> FieldMerge:
    """Merge what both sides made of the base.

    `resolutions` gives the value, `ABSENT`, `OURS` or `THEIRS` for paths (or JSON pointers) with
    conflicts. One for a path without a conflict is refused: it was decided on other
    documents. `otherwise` decides all other conflicts. With `whole` the documents are not taken
    apart.
    """
    for side in (base, ours, theirs):
        if type(side) is not dict and side is not ABSENT and side is not UNKNOWN:
            raise InvalidInput(f"a document to merge is an object or ABSENT, not {kind_of(side)}")
    decided = {as_path(path): value for path, value in (resolutions or {}).items()}
    merging = _FieldMerge(decided, otherwise, combine)
    try:
        if not whole and _are_objects(base, ours, theirs):
            document: Any = merging.fields(base, ours, theirs, ())
        else:
            document = merging.choose(base, ours, theirs, ())
    except RecursionError:
        raise InvalidInput(
            "a document to merge is nested deeper than the stack of this call can follow"
        ) from None
    if merging.resolutions:
        path = next(iter(merging.resolutions))
        raise InvalidInput(
            f"there is no conflict at {show_pointer(path)} to resolve",
            hint="Merge again without resolutions to see the conflicts that there are.",
        )
    if document is not ABSENT and resolutions:
        check_document(document)
    return FieldMerge(document, tuple(sorted(merging.conflicts, key=itemgetter(0))))


def _are_objects(base: Any, ours: Any, theirs: Any) -> bool:
    return (
        type(ours) is dict
        and type(theirs) is dict
        and (type(base) is dict or base is ABSENT or base is UNKNOWN)
    )


class _FieldMerge:
    """A running merge: the conflicts so far, and the resolutions not yet used."""

    __slots__ = ("_combine", "_otherwise", "conflicts", "resolutions")

    def __init__(
        self,
        resolutions: dict[Path, Any],
        otherwise: Choice | Verdict | None,
        combine: Combine | None,
    ) -> None:
        self.resolutions = resolutions
        self.conflicts: list[FieldConflict] = []
        self._otherwise = otherwise
        self._combine = combine

    def fields(self, base: Any, ours: Any, theirs: Any, path: Path) -> Document:
        """Two objects, key by key; one stack frame per level of nesting."""
        old: Document = base if type(base) is dict else {}
        missing = UNKNOWN if base is UNKNOWN else ABSENT
        merged: Document = {}
        for key in {**old, **ours, **theirs}:
            was = old.get(key, missing)
            one, other = ours.get(key, ABSENT), theirs.get(key, ABSENT)
            if was is other and was is not UNKNOWN:
                value = one
            elif was is one and was is not UNKNOWN:
                value = other
            elif _are_objects(was, one, other):
                # Comparing them first would compare every level again on the way down.
                value = self.fields(was, one, other, (*path, key))
            else:
                value = self.choose(was, one, other, (*path, key))
            if value is not ABSENT:
                merged[key] = value
        return merged

    def choose(self, base: Any, ours: Any, theirs: Any, path: Path) -> Any:
        """Choose one of three values that are not merged by parts."""
        if base is not UNKNOWN:
            if identical(base, theirs):
                return ours
            if identical(base, ours):
                return theirs
        combined = UNDECIDED if self._combine is None else self._combine(path, base, ours, theirs)
        if combined is UNDECIDED and identical(ours, theirs):
            return ours
        if combined is not UNDECIDED and combined is not CONTESTED:
            return combined
        return self._resolve(FieldConflict(path, base, ours, theirs))

    def _resolve(self, conflict: FieldConflict) -> Any:
        decision: Any = self._otherwise
        if conflict.path in self.resolutions:
            decision = self.resolutions.pop(conflict.path)
        elif decision is None:
            self.conflicts.append(conflict)
            return conflict.base
        if decision is OURS:
            return conflict.ours
        return conflict.theirs if decision is THEIRS else decision
