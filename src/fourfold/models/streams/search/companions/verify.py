"""Verification of companions: each must be what its segment makes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from fourfold.archive.manifest import Manifest
from fourfold.archive.segment_reader import SegmentRequest, StoredSegments, open_parquet
from fourfold.errors import CorruptData, FourfoldError
from fourfold.kernel.text_index import TextIndex
from fourfold.models.streams.archive.records import Segment
from fourfold.models.streams.archive.sweep import segment_of
from fourfold.models.streams.schemas.registry import EMPTY, decoded
from fourfold.models.streams.search.companions.builder import BundleTask, build
from fourfold.models.streams.search.companions.bundle import FTS, META, SectionFile, read_directory
from fourfold.models.streams.search.companions.plans import decode_plan


def companion_problems(segments: StoredSegments, manifest: Manifest) -> Iterator[str]:
    """Yield the companions of a manifest that differ from what their segments make now."""
    companions = manifest.companions
    if companions is None or not companions.segments:
        return
    try:
        plan = decode_plan(companions.plan_json, manifest.name)
    except CorruptData as error:
        yield error.message
        return
    registry = EMPTY if manifest.schema_json is None else decoded(manifest.schema_json)
    published = {segment.start_offset: segment for segment in manifest.kept()}
    for entry in companions.segments:
        if entry.plan_generation != companions.generation:
            # It waits to be built again, and no search uses it.
            continue
        segment = published[entry.start_offset]
        row = Segment(
            segment_of(segment.key),
            0,
            segment.start_offset,
            segment.end_offset,
            segment.size_bytes,
            segment.payload_bytes,
            segment.groups,
            segment.last_ts_ms,
            segment.digest,
            "",
            0,
        )
        request = SegmentRequest(row.segment_id, row.size_bytes, row.digest)
        task = BundleTask(
            manifest.name,
            manifest.incarnation,
            entry.plan_generation,
            plan,
            registry,
            row,
            request,
        )
        stored = SegmentRequest(
            segment_of(entry.key), entry.size_bytes, entry.sha256, key=entry.key
        )
        try:
            yield from _compare(segments, task, stored, entry.key)
        except FourfoldError as error:
            yield error.message


def _compare(
    segments: StoredSegments, task: BundleTask, stored: SegmentRequest, key: str
) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="fourfold-companion-") as folder:
        built = build(segments, task, Path(folder))
        with segments.open_object(stored) as left, built.path.open("rb") as right:
            directory, entries = read_directory(left, key)
            expected, others = read_directory(right, str(built.path))
            if directory != expected or entries.keys() != others.keys():
                yield f"companion {key!r} does not match its segment"
                return
            for name in sorted(entries.keys() - {META}):
                same = _same_words if name == FTS else _same_tables
                if not same(SectionFile(left, entries[name]), SectionFile(right, others[name])):
                    yield f"companion {key!r}: section {name!r} does not match its segment"


def _same_tables(left: SectionFile, right: SectionFile) -> bool:
    """Return True if two sections have the same rows; other versions may write other bytes."""
    return bool(open_parquet(left).read().equals(open_parquet(right).read()))


def _same_words(left: SectionFile, right: SectionFile) -> bool:
    return _digest(left) == _digest(right)


def _digest(section: SectionFile) -> str:
    data = section.read()
    texts = TextIndex(lambda at, size: data[at : at + size], len(data))
    try:
        return texts.digest()
    finally:
        texts.close()
