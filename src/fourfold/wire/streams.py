"""Structs of the routes of streams."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from fourfold import limits
from fourfold.wire.fields import Count, CountOrNone, CountText, Offset, TrueText, header_name
from fourfold.wire.pages import Page, PageQuery

# Lists


class StreamRow(Struct, kw_only=True, frozen=True):
    """A stream in a list."""

    name: str
    content_type: str
    first_offset: Offset
    next_offset: Offset
    size_bytes: Count
    closed: bool
    created_at_ms: Count
    ttl_seconds: int | None
    expires_at_ms: int | None


class StreamPage(Struct, kw_only=True, frozen=True):
    """A page of a list of streams. With a filter by type, a page may be short, or empty, and still
    have a next one.
    """

    streams: list[StreamRow]
    next_after: str | None


class ListQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a list of streams."""

    prefix: Annotated[str, Meta(description="Only names with this prefix.")] = ""
    after: Annotated[str, Meta(description="Only names after this one.")] = ""
    limit: Annotated[
        int, Meta(ge=1, le=limits.LIST_STREAMS_MAX, description="Maximum number of streams.")
    ] = 100
    content_type: Annotated[
        str, Meta(description="Only streams of this content type, compared without parameters.")
    ] = ""


class StreamTotals(Struct, kw_only=True, frozen=True):
    """Counts over all streams."""

    streams: Count
    records: Count
    bytes: Count


# Details


class ArchiveRequest(Struct, kw_only=True, frozen=True):
    """Requests to the object store for one kind of object."""

    artifact: str
    op: str
    count: Count
    bytes: Count


class ArchiveIndex(Struct, kw_only=True, frozen=True):
    """State of an index over the segments."""

    field: str | None
    indexed_offset: Offset
    indexed_segments: Count
    runs: Count
    bytes: Count
    levels: Count


class ArchiveDetails(Struct, kw_only=True, frozen=True):
    """Sealed and published positions of a stream."""

    sealed_offset: Offset
    published_offset: Offset
    segments: Count
    published_segments: Count
    generation: Count
    published_generation: Count
    published_at_ms: int | None
    manifest_bytes: int | None
    requests: list[ArchiveRequest]
    indexes: list[ArchiveIndex]
    compactions_pending: Count


class StreamDetails(StreamRow, kw_only=True, frozen=True):
    """A stream with its statistics."""

    updated_at_ms: Count
    rows: Count
    wal_rows: Count
    wal_bytes: Count
    pending_rows: Count
    pending_bytes: Count
    profile: str
    schema_version: int | None
    retention_seconds: int | None
    retention_bytes: int | None
    forked_from: str | None
    fork_offset: Offset | None
    forks: Count
    producers: Count
    subscriptions: Count
    archive: ArchiveDetails


class ProducerRow(Struct, kw_only=True, frozen=True):
    """An idempotent producer of a stream, and the last of its appends."""

    id: str
    epoch: Count
    last_seq: Count
    updated_at_ms: Count


class ProducerPage(Page, kw_only=True, frozen=True):
    """A page of the producers of a stream, in the order of their ids."""

    items: list[ProducerRow]


class SegmentRow(Struct, kw_only=True, frozen=True):
    """A sealed segment of a stream: the records from `first_offset` up to before `next_offset`."""

    first_offset: Offset
    next_offset: Offset
    size_bytes: Count
    """Size of the Parquet file."""
    payload_bytes: Count
    last_append_ms: Count
    created_at_ms: Count
    location: Literal["published", "local"]
    """In the object store, or only on the disk of the server."""
    published_at_ms: Count | None


class SegmentPage(Page, kw_only=True, frozen=True):
    """A page of the segments of a stream, in the order of their records."""

    items: list[SegmentRow]


class KeyQuery(PageQuery, kw_only=True, frozen=True):
    """Parameters of a list of routing keys; keys are percent-encoded, as in Stream-Key."""

    prefix: Annotated[str, Meta(description="Only keys that begin with this.")] = ""
    after: Annotated[str, Meta(description="Only keys after this one.")] | UnsetType = UNSET


class KeyRow(Struct, kw_only=True, frozen=True):
    """A routing key of a stream, percent-encoded, and the offset of its newest record."""

    key: str
    offset: Offset


class RoutingKeyPage(Page, kw_only=True, frozen=True):
    """A page of the routing keys of a stream, in the order of their bytes.

    Keys whose newest record is below `complete_from` may be missing.
    """

    items: list[KeyRow]
    complete_from: Offset


class StreamSubscriptionRow(Struct, kw_only=True, frozen=True):
    """A subscription that follows a stream, and its cursor there."""

    id: str
    type: Literal["webhook", "pull-wake"]
    pattern: str | None
    link_type: Literal["explicit", "glob"]
    acked_offset: Offset
    pending: Count
    """Number of records after the cursor."""
    failures: Count
    """Failed deliveries since the last one that succeeded."""
    created_at_ms: Count


class StreamSubscriptionPage(Page, kw_only=True, frozen=True):
    """A page of the subscriptions that follow a stream, in the order of their ids."""

    items: list[StreamSubscriptionRow]


# Schemas and profiles

_Version = Annotated[str, Meta(pattern="^[1-9][0-9]*$")]
_JsonSchema = Annotated[Any, Meta(extra_json_schema={"type": ["object", "boolean"]})]


class RoutingKeyPlace(Struct, frozen=True, rename="camel"):
    """Location of the routing key in messages; `required` refuses messages without it."""

    json_pointer: str
    required: bool = False


class SearchRollup(Struct, frozen=True, omit_defaults=True):
    """Counts and sums of measures, computed ahead for each interval and group."""

    every: str
    by: list[str] = []
    measures: list[str] = []


class SearchFields(Struct, frozen=True, omit_defaults=True):
    """Fields by which messages are searched and aggregated."""

    fields: list[str] = []
    text: list[str] = []
    columns: list[str] = []
    timestamp: str | None = None
    rollups: list[SearchRollup] = []


class SchemaBoundary(Struct, frozen=True):
    """The first offset to which a schema version applies."""

    offset: Offset
    version: Count


class RegistryBody(Struct, kw_only=True, frozen=True, rename="camel"):
    """Schemas of a stream's messages. A lens converts from its version to the next one."""

    current_version: Count
    schemas: dict[_Version, _JsonSchema]
    lenses: dict[_Version, Any]
    boundaries: list[SchemaBoundary]
    routing_key: RoutingKeyPlace | None
    search: SearchFields | None


class NewRoutingKeyPlace(RoutingKeyPlace, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Location of the routing key in messages, to be set."""


class NewSearchFields(SearchFields, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Fields by which messages are searched and aggregated, to be set."""


class RegistryChange(Struct, kw_only=True, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Change of the schemas of a stream: at least one field."""

    schema: _JsonSchema | UnsetType = UNSET
    lens: dict[str, Any] | list[Any] | UnsetType | None = UNSET
    routing_key: NewRoutingKeyPlace | UnsetType | None = UNSET
    search: NewSearchFields | UnsetType | None = UNSET


class TouchSetting(Struct, frozen=True):
    """True if clients can wait for changes of rows."""

    enabled: bool = False


class ProfileBody(Struct, kw_only=True, frozen=True, rename="camel"):
    """Profile of a stream; `touch` is for state-protocol, `redact` and `routingKey` for evlog."""

    kind: str
    touch: TouchSetting | UnsetType = UNSET
    redact: list[str] | UnsetType = UNSET
    routing_key: list[str] | UnsetType = UNSET


class NewTouchSetting(TouchSetting, frozen=True, forbid_unknown_fields=True):
    """True to let clients wait for changes of rows."""


class NewProfile(
    ProfileBody, kw_only=True, frozen=True, rename="camel", forbid_unknown_fields=True
):
    """Profile of a stream, to be set."""

    kind: Annotated[str, Meta(extra_json_schema={"enum": ["generic", "state-protocol", "evlog"]})]
    touch: NewTouchSetting | UnsetType = UNSET


# Compaction by key

COMPACT_TIMEOUT_MAX_MS = 10_000
"""Longest time that a request to compact a stream works."""


class CompactBody(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A compaction by key: its horizon, as an offset or as a time."""

    horizon: Annotated[
        Annotated[str, Meta(max_length=64)] | None,
        Meta(description="An offset, or `now` for the end of the stream."),
    ] = None
    since: Annotated[
        Annotated[str, Meta(max_length=64)] | int | None,
        Meta(description="Horizon at the first record appended at or after this time."),
    ] = None
    timeout_ms: Annotated[
        int, Meta(ge=1, le=COMPACT_TIMEOUT_MAX_MS, description="Maximum time in milliseconds.")
    ] = COMPACT_TIMEOUT_MAX_MS


class CompactResult(Struct, kw_only=True, frozen=True):
    """Result of a compaction by key."""

    complete: bool
    horizon: Offset
    first_offset: Offset
    copied: Count
    removed: Count


# Touches

_Encoding = Literal["string", "integer", "number", "boolean"]


class TouchKey(Struct, kw_only=True, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Key to wait for: `entity` alone, `entity` and `key`, or `template` and `values`."""

    entity: str | None = None
    key: str | None = None
    template: str | None = None
    values: dict[str, str | int | float | bool | None] | None = None


class TouchWait(Struct, kw_only=True, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Keys to wait for, the cursor to start at (default: now), and the timeout."""

    keys: list[TouchKey]
    cursor: str | None = None
    timeout_ms: float | None = None


class TouchResult(Struct, kw_only=True, frozen=True):
    """Result of a wait: the indexes of the touched keys, and the cursor to continue from."""

    touched: bool
    stale: bool
    cursor: str
    keys: list[Count]


class NewTemplate(
    Struct, kw_only=True, frozen=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Fields of an entity by which rows can be waited for, with their encodings."""

    entity: str
    fields: dict[str, _Encoding]
    inactivity_ttl_ms: int | None = None


class NewTemplates(Struct, frozen=True, forbid_unknown_fields=True):
    """Templates to activate."""

    templates: list[NewTemplate]


class TouchTemplate(Struct, kw_only=True, frozen=True):
    """A template of a stream and its state."""

    id: str
    entity: str
    fields: dict[str, str]
    state: str
    active_from_offset: Offset
    last_seen_at_ms: Count
    inactivity_ttl_ms: Count


class TouchTemplates(Struct, frozen=True):
    """The active templates of a stream."""

    templates: list[TouchTemplate]


class TouchState(Struct, kw_only=True, frozen=True):
    """Touch cursor at the end of a stream, the processed offset, and all templates."""

    cursor: str
    processed_offset: Offset
    templates: list[TouchTemplate]


# Reading


class ReadQuery(Struct, kw_only=True, frozen=True):
    """Parameters of a read. The protocol requires that unknown ones are ignored."""

    offset: (
        Annotated[
            str,
            Meta(
                description="Where to begin: -1 (the earliest retained record), now, or an offset."
            ),
        ]
        | UnsetType
    ) = UNSET
    since: (
        Annotated[
            str,
            Meta(
                description="Begin at the first record appended at or after this time, instead of "
                "at an offset: an ISO 8601 time, or milliseconds since 1970."
            ),
        ]
        | UnsetType
    ) = UNSET
    live: Annotated[Literal["long-poll", "sse"], Meta(description="Wait for more.")] | UnsetType = (
        UNSET
    )
    cursor: Annotated[str, Meta(description="The last Stream-Cursor.")] | UnsetType = UNSET
    format: (
        Annotated[
            Literal["records"], Meta(description="Return each record with its offset and time.")
        ]
        | UnsetType
    ) = UNSET
    routing_keys: (
        Annotated[
            Literal["true"],
            Meta(description="With format=records: return the routing key of each record, too."),
        ]
        | UnsetType
    ) = UNSET
    limit: (
        Annotated[
            int,
            Meta(ge=1, le=limits.STREAM_READ_RECORDS, description="Maximum number of records."),
        ]
        | UnsetType
    ) = UNSET
    key: (
        Annotated[str, Meta(description="Only records that were appended with this routing key.")]
        | UnsetType
    ) = UNSET
    field: (
        Annotated[str, Meta(description="Only JSON messages whose field has the given value.")]
        | UnsetType
    ) = UNSET
    value: Annotated[str, Meta(description="The value of the field, as JSON.")] | UnsetType = UNSET
    filter: (
        Annotated[str, Meta(description="Only JSON messages that match this filter, as JSON.")]
        | UnsetType
    ) = UNSET


# The feed over all streams


class FeedQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the feed over all streams."""

    prefix: Annotated[str, Meta(description="Only streams whose names have this prefix.")] = ""
    after: Annotated[
        str | UnsetType,
        Meta(
            description="Records after this cursor, or -1 for all that there are; by default new "
            "ones only."
        ),
    ] = UNSET


class FeedRecord(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Data of `event: record`: a record of a stream, as text or as base64."""

    stream: str
    offset: Offset
    ts_ms: Count
    text: str | UnsetType = UNSET
    base64: bytes | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET


class StreamsGap(Struct, kw_only=True, frozen=True):
    """Data of `event: gap`: records that were removed before they were read.

    Without a stream, they are of streams that are not known any more.
    """

    stream: str | None
    records: Count


# Headers of requests

_Ttl = Annotated[CountText, Meta(description="Seconds until it expires after its last use.")]
_Expiry = Annotated[str, Meta(description="When it expires; RFC 3339.")]
_RetainSeconds = Annotated[CountText, Meta(description="Seconds for which it retains records.")]
_RetainBytes = Annotated[CountText, Meta(description="Bytes of records that it retains.")]
_Closes = Annotated[str, Meta(description="`true` closes the stream.")]


class CreateHeaders(Struct, kw_only=True, frozen=True, rename=header_name):
    """Headers of a request that creates a stream."""

    stream_ttl: _Ttl | UnsetType = UNSET
    stream_expires_at: _Expiry | UnsetType = UNSET
    stream_closed: _Closes | UnsetType = UNSET
    stream_forked_from: Annotated[str, Meta(description="The stream to fork.")] | UnsetType = UNSET
    stream_fork_offset: Annotated[str, Meta(description="The offset of the fork.")] | UnsetType = (
        UNSET
    )
    stream_fork_sub_offset: (
        Annotated[CountText, Meta(description="Number of messages after the fork offset.")]
        | UnsetType
    ) = UNSET
    stream_retention_seconds: _RetainSeconds | UnsetType = UNSET
    stream_retention_bytes: _RetainBytes | UnsetType = UNSET


class SettingHeaders(Struct, kw_only=True, frozen=True, rename=header_name):
    """Headers of a request that changes a stream; `none` removes a setting."""

    stream_ttl: (
        Annotated[
            CountOrNone, Meta(description="Seconds until it expires after its last use, or none.")
        ]
        | UnsetType
    ) = UNSET
    stream_expires_at: (
        Annotated[str, Meta(description="When it expires, RFC 3339, or none.")] | UnsetType
    ) = UNSET
    stream_retention_seconds: (
        Annotated[CountOrNone, Meta(description="Seconds for which it retains records, or none.")]
        | UnsetType
    ) = UNSET
    stream_retention_bytes: (
        Annotated[CountOrNone, Meta(description="Bytes of records that it retains, or none.")]
        | UnsetType
    ) = UNSET


class AppendHeaders(Struct, kw_only=True, frozen=True, rename=header_name):
    """Headers of an append; all three producer headers are required, or none."""

    stream_closed: _Closes | UnsetType = UNSET
    stream_seq: (
        Annotated[str, Meta(description="Text that increases with each append.")] | UnsetType
    ) = UNSET
    producer_id: (
        Annotated[
            str,
            Meta(description="Id of the producer; send all three producer headers, or none."),
        ]
        | UnsetType
    ) = UNSET
    producer_epoch: (
        Annotated[CountText, Meta(description="Incremented when the producer restarts.")]
        | UnsetType
    ) = UNSET
    producer_seq: (
        Annotated[
            CountText, Meta(description="Sequence number of the request in its epoch, from 0.")
        ]
        | UnsetType
    ) = UNSET
    stream_key: (
        Annotated[str, Meta(description="Routing key of the records; percent-encoded.")] | UnsetType
    ) = UNSET
    stream_expected_offset: (
        Annotated[str, Meta(description="Append only if the stream ends exactly at this offset.")]
        | UnsetType
    ) = UNSET
    stream_record_headers: (
        Annotated[
            str,
            Meta(description="Headers of each record: a JSON object of texts, in ASCII."),
        ]
        | UnsetType
    ) = UNSET


class ReadHeaders(Struct, kw_only=True, frozen=True, rename=header_name):
    """Headers of a read."""

    if_none_match: (
        Annotated[str, Meta(description="ETag of the content that the reader has.")] | UnsetType
    ) = UNSET
    last_event_id: (
        Annotated[
            str,
            Meta(description="With `live=sse`: continue after this event; it wins over `offset`."),
        ]
        | UnsetType
    ) = UNSET


# Headers of responses


class PositionHeaders(Struct, kw_only=True, frozen=True, rename=header_name):
    """The end of a stream, and whether it is closed."""

    stream_next_offset: Offset | UnsetType = UNSET
    stream_closed: TrueText | UnsetType = UNSET


class CreatedHeaders(PositionHeaders, kw_only=True, frozen=True, rename=header_name):
    """Headers of a response to the creation of a stream."""

    location: str | UnsetType = UNSET


class AppendedHeaders(PositionHeaders, kw_only=True, frozen=True, rename=header_name):
    """Headers of a response to an append."""

    producer_epoch: CountText | UnsetType = UNSET
    producer_seq: CountText | UnsetType = UNSET


class ReadResultHeaders(PositionHeaders, kw_only=True, frozen=True, rename=header_name):
    """Headers of a response to a read."""

    stream_first_offset: Offset | UnsetType = UNSET
    stream_up_to_date: TrueText | UnsetType = UNSET
    stream_cursor: str | UnsetType = UNSET
    etag: str | UnsetType = UNSET
    cache_control: str | UnsetType = UNSET


class StreamHeaders(PositionHeaders, kw_only=True, frozen=True, rename=header_name):
    """All settings of a stream."""

    stream_first_offset: Offset | UnsetType = UNSET
    stream_ttl: CountText | UnsetType = UNSET
    stream_expires_at: str | UnsetType = UNSET
    stream_retention_seconds: CountText | UnsetType = UNSET
    stream_retention_bytes: CountText | UnsetType = UNSET
