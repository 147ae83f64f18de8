"""Manifests: which segments of a log count, as one small JSON object that is replaced whole.

A manifest has a generation that goes up by one with each replacement, and a token that only its
writer knew before: by it a writer whose request was lost on the way back knows its own manifest
again. A manifest is replaced only if it is still the version that was read, so of two writers one
wins.

Lists are columns: entry i of each belongs to segment i. `first_segment` says how many segments at
the beginning were given up; those have no objects any more.
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
LEFT = "left-behind"
"""Where manifests of streams are kept from which an earlier point was restored."""


class PublishedSegment(msgspec.Struct, frozen=True):
    """One segment as a manifest tells of it. Both offsets are those of records in it."""

    key: str
    start_offset: int
    end_offset: int
    size_bytes: int
    payload_bytes: int
    last_ts_ms: int
    groups: int
    digest: str


class Segments(msgspec.Struct, frozen=True, gc=False):
    """The columns of a manifest's segments."""

    start_offset: list[int] = []
    end_offset: list[int] = []
    size_bytes: list[int] = []
    payload_bytes: list[int] = []
    last_append_ms: list[int] = []
    row_groups: list[int] = []
    sha256: list[str] = []


class Origin(msgspec.Struct, frozen=True, gc=False):
    """What a forked log goes on from."""

    name: str
    incarnation: str
    offset: int
    asked: int | None = None
    sub_offset: int | None = None


class Run(msgspec.Struct, frozen=True, gc=False):
    """One run of an index. It covers the offsets from `start_offset` to `end_offset`, both of
    records.
    """

    key: str
    level: int
    start_offset: int
    end_offset: int
    size_bytes: int
    filter_bytes: int
    entries: int
    sha256: str


class Index(msgspec.Struct, frozen=True, gc=False):
    """An index of a log: its runs, in the order of their offsets. What is at `indexed_offset` and
    behind it is in none of them.
    """

    secret: str
    indexed_offset: int
    runs: list[Run] = []


class Manifest(msgspec.Struct, frozen=True, gc=False):
    """The published state of one log. The order of the fields is that of the JSON."""

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
    """Deleted, but still read through by its forks."""
    retention_seconds: int | None = None
    retention_bytes: int | None = None
    origin: Origin | None = None
    first_offset: int = 0
    next_offset: int = 0
    """Where the log ended when this was written; what is behind `uploaded_through` is not in it."""
    uploaded_through: int = -1
    logical_size_bytes: int = 0
    """Of everything up to `uploaded_through`."""
    first_segment: int = 0
    segments: Segments = Segments()
    index: Index | None = None
    """Of the routing keys."""
    secondary: dict[str, Index] = {}
    """Of fields of its messages, by their names."""
    schema_json: str | None = None
    """The registry of its schemas, and"""
    profile_json: str | None = None
    """what it is used as: both JSON, as they are stored."""
    incarnation_number: int = 0
    """The first half of its offsets. Of a deleted stream it is the last number of its name."""

    def runs(self) -> Iterator[Run]:
        """Every run of every index."""
        for index in (self.index, *self.secondary.values()):
            yield from () if index is None else index.runs

    @property
    def segment_count(self) -> int:
        return len(self.segments.end_offset)

    def kept(self) -> Iterator[PublishedSegment]:
        """The segments that have objects, in order."""
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
    """The folder of a log in an object store: names may be long, and have any character."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def manifest_key(name: str) -> str:
    return f"{ROOT}/{name_hash(name)}/{MANIFEST}"


def segment_id(name: str, incarnation: str, start_offset: int, digest: str) -> str:
    """What a segment is called, here and in an object store. The digest is a part of it, so that
    an object of a name has one content.
    """
    return f"{name_hash(name)}/{incarnation}-{start_offset:016d}-{digest[:16]}"


def segment_key(name: str, incarnation: str, start_offset: int, digest: str) -> str:
    return key_of(segment_id(name, incarnation, start_offset, digest))


def run_id(name: str, incarnation: str, level: int, start_offset: int, digest: str) -> str:
    """What a run of an index is called; like a segment, by its content."""
    return f"{name_hash(name)}/{incarnation}-run{level}-{start_offset:016d}-{digest[:16]}"


def run_key(run: str, *, secondary: bool = False) -> str:
    folder, _, file = run.partition("/")
    return f"{ROOT}/{folder}/{'secondary-index' if secondary else 'index'}/{file}.parquet"


def key_of(segment: str) -> str:
    folder, _, file = segment.partition("/")
    return f"{ROOT}/{folder}/segments/{file}.parquet"


def classify(key: str) -> tuple[str, str]:
    """The log that a key belongs to, and what kind of thing it names."""
    parts = key.split("/")
    if parts[0] != ROOT or len(parts) < 3:
        return "", "other"
    return parts[1], "manifest" if parts[2] == MANIFEST else parts[2].removesuffix("s")


def encode(manifest: Manifest) -> bytes:
    return msgspec.json.encode(manifest)


_DECODER = msgspec.json.Decoder(Manifest)


def decode(data: bytes, what: str) -> Manifest:
    """The manifest in `data`; an error when it is damaged, or of a later Fourfold."""
    manifest = manifest_format.read(data, _DECODER, FORMAT, what)
    problem = _problem(manifest)
    if problem is not None:
        raise CorruptData(f"{what}: {problem}")
    return manifest


def _problem(manifest: Manifest) -> str | None:
    columns = manifest.segments
    count = manifest.segment_count
    if any(len(getattr(columns, name)) != count for name in columns.__struct_fields__):
        return "its columns of segments have different lengths"
    if not 0 <= manifest.first_segment <= count:
        return f"its first segment is {manifest.first_segment} of {count}"
    ends = columns.end_offset
    for at, start in enumerate(columns.start_offset):
        before = ends[at - 1] if at else -1
        # What lies between two segments was given up before it was sealed.
        gap = start > before + 1 and at > manifest.first_segment and at > 0
        if start > ends[at] or start <= before or (gap and start > manifest.first_offset):
            return f"its segment {at} does not follow on the one before"
    if count and ends[-1] != manifest.uploaded_through:
        return "its segments do not end where it says"
    return None
