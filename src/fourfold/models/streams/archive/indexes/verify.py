"""Whether the runs of an index say what the segments hold.

The entries of a run are added up, and so are those that its segments would give: how many records
have a key, and the fingerprints of all of them. So any run is checked in the memory of a row group.
"""

from __future__ import annotations

from collections.abc import Iterator

from fourfold.archive import index_runs
from fourfold.archive.index_runs import Total
from fourfold.archive.manifest import Index, Manifest, Run
from fourfold.archive.segment_reader import SegmentRequest, StoredSegments
from fourfold.errors import FourfoldError
from fourfold.models.streams.archive.indexes import fields
from fourfold.models.streams.archive.indexes.catalog import row_of
from fourfold.models.streams.archive.sweep import segment_of


def index_problems(segments: StoredSegments, manifest: Manifest) -> Iterator[str]:
    """What is wrong with the indexes that a manifest tells of."""
    named: list[tuple[str, Index]] = list(manifest.secondary.items())
    if manifest.index is not None:
        named.append(("", manifest.index))
    kept = [(each.start_offset, each.end_offset) for each in manifest.kept()]
    first = kept[0][0] if kept else manifest.uploaded_through + 1
    for name, index in named:
        for run in index.runs:
            if run.start_offset < first:
                # Some of its records were given up; so may be what would tell of them.
                continue
            try:
                if not _is_true(segments, manifest, name, index, run):
                    what = f"run {run.key!r} of {manifest.name!r}"
                    yield f"{what} does not say what its segments hold"
            except FourfoldError as error:
                yield error.message


def _is_true(
    segments: StoredSegments, manifest: Manifest, name: str, index: Index, run: Run
) -> bool:
    told, held = Total(), Total()
    with segments.open(row_of(name, run).wanted) as file:
        for at in range(len(file.firsts)):
            table = file.read(at)
            told = told.plus(table)
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

    for each in manifest.kept():
        if each.end_offset < run.start_offset or each.start_offset > run.end_offset:
            continue
        wanted = SegmentRequest(segment_of(each.key), each.size_bytes, each.digest)
        ends_at = run.end_offset + 1
        start = max(run.start_offset, each.start_offset)
        held = held.plus(
            index_runs.entries_of(
                segments, wanted, secret, start, key_of if name else None, ends_at
            )
        )
    return told == held
