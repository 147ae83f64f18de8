"""Proof that a lens converts every valid message to the next version of a schema. Pure.

The lens derives the schema of promoted messages (`Lens.derived`), and the new schema must cover it.
Plain objects and arrays are compared part by part: if all parts are covered, so is the whole, and
uncovered parts can be named. For the rest, `jsonschema_rs` can often decide. A part that cannot be
decided is not proven, and the lens is rejected.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeVar

import msgspec

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

PROOF_STEPS_MAX: Final = 1_000
PROOF_DEPTH_MAX: Final = 64
"""Subschemas that a proof compares, and their nesting."""
PROOF_LIBRARY_DEPTH_MAX: Final = 40
"""Nesting of a subschema that is passed to the library: deeper ones never finish."""
PROOF_LIBRARY_PARTS_MAX: Final = 5_000
"""Size of such a subschema, with references resolved."""
PROOF_GAPS_SHOWN: Final = 3
"""Paths that are named when a lens is refused."""

__all__ = ["Validator", "check_proven", "compiled"]

_DEFINITIONS = ("$defs", "definitions")
_Shape = TypeVar("_Shape", ObjectShape, ArrayShape)


class SchemaGap(NamedTuple):
    """A place where the new schema may reject promoted messages."""

    pointer: str
    why: str
    certain: bool
    """True if it is disproved, not only unproven."""

    def describe(self) -> str:
        """Return the place and the reason as text."""
        place = repr(self.pointer) if self.pointer else "the message"
        return f"{place} {self.why}"


def check_proven(old: Schema, lens: Lens, new: Schema) -> None:
    """Raise InvalidInput unless every valid message of `old` is valid in `new` once promoted."""
    before, after = compiled(old).draft, compiled(new).draft
    if before != after:
        raise InvalidInput(
            f"cannot compare schemas of different drafts: {before} and {after}",
            hint="Write both versions in the same draft, set by `$schema`.",
        )
    gaps = _Comparison(lens.derived(old), new).gaps()
    if not gaps:
        return
    certain = any(gap.certain for gap in gaps)
    verdict = (
        "the lens does not convert every valid message to the new schema"
        if certain
        else "it is not proven that the lens converts every valid message to the new schema"
    )
    listed = "; ".join(gap.describe() for gap in gaps[:PROOF_GAPS_SHOWN])
    more = len(gaps) - PROOF_GAPS_SHOWN
    raise InvalidInput(
        f"{verdict}: {listed}" + (f"; and {more} more" if more > 0 else ""),
        hint="Add ops for these places, or let the new schema allow them."
        if certain
        else "Use the same keywords in the new schema as in the old one.",
        details={"disproved": certain, "places": [gap.pointer for gap in gaps]},
    )


class _Comparison:
    """Comparison of a derived schema with the new one."""

    def __init__(self, derived: Schema, new: Schema) -> None:
        self._derived = derived
        self._new = new
        self._derived_document = Document(derived)
        self._new_document = Document(new)
        self._compared: set[tuple[bytes, bytes]] = set()
        self._depth = 0

    def gaps(self) -> list[SchemaGap]:
        if _written(self._new) == _written(self._derived):
            return []
        if self._derived_document.obstacle() or self._new_document.obstacle():
            # Parts of such a schema would have another meaning on their own.
            covered = _covers(self._new, self._derived)
            return [] if covered else [_uncovered("", self._derived, self._new, covered)]
        return self._between(self._derived, self._new, "")

    def _between(self, derived: Schema, new: Schema, pointer: str) -> list[SchemaGap]:
        pair = (_written(derived), _written(new))
        if pair in self._compared:
            # Gaps are reported where the pair was compared first. Assuming coverage is sound for
            # recursion: each round is one level deeper in a message, and messages are finite.
            return []
        if self._depth == PROOF_DEPTH_MAX or len(self._compared) == PROOF_STEPS_MAX:
            return [SchemaGap(pointer, "is where the comparison became too long", certain=False)]
        self._compared.add(pair)
        self._depth += 1
        gaps = self._parts(derived, new, pointer)
        self._depth -= 1
        return gaps

    def _parts(self, derived: Schema, new: Schema, pointer: str) -> list[SchemaGap]:
        objects = self._both(ObjectShape, derived, new)
        if objects is not None:
            return self._of_objects(*objects, pointer)
        arrays = self._both(ArrayShape, derived, new)
        if arrays is not None and not _is_distinct(new):
            return self._of_arrays(*arrays, pointer)
        covered = _covers(
            {**self._new_document.around(), "allOf": [new]},
            {**self._derived_document.around(), "allOf": [derived]},
        )
        return [] if covered else [_uncovered(pointer, derived, new, covered)]

    def _both(
        self, shape: type[_Shape], derived: Schema, new: Schema
    ) -> tuple[_Shape, _Shape] | None:
        try:
            return (
                shape.read(self._derived_document, derived, ""),
                shape.read(self._new_document, new, ""),
            )
        except InvalidInput:
            return None

    def _of_objects(self, derived: ObjectShape, new: ObjectShape, pointer: str) -> list[SchemaGap]:
        gaps = _of_types(derived.types, new.types, pointer)
        for name in new.required:
            if derived.presence(name) is not Presence.ALWAYS:
                gaps.append(
                    SchemaGap(_below(pointer, name), "is required, and may be missing", True)
                )
        for name in {**derived.properties, **new.properties}:
            if derived.presence(name) is Presence.NEVER:
                continue
            place = _below(pointer, name)
            if new.presence(name) is Presence.NEVER:
                gaps.append(SchemaGap(place, "may be there, and is not allowed to be", True))
            else:
                gaps += self._between(derived.schema_of(name), new.schema_of(name), place)
        if derived.additional is not False:
            place = _below(pointer, "*")
            if new.additional is False:
                gaps.append(
                    SchemaGap(place, "may be there (any other name), and is not allowed", True)
                )
            else:
                gaps += self._between(derived.additional, new.additional, place)
        return gaps

    def _of_arrays(self, derived: ArrayShape, new: ArrayShape, pointer: str) -> list[SchemaGap]:
        gaps = _of_types(derived.types, new.types, pointer)
        if derived.least < new.least:
            gaps.append(SchemaGap(pointer, f"may have fewer than {new.least} items", True))
        if new.most is not None and (derived.most is None or derived.most > new.most):
            gaps.append(SchemaGap(pointer, f"may have more than {new.most} items", True))
        return gaps + self._between(derived.items, new.items, _below(pointer, "*"))


def _of_types(derived: tuple[str, ...], new: tuple[str, ...], pointer: str) -> list[SchemaGap]:
    allowed = {*new, "integer"} if "number" in new else {*new}
    return [
        SchemaGap(pointer, f"may be of type {name}", True)
        for name in derived
        if name not in allowed
    ]


def _is_distinct(schema: Any) -> bool:
    """Return True if items may have to differ, which the shape of an array does not contain."""
    return not isinstance(schema, dict) or "$ref" in schema or bool(schema.get("uniqueItems"))


def _below(pointer: str, name: str) -> str:
    return pointer + "/" + name.replace("~", "~0").replace("/", "~1")


def _uncovered(pointer: str, derived: Schema, new: Schema, covered: bool | None) -> SchemaGap:
    why = f"may be {quoted(derived)}, and is to be {quoted(new)}"
    return SchemaGap(pointer, why, certain=covered is False)


def _covers(new: Schema, derived: Schema) -> bool | None:
    """Return True if all values valid in `derived` are valid in `new`; None if unknown."""
    if _written(new) == _written(derived):
        return True
    if max(_depth(new), _depth(derived)) > PROOF_LIBRARY_DEPTH_MAX:
        return None  # the library's time grows without bound with the depth
    sizes = unfolded_size.measure(new), unfolded_size.measure(derived)
    if max(size.parts for size in sizes) > PROOF_LIBRARY_PARTS_MAX:
        return None  # and with the expanded references
    library = schema_library()
    options = strictness()
    try:
        result = library.canonicalize(new, **options).covers(
            library.canonicalize(derived, **options)
        )
    except ValueError:
        return None
    if result == library.canonical.Containment.YES:
        return True
    return False if result == library.canonical.Containment.NO else None


def _depth(schema: Schema) -> int:
    """Return the maximum depth of a schema, if its definitions are nested in each other."""
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
