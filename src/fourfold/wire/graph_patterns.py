"""Structs of the route that finds the matches of a pattern in a graph."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from fourfold import limits
from fourfold.wire.documents import At
from fourfold.wire.graphs import Direction, Id, Integer, Name
from fourfold.wire.pages import Page

PatternName = Annotated[
    str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_]{0,63}$", description="Name of an object.")
]


class PatternNodeBody(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Conditions on one object of a pattern."""

    type: Annotated[Name | UnsetType, Meta(description="Key of its type.")] = UNSET
    id: Id | UnsetType = UNSET
    where: Annotated[
        dict[str, Any],
        Meta(
            description="Conditions on its attributes by the keys of their types: a value, "
            "operators of the filter grammar, or null for any value."
        ),
    ] = field(default_factory=dict)


class PatternStepBody(
    Struct,
    kw_only=True,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"source": "from", "target": "to"},
):
    """An edge, or a shortest path, between two objects of a pattern."""

    source: PatternName
    target: PatternName
    type: Annotated[
        Name | list[Name] | UnsetType, Meta(description="Keys of the types of its edges.")
    ] = UNSET
    direction: Direction = "out"
    hops: Annotated[
        int,
        Meta(
            ge=1,
            le=limits.MATCH_HOPS_MAX,
            description="Maximum number of edges of a shortest path; 1 for one edge.",
        ),
    ] = 1


class PatternBody(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Objects and the steps that connect them."""

    nodes: Annotated[
        dict[PatternName, PatternNodeBody],
        Meta(description="Objects with conditions, by their names in the pattern."),
    ] = field(default_factory=dict)
    steps: Annotated[list[PatternStepBody], Meta(max_length=limits.MATCH_STEPS_MAX)] = field(
        default_factory=list
    )


class MatchPattern(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A search for the matches of a pattern."""

    pattern: PatternBody
    at: At | UnsetType = UNSET
    limit: Annotated[
        int, Meta(ge=1, le=limits.PAGE_ITEMS_MAX, description="Maximum number of matches.")
    ] = limits.PAGE_ITEMS
    cursor: Annotated[
        Annotated[str, Meta(max_length=8192)] | UnsetType,
        Meta(description="The next_cursor of the page before, with all else unchanged."),
    ] = UNSET
    suppressed: Annotated[bool, Meta(description="Include objects that a rating suppresses.")] = (
        False
    )


class MatchPath(Struct, frozen=True):
    """The edge or the shortest path of a step."""

    objects: list[int]
    edges: list[int]


class PatternRow(Struct, frozen=True):
    """Objects and edges that match a pattern."""

    objects: dict[str, int]
    """The object of each name."""
    paths: list[MatchPath]
    """The way of each step, from its source to its target."""


class MatchPage(Page, kw_only=True, frozen=True):
    """A page of matches in the order of the ids of their objects, as of `seq`."""

    app: str
    seq: Integer
    items: list[PatternRow]
