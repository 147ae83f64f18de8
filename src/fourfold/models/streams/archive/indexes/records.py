"""Records of the indexes of a stream."""

from __future__ import annotations

from typing import NamedTuple

from fourfold.archive.segment_reader import SegmentRequest
from fourfold.kernel import load_queries

SQL = load_queries("fourfold.models.streams.archive.indexes")
ROUTING_KEYS = ""
"""Name of the index of the routing keys; other indexes are named by their field."""


class IndexRunRow(NamedTuple):
    """A run of an index."""

    run_id: str
    index_name: str
    level: int
    start_offset: int
    end_offset: int
    object_key: str
    size_bytes: int
    filter_len: int
    record_count: int
    digest: str

    @property
    def wanted(self) -> SegmentRequest:
        """Request for the file of the run."""
        return SegmentRequest(self.run_id, self.size_bytes, self.digest, key=self.object_key)


class IndexStatus(NamedTuple):
    """Progress of one index of a stream."""

    name: str
    indexed_segments: int
    indexed_offset: int
    runs: int
    bytes: int
    levels: int
