"""The streaming source of streams: an offset for each stream of each file.

    {"wal": {"31a0c7f02b9e": [0, 120], "e2d84b610c55": [40, 41]}}

The two numbers of a stream are where reading it began and the current offset. Offsets of a stream
are dense and its records never change, so a range always has the same rows, and a repeated batch
reads the same rows. Streams are identified by their incarnation, so a stream that is deleted and
created again is read from its own beginning.

A deleted stream has no more records. If retention or the archive deleted unread records, the query
fails rather than skip them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from fourfold.errors import FourfoldError, InvalidInput, NotFound, OffsetGone, SequenceRegression
from fourfold.pipeline import cut as cuts
from fourfold.pipeline import plan
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.options import ReadOptions, read_options, refuse_options
from fourfold.pipeline.scan import Piece, ScanTask
from fourfold.pipeline.source import column_names
from fourfold.pipeline.spark import wrap_error
from fourfold.pipeline.store_files import find_files, find_stores
from fourfold.pipeline.stream_reader import FourfoldStreamReader
from fourfold.pipeline.stream_source import make_durable
from fourfold.pipeline.streams.fold import Range, ranges, registries_in
from fourfold.query.streams.tables import SQL
from fourfold.query.tables import Column

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


Offset = dict[str, dict[str, list[int]]]


class _End(NamedTuple):
    """The offsets of a stream in a file."""

    sid: int
    first: int
    next: int


class _File(NamedTuple):
    """A file and its streams."""

    bound: FileBound
    ends: dict[str, _End]
    """Streams by incarnation."""


class StreamFollower:
    """The streams that a query follows. `freeze_end` fixes where the query ends."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._final: dict[str, _File] | None = None

    def start_offset(self) -> Offset:
        """Return the initial offset: nothing was read yet."""
        return {}

    def end_offset(self, start: Offset, rows: int | None) -> Offset:
        """Return the end of a batch that begins at `start` and has about `rows` rows: every stream
        with new records gets a share, so that none waits for another.
        """
        files = self._poll() if self._final is None else self._final
        fresh = {
            (file, stream): (at, end)
            for file, state in files.items()
            for stream, end in state.ends.items()
            if (at := _next_offset(start, file, stream, end)) < end.next
        }
        reached = {file: self._remaining(file, known, files) for file, known in start.items()}
        left, streams_left = rows, len(fresh)
        for (file, stream), (at, end) in sorted(fresh.items(), key=lambda item: item[1][1].next):
            until = end.next
            if left is not None:
                until = min(until, at + max(left // streams_left, 1)) if left else at
                left -= until - at
            streams_left -= 1
            if until > at:
                began = start.get(file, {}).get(stream, [at])[0]
                reached.setdefault(file, {})[stream] = [began, until]
        for file in {file for file, _ in fresh}:
            make_durable(files[file].bound.path)
        return _sorted(reached)

    def newest_offset(self) -> Offset:
        """Return the current end of all streams."""
        return _sorted(
            {
                file: {stream: [end.first, end.next] for stream, end in state.ends.items()}
                for file, state in self._poll().items()
            }
        )

    def freeze_end(self) -> None:
        """End the query at the current end of all streams."""
        self._final = self._poll()

    def plan_tasks(self, start: Offset, end: Offset, columns: tuple[Column, ...]) -> list[ScanTask]:
        """Return the tasks that read the records between two offsets."""
        files = self._poll() if start != end else {}
        table = self._options.table
        read = self._options.tables.table(table.reads).select_columns() if table.folded else columns
        parts = [
            (self._options.partition_bytes, piece)
            for file, state in files.items()
            for piece in self._pieces(start.get(file, {}), end.get(file, {}), state, read)
        ]
        for file in end:
            if start != end:
                self._remaining(file, {}, files)
        return [
            ScanTask(
                pieces=tuple(pieces),
                columns=read,
                setup=plan.setup(),
                attach=plan.ATTACH,
                detach=plan.DETACH,
                batch_rows=self._options.batch_rows,
                fold=table.fold,
                output=columns,
            )
            for pieces in plan.pack_parts(iter(parts), self._options.partition_bytes)
        ]

    def _pieces(
        self,
        start: dict[str, list[int]],
        end: dict[str, list[int]],
        state: _File,
        columns: tuple[Column, ...],
    ) -> Iterator[Piece]:
        """Yield the queries on one file; messages are promoted by its current registries."""
        folded = self._options.table.folded
        registries = (registries_in(state.bound, self._options.stream) if folded else None) or None
        for piece in _pieces(start, end, state, columns):
            yield replace(piece, context=registries)

    def _remaining(
        self, file: str, known: dict[str, list[int]], files: dict[str, _File]
    ) -> dict[str, list[int]]:
        """Return the part of a file's offset whose streams still exist."""
        if file in files:
            return {stream: seen for stream, seen in known.items() if stream in files[file].ends}
        if self._options.skip_bad:
            return known
        raise NotFound(
            f"{self._options.location}: file {file} was removed while a query reads it",
            hint="Restore it, or start a new query with another checkpoint.",
        )

    def _poll(self) -> dict[str, _File]:
        options = self._options
        stores = find_stores(options.root, options.roots)
        store_files = find_files(stores, options.tables)
        files = {}
        for bound in cuts.read_files_cut(
            store_files, options.tables, skip_bad=options.skip_bad
        ).bounds:
            rows = cuts.fetch_rows(bound, SQL.ends, (options.stream,))
            key = bound.space if options.root is not None else f"{bound.root} {bound.space}"
            files[key] = _File(bound, {stream: _End(*ends) for stream, *ends in rows})
        return files


def _pieces(
    start: dict[str, list[int]],
    end: dict[str, list[int]],
    state: _File,
    columns: tuple[Column, ...],
) -> Iterator[Piece]:
    selected: list[Range] = []
    for stream, (began, until) in end.items():
        low = start.get(stream, [began, began])[1]
        if low < until and stream in state.ends:
            selected.append((state.ends[stream].sid, low, until))
    return ranges(state.bound, columns, selected)


def _next_offset(start: Offset, file: str, stream: str, end: _End) -> int:
    """Return the offset where reading a stream continues."""
    known = start.get(file, {}).get(stream)
    if known is None:
        return end.first
    if known[1] > end.next:
        raise SequenceRegression(
            f"{file}: stream {stream}: expected offset {known[1]} or later, found {end.next}",
            hint="The file was replaced by an older one: start a new query.",
        )
    if known[1] < end.first:
        raise OffsetGone(
            f"{file}: stream {stream} begins at {end.first}, the query has read until {known[1]}",
            hint="Unread records were deleted: retain more, or start a new query.",
        )
    return known[1]


def _sorted(offset: Offset) -> Offset:
    """Sort an offset, so that equal offsets have equal texts."""
    return {file: dict(sorted(known.items())) for file, known in sorted(offset.items()) if known}


_OF_A_BATCH = ("at", "cut", "objects", "shared", "since", "where")
_TABLES = ("records", "messages")


def stream_reader(options: Mapping[str, str], schema: StructType) -> StreamsReader:
    """Return the reader for `DataSource.streamReader` of streams."""
    try:
        read = read_options(options)
        refuse_options(options, _OF_A_BATCH)
        if read.table_name not in _TABLES:
            raise InvalidInput(
                f"table {read.table_name!r} cannot be streamed: its rows change",
                hint=f"Tables that can be streamed: {', '.join(_TABLES)}.",
            )
        return StreamsReader(read, column_names(read, schema))
    except FourfoldError as error:
        raise wrap_error(error) from error


class StreamsReader(FourfoldStreamReader):
    """A streaming reader whose offsets are those of streams."""

    def _follower(self) -> Any:
        if self._files is None:
            self._files: Any = StreamFollower(self._options)
        return self._files
