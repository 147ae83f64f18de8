"""The proof that a lens brings every valid message into the next version of a schema. Pure.

The lens tells what holds for promoted messages (`Lens.derived`), and the new schema must cover it.
Plain objects and arrays are compared part by part: when all parts are covered, so is the whole, and
those that are not can be named. What is left, `jsonschema_rs` can often tell. A part for which
nobody knows is not proven, and the lens is refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.streams.schemas import unfolded_size
from fourfold.models.streams.schemas.lens import Lens
from fourfold.models.streams.schemas.shape import (
    ArrayShape,
    Document,
    ObjectShape,
    Presence,
    Schema,
    quoted,
)
from fourfold.models.streams.schemas.validation import (
    Validator,
    compiled,
    schema_library,
    strictness,
)

__all__ = ["Validator", "compiled", "refuse_unproven"]

_DEFINITIONS = ("$defs", "definitions")
_Shape = TypeVar("_Shape", ObjectShape, ArrayShape)


class Gap(NamedTuple):
    """A place where the new schema may not take what promoted messages have."""

    pointer: str
    why: str
    certain: bool
    """Whether that is disproved, and not only unproven."""

    def told(self) -> str:
        place = repr(self.pointer) if self.pointer else "the message"
        return f"{place} {self.why}"


def refuse_unproven(old: Schema, lens: Lens, new: Schema) -> None:
    """InvalidInput unless every message that is valid under `old` is valid under `new` once it is
    promoted.
    """
    before, after = compiled(old).draft, compiled(new).draft
    if before != after:
        raise InvalidInput(
            f"the old schema is of {before}, the new one of {after}: they cannot be compared",
            hint="Write both versions in the same draft; `$schema` says in which.",
        )
    gaps = _Comparison(lens.derived(old), new).gaps()
    if not gaps:
        return
    certain = any(gap.certain for gap in gaps)
    verdict = (
        "the lens does not bring every valid message into the new schema"
        if certain
        else "it is not proven that the lens brings every valid message into the new schema"
    )
    shown = "; ".join(gap.told() for gap in gaps[: limits.PROOF_GAPS_SHOWN])
    more = len(gaps) - limits.PROOF_GAPS_SHOWN
    raise InvalidInput(
        f"{verdict}: {shown}" + (f"; and {more} more" if more > 0 else ""),
        hint="Add ops for what is named, or let the new schema take it."
        if certain
        else "Say it in the new schema by the same keywords as in the old one.",
        details={"disproved": certain, "places": [gap.pointer for gap in gaps]},
    )


class _Comparison:
    """What a new schema does not cover of what is given."""

    def __init__(self, given: Schema, new: Schema) -> None:
        self._given = given
        self._new = new
        self._given_document = Document(given)
        self._new_document = Document(new)
        self._begun: set[tuple[bytes, bytes]] = set()
        self._depth = 0

    def gaps(self) -> list[Gap]:
        if _written(self._new) == _written(self._given):
            return []
        if self._given_document.obstacle() or self._new_document.obstacle():
            # Parts of such a schema would mean something else on their own.
            covered = _covers(self._new, self._given)
            return [] if covered else [_uncovered("", self._given, self._new, covered)]
        return self._between(self._given, self._new, "")

    def _between(self, given: Schema, new: Schema, pointer: str) -> list[Gap]:
        pair = (_written(given), _written(new))
        if pair in self._begun:
            # What is missing is told where the two met first. To take them for covered meanwhile is
            # right also within themselves: each time round is one level deeper in a message, and a
            # message ends.
            return []
        if self._depth == limits.PROOF_DEPTH_MAX or len(self._begun) == limits.PROOF_STEPS_MAX:
            return [Gap(pointer, "is where the comparison became too long", certain=False)]
        self._begun.add(pair)
        self._depth += 1
        gaps = self._parts(given, new, pointer)
        self._depth -= 1
        return gaps

    def _parts(self, given: Schema, new: Schema, pointer: str) -> list[Gap]:
        objects = self._both(ObjectShape, given, new)
        if objects is not None:
            return self._of_objects(*objects, pointer)
        arrays = self._both(ArrayShape, given, new)
        if arrays is not None and not _is_distinct(new):
            return self._of_arrays(*arrays, pointer)
        covered = _covers(
            {**self._new_document.around(), "allOf": [new]},
            {**self._given_document.around(), "allOf": [given]},
        )
        return [] if covered else [_uncovered(pointer, given, new, covered)]

    def _both(
        self, shape: type[_Shape], given: Schema, new: Schema
    ) -> tuple[_Shape, _Shape] | None:
        try:
            return (
                shape.read(self._given_document, given, ""),
                shape.read(self._new_document, new, ""),
            )
        except InvalidInput:
            return None

    def _of_objects(self, given: ObjectShape, new: ObjectShape, pointer: str) -> list[Gap]:
        gaps = _of_types(given.types, new.types, pointer)
        for name in new.required:
            if given.presence(name) is not Presence.ALWAYS:
                gaps.append(Gap(_below(pointer, name), "is required, and may be missing", True))
        for name in {**given.properties, **new.properties}:
            if given.presence(name) is Presence.NEVER:
                continue
            place = _below(pointer, name)
            if new.presence(name) is Presence.NEVER:
                gaps.append(Gap(place, "may be there, and is not allowed to be", True))
            else:
                gaps += self._between(given.schema_of(name), new.schema_of(name), place)
        if given.additional is not False:
            place = _below(pointer, "*")
            if new.additional is False:
                gaps.append(Gap(place, "may be there (any other name), and is not allowed", True))
            else:
                gaps += self._between(given.additional, new.additional, place)
        return gaps

    def _of_arrays(self, given: ArrayShape, new: ArrayShape, pointer: str) -> list[Gap]:
        gaps = _of_types(given.types, new.types, pointer)
        if given.least < new.least:
            gaps.append(Gap(pointer, f"may have fewer than {new.least} items", True))
        if new.most is not None and (given.most is None or given.most > new.most):
            gaps.append(Gap(pointer, f"may have more than {new.most} items", True))
        return gaps + self._between(given.items, new.items, _below(pointer, "*"))


def _of_types(given: tuple[str, ...], new: tuple[str, ...], pointer: str) -> list[Gap]:
    taken = {*new, "integer"} if "number" in new else {*new}
    return [Gap(pointer, f"may be of type {name}", True) for name in given if name not in taken]


def _is_distinct(schema: Any) -> bool:
    """Whether items must differ, of which the shape of an array tells nothing."""
    return not isinstance(schema, dict) or "$ref" in schema or bool(schema.get("uniqueItems"))


def _below(pointer: str, name: str) -> str:
    return pointer + "/" + name.replace("~", "~0").replace("/", "~1")


def _uncovered(pointer: str, given: Schema, new: Schema, covered: bool | None) -> Gap:
    why = f"may be {quoted(given)}, and is to be {quoted(new)}"
    return Gap(pointer, why, certain=covered is False)


def _covers(new: Schema, given: Schema) -> bool | None:
    """Whether all that is valid under `given` is valid under `new`; None when nobody knows."""
    if _written(new) == _written(given):
        return True
    if max(_depth(new), _depth(given)) > limits.PROOF_LIBRARY_DEPTH_MAX:
        return None  # the library's time grows without bound with the depth
    sizes = unfolded_size.measure(new), unfolded_size.measure(given)
    if max(size.parts for size in sizes) > limits.PROOF_LIBRARY_PARTS_MAX:
        return None  # and with what references unfold to
    library = schema_library()
    options = strictness()
    try:
        found = library.canonicalize(new, **options).covers(library.canonicalize(given, **options))
    except ValueError:
        return None
    if found == library.canonical.Containment.YES:
        return True
    return False if found == library.canonical.Containment.NO else None


def _depth(schema: Schema) -> int:
    """How deep a schema is, at most, if each of its definitions is used within another."""
    if not isinstance(schema, dict):
        return 0
    written = _written({key: part for key, part in schema.items() if key not in _DEFINITIONS})
    depth = _levels({key: part for key, part in schema.items() if key not in _DEFINITIONS})
    if b'"$ref"' in written:
        for key in _DEFINITIONS:
            depth += sum(_levels(part) for part in schema.get(key, {}).values())
    return depth


def _levels(part: Any) -> int:
    count, level = 0, [part]
    while level:
        count += 1
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return count


def _written(schema: Schema) -> bytes:
    return msgspec.json.encode(schema, order="sorted")
