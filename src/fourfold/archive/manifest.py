"""Manifests: one small JSON object that lists the segments of a log.

A manifest has a generation that increases by one with each replacement, and a token of its writer:
with it a writer whose response was lost recognizes its own manifest. A manifest is replaced by
compare-and-swap, so of two writers one wins.

Lists are columns: entry i of each belongs to segment i. `first_segment` is the number of segments
at the beginning that were removed; they have no objects any more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from fourfold.archive import manifest_format
from fourfold.errors import CorruptData

FORMAT = 1
ROOT = "streams"
MANIFEST = "manifest.json"
COMPANION_SUFFIX = ".cix"
"""Ending of the keys of companions, which are beside their segments."""
LEFT = "left-behind"
"""Folder of stream manifests that a take-over has replaced."""


class PublishedSegment(msgspec.Struct, frozen=True):
    """One segment in a manifest. Both offsets are inclusive."""

    key: str
    start_offset: int
    end_offset: int
    size_bytes: int
    payload_bytes: int
    last_ts_ms: int
    groups: int
    digest: str


class Segments(msgspec.Struct, frozen=True, gc=False):
    """The segments of a manifest, as columns."""

    start_offset: list[int] = []
    end_offset: list[int] = []
    size_bytes: list[int] = []
    payload_bytes: list[int] = []
    last_append_ms: list[int] = []
    row_groups: list[int] = []
    sha256: list[str] = []


class ForkOrigin(msgspec.Struct, frozen=True, gc=False):
    """The origin of a forked log."""

    name: str
    incarnation: str
    offset: int
    asked: int | None = None
    sub_offset: int | None = None


class IndexRun(msgspec.Struct, frozen=True, gc=False):
    """One run of an index. It covers `start_offset` to `end_offset`, both inclusive."""

    key: str
    level: int
    start_offset: int
    end_offset: int
    size_bytes: int
    filter_bytes: int
    entries: int
    sha256: str


class LogIndex(msgspec.Struct, frozen=True, gc=False):
    """An index of a log: its runs, in the order of their offsets.

    It covers the offsets below `indexed_offset`.
    """

    secret: str
    indexed_offset: int
    runs: list[IndexRun] = []


class Companion(msgspec.Struct, frozen=True, gc=False):
    """The search companion of a segment. Its key ends with its digest."""

    start_offset: int
    key: str
    plan_generation: int
    sections_json: str
    section_sizes_json: str
    size_bytes: int
    primary_timestamp_min_ms: int | None = None
    primary_timestamp_max_ms: int | None = None

    @property
    def sha256(self) -> str:
        """Digest of the object."""
        return self.key.rpartition("-")[2].removesuffix(COMPANION_SUFFIX)


class LogCompanions(msgspec.Struct, frozen=True, gc=False):
    """The plan of a log's companions, and those of its segments."""

    generation: int
    plan_hash: str
    plan_json: str
    segments: list[Companion] = []


class Manifest(msgspec.Struct, frozen=True, gc=False):
    """Published state of one log. The order of the fields is that of the JSON."""

    format: int
    token: str
    generation: int
    publisher: str
    name: str
    incarnation: str
    deleted: bool
    published_at_ms: int
    created_at_ms: int = 0
    content_type: str = ""
    profile: str = "generic"
    stream_seq: str | None = None
    closed: bool = False
    closed_by: tuple[str, int, int] | None = None
    ttl_seconds: int | None = None
    expires_at_ms: int | None = None
    hidden: bool = False
    """Deleted, but still read by its forks."""
    retention_seconds: int | None = None
    retention_bytes: int | None = None
    origin: ForkOrigin | None = None
    first_offset: int = 0
    next_offset: int = 0
    """End of the log when this was written; it lists nothing after `uploaded_through`."""
    uploaded_through: int = -1
    logical_size_bytes: int = 0
    """Number of bytes up to `uploaded_through`."""
    first_segment: int = 0
    segments: Segments = Segments()
    index: LogIndex | None = None
    """Index of the routing keys."""
    secondary: dict[str, LogIndex] = {}
    """Indexes of fields of its messages, by field."""
    schema_json: str | None = None
    """Schema registry as stored JSON."""
    profile_json: str | None = None
    """Profile as stored JSON."""
    incarnation_number: int = 0
    """First half of its offsets. For a deleted stream, the last number used by its name."""
    companions: LogCompanions | None = None
    """Companions of its segments, for searches."""
    unlabeled: list[int] | None = None
    """First offsets of segments whose rows do not name the stream; None for all segments."""

    def labeled_starts(self) -> frozenset[int]:
        """Return the first offsets of the segments whose rows name the stream."""
        if self.unlabeled is None:
            return frozenset()
        return frozenset(self.segments.start_offset).difference(self.unlabeled)

    def runs(self) -> Iterator[IndexRun]:
        """Return every run of every index."""
        for index in (self.index, *self.secondary.values()):
            yield from () if index is None else index.runs

    def others(self) -> Iterator[tuple[str, int, str]]:
        """Return the key, size and digest of every object besides segments."""
        for run in self.runs():
            yield run.key, run.size_bytes, run.sha256
        for companion in () if self.companions is None else self.companions.segments:
            yield companion.key, companion.size_bytes, companion.sha256

    @property
    def segment_count(self) -> int:
        """Number of segments."""
        return len(self.segments.end_offset)

    def kept(self) -> Iterator[PublishedSegment]:
        """Return the segments that have objects, in order."""
        columns = self.segments
        for at in range(self.first_segment, self.segment_count):
            start, digest = columns.start_offset[at], columns.sha256[at]
            yield PublishedSegment(
                key=segment_key(self.name, self.incarnation, start, digest),
                start_offset=start,
                end_offset=columns.end_offset[at],
                size_bytes=columns.size_bytes[at],
                payload_bytes=columns.payload_bytes[at],
                last_ts_ms=columns.last_append_ms[at],
                groups=columns.row_groups[at],
                digest=digest,
            )


def name_hash(name: str) -> str:
    """Return the folder of a log in an object store; names may be long and have any character."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def manifest_key(name: str) -> str:
    """Return the key of the manifest of a stream."""
    return f"{ROOT}/{name_hash(name)}/{MANIFEST}"


def segment_id(name: str, incarnation: str, start_offset: int, digest: str) -> str:
    """Return the id of a segment; it contains the digest, so that an id has one content."""
    return f"{name_hash(name)}/{incarnation}-{start_offset:016d}-{digest[:16]}"


def segment_key(name: str, incarnation: str, start_offset: int, digest: str) -> str:
    """Return the key of a segment of a stream."""
    return key_of(segment_id(name, incarnation, start_offset, digest))


def run_id(name: str, incarnation: str, level: int, start_offset: int, digest: str) -> str:
    """Return the id of a run; like a segment's, it contains the digest."""
    return f"{name_hash(name)}/{incarnation}-run{level}-{start_offset:016d}-{digest[:16]}"


def run_key(run: str, *, secondary: bool = False) -> str:
    """Return the key of an index run."""
    folder, _, file = run.partition("/")
    return f"{ROOT}/{folder}/{'secondary-index' if secondary else 'index'}/{file}.parquet"


def key_of(segment: str) -> str:
    """Return the key of a segment by its id."""
    folder, _, file = segment.partition("/")
    return f"{ROOT}/{folder}/segments/{file}.parquet"


def classify(key: str) -> tuple[str, str]:
    """Return the log that a key belongs to, and the kind of object."""
    parts = key.split("/")
    if parts[0] != ROOT or len(parts) < 3:
        return "", "other"
    return parts[1], "manifest" if parts[2] == MANIFEST else parts[2].removesuffix("s")


def encode(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest."""
    return msgspec.json.encode(manifest)


_DECODER = msgspec.json.Decoder(Manifest)


def decode(data: bytes, what: str) -> Manifest:
    """Decode a manifest; raise if it is damaged or from a later version."""
    manifest = manifest_format.read(data, _DECODER, FORMAT, what)
    problem = _problem(manifest)
    if problem is not None:
        raise CorruptData(f"{what}: {problem}")
    return manifest


def _problem(manifest: Manifest) -> str | None:
    columns = manifest.segments
    count = manifest.segment_count
    if any(len(getattr(columns, name)) != count for name in columns.__struct_fields__):
        return "columns of segments have different lengths"
    if not 0 <= manifest.first_segment <= count:
        return f"first_segment is {manifest.first_segment}, but there are {count} segments"
    ends = columns.end_offset
    for at, start in enumerate(columns.start_offset):
        before = ends[at - 1] if at else -1
        # Offsets between two segments were removed by retention before they were sealed.
        gap = start > before + 1 and at > manifest.first_segment and at > 0
        if start > ends[at] or start <= before or (gap and start > manifest.first_offset):
            return f"segment {at} does not follow the previous one"
    if count and ends[-1] != manifest.uploaded_through:
        return "the segments do not end at `uploaded_through`"
    return None
