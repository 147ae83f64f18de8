"""Structs of the routes of sync: what a node has, and answers to packages.

Packages and messages of a reconciliation are bytes, as their authors signed them or as
`fourfold.models.graphs.sync` encodes them.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from fourfold import limits
from fourfold.wire.fields import Count, header_name
from fourfold.wire.graphs import Integer

SYNC_PULL_IDS_MAX = 1_000
"""Ids of a request for entries."""
SYNC_PACKAGE_BYTES_MAX = 4 * limits.MIB
SYNC_LOGS_MAX = 1_000
"""Logs whose tips are listed; nodes with more compare them by ranges."""
EntryPrefix = Annotated[str, Meta(pattern="^([0-9a-f]{24}|[0-9a-f]{64})$")]


class LogTipsInfo(Struct, frozen=True, forbid_unknown_fields=True):
    """The last entries of one log, each as its seq and its id; several if the log is forked."""

    author: str
    incarnation: str
    tips: list[tuple[Integer, str]]


class TipsInfo(Struct, frozen=True, forbid_unknown_fields=True):
    """Tips of each log that a node has of a domain."""

    format: Integer
    domain: str
    logs: Annotated[list[LogTipsInfo], Meta(max_length=SYNC_LOGS_MAX)]


class HeadsInfo(Struct, kw_only=True, frozen=True):
    """Progress of a node in a domain."""

    domain: str
    entries: Count
    """Number of its entries."""
    fingerprint: str
    """Equal on two nodes if they have the same entries."""
    tips: TipsInfo | None
    """None if the domain has too many logs."""


class HeadsHeaders(Struct, kw_only=True, frozen=True, rename=header_name):
    """Headers of a response with heads: the ETag is the fingerprint."""

    etag: str | UnsetType = UNSET


class HeadsReadHeaders(Struct, kw_only=True, frozen=True, rename=header_name):
    """Headers of a request for heads."""

    if_none_match: Annotated[
        str | UnsetType, Meta(description="Answer 304 if the fingerprint is this one.")
    ] = UNSET


class PullRequest(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The entries that a peer lacks: by its tips, or by their ids."""

    tips: Annotated[
        TipsInfo | UnsetType,
        Meta(description="What the peer has; by default what it confirmed last."),
    ] = UNSET
    ids: Annotated[
        list[EntryPrefix],
        Meta(
            max_length=SYNC_PULL_IDS_MAX,
            description="Only these entries, by their ids or the first 24 digits of them.",
        ),
    ] = field(default_factory=list)
    after: Annotated[
        Integer, Meta(description="Continue after the Sync-Position of the package before.")
    ] = 0
    max_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=SYNC_PACKAGE_BYTES_MAX,
            description="Size of the package, unless one envelope is larger.",
        ),
    ] = limits.MIB


class PackageHeaders(Struct, kw_only=True, frozen=True, rename=header_name):
    """Headers of a response with a package."""

    sync_position: str | UnsetType = UNSET
    """Place of its last entry; pass it as `after`."""
    sync_complete: str | UnsetType = UNSET
    """`false` if more entries follow."""
    sync_envelopes: str | UnsetType = UNSET
    """Number of its envelopes."""


class RefusedEnvelope(Struct, kw_only=True, frozen=True):
    """An envelope of a package that was refused."""

    envelope: Count
    """Its place in the package, from 0."""
    kind: str
    message: str
    retryable: bool
    author: str | None
    """None, as seq and domain, if its signature was not verified."""
    seq: int | None
    domain: str | None
    entry: str
    """Its id in hex."""


class StoredRefusalInfo(Struct, kw_only=True, frozen=True):
    """An envelope of the peer that was refused, with the last reason."""

    entry: str
    """Its id in hex."""
    kind: str
    message: str
    retryable: bool
    domain: str | None
    author: str | None
    seq: int | None
    times: Count
    """How often the peer handed it over."""
    first_at: str
    refused_at: str


class RefusalList(Struct, kw_only=True, frozen=True):
    """Envelopes of the peer that were refused, newest first."""

    refusals: list[StoredRefusalInfo]


class IngestInfo(Struct, kw_only=True, frozen=True):
    """The answer to a package: each envelope is accepted or refused alone."""

    accepted: Count
    known: Count
    refused: list[RefusedEnvelope]
    added: int
    """Rows that became visible."""
    parked: int
    """Rows that wait for what they refer to; negative if more were applied than parked."""


class SyncEventsQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the hints."""

    after: Annotated[
        Integer | UnsetType, Meta(description="Start after this event; by default with all heads.")
    ] = UNSET


class HeadsEvent(Struct, kw_only=True, frozen=True):
    """Data of the event `heads`: a domain has other entries than before."""

    domain: str
    entries: Count
    fingerprint: str
