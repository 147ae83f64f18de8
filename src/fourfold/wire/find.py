"""Structs of the routes that find documents, and of declared indexes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from fourfold import limits
from fourfold.wire.documents import At, BranchName, Document, Seq
from fourfold.wire.fields import Count
from fourfold.wire.pages import Page

Where = Annotated[dict[str, Any], Meta(description="A filter; without one, everything matches.")]
Limit = Annotated[int, Meta(ge=1, le=limits.PAGE_ITEMS_MAX, description="Maximum number of items.")]


class CountRequest(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A filter whose matches are counted."""

    where: Where | UnsetType = UNSET
    branch: BranchName = ""
    at: At | UnsetType = UNSET


class ExplainRequest(CountRequest, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A query to explain."""

    order_by: Annotated[
        str | UnsetType,
        Meta(description="A field or a JSON Pointer; `-` before it for the descending order."),
    ] = UNSET


class FindRequest(ExplainRequest, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A query for documents."""

    limit: Limit = limits.PAGE_ITEMS
    cursor: Annotated[
        Annotated[str, Meta(max_length=8192)] | UnsetType,
        Meta(description="The next_cursor of the page before, with all else unchanged."),
    ] = UNSET
    scan: Annotated[
        bool, Meta(description="True to allow reading documents one by one without an index.")
    ] = True


class FacetsRequest(CountRequest, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A path whose values are counted."""

    path: Annotated[
        str,
        Meta(
            min_length=1, description="A field or a JSON Pointer; `*` stands for every item of it."
        ),
    ]
    limit: Limit = limits.PAGE_ITEMS


class PlanInfo(Struct, kw_only=True, frozen=True):
    """Plan of a query."""

    access: Literal["equality", "range", "order", "text", "scan"]
    index: str | None
    ranges: Count
    exact: bool
    sorts: bool
    building: list[str]
    scanned: Count
    complete: bool


class MatchRow(Struct, kw_only=True, frozen=True):
    """A document that matches."""

    id: str
    document: Document
    seq: Seq


class FoundDocuments(Page, kw_only=True, frozen=True):
    """A page of documents that match."""

    items: list[MatchRow]
    seq: Seq
    """Seq that all pages show."""
    plan: PlanInfo


class DocumentCount(Struct, kw_only=True, frozen=True):
    """The number of documents that match."""

    count: Count


class FacetRow(Struct, kw_only=True, frozen=True):
    """A value, and the number of documents that have it."""

    value: bool | int | float | str | None
    count: Count


class FacetPage(Page, kw_only=True, frozen=True):
    """The most frequent values, in one page."""

    items: list[FacetRow]


class NewIndex(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """An index to declare."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    paths: Annotated[
        list[str],
        Meta(
            min_length=1,
            max_length=4,
            description="JSON Pointers; `*` stands for every item of an array.",
        ),
    ]
    unique: bool = False
    history: Literal["all", "now"] = "all"
    kind: Literal["value", "text", "vector"] = "value"


class IndexRow(Struct, kw_only=True, frozen=True):
    """A declared index."""

    name: str
    kind: str
    paths: list[str]
    unique: bool
    history: Literal["all", "now"]
    state: Literal["building", "ready", "failed"]
    error: str | None


class IndexPage(Page, kw_only=True, frozen=True):
    """All declared indexes of a space, in one page."""

    items: list[IndexRow]
