"""Structs of the routes of sessions.

Values that a client stored (fields of events, entities, variables) are JSON in the canonical
encoding (see `fourfold.content`): what JSON has no form for is an object with one key that starts
with `~`, such as `{"~bytes": "AAEC"}`, and a reference to a payload is `{"~ref": {"id": ...,
"kind": ..., "size": ...}}`. A key of a client that starts with `~` has one more `~`. Responses
contain the canonical bytes, so that `content.decode` reads them; requests may use any JSON
spelling.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from fourfold import limits
from fourfold.wire.documents import SEQ_MAX
from fourfold.wire.fields import SEQ_PATTERN, TIME_PATTERN, Count, StoreTime, header_name
from fourfold.wire.pages import IdempotencyHeaders, Page, PageQuery

SessionId = Annotated[
    str,
    Meta(
        pattern="^[A-Za-z0-9][A-Za-z0-9._:@/+=-]*$",
        min_length=1,
        max_length=limits.SESSION_ID_CHARS_MAX,
    ),
]
EventId = Annotated[int, Meta(ge=0, le=SEQ_MAX)]
ContentId = Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]
PointText = Annotated[
    str,
    Meta(
        pattern=f"^({SEQ_PATTERN}|{TIME_PATTERN}|sha256:[0-9a-f]{{64}})$",
        description="At or before this event id or RFC 3339 time, or at this head; by default now.",
    ),
]
Value = Annotated[Raw, Meta(description="Any value, as canonical JSON.")]
ObjectValue = Annotated[Raw, Meta(extra_json_schema={"type": "object"})]
"""An object, as canonical JSON."""


# Sessions


class SessionsQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a list of sessions."""

    prefix: Annotated[
        str,
        Meta(max_length=limits.SESSION_ID_CHARS_MAX, description="Only ids with this prefix."),
    ] = ""
    status: Annotated[
        str | UnsetType,
        Meta(description="Only sessions with this status; empty for those without one."),
    ] = UNSET
    where: Annotated[
        str | UnsetType,
        Meta(description="A filter as JSON, on the fields of the session and of its record."),
    ] = UNSET
    kind: Annotated[
        str | UnsetType, Meta(description="Only sessions that were created with this `kind`.")
    ] = UNSET
    since: Annotated[
        Annotated[str, Meta(pattern=f"^{TIME_PATTERN}$")] | UnsetType,
        Meta(description="Only sessions with an event at or after this RFC 3339 time."),
    ] = UNSET
    after: Annotated[
        SessionId | UnsetType, Meta(description="Only sessions that are listed after this one.")
    ] = UNSET
    after_updated_at: Annotated[
        Annotated[str, Meta(pattern=f"^{TIME_PATTERN}$")] | UnsetType,
        Meta(description="Its `updated_at` when it was listed, in the order of updates."),
    ] = UNSET
    order: Annotated[
        Literal["created", "-created", "updated", "-updated"],
        Meta(
            description="By creation or by the newest event, oldest or newest first. An index"
            " serves `status`, `kind` and `since` in the order of updates."
        ),
    ] = "created"
    deleted: Annotated[Literal["false", "true"], Meta(description="Include deleted sessions.")] = (
        "false"
    )
    at: StoreTime | UnsetType = UNSET


class SessionRecord(Struct, kw_only=True, frozen=True):
    """A session as a list shows it."""

    id: str
    created_at: str
    updated_at: str
    """Time of the newest event."""
    events: EventId
    """Id of the newest event; the ETag."""
    status: str | None
    """`running`, `stop-requested`, `stopped`, `error`, or None before `session/started`."""
    turn_status: str | None = None
    """Status of the newest turn; `waiting` if it waits for a person, None without a turn."""
    kind: str | None = None
    """The `kind` that it was created with, if it is text."""
    deleted_at: str | None = None
    """Time of its deletion; in a list of the past also if that was later."""


class SessionPage(Page, kw_only=True, frozen=True):
    """A page of sessions. With a filter, a page may be short, or empty,
    and still have a next one.
    """

    items: list[SessionRecord]


class EventTagHeaders(Struct, kw_only=True, frozen=True, rename=header_name):
    """Headers of a response about one state."""

    etag: str | UnsetType = UNSET
    cache_control: str | UnsetType = UNSET
    idempotency_replayed: Annotated[
        str | UnsetType, Meta(description="`true` if the request was repeated.")
    ] = UNSET


class ForkRequest(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Fork point of a new session, and its fields, such as its `id`."""

    session: dict[str, Any] = {}
    at: PointText | EventId | None = None


# Events


class EventsQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the events of a session."""

    after: Annotated[EventId, Meta(description="Only events after this one.")] = 0
    until: Annotated[
        EventId | UnsetType, Meta(description="Only events up to this one, inclusive.")
    ] = UNSET
    key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=limits.SESSION_KEY_CHARS_MAX)] | UnsetType,
        Meta(description="Only events of the request with this key in its body."),
    ] = UNSET


class EventRecord(Struct, kw_only=True, frozen=True):
    """An event of a session."""

    session: str
    id: EventId
    type: str
    at: str
    entity_id: EventId | None
    """Id of the message, turn, step or eval that the event is about."""
    key: str | None
    """Key of the request that appended it, if that had one in its body."""
    position: EventId
    """Position among the events of all sessions."""
    digest: str
    """Digest of this event and all earlier ones of its session, in hexadecimal digits."""
    data: ObjectValue
    """Fields of the event, besides its type."""


class EventPage(Page, kw_only=True, frozen=True):
    """A page of events, oldest first."""

    items: list[EventRecord]


class AppendRequest(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Events to append together: each has a `type` and the fields of that type.

    `key` is stored with the events and identifies the request within the session for ever; an
    Idempotency-Key is not stored with them, and expires after seven days.
    """

    events: Annotated[list[dict[str, Any]], Meta(max_length=limits.SESSION_BATCH_EVENTS_MAX)]
    key: Annotated[str, Meta(min_length=1, max_length=limits.SESSION_KEY_CHARS_MAX)] | None = None


class EpochHeaders(IdempotencyHeaders, kw_only=True, frozen=True, rename=header_name):
    """Headers of a write to a session."""

    fourfold_epoch: Annotated[
        str | UnsetType,
        Meta(description="Epoch of the client's lease: the request is refused if it is lost."),
    ] = UNSET
    fourfold_lease: Annotated[
        str | UnsetType,
        Meta(description="Session whose lease it is, by default that of the path."),
    ] = UNSET


class AppendedEvents(Struct, kw_only=True, frozen=True):
    """Events with the ids, times and digests that they were given."""

    events: list[EventRecord]


class EventAppendHeaders(EpochHeaders, kw_only=True, frozen=True, rename=header_name):
    """Headers of an append."""

    if_match: Annotated[
        str | UnsetType,
        Meta(description="Id of the newest event, in quotes: the append is refused if it is not."),
    ] = UNSET


# Leases


Epoch = Annotated[int, Meta(ge=1, le=SEQ_MAX)]
LeaseSeconds = Annotated[float, Meta(gt=0, le=86_400)]


class LeaseRecord(Struct, kw_only=True, frozen=True):
    """The right of one worker to write a session."""

    session: str
    epoch: Epoch
    """Number to send with each write, as Fourfold-Epoch."""
    holder: str
    expires_at: str
    """Time from which another worker may claim the session."""


class ResumptionRecord(Struct, kw_only=True, frozen=True):
    """A claim of a session while a turn was running: the worker of the turn had stopped."""

    after: Annotated[int, Meta(ge=0, le=SEQ_MAX)]
    """Newest event at the claim; later ones are of the new holder."""
    epoch: Epoch
    holder: str
    at: str
    """Time of the claim."""


class SessionLease(Struct, kw_only=True, frozen=True):
    """The newest lease of a session, expired or not; None if there is none, or it was released."""

    lease: LeaseRecord | None
    resumptions: list[ResumptionRecord] = []
    """Claims while a turn was running, oldest first; at most 100."""


class LeasePage(Page, kw_only=True, frozen=True):
    """A page of leases in the order of session ids."""

    items: list[LeaseRecord]


class LeasesQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a list of leases."""

    prefix: Annotated[
        str,
        Meta(max_length=limits.SESSION_ID_CHARS_MAX, description="Only ids with this prefix."),
    ] = ""
    after: Annotated[
        SessionId | UnsetType, Meta(description="Only leases of sessions after this one.")
    ] = UNSET


class RetentionQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a retention."""

    prefix: Annotated[
        str,
        Meta(max_length=limits.SESSION_ID_CHARS_MAX, description="Only ids with this prefix."),
    ] = ""


class RetentionRequest(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A retention: which sessions to keep, and where it continues."""

    max_age_s: Annotated[float, Meta(ge=0)] | None = None
    """Keep sessions with an event in these last seconds."""
    keep_latest: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    """Keep so many sessions with the newest events."""
    dry_run: bool = False
    """Delete nothing."""
    after: Annotated[str, Meta(max_length=100)] | None = None
    """The `next_after` of the response before."""


class RetentionRecord(Struct, kw_only=True, frozen=True):
    """Sessions that a part of a retention deleted, or would delete."""

    deleted: int
    kept: int
    """Sessions that are old enough, but needed or in use."""
    sessions: list[str]
    """Ids of deleted sessions, at most 1,000."""
    next_after: str | None = None
    """Where the next request continues; null at the end."""


class PolicyRequest(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Limits of a retention policy: at least one of them."""

    max_age_s: Annotated[float, Meta(ge=0)] | None = None
    """Keep sessions with an event in these last seconds."""
    keep_latest: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    """Keep so many sessions with the newest events."""


class PolicyRecord(Struct, kw_only=True, frozen=True):
    """A stored retention policy of the sessions under a prefix."""

    prefix: str
    max_age_s: float | None
    keep_latest: int | None
    updated_at: str


class PolicyList(Struct, kw_only=True, frozen=True):
    """Stored retention policies in the order of their prefixes."""

    items: list[PolicyRecord]


class ClaimRequest(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A claim: a name of the worker, and the time until another one may claim the session."""

    holder: Annotated[str, Meta(min_length=1, max_length=limits.SESSION_ID_CHARS_MAX)]
    ttl_s: LeaseSeconds = limits.SESSION_LEASE_S
    steal: bool = False
    """Claim even if a lease is in force."""


class RenewRequest(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A renewal of the lease with this epoch."""

    epoch: Epoch
    ttl_s: LeaseSeconds = limits.SESSION_LEASE_S


class ReleaseQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The epoch of the lease to release."""

    epoch: Epoch


# Views


class AtQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Point of a read."""

    at: PointText | UnsetType = UNSET


class TranscriptQuery(AtQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a transcript."""

    format: Annotated[
        Literal["entries", "markdown", "html", "openai"],
        Meta(
            description="NDJSON with a header, the entries and an end; or Markdown; or a page; or "
            "the messages as JSON in the form of OpenAI's chat completions."
        ),
    ] = "entries"
    limit: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=limits.PAGE_ITEMS_MAX,
                description="Maximum number of entries, the newest; by default all.",
            ),
        ]
        | UnsetType
    ) = UNSET
    whole: Annotated[
        Literal["false", "true"], Meta(description="Include what is before the last compaction.")
    ] = "false"
    full: Annotated[Literal["false", "true"], Meta(description="Include payloads over 1 MiB.")] = (
        "false"
    )


class TranscriptEnd(Struct, kw_only=True, frozen=True):
    """The last line of the entries of a transcript."""

    entries: int
    complete: bool
    """False if earlier entries were left out by `limit`."""


class EventCounters(Struct, kw_only=True, frozen=True):
    """Newest ids of events, messages, turns, steps and evals."""

    event: EventId
    message: EventId
    turn: EventId
    step: EventId
    eval: EventId


class ViewRecord(Struct, kw_only=True, frozen=True):
    """A session at one event: the fold of its events up to there, without the lists."""

    id: str
    created_at: str
    event_id: EventId
    """The event; the ETag."""
    session: Value
    """Fields of the session; None before `session/started`."""
    counters: EventCounters
    current_head: ContentId | None
    covered: EventId
    """Last event that the current head covers; 0 without a head."""
    vars_ref: Value
    compact_from_event_id: EventId | None
    kept_after: EventId
    """Id of the last message before the compaction: those after it are the transcript that counts.
    """
    error: Value
    digest: str


class EntitiesQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a list of entities: messages, turns, steps or evals."""

    at: PointText | UnsetType = UNSET
    after: Annotated[EventId, Meta(description="Only those with ids after this one.")] = 0


class EntityPage(Page, kw_only=True, frozen=True):
    """A page of entities by id, each as its last event up to `event_id` left it."""

    items: list[ObjectValue]
    event_id: EventId
    """Event that all pages show."""


# Search


class SessionSearchQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a search of one session."""

    q: Annotated[
        str,
        Meta(
            description='Words, "phrases", prefixes (pre*) and words that must not occur (-word).'
        ),
    ]
    kind: Annotated[
        list[Literal["message", "call", "turn", "summary", "error"]],
        Meta(description="Only events of this kind; repeatable."),
    ] = field(default_factory=list)
    order: Annotated[Literal["score", "newest"], Meta(description="By relevance, or by age.")] = (
        "score"
    )
    at: PointText | UnsetType = UNSET


class SessionsSearchQuery(SessionSearchQuery, kw_only=True, frozen=True):
    """Parameters of a search of sessions."""

    prefix: Annotated[
        str,
        Meta(max_length=limits.SESSION_ID_CHARS_MAX, description="Only ids with this prefix."),
    ] = ""
    at: StoreTime | UnsetType = UNSET


class SessionHitRecord(Struct, kw_only=True, frozen=True):
    """An event with the words of a search, and a part of its text around the first match."""

    session: SessionId
    event: EventId
    at: str
    kind: Literal["message", "call", "turn", "summary", "error"]
    title: str
    """The role of a message; what happened otherwise."""
    score: float | None
    """Relevance by BM25; null for an event that is not in the index yet."""
    text: str
    highlights: list[tuple[int, int]]
    """Starts and ends of the matches in `text`, in characters."""


class SessionHitPageRecord(Page, kw_only=True, frozen=True):
    """A page of hits."""

    items: list[SessionHitRecord]


# Heads and lineage


class HeadsQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the heads of a session."""

    at: PointText | UnsetType = UNSET


class HeadRecord(Struct, kw_only=True, frozen=True):
    """An immutable point from which a session can be continued; its id is the hash of the rest."""

    id: ContentId
    session: str
    basis: ContentId | None
    event_range: Annotated[list[EventId], Meta(min_length=2, max_length=2)]
    """First and last event that it covers."""
    events_digest: ContentId
    kind: str
    turn_id: EventId | None
    vars_ref: Value
    final_ref: Value
    compact_from_event_id: EventId | None
    extra: ObjectValue
    version: Count


class HeadPage(Page, kw_only=True, frozen=True):
    """A page of heads, oldest first."""

    items: list[HeadRecord]
    event_id: EventId
    """Event that all pages show."""
    current_head: ContentId | None
    """The newest of them; the ETag, which is `"none"` without a head."""


class HeadRequest(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A head to publish: its fields, such as `kind` and `turn_id`, and the events that it covers.

    `events` are appended first, in the same transaction.
    """

    head: dict[str, Any] = {}
    to_event_id: EventId | None = None
    events: Annotated[list[dict[str, Any]], Meta(max_length=limits.SESSION_BATCH_EVENTS_MAX)] = []
    key: Annotated[str, Meta(min_length=1, max_length=limits.SESSION_KEY_CHARS_MAX)] | None = None


class HeadHeaders(EpochHeaders, kw_only=True, frozen=True, rename=header_name):
    """Headers of a request to publish a head."""

    if_match: Annotated[
        str | UnsetType,
        Meta(
            description="Id of the current head in quotes, or `none` in quotes: the head is not "
            "published if another one is current."
        ),
    ] = UNSET


class EdgeRecord(Struct, kw_only=True, frozen=True):
    """A lineage edge of a session; its id is the hash of the rest."""

    id: ContentId
    type: str
    from_session: str
    to_session: str
    from_head: ContentId | None
    to_head: ContentId
    extra: ObjectValue
    version: Count


class BundleCounts(Struct, kw_only=True, frozen=True):
    """Counts of the contents of a bundle."""

    sessions: Count
    events: Count
    payloads: Count


class HeadIds(Struct, kw_only=True, frozen=True):
    """Ids of heads, nearest first."""

    items: list[str]


class LineageQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a lineage graph."""

    limit: Annotated[
        int,
        Meta(ge=1, le=limits.PAGE_ITEMS_MAX, description="Maximum number of heads and edges."),
    ] = limits.PAGE_ITEMS_MAX
    at: StoreTime | UnsetType = UNSET


class LineageRecord(Struct, kw_only=True, frozen=True):
    """Heads and edges of all sessions connected to one."""

    heads: list[HeadRecord]
    edges: list[EdgeRecord]
    complete: bool
    """False if some were left out."""


class HeadDifference(Struct, kw_only=True, frozen=True):
    """Differences between the heads `one` and `other`."""

    one: ContentId
    other: ContentId
    common: ContentId | None
    """Nearest head from which both derive."""
    added: list[str]
    """Names of variables that only `other` has."""
    removed: list[str]
    changed: list[str]
    new_messages: list[ObjectValue]
    """Messages of the transcript of `other` that `one` does not have, at most 1000."""
    gone_messages: list[ObjectValue]


# Payloads


class PayloadQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a new payload."""

    kind: Annotated[
        str,
        Meta(
            pattern="^[a-z][a-z0-9]*(-[a-z0-9]+)*$",
            max_length=limits.PAYLOAD_KIND_CHARS_MAX,
            description="What the payload is for.",
        ),
    ] = "message"


class PayloadRecord(Struct, kw_only=True, frozen=True):
    """A reference to a payload. In a value it is `{"~ref": {"id", "kind", "size"}}`."""

    id: ContentId
    kind: str
    size: Count


# Live


class TransientItems(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Items, such as tokens, for the current readers of a session; they are not stored."""

    items: Annotated[list[Any], Meta(min_length=1, max_length=limits.TRANSIENT_ITEMS_MAX)]


class LiveQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a feed of events."""

    after: Annotated[
        EventId | UnsetType, Meta(description="Events after this one; by default new ones only.")
    ] = UNSET


class LiveSessionsQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a feed of the events of all sessions."""

    prefix: Annotated[str, Meta(description="Only sessions whose ids have this prefix.")] = ""
    after: Annotated[
        EventId | UnsetType,
        Meta(description="Events after this position; by default new ones only."),
    ] = UNSET


class TransientEvent(Struct, kw_only=True, frozen=True):
    """Data of `event: transient`: an item that is not stored, after the event `after`."""

    session: str
    item: Value
    after: EventId


class SessionGap(Struct, kw_only=True, frozen=True):
    """Data of `event: gap`: transient items after the event `after` were dropped."""

    after: EventId
    dropped: Count


class SessionEnd(Struct, kw_only=True, frozen=True):
    """Data of `event: end`: the session was deleted."""

    reason: str
