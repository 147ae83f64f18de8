"""Limits of the archive: segments, manifests, publishing."""

from __future__ import annotations

from typing import Final

from fourfold.limits.units import GIB, KIB, MIB

SEGMENT_BYTES: Final = 16 * MIB
SEGMENT_ROWS: Final = 100_000
"""Payload, and records, that make a segment; a stream with so much pending is sealed."""
SEGMENT_AGE_S: Final = 300.0
SEGMENT_GROUP_BYTES: Final = 1 * MIB
SEGMENT_GROUP_ROWS: Final = 8_192
"""A row group of a segment: the least that a read decodes."""
SEGMENT_PAGE_BYTES: Final = 256 * KIB
SEGMENT_ZSTD_LEVEL: Final = 3
SEGMENT_BLOOM_FPP: Final = 0.01
ARCHIVE_CACHE_BYTES: Final = 1 * GIB
ARCHIVE_GRACE_S: Final = 86_400.0
"""Grace period of an object that is no longer needed: a reader may still use it."""
ARCHIVE_CHUNK_BYTES: Final = 1 * MIB
ARCHIVE_TAIL_BYTES: Final = 64 * KIB
"""The end of a segment that is fetched at once; it says where everything else is."""
ARCHIVE_INDEXES_MAX: Final = 1_024
ARCHIVE_GROUPS_HELD: Final = 16
"""Ends of segments, and decoded row groups, that are cached in memory for sequential readers."""
ARCHIVE_LOCKS: Final = 64
ARCHIVE_CONCURRENCY: Final = 4
ARCHIVE_STREAMS_PER_ROUND: Final = 256
ARCHIVE_TURN_SEGMENTS: Final = 4
"""Streams of one round, and segments of one stream in it, so that all of them get their turn."""
ARCHIVE_PUBLISH_ROWS: Final = 100_000
ARCHIVE_RECORD_DEADLINE_S: Final = 300.0
"""Records that one manifest adds, about: as many are trimmed in the transaction that records it."""
ARCHIVE_COLLECT_OBJECTS: Final = 1_000
ARCHIVE_EVERY_S: Final = 0.25
ARCHIVE_CHECKPOINT_S: Final = 60.0
ARCHIVE_RETRIES_MAX: Final = 2
ARCHIVE_RETRY_PAUSE_S: Final = 0.05
ARCHIVE_RETRY_PAUSE_MAX_S: Final = 2.0
ARCHIVE_BACKOFF_S: Final = 1.0
ARCHIVE_BACKOFF_MAX_S: Final = 300.0
"""A stream that cannot be published is left alone for so long, and longer with each failure."""
PUBLISH_SEGMENT_BYTES: Final = 64 * MIB
"""About how much of one table goes into one object."""
PUBLISH_INLINE_BYTES: Final = 64 * KIB
"""A larger blob is an object of its own; smaller ones lie in the segment beside what names them."""
PUBLISH_ENTRIES: Final = 64
"""Publications that a manifest tells of itself; older ones are in its pages, so that it stays
small however often something is published.
"""
PUBLISH_PACK_BYTES: Final = 32 * MIB
"""Rows of small publications that are put together in one object, about, in memory."""
PUBLISH_FANOUT: Final = 16
PUBLISH_LEVELS: Final = 3
"""Pages of a manifest that are merged into one of the next level, and the last level."""
PUBLISH_MERGE_LEAST: Final = 4
"""Minimum number of publications that are merged on request."""
PUBLISH_POINTS_PAGE: Final = 4_096
"""Points of a page that has them whole."""
PUBLISH_ORPHAN_S: Final = 86_400.0
"""An object that no manifest speaks of may be on its way: it is an orphan after so
long, whatever the time of grace is.
"""
PUBLISH_EVERY_S: Final = 10.0
"""How often the background publishes what is new in databases: so much may be lost with a disk."""
PUBLISH_BUSY_S: Final = 15.0
"""How soon a database that another process writes is looked at again."""
PUBLISH_COLLECT_S: Final = 3_600.0
"""How often the background gives up old points, and deletes what nothing needs."""
PUBLISH_FORGET_POINTS: Final = 64
"""So many points must be given up before the background does so: each time a list is rewritten."""
PUBLISH_RESTORE_ROWS: Final = 8_192
"""Rows of one transaction while a database is restored."""
PUBLISH_DEADLINE_S: Final = 3_600.0
"""How long the one state that is published may be held open while it is sealed."""
ARCHIVE_PATIENCE_S: Final = 0.05
"""How long the background lets others take its transactions along before it commits them itself:
longer than a checkpoint, for which those wait too.
"""
ARCHIVE_TRIM_ROWS: Final = 250
ARCHIVE_TRIM_BYTES: Final = 4 * MIB
"""Records that leave the log in one transaction: appends take turns with these."""
ROUTING_KEY_MAX: Final = 1_024
"""Bytes of a routing key."""
KEY_READ_SEGMENTS: Final = 256
"""Maximum number of segments that one read by key searches; the reader continues from its end."""
INDEX_SPAN: Final = 16
INDEX_FANOUT: Final = 16
INDEX_LEVELS: Final = 4
"""Segments of a run of level 0, runs that are merged into one of the next level, the last level."""
INDEX_SPAN_ROWS: Final = 2_000_000
"""Records that one run of level 0 covers, about: they are sorted in memory."""
INDEX_GROUP_ROWS: Final = 16_384
INDEX_MERGE_ROWS: Final = 1_000_000
"""Entries of a row group of a run, and those that a merge holds in memory, about."""
INDEX_FPP: Final = 0.01
COMPACT_BYTES: Final = 4 * SEGMENT_BYTES
COMPACT_ROWS: Final = 4 * SEGMENT_ROWS
COMPACT_SEGMENTS: Final = 4
"""Payload and records of a compacted segment, at most; and how many make one, at least."""
ARCHIVE_UPKEEP_S: Final = 60.0
"""How often the background looks for something to index or compact."""
