"""Archive format: Parquet segments, manifests that list them, and readers for any location.

This package knows records, files and object stores; the models know streams and when to seal them.
pyarrow is imported when it is first needed: `pip install 'fourfold[archive]'`.
"""

from __future__ import annotations

from fourfold.archive.cache import DiskCache
from fourfold.archive.manifest import Manifest, PublishedSegment, manifest_key, segment_key
from fourfold.archive.records import Row, SealedSegment
from fourfold.archive.segment_reader import SegmentSource, open_segments
from fourfold.archive.segment_writer import write_segment

__all__ = [
    "DiskCache",
    "Manifest",
    "PublishedSegment",
    "Row",
    "SealedSegment",
    "SegmentSource",
    "manifest_key",
    "open_segments",
    "segment_key",
    "write_segment",
]
