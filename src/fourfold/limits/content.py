"""Limits of settings, content, blobs, objects and the command line."""

from __future__ import annotations

from typing import Final

from fourfold.limits.units import GIB, MIB

# Settings
CONFIG_BYTES_MAX: Final = 1 * MIB
"""A `fourfold.toml` larger than this is some other file."""

# Content
PAYLOAD_INLINE_BYTES_MAX: Final = 512
"""A payload of at most this many canonical bytes is stored inside its event; a larger one as a
blob.
"""
PAYLOAD_KIND_CHARS_MAX: Final = 64
"""A kind is a short name, so that a reference is always smaller than what it stands for."""
CONTENT_DEPTH_MAX: Final = 500
"""Nesting deeper than this is refused before the interpreter's own stack gives up."""
MERKLE_KEYS_REMEMBERED_MAX: Final = 4_096
"""Keys of objects whose digests are kept: the same few come in every document."""
MERKLE_KEY_CHARS_MAX: Final = 64

# Blobs and objects
BLOB_BYTES_MAX: Final = 512 * MIB
"""SQLite holds at most about 1 GB in one value; half of it leaves room for the row."""
BLOB_CHUNK_BYTES: Final = 1 * MIB
BLOB_SWEEP_AGE_S: Final = 3_600.0
"""Temp files younger than this are left alone: their writer may be about to finish."""
BLOB_LIST_PAGE: Final = 1_000
"""Ids that are read from a table at once, so that a long listing holds no snapshot open."""
OBJECT_KEY_BYTES_MAX: Final = 1024
"""The limit of S3, kept everywhere so that a store can move between backends."""
OBJECT_SEGMENT_BYTES_MAX: Final = 255
"""What common file systems allow between two slashes."""
OBJECT_PUT_BYTES_MAX: Final = 5 * GIB
"""The limit of S3 for one request; also for a streamed upload that must not replace anything."""
OBJECT_UPLOAD_CHUNK_BYTES: Final = 8 * MIB
OBJECT_UPLOAD_CONCURRENCY: Final = 4
OBJECT_TIMEOUT_S: Final = 60.0
OBJECT_RETRIES_MAX: Final = 5
OBJECT_RETRY_WINDOW_S: Final = 120.0
"""No retry starts later than this after the first try, while the signature of a request is
valid.
"""
OBJECT_CONFLICT_BACKOFF_S: Final = 0.05
"""First pause after S3 answers that two conditional writes met; it doubles with every retry."""
OBJECT_UPLOAD_PARTS_MAX: Final = 10_000
OBJECT_UPLOAD_BYTES_PER_S_MIN: Final = 1 * MIB
"""A large request may take as long as it takes at this speed before it counts as timed out."""
OBJECT_LIST_PAGE: Final = 1_000
OBJECT_FOLDER_PIECE_BYTES: Final = 80
"""A longer piece of a key is spread over nested folders: 80 bytes, each escaped, still fit a file
name.
"""
OBJECT_FOLDER_LOCKS: Final = 64
OBJECT_LOCK_WAIT_S: Final = 60.0
OBJECT_LOCK_POLL_S: Final = 0.001
OBJECT_LOCK_POLL_S_MAX: Final = 0.05
OBJECT_FOLDERS_KNOWN_MAX: Final = 65_536
"""Folders that one process remembers to have made durable, so that they need no second fsync."""
OBJECT_SWEEP_AGE_S: Final = 3_600.0

# Command line
DOCTOR_FSYNC_ROUNDS: Final = 25
DOCTOR_ENTRIES_MAX: Final = 100_000
"""Files and folders of a store that `fourfold doctor` looks at; it says so when there are more."""
