"""The engine of searches and aggregates: walks a stream from its end, part by part.

    log ──> newest segment ──> ... ──> oldest segment

A part is a range of the log or of one segment, and is read in slices, so that memory and the time
between two checks of the budget are bounded. Segments whose times are outside of the bounds are
skipped; segments with a companion of the current plan are searched in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from operator import neg
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fourfold import limits
from fourfold.archive.parquet import has_arrow
from fourfold.content.filters import And
from fourfold.content.json_pointer import lookup
from fourfold.content.text import TextPart, TextQuery
from fourfold.errors import CorruptData, MissingDependency
from fourfold.kernel import ReadTransaction, load_queries
from fourfold.models.streams import rules
from fourfold.models.streams.archive.records import Segment
from fourfold.models.streams.reader import NotInTheLog, source_ranges
from fourfold.models.streams.records import ColdRecords, Record, StreamInfo
from fourfold.models.streams.schemas.search import Search
from fourfold.models.streams.search import evaluation, projection, tail
from fourfold.models.streams.search.companions import rollups
from fourfold.models.streams.search.companions.plans import make_plan
from fourfold.models.streams.search.companions.reader import CompanionRow
from fourfold.models.streams.search.companions.rollups import RollupSums, RollupUse, concat_tables
from fourfold.models.streams.search.measures import Accumulator
from fourfold.models.streams.search.query import SearchExpression, decode_message, iter_texts
from fourfold.models.streams.search.ranking import RANKED_MAX, Occurrences, Ranking
from fourfold.models.streams.search.request import (
    AggregateRequest,
    Bounds,
    Budget,
    SearchCursor,
    SearchRequest,
    parse_cursor,
)
from fourfold.models.streams.search.results import Aggregates, Coverage, Hit, SearchPage, Total
from fourfold.models.streams.search.tail import Row, TailCache
from fourfold.models.streams.search.tail_text import (
    PIECE_BYTES_MAX,
    TailText,
    TextBlock,
    parse_block,
)
from fourfold.models.streams.search.timestamps import compile_time
from fourfold.models.streams.validation import Offset
from fourfold.models.streams.writer import SQL as STREAMS

if TYPE_CHECKING:
    from fourfold.models.streams.search.companions.reader import CompanionReader

SQL = load_queries("fourfold.models.streams.search")
SLICE_RECORDS: Final = 5_000
SLICE_BYTES: Final = 2 * limits.MIB
"""Records, and about how many of their bytes, that are read between two checks of the budget."""
BLOCK_RECORDS: Final = 256
"""Records in memory at a time: single ones take twice as long."""
FEW_RECORDS: Final = 32
"""Records of the log that are read one by one, of a block of candidates."""
SEGMENTS_LISTED: Final = 256
"""Segments that are listed at a time."""
SNIPPETS_MAX: Final = 5
"""Snippets of one match."""


class RecordMatch(NamedTuple):
    """A record that matches, its message, and its time."""

    record: Record
    message: Any
    time_ms: int


class RecordRange(NamedTuple):
    """Records from `start` to before `end`, in the log or in one segment."""

    sid: int
    start: int
    end: int
    segment: Segment | None
    companion: CompanionRow | None = None
    """The companion of the segment, if it is of the current plan."""


class SearchSlice(NamedTuple):
    """The result of one step of a search: all matches from `start` to the step before."""

    start: int
    matches: list[RecordMatch]
    """The newest first."""
    uncollected: int = 0
    """Number of further matches, whose records were not read."""


class Walk:
    """Reads one stream from its end, within the bounds of a request."""

    def __init__(
        self,
        snapshot: ReadTransaction,
        info: StreamInfo,
        cold: ColdRecords | None,
        bounds: Bounds,
        tails: TailCache | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._tails = tails
        self._info = info
        self._cold = cold
        self._bounds = bounds
        declared = rules.registry_of(snapshot, info).search or Search()
        self._plan = make_plan(rules.registry_of(snapshot, info))
        self.query = SearchExpression(bounds.text, declared.text, bounds.filter)
        names = projection.field_names(self.query.root)
        self._decode = projection.compile_decoder(names or None)
        """Decodes what decides the condition; a message that matches is decoded as a whole."""
        self._decodes_whole = not names
        self._fragment = projection.required_fragment(self.query.root)
        self.time_of = compile_time(declared.timestamp)
        self.budget = Budget(bounds.max_bytes, bounds.timeout_s)
        self.end = info.next_offset
        self.reached = info.next_offset
        """All records from here to the end were examined."""
        self._collected = 0
        self._counts = dict.fromkeys(("segments", "skipped", "indexed", "scanned"), 0)
        self._average = max(1, info.size_bytes // max(1, info.next_offset))
        self._step = max(1, min(SLICE_RECORDS, SLICE_BYTES // self._average))
        self._block = min(BLOCK_RECORDS, self._step)
        self._current_from = rules.begin_of_version(snapshot, info) if info.schema_version else 0

    def slices(self, before: int, limit: int | None = None) -> Iterator[SearchSlice]:
        """Yield the matches before an offset, slice by slice, the newest first.

        With `limit`, matches after so many may be counted only: their records are left out.
        """
        self.reached = before
        self._collected = 0
        for part in self._parts(before):
            for piece in self._steps(part, limit):
                self.reached = piece.start
                self._collected += len(piece.matches)
                yield piece
                if self.budget.is_exhausted and self.reached > self._info.first_offset:
                    return

    def pause(self) -> None:
        """Pause if the step was long enough and other threads write."""
        self._snapshot.pause()

    def coverage(self) -> Coverage:
        """Return what was examined."""
        number = self._info.incarnation_number
        return Coverage(
            complete=self.reached <= self._info.first_offset,
            start=Offset(self.reached, number),
            end=Offset(self.end, number),
            segments=self._counts["segments"],
            segments_skipped=self._counts["skipped"],
            segments_indexed=self._counts["indexed"],
            segments_scanned=self._counts["scanned"],
            scanned_records=self.budget.records,
            scanned_bytes=self.budget.bytes,
        )

    def read(self, offset: int) -> RecordMatch:
        """Return the record at an offset as a match."""
        [(sid, _, _)] = source_ranges(self._snapshot, self._info, offset, offset + 1)
        [record] = self._records(RecordRange(sid, offset, offset + 1, None), offset, offset + 1)
        message = decode_message(record.payload)
        return RecordMatch(record, message, self.time_of(message, record.ts_ms))

    def _parts(self, before: int) -> Iterator[RecordRange]:
        """Yield the parts of the stream before an offset, the newest first."""
        ranges = source_ranges(self._snapshot, self._info, self._info.first_offset, before)
        for sid, first, last in reversed(ranges):
            edge = min(last, max(first, int(self._snapshot.value(STREAMS.log_begin, (sid,)))))
            if edge < last:
                yield RecordRange(sid, edge, last, None)
            yield from self._segments(sid, first, edge)

    def _segments(self, sid: int, first: int, end: int) -> Iterator[RecordRange]:
        if first >= end:
            return
        if self._cold is None:
            raise NotInTheLog
        stream = self._snapshot.value(SQL.stream_of, (sid,))
        plan = self._snapshot.one(SQL.plan, (stream,))
        # A fork uses the companions of its source, if both plan the same.
        planned = plan is not None and plan[1] == self._plan.digest
        generation = plan[0] if plan is not None and planned else None
        while first < end:
            rows = self._snapshot.all(SQL.segments_before, (stream, end, first, SEGMENTS_LISTED))
            for row in rows:
                segment = Segment._make(row[:11])
                usable = row[11] is not None and row[12] == generation
                companion = CompanionRow(*row[11:]) if usable else None
                self._counts["segments"] += 1
                yield RecordRange(sid, max(first, segment.start_offset), end, segment, companion)
                end = max(first, segment.start_offset)
            if len(rows) < SEGMENTS_LISTED:
                break
        if first < end:
            # No segment has them: reading reports what is missing.
            yield RecordRange(sid, first, end, None)

    def _records(self, part: RecordRange, start: int, end: int) -> Iterator[Record]:
        """Yield the records of a range of a part as readers receive them."""
        for block in self._blocks(part, start, end):
            yield from map(Record._make, block)

    def _blocks(
        self, part: RecordRange, start: int, end: int, *, may_skip: bool = False
    ) -> Iterator[Sequence[Row]]:
        """Yield the fields of the records of a range of a part, as readers receive them.

        With `may_skip`, records that cannot match may be left out.
        """
        if part.segment is not None or start < self._log_begin(part.sid):
            assert self._cold is not None
            records = self._cold.records(self._snapshot, part.sid, start, end)
            promoted = iter(rules.promote_records(self._snapshot, self._info, records))
            while block := list(islice(promoted, self._block)):
                yield block
            return
        for first in range(start, end, self._block):
            is_current = first >= self._current_from
            query, params = STREAMS.records, (part.sid, first, min(end, first + self._block))
            if may_skip and is_current and self._excludes:
                query, params = self._excluding(params)
            rows: list[Any] = self._snapshot.all(query, params)
            if not is_current:
                records = map(Record._make, rows)
                rows = list(rules.promote_records(self._snapshot, self._info, records))
            yield rows

    def _lines(self, part: RecordRange, start: int, end: int) -> bytes:
        """Return the payloads of a range of the log, joined by line feeds.

        The caller counts them: records of one stream have ids in the order of their offsets.
        """
        self.pause()
        if start >= self._current_from:
            first, last = self._snapshot.all(SQL.places, (part.sid, start, end))[0]
            if last - first == end - start - 1:
                return bytes(self._snapshot.value(SQL.lines, (part.sid, first, last)))
            data, count = self._snapshot.all(STREAMS.joined, (part.sid, start, end, "\n"))[0]
            if count == end - start:
                return bytes(data)
        # Some are among the newest ones, or are converted.
        return b"\n".join(row[1] for block in self._blocks(part, start, end) for row in block)

    def _times(self, part: RecordRange, start: int, end: int) -> list[int]:
        """Return when the records of a range of the log were appended."""
        rows = self._snapshot.all(SQL.append_times, (part.sid, start, end))
        return [row[0] for row in rows]

    @property
    def _excludes(self) -> bool:
        """True if SQLite can leave out records of the log that do not match."""
        return self.query.required_word is not None or self._fragment is not None

    def _excluding(self, params: tuple[int, int, int]) -> tuple[str, tuple[Any, ...]]:
        """Return the query that leaves them out, without making Python objects of them."""
        word = self.query.required_word
        if word is not None:
            # A word has no wildcards; with one, the pattern would match more.
            return SQL.records_with_word, (*params, f"%{word}%")
        return SQL.records_with_bytes, (*params, self._fragment)

    def _log_begin(self, sid: int) -> int:
        return int(self._snapshot.value(STREAMS.log_begin, (sid,)))

    def _steps(self, part: RecordRange, limit: int | None) -> Iterator[SearchSlice]:
        """Search a part: in its companion if it has one, and record by record otherwise."""
        if part.segment is None:
            yield from self._scan(part)
            return
        if part.companion is not None:
            if self.is_outside(part.companion):
                self._counts["skipped"] += 1
                yield SearchSlice(part.start, [])
                return
            reached = part.end
            try:
                for piece in self._indexed(part, part.segment, part.companion, limit):
                    reached = piece.start
                    yield piece
            except (CorruptData, MissingDependency):
                # A companion makes a search faster, and is never required.
                part = part._replace(end=reached)
            else:
                self._counts["indexed"] += 1
                return
        self._counts["scanned"] += 1
        yield from self._scan(part)

    def is_outside(self, companion: CompanionRow | tail.TailPiece) -> bool:
        """Return True if no time of a segment or piece is within the bounds."""
        low, high = companion.time_min_ms, companion.time_max_ms
        since, until = self._bounds.since_ms, self._bounds.until_ms
        if low is None or high is None:
            return False
        return (since is not None and high < since) or (until is not None and low > until)

    def _indexed(
        self, part: RecordRange, segment: Segment, row: CompanionRow, limit: int | None
    ) -> Iterator[SearchSlice]:
        """Search a segment in its companion."""
        assert self._cold is not None
        first = segment.start_offset
        with self._cold.companions.open(row, self._plan, segment.segment_id) as companion:
            rows = evaluation.text_rows(companion, self._plan, self.query.root)
            sure: frozenset[int] = frozenset()
            if rows is None or len(rows) > evaluation.FEW_ROWS:
                masks = evaluation.matching(companion, self.query.root, self._bounds)
                rows = evaluation.rows_of(masks.maybe)
                if limit is not None:
                    sure = evaluation.decided_rows(masks, rows)
        rows = [at for at in rows if part.start <= first + at < part.end]
        size = evaluation.FEW_ROWS if limit is None else min(limit + 1, evaluation.FEW_ROWS)
        for batch in evaluation.batches(rows, size):
            if limit is not None and self._collected > limit:
                # The page is full, and what is left is only counted.
                rest = rows[bisect_left(rows, -batch[0], key=neg) :]
                undecided = [first + at for at in rest if at not in sure]
                yield SearchSlice(
                    part.start, self._pick(segment, undecided), len(rest) - len(undecided)
                )
                return
            yield SearchSlice(first + batch[-1], self._pick(segment, [first + at for at in batch]))
        yield SearchSlice(part.start, [])

    def _pick(self, segment: Segment, offsets: list[int]) -> list[RecordMatch]:
        """Return the records at some offsets that match, in the order of the offsets."""
        assert self._cold is not None
        records = self._cold.pick(segment, offsets)
        matches = []
        size = 0
        for record in rules.promote_records(self._snapshot, self._info, records):
            size += len(record.payload)
            message = decode_message(record.payload)
            if self.query.matches(message):
                time_ms = self.time_of(message, record.ts_ms)
                if self._bounds.covers(time_ms):
                    matches.append(RecordMatch(record, message, time_ms))
            self.pause()
        self.budget.spend(len(offsets), size)
        return matches

    def aggregate(self, groups: Accumulator) -> list[dict[str, Any]]:
        """Add all messages that match to an aggregate, and return its rows."""
        sums = RollupSums(groups)
        self._aggregate(groups, sums)
        if not groups.groups:
            return sums.rows()
        sums.merge()
        return groups.rows()

    def _aggregate(self, groups: Accumulator, sums: RollupSums) -> None:
        for part in self._parts(self.end):
            if part.segment is None:
                if not self._aggregate_tail(part, groups, sums):
                    self._aggregate_scanned(part, groups)
            elif not self._aggregate_indexed(part, groups, sums):
                self._counts["scanned"] += 1
                self._aggregate_scanned(part, groups)
            else:
                self.reached = part.start
            if self._must_stop():
                return

    def _must_stop(self) -> bool:
        return self.budget.is_exhausted and self.reached > self._info.first_offset

    def _aggregate_scanned(self, part: RecordRange, groups: Accumulator) -> None:
        """Add a part to an aggregate record by record."""
        for start, end in self._scan_bounds(part):
            for matches in self._matching_blocks(part, start, end):
                for match in matches:
                    groups.add(match.message, match.time_ms)
            self.reached = start
            if self._must_stop():
                return

    def _aggregate_tail(self, part: RecordRange, groups: Accumulator, sums: RollupSums) -> bool:
        """Add records of the log to an aggregate by rollups; return False if none fits."""
        plan, condition = self._plan, self.query.root

        def choose(present: Sequence[int]) -> RollupUse | None:
            return rollups.choose(plan.rollups, plan.fields, groups, condition, present)

        if (
            self._tails is None
            or part.start < self._log_begin(part.sid)
            or choose(range(len(plan.rollups))) is None
            # The last one, because it imports pyarrow, which takes half a second.
            or not has_arrow()
        ):
            return False
        tables: dict[int, tuple[RollupUse, list[Any]]] = {}
        for number, start, end in tail.ranges(part.start, part.end):
            piece = self._piece(self._tails, part, number, start, end)
            present = piece.present(is_filtered=condition != And(()))
            use = choose(present) if self._is_inside(piece) else None
            if use is not None:
                tables.setdefault(use.ordinal, (use, []))[1].append(piece.tables[use.ordinal])
                self.reached = start
            elif self.is_outside(piece):
                self.reached = start
            else:
                self._aggregate_scanned(part._replace(start=start, end=end), groups)
            if self._must_stop():
                break
        for use, pieces in tables.values():
            sums.add(use, concat_tables(pieces), self.query.matches)
        return True

    def _piece(
        self, tails: TailCache, part: RecordRange, number: int, start: int, end: int
    ) -> tail.TailPiece:
        """Return the rollups of some records of the log, and keep them for the next aggregate."""
        key = (self._info.incarnation, part.sid, self._plan.digest, number)
        known = tails.rollups.get(key)
        if known is not None and (known.start, known.end) == (start, end):
            return known
        grows = known is not None and known.start == start and known.end < end
        begin = known.end if known is not None and grows else start
        reader = tail.TailReader(
            partial(self._lines, part), partial(self._blocks, part), partial(self._times, part)
        )
        step = min(tail.LINES_RECORDS, self._step)
        piece = tail.build(self._plan, reader, begin, end, step)
        self.pause()
        self.budget.spend(end - begin, (end - begin) * self._average)
        if known is not None and grows:
            piece = tail.join(known, piece)
        if known is None or known.end <= end:
            # A reader of an older state leaves what a newer one has.
            tails.rollups.put(key, piece)
        return piece

    def _aggregate_indexed(self, part: RecordRange, groups: Accumulator, sums: RollupSums) -> bool:
        """Add a segment to an aggregate by its companion; return False if it must be scanned."""
        row, segment = part.companion, part.segment
        if row is None or segment is None or self._cold is None:
            return False
        if self.is_outside(row):
            self._counts["skipped"] += 1
            return True
        whole = (part.start, part.end) == (segment.start_offset, segment.end_offset + 1)
        added = Accumulator(groups.by, groups.measures, groups.every_ms)
        try:
            with self._cold.companions.open(row, self._plan, segment.segment_id) as companion:
                if not (
                    whole
                    and self._is_inside(row)
                    and evaluation.aggregate_rollup(
                        companion, self._plan, groups, sums, self.query.root, self.query.matches
                    )
                ):
                    if not self._aggregate_columns(part, segment, companion, added):
                        return False
                    # Only now, so that a damaged companion adds nothing twice.
                    groups.merge(added)
        except (CorruptData, MissingDependency):
            return False
        self._counts["indexed"] += 1
        return True

    def _is_inside(self, companion: CompanionRow | tail.TailPiece) -> bool:
        """Return True if all times of a segment or piece are within the bounds."""
        low, high = companion.time_min_ms, companion.time_max_ms
        return (
            low is not None
            and high is not None
            and self._bounds.covers(low)
            and self._bounds.covers(high)
        )

    def _aggregate_columns(
        self, part: RecordRange, segment: Segment, companion: CompanionReader, groups: Accumulator
    ) -> bool:
        first = segment.start_offset

        def add_rows(rows: Sequence[int]) -> None:
            for batch in evaluation.batches(rows, evaluation.FEW_ROWS):
                offsets = [first + at for at in batch]
                for match in self._pick(segment, offsets):
                    groups.add(match.message, match.time_ms)

        masks = evaluation.matching(companion, self.query.root, self._bounds)
        kept = range(part.start - first, part.end - first)
        masks = evaluation.within(companion, masks, kept)
        return evaluation.aggregate_columns(companion, groups, masks, add_rows)

    def _scan(self, part: RecordRange) -> Iterator[SearchSlice]:
        """Examine every record of a part."""
        for start, end in self._scan_bounds(part):
            matches = list(chain.from_iterable(self._matching_blocks(part, start, end)))
            matches.reverse()
            yield SearchSlice(start, matches)

    def _scan_bounds(self, part: RecordRange) -> Iterator[tuple[int, int]]:
        """Yield the bounds of the slices of a part, the last one first."""
        if self._excludes and self._has_texts(part):
            for _, start, end in tail.ranges(part.start, part.end):
                yield start, end
            return
        end = part.end
        while end > part.start:
            start = max(part.start, end - self._step)
            yield start, end
            end = start

    def _matching_blocks(
        self, part: RecordRange, start: int, end: int
    ) -> Iterator[list[RecordMatch]]:
        """Yield the matches of a slice block by block; pauses between blocks if others write."""
        matches_query, time_of, bounds = self.query.matches, self.time_of, self._bounds
        may_match, decode = self.query.may_match, self._decode
        size = 0
        for block in self._candidates(part, start, end):
            size += sum(len(row[1]) for row in block)
            rows = [row for row in block if may_match is None or may_match(row[1])]
            decided = decode([row[1] for row in rows])
            matches = []
            for row, fields in zip(rows, decided, strict=True):
                if not matches_query(fields):
                    continue
                message = fields if self._decodes_whole else decode_message(row[1])
                time_ms = time_of(message, row[2])
                if bounds.covers(time_ms):
                    matches.append(RecordMatch(Record._make(row), message, time_ms))
            yield matches
            self.pause()
        if self._excludes:
            # About so much, because not every record was seen here.
            size = max(size, (end - start) * self._average)
        self.budget.spend(end - start, size)

    # The payloads of the log, in memory

    def _has_texts(self, part: RecordRange) -> bool:
        """Return True if the payloads of a part may be in memory."""
        return (
            self._tails is not None
            and part.segment is None
            and part.start >= max(self._current_from, self._log_begin(part.sid))
            and tail.PIECE_RECORDS * self._average <= PIECE_BYTES_MAX
        )

    def _text(self, part: RecordRange, start: int, end: int) -> TailText | None:
        """Return the payloads of some records of the log, or None.

        They are in memory from the second search on, unless they are too large.
        """
        assert self._tails is not None
        key = (self._info.incarnation, part.sid, "", start // tail.PIECE_RECORDS)
        text = self._tails.texts.get(key)
        if text is None:
            # It is worth its memory if there is a second search.
            self._tails.texts.put(key, TailText(start, start, ()))
            return None
        if text.start <= start and end <= text.end:
            return text
        known = text if text.start <= start else TailText(start, start, ())
        blocks, size = list(known.blocks), known.size
        for first in range(known.end, end, self._block):
            last = min(end, first + self._block)
            block = parse_block(
                first, last, self._snapshot.all(SQL.payloads, (part.sid, first, last))[0]
            )
            size += 0 if block is None else len(block.data)
            if block is None or size > PIECE_BYTES_MAX:
                return None
            blocks.append(block)
            self.pause()
        text = TailText(known.start, end, tuple(blocks))
        self._tails.texts.put(key, text)
        return text

    def _candidates(self, part: RecordRange, start: int, end: int) -> Iterator[Sequence[Row]]:
        """Yield the records of a range of a part that may match."""
        text = self._text(part, start, end) if self._excludes and self._has_texts(part) else None
        if text is None:
            yield from self._blocks(part, start, end, may_skip=True)
            return
        word = self.query.required_word
        for block in text.within(start, end):
            low, high = max(start, block.start), min(end, block.end)
            if block.has_escapes or (word is not None and not block.is_ascii):
                # What is written otherwise than in its own bytes is found only record by record.
                yield from self._blocks(part, low, high, may_skip=True)
            else:
                yield from self._rows_of_text(part, block, low, high)
            # A block without a match yields nothing that a pause would follow.
            self.pause()

    def _rows_of_text(
        self, part: RecordRange, block: TextBlock, start: int, end: int
    ) -> Iterator[Sequence[Row]]:
        """Yield the records of a range that match by their payloads in memory."""
        word = self.query.required_word
        needle = word.encode() if word is not None else self._fragment
        assert needle is not None
        found = block.find(needle, fold=word is not None)
        offsets = [at for at in found if start <= at < end]
        if not offsets:
            return
        decided = self._decode(list(map(block.payload, offsets)))
        pairs = zip(offsets, decided, strict=True)
        matched = [at for at, fields in pairs if self.query.matches(fields)]
        if len(matched) > FEW_RECORDS:
            yield from self._blocks(part, matched[0], matched[-1] + 1, may_skip=True)
            return
        rows: list[Any] = []
        for at in matched:
            rows += self._snapshot.all(STREAMS.records, (part.sid, at, at + 1))
        yield rows


def search(
    snapshot: ReadTransaction,
    info: StreamInfo,
    cold: ColdRecords | None,
    request: SearchRequest,
    tails: TailCache | None = None,
) -> SearchPage:
    """Return a page of the matches of a search."""
    digest = request.digest(info.name)
    cursor = parse_cursor(request.after, digest, info)
    walk = Walk(snapshot, info, cold, request, tails)
    if cursor is not None:
        walk.end = cursor.end
    if request.order == "score":
        return _ranked(walk, info, request, cursor, digest)
    return _newest(walk, info, request, cursor, digest)


def _newest(
    walk: Walk, info: StreamInfo, request: SearchRequest, cursor: SearchCursor | None, digest: str
) -> SearchPage:
    # The first page has the total; later ones begin where the last one ended.
    with_total = request.total and cursor is None
    matches: list[RecordMatch] = []
    count = 0
    before = walk.end if cursor is None else cursor.position
    for piece in walk.slices(before, request.limit):
        count += len(piece.matches) + piece.uncollected
        matches += piece.matches[: request.limit + 1 - len(matches)]
        if len(matches) > request.limit and not with_total:
            break
    coverage = walk.coverage()
    total = Total(count, coverage.complete) if with_total else None
    following = None
    if len(matches) > request.limit:
        matches.pop()
        following = matches[-1].record.offset
        # The page is full; what is left is not missing from it.
        coverage = coverage._replace(complete=True)
    elif not coverage.complete:
        following = walk.reached
    number = info.incarnation_number
    return SearchPage(
        [_hit(walk.query, match, number, None) for match in matches],
        None if following is None else SearchCursor(digest, number, walk.end, following).format(),
        coverage,
        total,
    )


def _ranked(
    walk: Walk, info: StreamInfo, request: SearchRequest, cursor: SearchCursor | None, digest: str
) -> SearchPage:
    ranking = Ranking(walk.query)
    offsets: list[int] = []
    measured: list[Occurrences] = []
    count = 0
    for piece in walk.slices(walk.end):
        count += len(piece.matches)
        for match in piece.matches[: RANKED_MAX - len(offsets)]:
            offsets.append(match.record.offset)
            measured.append(ranking.measure(match.message))
            walk.pause()
        if len(offsets) >= RANKED_MAX and not request.total:
            break
    scores = ranking.scores(measured)
    # The best first, and of equal ones the newest.
    order = sorted(range(len(offsets)), key=lambda at: (-scores[at], -offsets[at]))
    done = 0 if cursor is None else cursor.position
    page = order[done : done + request.limit]
    number = info.incarnation_number
    hits = [_hit(walk.query, walk.read(offsets[at]), number, round(scores[at], 6)) for at in page]
    more = done + len(page) < len(order)
    following = SearchCursor(digest, number, walk.end, done + len(page)).format() if more else None
    coverage = walk.coverage()
    with_total = request.total and cursor is None
    return SearchPage(
        hits, following, coverage, Total(count, coverage.complete) if with_total else None
    )


def aggregate(
    snapshot: ReadTransaction,
    info: StreamInfo,
    cold: ColdRecords | None,
    request: AggregateRequest,
    tails: TailCache | None = None,
) -> Aggregates:
    """Return the groups of the messages that match, with their measures.

    `tails` has rollups of records in the log; without it the log is scanned.
    """
    walk = Walk(snapshot, info, cold, request, tails)
    groups = Accumulator(request.by, request.measures, request.every_ms)
    rows = walk.aggregate(groups)
    return Aggregates.of(rows, walk.coverage(), groups.columns)


def _hit(query: SearchExpression, match: RecordMatch, number: int, score: float | None) -> Hit:
    offset = Offset(match.record.offset, number)
    return Hit(offset, match.record, match.time_ms, score, _snippets(query, match.message))


def _snippets(query: SearchExpression, message: Any) -> dict[str, Any]:
    """Return the parts of a message that match words of the query, by field."""
    parts: dict[tuple[str, ...] | None, list[TextPart]] = {}
    for path, part in query.words():
        parts.setdefault(path, []).append(part)
    snippets: dict[str, Any] = {}
    for path, words in parts.items():
        text_query = TextQuery(tuple(words))
        texts = (
            iter_texts(message)
            if path is None
            else [(".".join(path), text) for text in [lookup(message, path)] if type(text) is str]
        )
        for field, text in texts:
            if len(snippets) < SNIPPETS_MAX and field not in snippets:
                snippet = text_query.snippet(text)
                if snippet.highlights:
                    snippets[field] = snippet
    return snippets
