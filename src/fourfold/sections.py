"""The table of settings: each section is a class, each field of it a setting.

The type says what is accepted, the default comes from `limits`, and the sentence is what
`fourfold config` shows and a fresh `fourfold.toml` has beside it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from fourfold import limits

_Count = Annotated[int, Meta(ge=1, le=1_000_000)]
_Bytes = Annotated[int, Meta(ge=limits.KIB, le=1024 * limits.GIB)]
_Seconds = Annotated[float, Meta(ge=0.001, le=86_400.0)]


def _says(description: str, unit: str = "") -> Meta:
    return Meta(description=description, extra={"unit": unit})


class Kernel(Struct, frozen=True):
    readers_max: Annotated[
        int,
        Meta(ge=1, le=1_024),
        _says("Read-only connections that one database keeps at most.", "connections"),
    ] = limits.READERS_MAX
    busy_timeout_ms: Annotated[
        int,
        Meta(ge=0, le=3_600_000),
        _says("How long a connection waits for another one's lock.", "milliseconds"),
    ] = limits.BUSY_TIMEOUT_MS
    transaction_deadline_s: Annotated[
        _Seconds, _says("Time that one transaction may take before it is undone.", "seconds")
    ] = limits.TRANSACTION_DEADLINE_S
    slow_transaction_ms: Annotated[
        int,
        Meta(ge=0, le=3_600_000),
        _says("A transaction that takes longer enters the slow log.", "milliseconds"),
    ] = limits.SLOW_TRANSACTION_MS
    group_requests_max: Annotated[
        _Count, _says("Requests that share one transaction and one fsync at most.", "requests")
    ] = limits.GROUP_REQUESTS_MAX
    group_bytes_max: Annotated[
        _Bytes, _says("Payload of the requests that share one transaction at most.", "bytes")
    ] = limits.GROUP_BYTES_MAX
    queue_requests_max: Annotated[
        _Count, _says("Requests that may wait; the next one is refused as overloaded.", "requests")
    ] = limits.QUEUE_REQUESTS_MAX
    queue_bytes_max: Annotated[
        _Bytes, _says("Payload that may wait; more is refused as overloaded.", "bytes")
    ] = limits.QUEUE_BYTES_MAX
    commit_placement: Annotated[
        Literal["auto", "inline", "thread"],
        _says(
            "Where asyncio callers' commits run: on the event loop, in a thread, "
            "or wherever the measured commit time fits best."
        ),
    ] = "auto"
    checkpoint_bytes: Annotated[
        _Bytes, _says("How large the write-ahead log gets before it is folded back.", "bytes")
    ] = limits.CHECKPOINT_BYTES


class Documents(Struct, frozen=True):
    page_size: Annotated[
        Literal[512, 1024, 2048, 4096, 8192, 16384, 32768, 65536],
        _says("Page size of a new space's database; an existing one keeps its own.", "bytes"),
    ] = limits.DOCUMENTS_PAGE_SIZE


class Graphs(Struct, frozen=True):
    sync_flags: Annotated[
        Literal["changeable", "fixed"],
        _says("Whether the sync flags of a row may be changed after it was written."),
    ] = "changeable"


class Streams(Struct, frozen=True):
    synchronous: Annotated[
        Literal["FULL", "NORMAL"],
        _says(
            "FULL: an acknowledged append survives a power cut. "
            "NORMAL: faster, and a power cut may take the last commits."
        ),
    ] = "FULL"


class Sessions(Struct, frozen=True):
    synchronous: Annotated[
        Literal["FULL", "NORMAL"],
        _says(
            "FULL: an event that was appended survives a power cut. "
            "NORMAL: faster, and a power cut may take the last ones."
        ),
    ] = "FULL"


class Objects(Struct, frozen=True):
    url: Annotated[
        str,
        Meta(min_length=1, max_length=2_048),
        _says(
            "Where objects live: a folder (relative to the store) or an address like s3://bucket."
        ),
    ] = "objects"
    timeout_s: Annotated[
        float,
        Meta(ge=0.1, le=3_600.0),
        _says("Time that one request to the object store may take.", "seconds"),
    ] = limits.OBJECT_TIMEOUT_S
    retries_max: Annotated[
        int,
        Meta(ge=0, le=limits.OBJECT_RETRIES_MAX),
        _says("How often a failed request to the object store is repeated.", "retries"),
    ] = limits.OBJECT_RETRIES_MAX


class Archive(Struct, frozen=True):
    acknowledge: Annotated[
        Literal["committed", "published"],
        _says(
            "When a change of a stream is acknowledged. committed: once it is on this disk. "
            "published: once it is in the object store too."
        ),
    ] = "committed"
    seal_bytes: Annotated[_Bytes, _says("Payload of a stream that makes a segment.", "bytes")] = (
        limits.SEGMENT_BYTES
    )
    seal_rows: Annotated[_Count, _says("Records of a stream that make a segment.", "records")] = (
        limits.SEGMENT_ROWS
    )
    seal_age_s: Annotated[
        _Seconds,
        _says("Pending records are sealed so long after the last segment, if few.", "seconds"),
    ] = limits.SEGMENT_AGE_S
    cache_bytes: Annotated[
        int,
        Meta(ge=0, le=1024 * limits.GIB),
        _says("Published segments that are kept on this disk too.", "bytes"),
    ] = limits.ARCHIVE_CACHE_BYTES
    grace_s: Annotated[
        float,
        Meta(ge=0.0, le=366 * 86_400.0),
        _says("How long objects that nothing speaks of any more are kept.", "seconds"),
    ] = limits.ARCHIVE_GRACE_S
    concurrency: Annotated[
        int,
        Meta(ge=1, le=256),
        _says("Streams that are sealed or published at the same time.", "streams"),
    ] = limits.ARCHIVE_CONCURRENCY
    index: Annotated[
        Literal["on", "off"],
        _says("Whether a server indexes the routing keys of what it has published."),
    ] = "on"
    compact: Annotated[
        Literal["on", "off"],
        _says("Whether a server makes large segments of small ones that it has published."),
    ] = "on"
    publish_s: Annotated[
        float,
        Meta(ge=0.0, le=86_400.0),
        _says("How often a server publishes what is new in databases; 0 for never.", "seconds"),
    ] = limits.PUBLISH_EVERY_S
    keep_s: Annotated[
        float,
        Meta(ge=0.0, le=100 * 366 * 86_400.0),
        _says("How old a point may be to be kept; 0 for any age.", "seconds"),
    ] = 0.0
    keep_points: Annotated[
        int,
        Meta(ge=0, le=1_000_000_000),
        _says("How many of the newest points are kept, however old; 0 for all.", "points"),
    ] = 0
    compact_bytes: Annotated[
        _Bytes, _says("Payload of a segment that small ones are made into, at most.", "bytes")
    ] = limits.COMPACT_BYTES


class Server(Struct, frozen=True):
    public_url: Annotated[
        str,
        Meta(min_length=1, max_length=2_048),
        _says(
            "Where others reach the server, as webhooks are told to answer; "
            "auto: as whoever made the subscription did."
        ),
    ] = "auto"
    webhook_targets: Annotated[
        Literal["auto", "public", "local", "private"],
        _says(
            "Which webhooks are called. public: https to public addresses. local: also this "
            "machine. private: any address. auto: local without keys, public with them."
        ),
    ] = "auto"
    webhook_concurrency: Annotated[
        int,
        Meta(ge=1, le=1_024),
        _says("Webhooks that are under way at the same time.", "webhooks"),
    ] = limits.WEBHOOK_CONCURRENCY
    webhook_timeout_s: Annotated[
        _Seconds, _says("Time that one webhook may take to answer.", "seconds")
    ] = limits.WEBHOOK_TIMEOUT_S
    keys_file: Annotated[
        str,
        Meta(min_length=1, max_length=4_096),
        _says("Where the keys are that sign webhooks; relative to the store."),
    ] = "server-keys.json"
    require_key: Annotated[
        Literal["auto", "always"],
        _says(
            "Whether requests need a key. auto: once a key was ever made. "
            "always: also before there is one."
        ),
    ] = "auto"
    hosts: Annotated[
        str,
        Meta(min_length=1, max_length=4_096),
        _says(
            "Names under which the server answers, with commas; other requests get 421. "
            "any: all. auto: those of this machine where no key is needed, all where one is."
        ),
    ] = "auto"
    connections_max: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        _says("Connections that are open at the same time; the next one gets 503.", "connections"),
    ] = limits.HTTP_CONNECTIONS
    connections_per_address: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        _says(
            "Connections from one address; this machine and trusted proxies have no such limit.",
            "connections",
        ),
    ] = limits.HTTP_CONNECTIONS_PER_ADDRESS
    body_bytes_in_flight: Annotated[
        int,
        Meta(ge=int(limits.HTTP_BODY_MAX / limits.HTTP_BODY_SHARE), le=1024 * limits.GIB),
        _says(
            "Bodies of requests that are being received, together; "
            "one key has a quarter of it at most, and more gets 503.",
            "bytes",
        ),
    ] = limits.HTTP_BODY_BYTES_IN_FLIGHT
    write_stall_s: Annotated[
        _Seconds,
        _says("A client that takes nothing of what it is sent is cut after so long.", "seconds"),
    ] = limits.HTTP_WRITE_STALL_S
    trusted_proxies: Annotated[
        str,
        Meta(min_length=1, max_length=4_096),
        _says(
            "Addresses of proxies, with commas, whose X-Forwarded-Proto and -For are believed; "
            "none: of no proxy."
        ),
    ] = "none"


class Health(Struct, frozen=True):
    wal_degraded_bytes: Annotated[
        _Bytes, _says("A write-ahead log of this size makes the store degraded.", "bytes")
    ] = limits.WAL_DEGRADED_BYTES
    wal_failed_bytes: Annotated[
        _Bytes, _says("A write-ahead log of this size makes the store unhealthy.", "bytes")
    ] = limits.WAL_FAILED_BYTES
