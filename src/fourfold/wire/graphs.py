"""Structs of the routes of graphs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from fourfold import limits
from fourfold.wire.documents import At
from fourfold.wire.fields import Count, StoreTime, TrueText, header_name
from fourfold.wire.pages import Page, PageQuery

Kind = Literal["parent", "attr", "edge", "rating"]
Name = Annotated[str, Meta(min_length=1, max_length=limits.GRAPH_NAME_MAX)]
Integer = Annotated[int, Meta(ge=0, le=limits.INTEGER_MAX)]
Id = Annotated[int, Meta(ge=1, le=limits.INTEGER_MAX)]
Suppressed = Annotated[
    TrueText | UnsetType, Meta(description="`true` includes objects that a rating suppresses.")
]


# Apps and types


class AppInfo(Struct, kw_only=True, frozen=True):
    """An app."""

    app: str
    """Its name, the slug."""
    app_id: Integer
    title: str
    version: Integer
    """Version of its tables."""
    created_at: str
    rows: Count | None
    bytes: Count | None
    """Rows and bytes of values that it stores; None in the past, for which they are not stored."""
    rows_max: Count | None
    bytes_max: Count | None
    """Its limits; None means unlimited."""
    seq: Integer
    """Newest seq of the store; all apps share the sequence."""
    node: str
    """Id of this node; its own rows have an empty `origin`."""


class NewLimits(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The limits of an app; null means unlimited."""

    rows_max: Integer | None
    bytes_max: Integer | None


class AppPage(Page, kw_only=True, frozen=True):
    """A page of apps, in the order of their names."""

    seq: Integer
    """Newest seq of the store."""
    items: list[AppInfo]


class AppsQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a list of apps."""

    prefix: Annotated[str, Meta(description="Only names with this prefix.")] = ""
    at: StoreTime | UnsetType = UNSET


class AppQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Time of a read of an app."""

    at: StoreTime | UnsetType = UNSET


class NewAppQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a new app."""

    title: Annotated[
        Name | UnsetType, Meta(description="Title of a new app, by default its name.")
    ] = UNSET


class TypeInfo(Struct, kw_only=True, frozen=True):
    """A type of one kind of objects. Its id never changes."""

    id: Id
    kind: Kind
    type_key: str


class TypePage(Page, kw_only=True, frozen=True):
    """A page of types, in the order of their ids."""

    items: list[TypeInfo]


class TypesQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a list of types."""

    kind: Annotated[Kind | UnsetType, Meta(description="Only types of this kind.")] = UNSET


class NewType(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A type to register."""

    kind: Kind
    type_key: Name


TypeKeys = Annotated[list[Name], Meta(min_length=1)]
Cardinality = Annotated[int, Meta(ge=1, le=limits.INTEGER_MAX)]


class RuleFields(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Conditions on the objects of a type of attributes, edges or ratings."""

    on: Annotated[
        TypeKeys | UnsetType,
        Meta(description="Types of parents: where edges start, what others belong to."),
    ] = UNSET
    to: Annotated[
        TypeKeys | UnsetType, Meta(description="Types of parents at which edges end.")
    ] = UNSET
    value: Annotated[
        Literal["text", "number", "json", "blob"] | UnsetType,
        Meta(description="Kind of the value of an attribute or a rating."),
    ] = UNSET
    unique: Annotated[
        bool | UnsetType, Meta(description="No two attributes have the same value.")
    ] = UNSET
    required: Annotated[
        bool | UnsetType, Meta(description="Every new parent has such an attribute.")
    ] = UNSET
    most: Annotated[
        Cardinality | UnsetType, Meta(description="Maximum number at, or from, one parent.")
    ] = UNSET
    most_in: Annotated[
        Cardinality | UnsetType, Meta(description="Maximum number of edges to one parent.")
    ] = UNSET


class NewRule(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The rule of a type; null removes it."""

    kind: Literal["attr", "edge", "rating"]
    type_key: Name
    rule: RuleFields | None


class DescribedType(Struct, kw_only=True, frozen=True):
    """A type and its rule."""

    id: Id
    kind: Kind
    type_key: str
    rule: dict[str, Any] | None


class DescriptionInfo(Struct, kw_only=True, frozen=True):
    """An app with its types and their rules."""

    app: AppInfo
    types: list[DescribedType]


# Objects: one Struct for each kind, with the fields of the model's records in their order


class ParentRow(Struct, frozen=True, tag_field="kind", tag="parent"):
    """One version of an object."""

    id: int
    type_id: int
    owner_identity: int
    global_seq: int
    sync_flags: int
    created_at: str
    updated_at: str
    object_id: int
    version: int
    origin: str
    origin_seq: int
    position: int
    leads: int


class AttrRow(Struct, frozen=True, tag_field="kind", tag="attr"):
    """One version of an attribute of a parent. A `value_blob` is base64 text."""

    id: int
    parent_id: int
    type_id: int
    owner_identity: int
    global_seq: int
    sync_flags: int
    value_text: str | None
    value_number: float | None
    value_blob: bytes | None
    value_json: str | None
    created_at: str
    object_id: int
    version: int
    origin: str
    origin_seq: int
    position: int
    leads: int


class EdgeRow(Struct, frozen=True, tag_field="kind", tag="edge"):
    """One version of an edge from a parent to a parent or an attribute."""

    id: int
    src_parent_id: int
    dst_parent_id: int | None
    dst_attr_id: int | None
    type_id: int
    owner_identity: int
    global_seq: int
    sync_flags: int
    created_at: str
    object_id: int
    version: int
    origin: str
    origin_seq: int
    position: int
    leads: int


class RatingRow(Struct, frozen=True, tag_field="kind", tag="rating"):
    """One version of a rating of a parent or an attribute."""

    id: int
    target_parent_id: int | None
    target_attr_id: int | None
    type_id: int
    owner_identity: int
    global_seq: int
    sync_flags: int
    value_text: str | None
    value_number: float | None
    value_json: str | None
    created_at: str
    object_id: int
    version: int
    origin: str
    origin_seq: int
    position: int
    leads: int


ObjectRow = ParentRow | AttrRow | EdgeRow | RatingRow


class ObjectState(Struct, kw_only=True, frozen=True):
    """The newest version of an object at a point."""

    app: str
    seq: Integer
    """Seq at which it was read."""
    object: ObjectRow


class ObjectPage(Page, kw_only=True, frozen=True):
    """A page of versions of objects, in the order of the log, as of `seq`."""

    seq: Integer
    items: list[ObjectRow]


class NeighboursInfo(Struct, kw_only=True, frozen=True):
    """A parent or an attribute, and what is one hop away from it."""

    app: str
    seq: Integer
    object: ParentRow | AttrRow
    attrs: list[AttrRow]
    edges: list[EdgeRow]
    ratings: list[RatingRow]
    objects: list[ParentRow | AttrRow]
    """Other ends of the edges, and the parent of an attribute."""
    complete: bool
    """False if there are more attributes, edges, ratings or versions than the limit."""
    versions: list[ObjectRow] = []
    """Versions of the object, its attributes and its ratings, oldest first, if requested."""


class ObjectsRead(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Objects to read together, with parts of what is around them."""

    ids: Annotated[
        list[Id], Meta(max_length=limits.OBJECTS_READ_MAX, description="Ids of parents.")
    ]
    at: At | UnsetType = UNSET
    parts: Annotated[
        list[Literal["attrs", "edges", "ratings", "objects", "versions"]],
        Meta(
            max_length=5,
            description="What to read with them: `objects` are ends of edges, `versions` those of "
            "the object, its attributes and its ratings.",
        ),
    ] = field(default_factory=lambda: ["attrs"])
    limit: Annotated[
        int, Meta(ge=1, le=limits.NEIGHBOURS_MAX, description="Maximum number of each part.")
    ] = limits.NEIGHBOURS_MAX
    suppressed: Annotated[bool, Meta(description="Include objects that a rating suppresses.")] = (
        False
    )


class ObjectsInfo(Struct, kw_only=True, frozen=True):
    """Objects that exist, in the order of their ids in the request, all as of one seq."""

    app: str
    seq: Integer
    items: list[NeighboursInfo]


class ObjectQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a read of one object."""

    kind: Annotated[Kind, Meta(description="Kind of the object.")] = "parent"
    at: At | UnsetType = UNSET


class ObjectsQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a list of objects."""

    kind: Annotated[Kind, Meta(description="Kind of the objects.")] = "parent"
    type: Annotated[list[Id], Meta(description="Only objects of these type ids; repeatable.")] = (
        field(default_factory=list)
    )
    owner: Annotated[Integer | UnsetType, Meta(description="Only objects of this identity.")] = (
        UNSET
    )
    at: At | UnsetType = UNSET
    suppressed: Suppressed = UNSET


class ObjectHistoryQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the versions of an object."""

    kind: Annotated[Kind, Meta(description="Kind of the object.")] = "parent"
    at: At | UnsetType = UNSET


class NeighboursQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the neighbours of an object."""

    kind: Annotated[Literal["parent", "attr"], Meta(description="Kind of the object.")] = "parent"
    at: At | UnsetType = UNSET
    limit: Annotated[
        int,
        Meta(
            ge=1,
            le=limits.NEIGHBOURS_MAX,
            description="Maximum number of attributes, of edges and of ratings.",
        ),
    ] = limits.NEIGHBOURS_MAX
    suppressed: Suppressed = UNSET


# Walks along edges

Direction = Annotated[
    Literal["out", "in", "both"],
    Meta(description="Follow edges out of each object, in to it, or both."),
]
EdgeTypes = Annotated[
    list[Id], Meta(description="Follow only edges of these type ids; repeatable.")
]
Depth = Annotated[int, Meta(ge=1, le=limits.DEPTH_MAX, description="Maximum number of edges.")]


class EdgesQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Edges that a read follows, and its point."""

    type: EdgeTypes = field(default_factory=list)
    at: At | UnsetType = UNSET
    suppressed: Suppressed = UNSET


class CountEdgesQuery(EdgesQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a count of edges."""

    direction: Direction = "out"


class TraverseQuery(CountEdgesQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a traversal."""

    depth: Depth = limits.TRAVERSE_DEPTH
    limit: Annotated[
        int,
        Meta(
            ge=1,
            le=limits.TRAVERSE_OBJECTS_MAX,
            description="Maximum number of objects that are returned.",
        ),
    ] = limits.TRAVERSE_OBJECTS_MAX


class ExistsQuery(EdgesQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a read of the edges between two objects."""

    src: Id
    dst: Id


class PathQuery(CountEdgesQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a search for a path."""

    start: Id
    end: Id
    depth: Depth = limits.PATH_DEPTH


class ReachedRow(Struct, frozen=True):
    """An object that a traversal reached, with the last edge of a shortest way to it."""

    object_id: int
    distance: int
    """Number of edges from the start."""
    from_id: int
    edge_id: int


class TraverseInfo(Struct, kw_only=True, frozen=True):
    """Objects within some hops of another, nearest first."""

    app: str
    seq: Integer
    objects: list[ReachedRow]
    complete: bool
    """False if there are more objects than the limit."""


class PathInfo(Struct, kw_only=True, frozen=True):
    """A shortest path: objects from start to end, and the edges between them."""

    app: str
    seq: Integer
    objects: list[int]
    """Empty if there is no path."""
    edges: list[int]


class ExistsInfo(Struct, kw_only=True, frozen=True):
    """Existence of an edge between two objects."""

    app: str
    seq: Integer
    exists: bool


class EdgeCount(Struct, kw_only=True, frozen=True):
    """The number of edges of an object."""

    app: str
    seq: Integer
    count: Count


# Values

ValueKind = Annotated[Literal["attr", "rating"], Meta(description="Kind of the values.")]
TypeKey = Annotated[Name, Meta(description="Key of the type of the values.")]


class FindValues(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A search for attributes or ratings by their value."""

    type: TypeKey
    where: Annotated[
        Any, Meta(description="A value, or operators of the filter grammar; without one, all.")
    ] = None
    kind: ValueKind = "attr"
    at: At | UnsetType = UNSET
    limit: Annotated[
        int, Meta(ge=1, le=limits.PAGE_ITEMS_MAX, description="Maximum number of items.")
    ] = limits.PAGE_ITEMS
    cursor: Annotated[
        Annotated[str, Meta(max_length=8192)] | UnsetType,
        Meta(description="The next_cursor of the page before, with all else unchanged."),
    ] = UNSET
    suppressed: Annotated[bool, Meta(description="Include objects that a rating suppresses.")] = (
        False
    )


class ValuePage(Page, kw_only=True, frozen=True):
    """A page of attributes or ratings in the order of their values, as of `seq`."""

    seq: Integer
    items: list[AttrRow | RatingRow]


class AggregateValuesQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of aggregates of values."""

    type: TypeKey
    kind: ValueKind = "rating"
    target: Annotated[Id | UnsetType, Meta(description="Only values of this object.")] = UNSET
    target_kind: Annotated[Literal["parent", "attr"], Meta(description="Kind of the target.")] = (
        "parent"
    )
    at: At | UnsetType = UNSET
    suppressed: Suppressed = UNSET


class AggregateInfo(Struct, kw_only=True, frozen=True):
    """Aggregates of the values of a type; those of numbers are null if no value is a number."""

    app: str
    seq: Integer
    values: Count
    """Number of values, of any type."""
    numbers: Count
    sum: float | None
    average: float | None
    least: float | None
    greatest: float | None


class TopQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a ranking of objects."""

    type: TypeKey
    kind: ValueKind = "rating"
    parent_type: Annotated[
        list[Id], Meta(description="Only objects of these type ids; repeatable.")
    ] = field(default_factory=list)
    order: Annotated[Literal["average", "sum", "count"], Meta(description="What is compared.")] = (
        "average"
    )
    limit: Annotated[
        int, Meta(ge=1, le=limits.PAGE_ITEMS_MAX, description="Maximum number of objects.")
    ] = 10
    at: At | UnsetType = UNSET
    suppressed: Suppressed = UNSET


class RankedRow(Struct, frozen=True):
    """An object and the aggregates of its numbers."""

    object_id: int
    numbers: Count
    sum: float
    average: float


class TopInfo(Struct, kw_only=True, frozen=True):
    """Objects with the greatest numbers of a type, greatest first."""

    app: str
    seq: Integer
    objects: list[RankedRow]


class ObjectHeaders(Struct, kw_only=True, frozen=True, rename=header_name):
    """Headers of a response about one version."""

    etag: str | UnsetType = UNSET


class ObjectReadHeaders(Struct, kw_only=True, frozen=True, rename=header_name):
    """Headers of a read of one object."""

    if_none_match: Annotated[
        str | UnsetType, Meta(description="Do not send the object if it has this ETag.")
    ] = UNSET


# Envelopes


class OperationRef(Struct, frozen=True, forbid_unknown_fields=True, rename={"operation": "$op"}):
    """The object of an earlier operation of the same envelope, by its index."""

    operation: Integer


Pointer = Id | OperationRef | None | UnsetType


class ObjectFields(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Fields of an object. `value` is stored by its type; a `value_blob` is base64 text."""

    parent_id: Pointer = UNSET
    attr_id: Pointer = UNSET
    edge_id: Pointer = UNSET
    rating_id: Pointer = UNSET
    src_parent_id: Pointer = UNSET
    dst_parent_id: Pointer = UNSET
    dst_attr_id: Pointer = UNSET
    target_parent_id: Pointer = UNSET
    target_attr_id: Pointer = UNSET
    value: Any = UNSET
    value_text: str | UnsetType | None = UNSET
    value_number: float | UnsetType | None = UNSET
    value_blob: bytes | UnsetType | None = UNSET
    value_json: str | UnsetType | None = UNSET
    sync_flags: Integer | UnsetType = UNSET


class GraphOperation(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Create or update one object, with `type_key` or `type_id`."""

    op: Literal[
        "parent_create",
        "parent_update",
        "attr_create",
        "attr_update",
        "edge_create",
        "edge_update",
        "rating_create",
        "rating_update",
    ]
    type_key: Name | UnsetType = UNSET
    type_id: Id | UnsetType = UNSET
    payload: ObjectFields = ObjectFields()
    expected: Annotated[
        Id | UnsetType,
        Meta(description="Id of the row that an update replaces; refused if there is a newer one."),
    ] = UNSET


class NewEnvelope(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Operations of one owner that are applied together, under one seq, or not at all."""

    owner: Integer
    """Identity that owns the objects."""
    operations: Annotated[
        list[GraphOperation], Meta(min_length=1, max_length=limits.ENVELOPE_OPERATIONS_MAX)
    ]
    trace_id: Name | UnsetType = UNSET
    """Text that is stored with the seq, by default a random one."""
    once: Annotated[
        bool,
        Meta(description="Write nothing if the app has an envelope with the trace id."),
    ] = False


class EnvelopesQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a list of envelopes."""

    trace_id: Annotated[Name, Meta(description="Only envelopes with this trace id.")]
    after: Annotated[Integer, Meta(description="Only envelopes after this seq.")] = 0


class EnvelopeInfo(Struct, frozen=True):
    """Objects that one envelope wrote in an app."""

    seq: Integer
    app_id: Integer
    kinds: Integer
    """Sum of the bits of the kinds that it wrote: 1 parent, 2 attr, 4 edge, 8 rating."""
    sync_flags: Integer
    """All flags of its rows."""
    created_at: str
    trace_id: str


class EnvelopePage(Page, kw_only=True, frozen=True):
    """A page of envelopes, oldest first."""

    items: list[EnvelopeInfo]


class ApplyInfo(Struct, kw_only=True, frozen=True):
    """An applied envelope.

    `replayed` is True if the same request was applied before, and nothing was written now.
    """

    seq: Integer
    object_ids: list[Integer]
    """Object of each operation, in order."""
    replayed: bool = False


# The feed


class ChangesQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a feed of changes."""

    kind: Annotated[Kind | UnsetType, Meta(description="Only objects of this kind.")] = UNSET
    after: Annotated[
        Integer | UnsetType, Meta(description="Start after this seq, by default the newest.")
    ] = UNSET
    until: Annotated[
        Integer | UnsetType, Meta(description="End after this seq, by default never.")
    ] = UNSET


class AppFeedQuery(ChangesQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the feed of one app."""

    pattern: Annotated[
        str,
        Meta(
            max_length=8192,
            description="A pattern as JSON: only objects that may change what matches it.",
        ),
    ] = ""


class StoreFeedQuery(ChangesQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the feed of several apps."""

    prefix: Annotated[str, Meta(description="Only apps whose names have this prefix.")] = ""


class GraphChange(Struct, frozen=True):
    """A version of an object that was written."""

    app: str
    app_id: Integer
    object: ObjectRow


class ChangesEvent(Struct, frozen=True):
    """Data of the event `changes`: what one transaction wrote, or a part of it."""

    seq: Integer
    changes: list[GraphChange]
    complete: bool
    """False if the next event continues the same seq."""


class FeedGapEvent(Struct, kw_only=True, frozen=True):
    """Data of the event `gap`: seqs after `newest` that the client has received do not exist.

    They were lost with the power, or by restoring an older backup.
    """

    after: Integer
    newest: Integer


class FeedEndEvent(Struct, kw_only=True, frozen=True):
    """Data of the event `end`: the feed has reached `until`."""

    seq: Integer
