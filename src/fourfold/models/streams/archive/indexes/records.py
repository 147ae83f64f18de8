"""What is known of the indexes of a stream."""

from __future__ import annotations

from typing import NamedTuple

from fourfold.archive.segment_reader import SegmentRequest
from fourfold.kernel import load_queries

SQL = load_queries("fourfold.models.streams.archive.indexes")
ROUTING_KEYS = ""
"""The name of the index of the routing keys; the others have those of fields."""


class RunRow(NamedTuple):
    """A run that counts."""

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
        return SegmentRequest(self.run_id, self.size_bytes, self.digest, key=self.object_key)


class IndexStatus(NamedTuple):
    """How far one index of a stream is."""

    name: str
    indexed_segments: int
    indexed_offset: int
    runs: int
    bytes: int
    levels: int
