"""How far a streaming read may go: an offset for each stream of each file.

    {"wal": {"31a0c7f02b9e": [0, 120], "e2d84b610c55": [40, 41]}}

The two numbers of a stream are where reading it began and where it stands. Offsets of a stream are
dense and its records never change, so a range of them names the same rows for ever, and a batch
that is run again reads what it read before. Streams are named by their incarnation, so one that is
deleted and made anew is read from its own beginning.

A stream that was deleted has nothing more to give. Where retention or the archive took records that
were not read yet, the query fails rather than leave them out.

`spark.readStream` over streams: one, those of a pattern, or all, with an offset for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from fourfold.errors import FourfoldError, InvalidInput, NotFound, OffsetGone, SequenceRegression
from fourfold.pipeline import cut, plan
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.documents.stream_source import FourfoldStreamReader
from fourfold.pipeline.options import ReadOptions, read_options
from fourfold.pipeline.scan import Piece, ScanTask
from fourfold.pipeline.source import column_names
from fourfold.pipeline.spark import wrap_error
from fourfold.pipeline.stream_source import make_durable
from fourfold.pipeline.streams.fold import SQL, Range, ranges, registries_in
from fourfold.pipeline.tables import Column

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


Offset = dict[str, dict[str, list[int]]]


class _End(NamedTuple):
    """A stream in a file: what is there of it."""

    sid: int
    first: int
    next: int


class _File(NamedTuple):
    mark: FileBound
    ends: dict[str, _End]
    """By incarnation."""


class StreamFollower:
    """The streams that a query follows. `end_here` fixes how far it reads in all."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._final: dict[str, _File] | None = None

    def beginning(self) -> Offset:
        """Nothing was read yet."""
        return {}

    def admitted(self, start: Offset, rows: int | None) -> Offset:
        """How far a batch reads that begins at `start` and has at most about so many rows: every
        stream with something new gets a share, so that none waits for another.
        """
        files = self._look() if self._final is None else self._final
        fresh = {
            (file, stream): (at, end)
            for file, found in files.items()
            for stream, end in found.ends.items()
            if (at := _place(start, file, stream, end)) < end.next
        }
        reached = {file: self._kept(file, known, files) for file, known in start.items()}
        left, streams_left = rows, len(fresh)
        for (file, stream), (at, end) in sorted(fresh.items(), key=lambda each: each[1][1].next):
            upto = end.next
            if left is not None:
                upto = min(upto, at + max(left // streams_left, 1)) if left else at
                left -= upto - at
            streams_left -= 1
            if upto > at:
                began = start.get(file, {}).get(stream, [at])[0]
                reached.setdefault(file, {})[stream] = [began, upto]
        for file in {file for file, _ in fresh}:
            make_durable(files[file].mark.path)
        return _sorted(reached)

    def newest_offset(self) -> Offset:
        return _sorted(
            {
                file: {stream: [end.first, end.next] for stream, end in found.ends.items()}
                for file, found in self._look().items()
            }
        )

    def end_here(self) -> None:
        self._final = self._look()

    def works(self, start: Offset, end: Offset, columns: tuple[Column, ...]) -> list[ScanTask]:
        """The tasks that read what lies between two offsets."""
        files = self._look() if start != end else {}
        table = self._options.table
        read = self._options.tables.table(table.reads).chosen() if table.folded else columns
        parts = [
            (self._options.partition_bytes, piece)
            for file, found in files.items()
            for piece in self._pieces(start.get(file, {}), end.get(file, {}), found, read)
        ]
        for file in end:
            if start != end:
                self._kept(file, {}, files)
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
        found: _File,
        columns: tuple[Column, ...],
    ) -> Iterator[Piece]:
        """The queries on one file; messages are promoted by the registries that it has now."""
        folded = self._options.table.folded
        told = (registries_in(found.mark, self._options.stream) if folded else None) or None
        for piece in _pieces(start, end, found, columns):
            yield replace(piece, context=told)

    def _kept(
        self, file: str, known: dict[str, list[int]], files: dict[str, _File]
    ) -> dict[str, list[int]]:
        """What stays in an offset of a file: the streams that are still there."""
        if file in files:
            return {stream: seen for stream, seen in known.items() if stream in files[file].ends}
        if self._options.skip_bad:
            return known
        raise NotFound(
            f"{self._options.location}: the file {file} has gone while a query reads it",
            hint="Put it back, or begin a new query with another checkpoint.",
        )

    def _look(self) -> dict[str, _File]:
        options = self._options
        found = cut.find_files(cut.find_stores(options.root, options.roots), options.tables)
        files = {}
        for mark in cuts.read_files_cut(found, options.tables, skip_bad=options.skip_bad).marks:
            rows = cuts.fetch_rows(mark, SQL.ends, (options.stream,))
            key = mark.space if options.root is not None else f"{mark.root} {mark.space}"
            files[key] = _File(mark, {stream: _End(*ends) for stream, *ends in rows})
        return files


def _pieces(
    start: dict[str, list[int]],
    end: dict[str, list[int]],
    found: _File,
    columns: tuple[Column, ...],
) -> Iterator[Piece]:
    wanted: list[Range] = []
    for stream, (began, upto) in end.items():
        low = start.get(stream, [began, began])[1]
        if low < upto and stream in found.ends:
            wanted.append((found.ends[stream].sid, low, upto))
    return ranges(found.mark, columns, wanted)


def _place(start: Offset, file: str, stream: str, end: _End) -> int:
    """Where reading a stream goes on."""
    known = start.get(file, {}).get(stream)
    if known is None:
        return end.first
    if known[1] > end.next:
        raise SequenceRegression(
            f"{file}: stream {stream} goes to {end.next}, but the query has read to {known[1]}",
            hint="The file was replaced by an older one: begin a new query.",
        )
    if known[1] < end.first:
        raise OffsetGone(
            f"{file}: stream {stream} begins at {end.first}, but the query has read to {known[1]}",
            hint="Retention or the archive was quicker: keep more, or begin a new query.",
        )
    return known[1]


def _sorted(offset: Offset) -> Offset:
    """The same offset is the same text."""
    return {file: dict(sorted(known.items())) for file, known in sorted(offset.items()) if known}


_OF_A_BATCH = ("at", "cut", "objects", "shared", "since", "where")
_TABLES = ("records", "messages")


def stream_reader(options: Mapping[str, str], schema: StructType) -> StreamsReader:
    """The reader of `DataSource.streamReader` for streams."""
    try:
        read = read_options(options)
        given = {name.lower() for name in options}
        for name in _OF_A_BATCH:
            if name in given:
                raise InvalidInput(f"the option {name} is for a batch, not for a stream")
        if read.table_name not in _TABLES:
            raise InvalidInput(
                f"the table {read.table_name} cannot be streamed: its rows change",
                hint=f"These can, since rows are only added to them: {', '.join(_TABLES)}.",
            )
        return StreamsReader(read, column_names(read, schema))
    except FourfoldError as error:
        raise wrap_error(error) from error


class StreamsReader(FourfoldStreamReader):
    """As every stream of the source; only its offsets are those of streams."""

    def _following(self) -> Any:
        if self._files is None:
            self._files: Any = StreamFollower(self._options)
        return self._files
