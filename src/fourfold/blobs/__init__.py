"""Content-addressed blobs: one protocol for a sharded folder, a SQLite table and an object store.

blobs = FolderBlobs("sessions/blobs")
name = blobs.put(b"some bytes")       # "sha256:..."
blobs.get(name)                       # the same bytes, verified by their hash
"""

from __future__ import annotations

from fourfold.blobs.folder import FolderBlobs
from fourfold.blobs.objects import ObjectBlobs
from fourfold.blobs.protocol import BlobStore, BlobUsage, Data, Readable, Source
from fourfold.blobs.table import MIGRATION, TableBlobs, insert

__all__ = [
    "MIGRATION",
    "BlobStore",
    "BlobUsage",
    "Data",
    "FolderBlobs",
    "ObjectBlobs",
    "Readable",
    "Source",
    "TableBlobs",
    "insert",
]
