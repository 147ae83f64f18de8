"""Structs of memories: items under namespaces."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from fourfold import limits
from fourfold.wire.documents import At, Seq
from fourfold.wire.fields import Count
from fourfold.wire.pages import Page, PageQuery

_Label = Annotated[str, Meta(min_length=1, max_length=limits.ENTITY_ID_BYTES_MAX)]
_Labels = Annotated[list[_Label], Meta(max_length=limits.NAMESPACE_LABELS_MAX)]
_Path = Annotated[
    list[_Label],
    Meta(
        min_length=1,
        max_length=limits.NAMESPACE_LABELS_MAX,
        description="Labels of the namespace, such as users, ada.",
    ),
]
_Prefix = Annotated[_Labels, Meta(description="Only items in this namespace and below it.")]
_Key = Annotated[str, Meta(max_length=limits.ENTITY_ID_BYTES_MAX)]
_Vector = Annotated[
    list[float], Meta(min_length=1, max_length=8192, description="Numbers, not all of them 0.")
]
_Refresh = "Extend the time to live of what is returned; a key that may only read extends nothing."


class MemoryInfo(Struct, kw_only=True, frozen=True):
    """A memory, and its newest seq."""

    name: str
    seq: Seq


class MemoryQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Point in history of a memory."""

    at: At | UnsetType = UNSET


class MemoryItemQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a read of one item."""

    key: _Key
    namespace: Annotated[_Path, Meta(description="A label; repeat it for each.")]
    at: At | UnsetType = UNSET
    refresh: Annotated[Literal["true", "false"], Meta(description=_Refresh)] = "false"


class MemoryKeyQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Namespace and key of an item."""

    key: _Key
    namespace: Annotated[_Path, Meta(description="A label; repeat it for each.")]


class MemoryItemRecord(Struct, kw_only=True, frozen=True):
    """An item. Times are UTC; `expires_at` is null if it does not expire."""

    namespace: list[str]
    key: str
    value: dict[str, Any]
    created_at: str
    updated_at: str
    expires_at: str | None
    seq: Seq


class MemoryPutRecord(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A value to store, or null to forget the item."""

    namespace: _Path
    key: _Key
    value: dict[str, Any] | None
    ttl_s: Annotated[
        float | None, Meta(description="Seconds until the item expires; a read extends them.")
    ] = None
    text: Annotated[
        bool | list[str],
        Meta(description="Search all strings of the value, none, or those at JSON Pointers."),
    ] = True
    strings: Annotated[
        list[str] | None, Meta(description="Strings to search, instead of `text`.")
    ] = None
    vector: _Vector | None = None


class MemoryChanges(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Changes of items, which are committed together."""

    changes: Annotated[list[MemoryPutRecord], Meta(max_length=limits.PAGE_ITEMS_MAX)]


class MemorySeq(Struct, kw_only=True, frozen=True):
    """Seq of a commit; without changes, of the newest one."""

    seq: Seq


class MemoryCount(Struct, kw_only=True, frozen=True):
    """Number of items that were forgotten."""

    count: Count


class MemorySearch(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A search; without `query` and `vector`, the items that were put last come first."""

    query: Annotated[
        str | UnsetType,
        Meta(description='Words, "phrases", prefixes (pre*), and -words. One is enough.'),
    ] = UNSET
    vector: _Vector | UnsetType = UNSET
    namespace: _Prefix = field(default_factory=list)
    where: Annotated[dict[str, Any] | UnsetType, Meta(description="A filter of the values.")] = (
        UNSET
    )
    limit: Annotated[
        int, Meta(ge=1, le=limits.PAGE_ITEMS_MAX, description="Maximum number of items.")
    ] = limits.PAGE_ITEMS
    offset: Annotated[int, Meta(ge=0, description="Number of items to skip.")] = 0
    cursor: Annotated[
        Annotated[str, Meta(max_length=8192)] | UnsetType,
        Meta(description="The next_cursor of the page before, with all else unchanged."),
    ] = UNSET
    at: At | UnsetType = UNSET
    refresh: Annotated[bool, Meta(description=_Refresh)] = False


class MemoryHitRecord(Struct, kw_only=True, frozen=True):
    """An item that a search found. `score` is null without a query."""

    item: MemoryItemRecord
    score: float | None
    snippets: list[str]


class MemoryHitPage(Page, kw_only=True, frozen=True):
    """A page of a search. A full page has a `next_cursor`, also if nothing follows."""

    items: list[MemoryHitRecord]


class NamespacesQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a list of namespaces."""

    namespace: Annotated[
        _Labels, Meta(description="Only namespaces that begin with this label; repeatable.")
    ] = field(default_factory=list)
    max_depth: Annotated[
        Annotated[int, Meta(ge=1)] | UnsetType, Meta(description="Show this many labels.")
    ] = UNSET
    at: At | UnsetType = UNSET


class NamespacePage(Page, kw_only=True, frozen=True):
    """A page of namespaces, each on one page only."""

    items: list[list[str]]


class VersionsQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the history of an item."""

    key: _Key
    namespace: Annotated[_Path, Meta(description="A label; repeat it for each.")]
    after: Annotated[Seq, Meta(description="Only values after this seq.")] = 0
    at: At | UnsetType = UNSET


class MemoryVersionRecord(Struct, kw_only=True, frozen=True):
    """A value of an item; null if it was forgotten."""

    seq: Seq
    time: str
    value: dict[str, Any] | None


class VersionPage(Page, kw_only=True, frozen=True):
    """A page of the values of an item, oldest first."""

    items: list[MemoryVersionRecord]


class MemoryDiffQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a difference: from `a` to `b`."""

    a: Annotated[At | UnsetType, Meta(description="The first point, by default now.")] = UNSET
    b: Annotated[At | UnsetType, Meta(description="The second point, by default now.")] = UNSET
    namespace: Annotated[_Labels, Meta(description="Only items below this label; repeatable.")] = (
        field(default_factory=list)
    )


class MemoryChangeRecord(Struct, kw_only=True, frozen=True):
    """An item that differs; null where there was none."""

    namespace: list[str]
    key: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class MemoryDiffPage(Page, kw_only=True, frozen=True):
    """A page of the items that differ, sorted by id."""

    items: list[MemoryChangeRecord]


class MemorySweep(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Maximum number of expired items to delete."""

    limit: Annotated[int, Meta(ge=1, le=limits.PAGE_ITEMS_MAX)] = limits.PAGE_ITEMS_MAX


class MemoryPurge(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Items to forget before the history of the memory is erased."""

    namespace: Annotated[
        _Labels, Meta(description="Forget the items below it; none by default.")
    ] = field(default_factory=list)
    key: Annotated[
        _Key | None, Meta(description="Forget only this item of exactly this namespace.")
    ] = None
