"""Resolutions of merge conflicts, checked before the database is involved.

{"urn:a": document}              the entity becomes this document
{"urn:a": None}                  the entity is deleted
{"urn:a": OURS}                  at its conflicts the target wins; THEIRS: the source
{("urn:a", "/title"): value}     one place: a JSON value, ABSENT, OURS or THEIRS
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fourfold.content.json_pointer import ABSENT, as_path, format_pointer, show_pointer
from fourfold.errors import InvalidInput
from fourfold.models.documents.encoding import checked
from fourfold.models.documents.field_merge import Choice
from fourfold.models.documents.records import Document
from fourfold.models.documents.validation import check_entity

Resolutions = Mapping[Any, Any]

_SHAPE = "Map an id to a document, None, OURS or THEIRS, or (id, path) to a value."


class Decisions(msgspec.Struct, frozen=True):
    """Resolutions, grouped by what they decide."""

    documents: dict[str, Document | None]
    """Whole entities; None deletes."""
    sides: dict[str, Choice]
    """All conflicts of an entity."""
    places: dict[str, dict[str, Any]]
    """Single conflicts: for each entity, by JSON pointer. ABSENT removes."""

    @property
    def entities(self) -> set[str]:
        """Ids of the entities that a resolution is given for."""
        return self.documents.keys() | self.sides.keys() | self.places.keys()


def check_resolutions(resolutions: Resolutions | None) -> Decisions:
    """Check what can be checked without the database."""
    if resolutions is not None and not isinstance(resolutions, Mapping):
        raise InvalidInput(f"resolutions must be a mapping, got {resolutions!r:.60}", hint=_SHAPE)
    decided = Decisions({}, {}, {})
    for key, value in (resolutions or {}).items():
        if isinstance(key, tuple):
            _add_place(decided, key, value)
            continue
        entity = check_entity(key)
        if isinstance(value, Choice):
            decided.sides[entity] = value
        elif value is None or isinstance(value, dict):
            decided.documents[entity] = checked(value, f"the resolution of {entity!r}")[1]
        else:
            raise InvalidInput(
                f"the resolution of {entity!r} must be a document, None, OURS or THEIRS, "
                f"got {value!r:.60}",
                hint=_SHAPE,
            )
    for entity in decided.places:
        if entity in decided.documents or entity in decided.sides:
            raise InvalidInput(
                f"{entity!r} has a resolution as a whole and others for its paths",
                hint="Resolve the entity, or its paths.",
            )
    return decided


def _add_place(decided: Decisions, key: tuple[Any, ...], value: Any) -> None:
    if len(key) != 2:
        raise InvalidInput(f"a resolution must be for (id, path), got {key!r:.100}", hint=_SHAPE)
    entity, path = check_entity(key[0]), as_path(key[1])
    where = f"the resolution of {show_pointer(path)} in {entity!r}"
    if value is not ABSENT and not isinstance(value, Choice):
        value = checked(value, where)[1]
        if not path and type(value) is not dict:
            raise InvalidInput(f"{where} must be a document, ABSENT, OURS or THEIRS")
    places = decided.places.setdefault(entity, {})
    pointer = format_pointer(path)
    if pointer in places:
        raise InvalidInput(f"{where} was given twice")
    places[pointer] = value


def as_facts(decided: Decisions) -> dict[str, Any]:
    """Return the resolutions as JSON, in which a value cannot be taken for a choice.

    Whole documents keep the form that names a request sent by an earlier version.
    """
    facts: dict[str, Any] = {"resolutions": decided.documents}
    if decided.sides:
        facts["sides"] = decided.sides
    if decided.places:
        facts["places"] = {
            entity: {
                pointer: [value] if isinstance(value, Choice) or value is ABSENT else {"is": value}
                for pointer, value in places.items()
            }
            for entity, places in decided.places.items()
        }
    return facts
