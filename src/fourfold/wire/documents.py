"""Structs of the routes of documents."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from fourfold import limits
from fourfold.wire.fields import SEQ_PATTERN, TIME_PATTERN, Count, StoreTime, header_name
from fourfold.wire.pages import IdempotencyHeaders, Page, PageQuery

SEQ_MAX: Final = 2**63 - 1
"""The greatest integer that SQLite stores."""
AUTHOR_CHARS_MAX: Final = 24
"""Characters of the name of a writer."""
Document = dict[str, Any]
Patches = list[dict[str, Any]]
Op = Literal["set", "patch", "delete"]
Seq = Annotated[int, Meta(ge=0, le=SEQ_MAX)]
EntityId = Annotated[str, Meta(min_length=1, max_length=limits.ENTITY_ID_BYTES_MAX)]
At = Annotated[
    str,
    Meta(
        pattern=f"^({SEQ_PATTERN}|{TIME_PATTERN})$",
        description="State at or before this seq or RFC 3339 time, by default the newest.",
    ),
]
BranchName = Annotated[
    str,
    Meta(
        max_length=limits.BRANCH_NAME_CHARS_MAX,
        description="Branch, by default the default branch.",
    ),
]


# Spaces


class SpaceRow(Struct, kw_only=True, frozen=True):
    """A space in a list."""

    did: str
    size_bytes: Count | None
    """Size of its file; None at a time before its last change, for which it is not stored."""
    changed_at_ms: Count
    """Time of the last change of its file; at an earlier time, of the last commit before."""


class SpacePage(Page, kw_only=True, frozen=True):
    """A page of spaces, in the order of their DIDs. At a time in the past, a page may be short, or
    empty, and still have a next one.
    """

    items: list[SpaceRow]


class SpacesQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a list of spaces."""

    prefix: Annotated[str, Meta(description="Only DIDs with this prefix.")] = ""
    at: StoreTime | UnsetType = UNSET


class SpaceQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Point in history of a space or a branch."""

    at: At | UnsetType = UNSET


class NewSpaceQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a new space."""

    history: Annotated[
        Literal["revisions", "facts"] | UnsetType,
        Meta(description="Kind of history of a new space, by default `revisions`."),
    ] = UNSET


class SpaceInfo(Struct, kw_only=True, frozen=True):
    """A space."""

    did: str
    history: Literal["revisions", "facts"]
    seq: Seq
    """Newest seq."""
    durable_seq: Seq
    """Newest seq that survives a power failure."""
    horizon: Seq
    """Oldest seq from which every state is readable."""
    branches: Count
    size_bytes: Count | None
    """Size of its file; None in the past, for which it is not stored."""


# Documents


class PointQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Branch and point in history of a read."""

    branch: BranchName = ""
    at: At | UnsetType = UNSET


class BranchQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Branch of a write."""

    branch: BranchName = ""


class DocumentState(Struct, kw_only=True, frozen=True):
    """State of an entity. A deleted one has the operation `delete` and no document."""

    id: str
    seq: Seq
    """Seq of the last operation; the ETag."""
    op: Op
    document: Document | None


class DocumentReadHeaders(Struct, kw_only=True, frozen=True, rename=header_name):
    """Headers of a read of one document."""

    if_none_match: Annotated[
        str | UnsetType, Meta(description="Do not send the document if it has this ETag.")
    ] = UNSET


class WriteHeaders(IdempotencyHeaders, kw_only=True, frozen=True, rename=header_name):
    """Headers of a write of one document."""

    if_match: Annotated[
        str | UnsetType,
        Meta(description="ETag that the document must have; * if it must exist."),
    ] = UNSET
    if_none_match: Annotated[
        str | UnsetType, Meta(description="* if the document must not exist.")
    ] = UNSET


class VersionHeaders(Struct, kw_only=True, frozen=True, rename=header_name):
    """Headers of a response about one version."""

    etag: str | UnsetType = UNSET
    cache_control: str | UnsetType = UNSET


class CommitInfo(Struct, kw_only=True, frozen=True):
    """A committed transaction.

    `replayed` is True if the same request was committed before, and nothing was written now.
    """

    seq: Seq
    branch: str
    session: str
    local_seq: Seq
    replayed: bool


# Transactions


class SetOperation(Struct, kw_only=True, frozen=True, tag_field="op", tag="set"):
    """Replace the document of an entity."""

    id: EntityId
    value: Document


class PatchOperation(Struct, kw_only=True, frozen=True, tag_field="op", tag="patch"):
    """Apply patches to the document of an entity; a missing one starts as `{}`."""

    id: EntityId
    patches: Patches


class DeleteOperation(Struct, kw_only=True, frozen=True, tag_field="op", tag="delete"):
    """Delete an entity."""

    id: EntityId


Operation = SetOperation | PatchOperation | DeleteOperation


class ConfirmedReadInfo(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A path of an entity as it was read at `seq` (0: never written); with `shape`, its keys."""

    id: EntityId
    seq: Seq
    path: list[str] = []
    branch: str | None = None
    shape: bool = False


class PendingReadInfo(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A path of an entity as it was read through unconfirmed commits of the session."""

    id: EntityId
    local_seqs: list[Seq]
    basis_seq: Seq
    path: list[str] = []
    shape: bool = False


class ReadSet(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Everything that a transaction has read: it is refused (409) if that has changed."""

    confirmed: list[ConfirmedReadInfo] = []
    pending: list[PendingReadInfo] = []


class CommittedCondition(Struct, frozen=True, tag_field="kind", tag="committed"):
    """An earlier request of the session was committed."""

    local_seq: Seq


class InOrderCondition(Struct, frozen=True, tag_field="kind", tag="in_order"):
    """No later request of the session was committed."""


class AbsentCondition(Struct, frozen=True, tag_field="kind", tag="absent"):
    """The entity was never written."""

    id: EntityId


class ExistsCondition(Struct, frozen=True, tag_field="kind", tag="exists"):
    """The entity has a document."""

    id: EntityId


class NotExistsCondition(Struct, frozen=True, tag_field="kind", tag="not_exists"):
    """The entity has no document: it was never written, or is deleted."""

    id: EntityId


class SeqCondition(Struct, frozen=True, tag_field="kind", tag="seq"):
    """The last operation on the entity has this seq; 0 if it was never written."""

    id: EntityId
    seq: Seq


Condition = (
    CommittedCondition
    | InOrderCondition
    | AbsentCondition
    | ExistsCondition
    | NotExistsCondition
    | SeqCondition
)


class Transaction(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Operations that are committed together, under one seq, or not at all.

    `session` and `local_seq` identify the request instead of an Idempotency-Key: repeating it
    returns the same commit.
    """

    operations: Annotated[list[Operation], Meta(min_length=1)]
    branch: BranchName = ""
    reads: ReadSet | None = None
    preconditions: list[Condition] = []
    session: str | None = None
    local_seq: Seq | None = None


# Reads of several entities, and of history


class EntityIds(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Entities to read."""

    ids: Annotated[list[EntityId], Meta(max_length=limits.PAGE_ITEMS_MAX)]


class DocumentStates(Struct, kw_only=True, frozen=True):
    """States of several entities at one seq; None for an entity that was never written."""

    seq: Seq
    states: dict[str, DocumentState | None]


class IdsQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a list of ids."""

    prefix: Annotated[str, Meta(description="Only ids with this prefix.")] = ""
    after: Annotated[str, Meta(description="Only ids that sort after this one.")] = ""
    branch: BranchName = ""
    at: At | UnsetType = UNSET


class IdPage(Page, kw_only=True, frozen=True):
    """A page of the ids of existing entities, sorted."""

    items: list[str]
    seq: Seq
    """Seq that all pages show."""


class DocumentSearchQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a full-text search."""

    q: Annotated[
        str,
        Meta(
            description='Words, "phrases", prefixes (pre*) and words that must not occur (-word).'
        ),
    ] = ""
    index: Annotated[
        str | UnsetType, Meta(description="Name of the text index; needed if several fit.")
    ] = UNSET
    path: Annotated[list[str], Meta(description="Only this path of the index; repeatable.")] = (
        field(default_factory=list)
    )
    order: Annotated[
        Literal["score", "newest"], Meta(description="By relevance, or by the age of the text.")
    ] = "score"
    branch: BranchName = ""
    at: At | UnsetType = UNSET


class VectorSearch(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A search by words, for the nearest vectors, or for both, among documents that match."""

    q: Annotated[
        str | UnsetType,
        Meta(
            description='Words, "phrases", prefixes (pre*) and words that must not occur (-word).'
        ),
    ] = UNSET
    vector: Annotated[
        Annotated[list[float], Meta(min_length=1, max_length=8192)] | UnsetType,
        Meta(description="Numbers, not all of them 0."),
    ] = UNSET
    where: Annotated[
        dict[str, Any] | UnsetType, Meta(description="Only documents that match this filter.")
    ] = UNSET
    path: Annotated[list[str], Meta(description="Only these paths of the text index.")] = field(
        default_factory=list
    )
    order: Annotated[
        Literal["score", "newest"], Meta(description="By relevance, or by the age of the text.")
    ] = "score"
    index: Annotated[
        str | UnsetType, Meta(description="Name of an index; needed if several fit.")
    ] = UNSET
    limit: Annotated[
        int, Meta(ge=1, le=limits.PAGE_ITEMS_MAX, description="Maximum number of items.")
    ] = limits.PAGE_ITEMS
    cursor: Annotated[
        Annotated[str, Meta(max_length=8192)] | UnsetType,
        Meta(description="The next_cursor of the page before, with all else unchanged."),
    ] = UNSET
    branch: BranchName = ""
    at: At | UnsetType = UNSET


class SnippetRecord(Struct, kw_only=True, frozen=True):
    """A part of a text, and the starts and ends of the matches in it."""

    path: str
    text: str
    highlights: list[tuple[int, int]]


class HitRecord(Struct, kw_only=True, frozen=True):
    """A document with the words of a search, or with a near vector."""

    id: str
    document: Document
    seq: Seq
    score: float
    snippets: list[SnippetRecord]


class HitPage(Page, kw_only=True, frozen=True):
    """A page of hits, with the number of all hits and the index that has them."""

    items: list[HitRecord]
    total: Count
    index: str
    seq: Seq
    """Seq that all pages show."""


class HistoryQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the history of an entity."""

    branch: BranchName = ""
    at: At | UnsetType = UNSET
    after: Annotated[Seq, Meta(description="Only revisions after this seq.")] = 0


class RevisionRow(Struct, kw_only=True, frozen=True):
    """An operation on an entity; `data` is the document, the patches, or None."""

    seq: Seq
    op_index: Count
    branch: str
    op: Op
    data: Any
    created_at: str


class HistoryPage(Page, kw_only=True, frozen=True):
    """A page of the revisions of an entity, oldest first."""

    items: list[RevisionRow]
    seq: Seq
    """Seq that all pages show."""


class LogQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the log of a space."""

    at: At | UnsetType = UNSET
    after: Annotated[Seq, Meta(description="Only commits after this seq.")] = 0
    branch: Annotated[
        Annotated[str, Meta(max_length=limits.BRANCH_NAME_CHARS_MAX)] | UnsetType,
        Meta(description="Only commits on this branch; by default those of all branches."),
    ] = UNSET


class LogRow(Struct, kw_only=True, frozen=True):
    """A commit in the log: the request as it was sent, and how it was resolved."""

    seq: Seq
    branch: str
    session: str
    local_seq: Seq
    created_at: str
    original: dict[str, Any]
    resolution: dict[str, Any]


def author_of(session: str) -> str:
    """Return the writer of a commit in few characters, by its session.

    That is `local` for a program with the store, the id of the key of a request with an
    Idempotency-Key (`http` without one), and otherwise the session that the writer chose.
    """
    kind, _, name = session.partition(":")
    if kind == "local":
        return kind
    if kind == "idem":
        return name.partition(":")[0] or "http"
    return session if len(session) <= AUTHOR_CHARS_MAX else f"{session[: AUTHOR_CHARS_MAX - 1]}…"


class LogPage(Page, kw_only=True, frozen=True):
    """A page of the log, oldest first."""

    items: list[LogRow]
    seq: Seq
    """Seq that all pages show."""


# Differences, branches and merges


class Point(Struct, frozen=True):
    """A branch at a seq."""

    branch: str
    seq: Seq


class DiffQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a difference: from `a` to `b`."""

    branch: BranchName = ""
    a: Annotated[At | UnsetType, Meta(description="The first point, by default now.")] = UNSET
    b: Annotated[At | UnsetType, Meta(description="The second point, by default now.")] = UNSET
    branch_b: Annotated[
        Annotated[str, Meta(max_length=limits.BRANCH_NAME_CHARS_MAX)] | UnsetType,
        Meta(description="Branch of the second point, if it is another one."),
    ] = UNSET
    id: Annotated[list[EntityId], Meta(description="Only these entities; repeatable.")] = field(
        default_factory=list
    )


class ChangeRow(Struct, kw_only=True, frozen=True):
    """An entity that differs. `patches` turn the first document into the second, if both exist."""

    id: str
    changed_on: Literal["a", "b", "both"]
    """Side that changed since the common base."""
    a: DocumentState | None
    b: DocumentState | None
    patches: Patches | None


class DiffPage(Page, kw_only=True, frozen=True):
    """A page of the entities that differ, sorted by id."""

    items: list[ChangeRow]
    a: Point
    b: Point
    base: Point


class BranchInfo(Struct, kw_only=True, frozen=True):
    """A branch; the default branch has the name "" and no parent."""

    name: str
    parent: str | None
    fork_seq: Seq | None
    created_seq: Seq
    head_seq: Seq
    status: Literal["active", "deleted"]
    created_at: str
    ahead: Count | None
    """Commits with changes that its parent has not, up to 1,000.

    None for the default branch, and in the responses to writes, which repeat what they said.
    """
    missing: Count | None
    """Commits with changes of its parent that it has not, up to 1,000; None as above."""


class BranchesQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a list of branches."""

    deleted: Annotated[Literal["false", "true"], Meta(description="Include deleted branches.")] = (
        "false"
    )
    at: At | UnsetType = UNSET


class BranchPage(Page, kw_only=True, frozen=True):
    """A page of branches, in the order of creation."""

    items: list[BranchInfo]


class NewBranch(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A branch to create, which shows `parent` at `at`, by default now."""

    name: Annotated[
        str,
        Meta(
            pattern="^[A-Za-z0-9][A-Za-z0-9._/-]*$",
            min_length=1,
            max_length=limits.BRANCH_NAME_CHARS_MAX,
        ),
    ]
    parent: BranchName = ""
    at: At | Seq | None = None


class Resolution(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A decision about a conflict of an entity, or of one `path` in it.

    Either a `choice` (`ours` is the target, `theirs` the source, `delete` removes it) or a `value`.
    """

    id: EntityId
    path: str | UnsetType = UNSET
    choice: Literal["ours", "theirs", "delete"] | UnsetType = UNSET
    value: Any = UNSET


class Merge(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A merge of `source` into `target`. With `dry_run` nothing is written."""

    source: BranchName
    target: BranchName = ""
    resolutions: list[Resolution] = []
    field_level: bool = True
    dry_run: bool = False


class MergeHeaders(IdempotencyHeaders, kw_only=True, frozen=True, rename=header_name):
    """Headers of a merge."""

    if_match: Annotated[
        str | UnsetType, Meta(description="ETag of the dry run: merge exactly what it showed.")
    ] = UNSET


class ConflictInfo(Struct, kw_only=True, frozen=True):
    """An entity that both branches changed differently, and where; the path "" is all of it."""

    id: str
    paths: list[str]
    base: DocumentState | None
    source: DocumentState | None
    target: DocumentState | None


class MergeOutcome(Struct, kw_only=True, frozen=True):
    """Result of a merge or, in a dry run, its preview; there is no commit if nothing was merged."""

    source: Point
    target: Point
    base: Point
    operations: list[Operation]
    conflicts: list[ConflictInfo]
    commit: CommitInfo | None


# Live commits


class WatchQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a feed of commits."""

    branch: BranchName = ""
    after: Annotated[
        Annotated[str, Meta(pattern=f"^({SEQ_PATTERN})$")] | UnsetType,
        Meta(description="Only commits after this seq, by default the newest."),
    ] = UNSET
    id: Annotated[
        list[EntityId], Meta(description="Only commits that change these entities; repeatable.")
    ] = field(default_factory=list)
    where: Annotated[
        str | UnsetType,
        Meta(
            description="A filter as JSON: events `match` with the documents that enter it, "
            "change in it, or leave it."
        ),
    ] = UNSET


class ChangedEntity(Struct, kw_only=True, frozen=True):
    """An operation of a commit."""

    id: str
    op_index: Count
    op: Op
    data: Any


class CommitEvent(Struct, kw_only=True, frozen=True):
    """Event `commit`: a commit, reduced to the entities that the feed is about."""

    seq: Seq
    branch: str
    session: str
    local_seq: Seq
    revisions: list[ChangedEntity]


class ChangedMatch(Struct, kw_only=True, frozen=True):
    """A document that entered a filter, changed in it, or left it."""

    kind: Literal["enter", "change", "leave"]
    id: str
    op: Op
    document: Annotated[
        dict[str, Any] | None, Meta(description="After the commit; null if it is deleted.")
    ]


class MatchEvent(Struct, kw_only=True, frozen=True):
    """Event `match`: a commit, reduced to the documents that match a filter before or after it."""

    seq: Seq
    branch: str
    session: str
    local_seq: Seq
    changes: list[ChangedMatch]


class GapEvent(Struct, kw_only=True, frozen=True):
    """Event `gap`: garbage collection removed commits after `after`, up to `horizon`."""

    after: Seq
    horizon: Seq


class EndEvent(Struct, kw_only=True, frozen=True):
    """Event `end`: no more events will come."""

    reason: str


# Blobs


class BlobInfo(Struct, kw_only=True, frozen=True):
    """A blob without its bytes."""

    hash: str
    size_bytes: Count
    content_type: str | None


class BlobPage(Page, kw_only=True, frozen=True):
    """A page of blobs, in the order of their hashes."""

    items: list[BlobInfo]


class BlobHeaders(Struct, kw_only=True, frozen=True, rename=header_name):
    """Headers of a read of a blob."""

    range: Annotated[str | UnsetType, Meta(description="One range, such as bytes=0-99.")] = UNSET
    if_none_match: str | UnsetType = UNSET
    if_range: str | UnsetType = UNSET


class BlobContentHeaders(VersionHeaders, kw_only=True, frozen=True, rename=header_name):
    """Headers of a response with a blob, or with a part of it."""

    accept_ranges: str | UnsetType = UNSET
    content_range: str | UnsetType = UNSET
