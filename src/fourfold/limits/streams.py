"""Limits of streams."""

from __future__ import annotations

from typing import Final

from fourfold.limits.units import KIB, MIB

STREAM_NAME_MAX: Final = 1024
"""Bytes of the name of a stream."""
STREAM_READ_RECORDS: Final = 10_000
"""Maximum number of records of one read; the reader continues from its end."""
STREAM_READ_BYTES: Final = 4 * MIB
"""Bytes of one read, unless a single record is larger."""
STREAM_SHORT_READ_RECORDS: Final = 256
STREAM_SHORT_READ_BYTES: Final = 256 * KIB
"""Records and bytes that are read on the thread of an event loop; more are read in another one."""
FIELD_READ_RECORDS: Final = 5_000
FIELD_READ_BYTES: Final = 8 * MIB
"""Records, and bytes of them, that one read by a field examines; the reader goes on from where it
ended.
"""
FIELD_STEP_RECORDS: Final = 250
FIELD_STEP_BYTES: Final = 1 * MIB
"""Records, and bytes of them, after which such a read looks whether it has to end."""
STREAM_PAGE_BYTES: Final = 16 * MIB
"""Bytes of one answer to a reader that catches up, about; it is sent in pieces."""
STREAM_PIECE_BYTES: Final = 512 * KIB
STREAM_PIECE_BYTES_MAX: Final = 4 * STREAM_PIECE_BYTES
"""Bytes of such a piece: about, and at most, unless a single record is larger."""
STREAM_TAILS_MAX: Final = 8_192
"""Streams whose ends are remembered from one append to the next."""
STREAM_PRODUCERS_REMEMBERED: Final = 64
"""Producers of one of them."""
STREAM_ECHO_BYTES: Final = 16 * KIB
"""What is said of an append to those who wait for it; more than that they read from the log."""
STREAM_SCATTERED_PLACES: Final = 4
"""So many records of several streams are worth to be noted in the small level of the index, which
writes their places down twice; fewer go into the large one at once.
"""
STREAM_RECENT_PLACES: Final = 2_048
"""How many may be there before some of them move on."""
STREAM_PLACES_MOVED: Final = 512
"""How many move on at a time."""
APPEND_BATCH_REQUESTS: Final = 1_024
APPEND_BATCH_BYTES: Final = 4 * MIB
"""Appends of coroutines that share one place in the queue of the writer."""
STREAM_REGISTRY_BYTES: Final = 256 * KIB
"""Bytes of a stream's registry of schemas, all versions and lenses together."""
STREAM_SEARCH_FIELDS: Final = 32
"""Fields that a registry declares to be searched by."""
STREAM_POINTER_CHARS: Final = 1_024
"""Characters of the JSON pointer at a routing key."""
STREAM_PROFILED_DEPTH_MAX: Final = 500
"""Levels of a message in a stream with a profile that looks into it."""
EVENT_REDACT_NAMES_MAX: Final = 100
EVENT_ROUTING_NAMES_MAX: Final = 8
"""Fields that an event log names: to be redacted, and to take the routing key from."""
EVENT_FIELD_NAME_MAX: Final = 200
"""Characters of the name of such a field."""
STREAM_FORK_SLICE: Final = 5_000
"""Records that are examined in one read transaction to find the size of a fork."""
STREAM_TRIM_ROWS: Final = 1_000
"""Rows of a deleted stream that one transaction removes."""
SWEEP_SLICES: Final = 200
"""Such transactions of one sweep."""
SWEEP_STREAMS: Final = 1_000
"""Streams that one sweep removes, or looks at, in one go."""
SUBSCRIPTIONS_MAX: Final = 10_000
SUBSCRIPTIONS_PER_OWNER_MAX: Final = 2_500
"""Subscriptions that the keys of one prefix may create."""
SUBSCRIPTION_ID_MAX: Final = 200
SUBSCRIPTION_PATTERN_MAX: Final = 1_024
SUBSCRIPTION_TEXT_MAX: Final = 2_048
"""Characters of an address, a description, the name of a worker."""
SUBSCRIPTION_STREAMS_MAX: Final = 1_000
"""Streams that one request names, one wake tells of, or one page of a subscription shows."""
SUBSCRIPTION_BACKFILL_MAX: Final = 100_000
"""Streams that a new pattern may cover: they are linked in one transaction."""
SUBSCRIPTION_BATCH: Final = 500
"""New streams, ended leases and wakes that are dealt with in one transaction."""
LEASE_TTL_MS: Final = 30_000
"""How long a worker may be silent, if its subscription says nothing else."""
LEASE_TTL_MS_MIN: Final = 1_000
LEASE_TTL_MS_MAX: Final = 600_000
STREAM_TTL_S_MAX = 100 * 366 * 86_400
"""The longest time to live of a stream: about a hundred years."""
STREAM_EXPIRES_MS_MAX = 253_402_300_799_999
"""The latest end of a stream, in milliseconds since 1970: that of the year 9999, the last that RFC
3339 can write.
"""
