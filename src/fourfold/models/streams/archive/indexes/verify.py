"""Verification of index runs against their segments.

The entries of a run are added up, and so are those of its segments: the number of records with a
key, and their fingerprints. So any run is checked in the memory of one row group.
"""

from __future__ import annotations

from collections.abc import Iterator

from fourfold.archive import index_runs
from fourfold.archive.index_runs import EntryChecksum
from fourfold.archive.manifest import IndexRun, LogIndex, Manifest
from fourfold.archive.segment_reader import SegmentRequest, StoredSegments
from fourfold.errors import FourfoldError
from fourfold.models.streams.archive.indexes import fields
from fourfold.models.streams.archive.indexes.catalog import row_of
from fourfold.models.streams.archive.sweep import segment_of


def index_problems(segments: StoredSegments, manifest: Manifest) -> Iterator[str]:
    """Yield the problems of the indexes in a manifest."""
    named: list[tuple[str, LogIndex]] = list(manifest.secondary.items())
    if manifest.index is not None:
        named.append(("", manifest.index))
    kept = [(segment.start_offset, segment.end_offset) for segment in manifest.kept()]
    first = kept[0][0] if kept else manifest.uploaded_through + 1
    for name, index in named:
        for run in index.runs:
            if run.start_offset < first:
                # Some of its records were removed, and so may be their segments.
                continue
            try:
                if not _is_true(segments, manifest, name, index, run):
                    what = f"run {run.key!r} of {manifest.name!r}"
                    yield f"{what} does not match its segments"
            except FourfoldError as error:
                yield error.message


def _is_true(
    segments: StoredSegments, manifest: Manifest, name: str, index: LogIndex, run: IndexRun
) -> bool:
    indexed, actual = EntryChecksum(), EntryChecksum()
    with segments.open(row_of(name, run).wanted) as file:
        for at in range(len(file.firsts)):
            table = file.read(at)
            indexed = indexed.plus(table)
            ends = zip(
                table.column(index_runs.FIRST).to_pylist(),
                table.column(index_runs.LAST).to_pylist(),
                strict=True,
            )
            if not all(run.start_offset <= low <= high <= run.end_offset for low, high in ends):
                return False
    secret = bytes.fromhex(index.secret)

    def key_of(payload: bytes) -> bytes | None:
        return fields.key_of(payload, name)

    for segment in manifest.kept():
        if segment.end_offset < run.start_offset or segment.start_offset > run.end_offset:
            continue
        wanted = SegmentRequest(segment_of(segment.key), segment.size_bytes, segment.digest)
        ends_at = run.end_offset + 1
        start = max(run.start_offset, segment.start_offset)
        actual = actual.plus(
            index_runs.entries_of(
                segments, wanted, secret, start, key_of if name else None, ends_at
            )
        )
    return indexed == actual
