"""Writing a segment: a Parquet file of records in the order of their offsets.

    offset int64, append_time timestamp (ms, UTC), routing_key binary, flags int32, payload binary

It is written under a temporary name, in row groups of bounded size, so in bounded memory; it is
then brought to disk and gets its name. So a file that has its name is whole. Every page has a
checksum, the file as a whole a SHA-256, and a bloom filter tells which routing keys a row group
does not have.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from fourfold import limits
from fourfold.archive.parquet import arrow
from fourfold.archive.records import Row, Sealed
from fourfold.errors import DiskFull, InvalidInput, StorageError
from fourfold.kernel import faults, sync_folder

OFFSET, TIME, KEY, FLAGS, PAYLOAD = "offset", "append_time", "routing_key", "flags", "payload"


@cache
def schema() -> Any:
    pa, _ = arrow()
    return pa.schema(
        [
            pa.field(OFFSET, pa.int64(), nullable=False),
            pa.field(TIME, pa.timestamp("ms", tz="UTC"), nullable=False),
            pa.field(KEY, pa.binary()),
            pa.field(FLAGS, pa.int32(), nullable=False),
            pa.field(PAYLOAD, pa.binary(), nullable=False),
        ]
    )


def write_segment(
    rows: Iterable[Row], temporary: Path, named: Callable[[Sealed], Path]
) -> tuple[Sealed, Path]:
    """Write `rows` as a segment, and give it the name that `named` makes of what it became.

    When this raises, there is neither file.
    """
    try:
        sealed = _write(rows, temporary)
        if faults.armed:
            faults.hit("archive.segment.built")
        final = named(sealed)
        final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.rename(final)
        sync_folder(final.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            full = error.errno in {28, 122}
            raise (DiskFull if full else StorageError)(
                f"{temporary}: a segment cannot be written: {error}"
            ) from error
        raise
    if faults.armed:
        faults.hit("archive.segment.renamed")
    return sealed, final


def _write(rows: Iterable[Row], path: Path) -> Sealed:
    pa, pq = arrow()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    first = last = ts = -1
    count = size = groups = 0
    with path.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        hashing = _Hashing(file)
        sink = pa.PythonFile(hashing, mode="w")
        writer = None
        try:
            for group in _groups(rows):
                # Column by column: sealing goes on beside appends, and must not take their time.
                columns = tuple(zip(*group, strict=True))
                offsets, times, _, _, payloads = columns
                if writer is None:
                    writer = pq.ParquetWriter(sink, schema(), **_options())
                    first, last = offsets[0], offsets[0] - 1
                if offsets != tuple(range(last + 1, last + 1 + len(offsets))):
                    raise InvalidInput(f"{path}: records behind {last} do not follow on each other")
                writer.write_batch(_batch(columns), row_group_size=len(group))
                last = offsets[-1]
                ts = max(ts, *times)
                count += len(group)
                size += sum(map(len, payloads))
                groups += 1
        finally:
            if writer is not None:
                writer.close()
        if not count:
            raise InvalidInput(f"{path}: a segment has at least one record")
        file.flush()
        os.fsync(file.fileno())
        written = file.tell()
    return Sealed(first, last, count, size, ts, groups, written, hashing.digest.hexdigest())


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows by the row group: so many bytes of payload, or so many rows."""
    group: list[Row] = []
    held = 0
    for row in rows:
        size = len(row[4])
        if group and (
            held + size > limits.SEGMENT_GROUP_BYTES or len(group) >= limits.SEGMENT_GROUP_ROWS
        ):
            yield group
            group, held = [], 0
        group.append(row)
        held += size
    if group:
        yield group


def _batch(columns: tuple[tuple[Any, ...], ...]) -> Any:
    pa, _ = arrow()
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(columns, schema(), strict=True)
    ]
    return pa.record_batch(arrays, schema=schema())


@cache
def _options() -> dict[str, Any]:
    _, pq = arrow()
    options: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": limits.SEGMENT_ZSTD_LEVEL,
        "use_dictionary": [TIME, KEY, FLAGS],
        "column_encoding": {OFFSET: "DELTA_BINARY_PACKED", PAYLOAD: "PLAIN"},
        "write_statistics": [OFFSET, TIME, KEY],
        "write_page_index": True,
        "write_page_checksum": True,
        "sorting_columns": [pq.SortingColumn(0)],
        "data_page_size": limits.SEGMENT_PAGE_BYTES,
    }
    # Older ones write no bloom filters; everything else is the same.
    if "bloom_filter_options" in inspect.signature(pq.ParquetWriter.__init__).parameters:
        ndv = limits.SEGMENT_GROUP_ROWS
        options["bloom_filter_options"] = {KEY: {"ndv": ndv, "fpp": limits.SEGMENT_BLOOM_FPP}}
    return options


class _Hashing:
    """A file that knows the digest of what was written to it."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self.digest.update(view)
        self._file.write(view)
        return view.nbytes

    def tell(self) -> int:
        return int(self._file.tell())

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False
