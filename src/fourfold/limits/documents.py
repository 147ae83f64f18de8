"""Limits of documents."""

from __future__ import annotations

from typing import Final

from fourfold.limits.units import MIB

DOCUMENT_BYTES_MAX: Final = 64 * MIB
DOCUMENT_ARRAY_INDEX_MAX: Final = 2**32 - 2
"""The largest array index that a path may spell; JavaScript has no larger one."""
DOCUMENT_INTEGER_BITS_MAX: Final = 4_096
"""More than anybody counts, and few enough that every interpreter prints the digits."""
OPERATIONS_MAX: Final = 100_000
"""Operations in one commit: bounds how long one transaction holds the writer."""
ENTITY_ID_BYTES_MAX: Final = 1_024
SPACE_DID_CHARS_MAX: Final = 200
"""A DID becomes a file name, and file systems stop at 255 bytes."""
BRANCH_NAME_CHARS_MAX: Final = 200
BRANCH_DEPTH_MAX: Final = 8
SNAPSHOT_PATCHES_MIN: Final = 10
"""Never a snapshot before so many patches have gathered since the last one."""
POINTERS_REMEMBERED_MAX: Final = 4_096
"""Pointers of patches whose paths are kept."""
POINTER_REMEMBERED_CHARS_MAX: Final = 128
DOCUMENT_CACHE_BYTES: Final = 64 * MIB
SEQ_MAX: Final = 2**63 - 1
"""The greatest integer that SQLite holds: no seq is beyond it."""
HISTORY_PAGE_ROWS: Final = 1_000
IDS_EARLY_ROWS: Final = 10_000
"""A listing of a point by which fewer revisions were written looks at these, not at many heads."""
EXPORT_PAGE_COMMITS: Final = 200
"""Commits that an export reads, and an import writes, in one transaction."""
SNAPSHOT_REPLAY_MAX: Final = 200
"""Maintenance makes a snapshot of a newest state that takes this many patches to reach."""
VERIFY_PART_BYTES: Final = 64 * MIB
"""A file that is larger is checked in parts by several workers."""
VERIFY_SLICE_BYTES: Final = 4 * MIB
"""About so much of a file is verified in one read transaction."""
VERIFY_TASKS: Final = 64
"""Tasks into which the check of small stores is divided, about."""
VERIFY_TASK_BYTES_MIN: Final = 4 * MIB
VERIFY_FAULTS_SHOWN: Final = 100
"""Faults that the report of a run lists; the others are counted, and stand in the file of the
report.
"""
VERIFY_ATTEMPTS: Final = 5
VERIFY_PAUSE_S: Final = 0.5
"""How often, and after what pause, a file is tried again that was busy."""
VERIFY_WAITING_ROWS: Final = 256
VERIFY_WAITING_BYTES: Final = 4 * MIB
"""Rows of one entity that verification folds at once."""
STALE_CHECK_ROWS: Final = 100
"""Later revisions that a transaction compares with its reads while it holds the writer."""
STALE_CHECK_ATTEMPTS: Final = 8
"""How often what is committed is compared without the writer; then a transaction does it all."""
MAINTENANCE_PAGE_ROWS: Final = 500
"""Rows that maintenance looks at in one snapshot, and changes in one transaction."""
MERGE_ATTEMPTS_MAX: Final = 5
"""Maximum number of times that a merge is recomputed after its target changed."""
MERGE_OPERATIONS_MAX: Final = 100_000
"""Operations on one entity since the base, on one side, that a merge looks at."""
MERGE_BASE_DEPTH_MAX: Final = 32
"""How far the bases of a criss-cross merge are traced, each from several bases of its own."""
MERGE_PAGE_ROWS: Final = 256
"""Earlier merges that the search for a base reads at once, at most."""
GC_BATCH_ROWS: Final = 200
"""Rows of the log that a collection takes away in one transaction."""
GC_BATCH_BYTES: Final = 4 * MIB
GC_TRANSACTION_S: Final = 0.01
"""A transaction of a collection takes nothing more after so long: writers wait for it."""
GC_SEAL_ROWS: Final = 2_000
"""Rows that a collection reads in one transaction to seal commits, when these are large."""
GC_ENTITIES_REMEMBERED: Final = 100_000
"""Entities that a collection knows to be done with, so that it does not look at them again."""
GC_PREPARE_S: Final = 600.0
"""How long the first collection of a space may take to make its indexes."""
GC_REQUEST_BYTES_MIN: Final = 256
"""A shorter request is not worth a digest in its place."""
GC_BLOB_AGE_S: Final = 24 * 3_600.0
"""Age of a blob since it was last put before gc may remove it: its writer needs time to
commit what refers to it.
"""
GC_BLOB_TOUCH_S: Final = 600
"""A blob that is put again counts as new again, unless it was so long ago or less."""
WATCH_PAGE_COMMITS: Final = 256
"""Seqs that a watch knows ahead; the commits themselves are read one at a time."""
WATCH_POLL_S: Final = 0.1
"""How often a reader looks for the commits of another process."""
WATCH_HEARTBEAT_S: Final = 1.0
"""How often a waiting watch looks whether its database is still open."""
