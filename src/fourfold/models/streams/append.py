"""Appending: many appends in one transaction, each with its own outcome.

An append reserves its offsets, adds its records, moves the counters and the producer on, all in one
transaction, so that what was acknowledged is there, once, in order. Appends that share a
transaction share its statements too: the records of a stream go in together, and its counters move
once. A rejected append writes nothing and does not affect the others.

The ends of streams are cached from one transaction to the next. The cache is valid only if nothing
was written in between, so it needs no invalidation.

Positions of records in the log: an index in two levels.

The log stores records in the order of arrival. `wal_index`, which is as large as the log, finds
them by stream and offset. Appends to many streams would each change another page of it; so those
that share a commit go to `wal_recent`, which never has many pages. When it is full, a portion moves
to `wal_index` in the order of the streams, so that each stream has collected several positions by
then.

    record ──> wal_log, and its position ──> wal_recent ── portions ──> wal_index
                                        └──── one stream, or few ───────┘

All of that happens in the transaction of the append, and readers query both levels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.errors import Busy, FourfoldError, InvalidInput, NotFound, Refused, StreamGone
from fourfold.kernel import Transaction, load_queries
from fourfold.kernel.bulk_insert import values_statement
from fourfold.models.streams import admission, preparation, record_ids, validation
from fourfold.models.streams import rules as stream_rules
from fourfold.models.streams.admission import KnownProducer
from fourfold.models.streams.preparation import PreparedAppend
from fourfold.models.streams.record_headers import check_encoded
from fourfold.models.streams.records import AppendResult, Producer, StreamInfo
from fourfold.models.streams.rules import Rules
from fourfold.models.streams.validation import Offset
from fourfold.models.streams.writer import SQL, StreamClock, info_of

STREAM_TAILS_MAX: Final = 8_192
"""Streams whose tails are cached between appends."""
STREAM_PRODUCERS_REMEMBERED: Final = 64
"""Producers cached per stream."""
STREAM_SCATTERED_PLACES: Final = 4
"""Records of a commit that are worth the small level of the index, which writes their places
twice; fewer go directly into the large one.
"""
STREAM_RECENT_PLACES: Final = 2_048
"""Rows of the small level before some of them move to the large one."""
STREAM_PLACES_MOVED: Final = 512
"""Rows that move at a time."""

_SQL = load_queries("fourfold.models.streams")
_AFTER_ALL = (2**63 - 1, 0)


class Places:
    """Index of the positions of records in the log, written with each append."""

    def __init__(self) -> None:
        self._recent: int | None = None
        """Number of rows in `wal_recent`; None while unknown."""
        self._cursor = 0
        """Stream that the next portion starts at."""
        self._ids_checked = False
        """True once the ids of new records are known to be new."""

    def invalidate(self) -> None:
        """Drop what is cached after a write by others or a rollback."""
        self._recent = None
        self._ids_checked = False

    def hold_id(self, txn: Transaction) -> int | None:
        """Make the ids of new records greater than all before; see `record_ids.hold`."""
        if self._ids_checked:
            return None
        self._ids_checked = True
        return record_ids.hold(txn)

    def add_one(self, txn: Transaction, sid: int, offset: int) -> None:
        """Index the last inserted record."""
        txn.execute(_SQL.place, (sid, offset))

    def add_together(self, txn: Transaction, count: int) -> None:
        """Index the last `count` inserted records, all of one stream."""
        txn.execute(_SQL.place_last, (count,))

    def add_scattered(self, txn: Transaction, count: int) -> None:
        """Index the last `count` inserted records, of several streams."""
        if count < STREAM_SCATTERED_PLACES:
            txn.execute(_SQL.place_last, (count,))
            return
        txn.execute(_SQL.note_last, (count,))
        if self._recent is not None:
            self._recent += count
        while self._count(txn) >= STREAM_RECENT_PLACES:
            self._move_portion(txn)

    def _count(self, txn: Transaction) -> int:
        if self._recent is None:
            self._recent = int(txn.value(_SQL.recent_count))
        return self._recent

    def _move_portion(self, txn: Transaction) -> None:
        """Move one portion of `wal_recent` to `wal_index`."""
        first = self._cursor
        end = txn.one(_SQL.recent_end, (first, STREAM_PLACES_MOVED))
        between = (first, *(end or _AFTER_ALL))
        txn.execute(_SQL.settle, between)
        txn.execute(_SQL.settled, between)
        if end is None:
            # All streams were visited: count the remaining rows again.
            self._cursor, self._recent = 0, None
        else:
            self._cursor = end[0]
            self._recent = self._count(txn) - txn.changes


_COLUMNS = ("sid", "offset", "ts_ms", "payload", "payload_len")
_KEYED = (*_COLUMNS, "routing_key")
_WITH_HEADERS = (*_KEYED, "headers")
_new = tuple.__new__
"""Creates a named tuple without the overhead of its `__new__`."""
_SERIES_MIN = 4
"""Minimum number of records of one stream to insert as an array, not in a shared statement."""


class Append(NamedTuple):
    """An append: the records, and the conditions under which they are accepted."""

    records: Sequence[bytes]
    content_type: str | None
    producer: Producer | None = None
    stream_seq: str | None = None
    close: bool = False
    routing_key: bytes | None = None
    """Key by which the records can be read."""
    prepared: PreparedAppend | None = None
    """Result of validating the records before the transaction."""
    expected: Offset | int | None = None
    """End of the stream at which alone the append is accepted."""
    headers: bytes | None = None
    """Headers of each record, as JSON."""

    @classmethod
    def unconditional(cls, records: Sequence[bytes], content_type: str) -> Append:
        """Return an append without conditions, key and headers, as most are, in half the time."""
        return _new(cls, (records, content_type, *_UNCONDITIONAL))


_UNCONDITIONAL: Final = tuple(Append._field_defaults.values())
StreamAppend = tuple[str, Append]
"""Name of a stream, and the append to it."""
Outcome = AppendResult | FourfoldError


class _Tail:
    """The end of a stream, advanced by every append of a transaction."""

    __slots__ = (
        "close",
        "closed",
        "closed_by",
        "content_type",
        "deleted",
        "expires_at_ms",
        "headers",
        "incarnation_number",
        "is_plain",
        "keyed",
        "name",
        "next_offset",
        "produced",
        "producers",
        "records",
        "rules",
        "sid",
        "size",
        "stream_seq",
        "time_ms",
        "ttl_seconds",
    )

    def __init__(self, info: StreamInfo, rules: Rules | None) -> None:
        self.rules = rules
        self.sid = info.sid
        self.name = info.name
        self.incarnation_number = info.incarnation_number
        self.content_type = info.content_type
        self.next_offset = info.next_offset
        self.closed = info.closed
        self.closed_by = info.closed_by
        self.stream_seq = info.stream_seq
        # A clock may be set back; the times of records never are.
        self.time_ms = info.updated_at_ms
        self.ttl_seconds = info.ttl_seconds
        self.expires_at_ms = info.expires_at_ms
        self.deleted = info.deleted
        self.is_plain = rules is None and not (
            info.closed
            or info.deleted
            or info.ttl_seconds is not None
            or info.expires_at_ms is not None
        )
        """True while the stream is open, never expires and accepts any record of its type."""
        self.producers: dict[str, KnownProducer | None] = {}
        # Pending writes of the current transaction.
        self.records: list[bytes] = []
        self.keyed: list[tuple[int, int, bytes]] = []
        self.headers: list[tuple[int, int, bytes]] = []
        self.size = 0
        self.produced: set[str] = set()
        self.close = False

    def is_expired(self, now: StreamClock) -> bool:
        """Return True if the stream has expired, including uses that are not written yet."""
        end = self.expires_at_ms
        if end is None or end > now.ms or self.deleted:
            return False
        used = now.used.get(self.sid)
        return used is None or self.ttl_seconds is None or used + 1000 * self.ttl_seconds <= now.ms


class Appender:
    """Appends to the streams of one database, inside the transaction of the caller.

    `on_unprepared` is called with the name of a stream whose append should have been prepared.
    """

    def __init__(self, on_unprepared: Callable[[str], None] = lambda _: None) -> None:
        self._on_unprepared = on_unprepared
        self._tails: dict[str, _Tail] = {}
        self._places = Places()
        self._mark = -1
        """`total_changes` of the connection when the tails were valid; -1 while unknown."""

    def check(self, name: str, request: Append) -> int:
        """Check an append that no stream could accept; return its size in bytes."""
        if name not in self._tails:
            validation.check_name(name)
        records = request[0]
        if len(records) == 1 and request[2:] == _UNCONDITIONAL:
            record = records[0]
            if type(record) is bytes and record:
                return len(record)
        return _check(name, request)

    def notice_place(self, name: str) -> tuple[int, int] | None:
        """Return the sid of a cached stream and the time of its last records.

        None if the stream is not cached or has rules, which may change its records.
        """
        tail = self._tails.get(name)
        return None if tail is None or tail.rules is not None else (tail.sid, tail.time_ms)

    def append(
        self, txn: Transaction, appends: Sequence[StreamAppend], now: StreamClock
    ) -> list[Outcome]:
        """Return the outcome of each append in order; a database error is raised for all."""
        if txn.total_changes != self._mark or len(self._tails) > STREAM_TAILS_MAX:
            self._tails = {}
            self._places.invalidate()
        # Until the commit succeeds, the tails are ahead of the database.
        self._mark = -1
        moved: dict[int, _Tail] = {}
        outcomes: list[Outcome] = []
        tails = self._tails
        for name, request in appends:
            if (tail := tails.get(name)) is not None and _is_simple(tail, request):
                outcomes.append(_append_simple(tail, request[0]))
                moved[tail.sid] = tail
                continue
            try:
                outcomes.append(self._admit(txn, name, request, now, moved))
            except FourfoldError as error:
                if txn.is_over:
                    raise
                outcomes.append(error)
        if moved:
            _write(txn, moved.values(), now.ms, self._places)
        mark = txn.total_changes
        txn.after_commit(partial(self._set_mark, mark))
        return outcomes

    def _set_mark(self, mark: int) -> None:
        self._mark = mark

    def _admit(
        self,
        txn: Transaction,
        name: str,
        request: Append,
        now: StreamClock,
        moved: dict[int, _Tail],
    ) -> AppendResult:
        """Accept one append or raise; nothing has changed if it raises."""
        tail = self._tails.get(name) or self._load(txn, name)
        if tail is None or (tail.expires_at_ms is not None and tail.is_expired(now)):
            raise NotFound(f"unknown stream {name!r}")
        if tail.deleted:
            raise StreamGone(f"stream {name!r} was deleted; only its forks exist")
        producer, records = request.producer, request.records
        if producer is not None and (before := _repeated(txn, tail, producer)) is not None:
            return before
        if tail.closed:
            if not records and request.close and producer is None:
                _check_expected(tail, request)
                return AppendResult(tail.next_offset, True, True, None, tail.incarnation_number)
            admission.check_open(tail)
        if records and request.content_type not in {None, tail.content_type}:
            admission.check_same_type(tail, request.content_type or "")
        _check_expected(tail, request)
        if request.stream_seq is not None:
            admission.check_stream_seq(tail, request.stream_seq)
        request, keys = _apply_rules(tail, request, now.ms, self._on_unprepared)
        if request.stream_seq is not None:
            tail.stream_seq = request.stream_seq
        moved[tail.sid] = tail
        _advance_tail(tail, request, keys, now.ms)
        number = tail.incarnation_number
        return AppendResult(tail.next_offset, False, request.close, producer, number)

    def _load(self, txn: Transaction, name: str) -> _Tail | None:
        row = txn.one(SQL.stream_by_name, (name,))
        if row is None:
            return None
        info = info_of(row)
        tail = self._tails[name] = _Tail(info, stream_rules.find(txn, info))
        return tail


def _check(name: str, request: Append) -> int:
    records, _, producer, stream_seq, close, routing_key, _, expected, headers = request
    if not records and not close:
        raise InvalidInput(f"stream {name!r}: append has no records")
    if producer is not None:
        admission.check_producer(producer)
    if stream_seq is not None:
        validation.check_storable(stream_seq, "seq")
    if routing_key is not None:
        validation.check_key(routing_key)
    if expected is not None:
        validation.check_expected(expected)
    size = 0 if headers is None else len(check_encoded(headers)) * len(records)
    for record in records:
        if type(record) is not bytes or not record:
            raise InvalidInput(
                f"stream {name!r}: record must be non-empty bytes, got {record!r:.80}"
            )
        size += len(record)
    return size


def _is_simple(tail: _Tail, request: Append) -> bool:
    """Return True if an append only adds records to an open stream that never expires."""
    return (
        tail.is_plain
        and request[2:] == _UNCONDITIONAL
        and (request[1] is None or request[1] == tail.content_type)
        and len(request[0]) > 0
    )


def _check_expected(tail: _Tail, request: Append) -> None:
    if request.expected is not None:
        admission.check_expected(tail, request.expected)


def _repeated(txn: Transaction, tail: _Tail, producer: Producer) -> AppendResult | None:
    """Return the result of a request that the producer repeats, or None if it is new."""
    known = _known(txn, tail, producer)
    if admission.is_duplicate(producer, known):
        assert known is not None
        highest = Producer(producer.id, known.epoch, known.last_seq)
        return AppendResult(tail.next_offset, True, tail.closed, highest, tail.incarnation_number)
    if tail.closed and tail.closed_by == producer:
        return AppendResult(tail.next_offset, True, True, producer, tail.incarnation_number)
    return None


def _apply_rules(
    tail: _Tail, request: Append, now_ms: int, on_unprepared: Callable[[str], None]
) -> tuple[Append, Sequence[bytes | None] | None]:
    """Apply the rules of the stream; return the append and the routing keys of its records."""
    rules, prepared = tail.rules, request.prepared
    if rules is None or not request.records:
        return request, None
    if prepared is not None and prepared.rules == rules:
        records, keys = prepared.result()
        return request._replace(records=records), keys
    try:
        records, keys = preparation.admitted(rules, request.records, now_ms, request.routing_key)
    except preparation.NotPrepared:
        on_unprepared(tail.name)
        raise Busy(
            f"stream {tail.name!r}: its schema changed during the append",
            hint="Retry the append.",
            retry_after=limits.RETRY_AFTER_S,
        ) from None
    return request._replace(records=records), keys


def _append_simple(tail: _Tail, records: Sequence[bytes]) -> AppendResult:
    """Add the records of a simple append to the tail."""
    count = len(records)
    tail.records.extend(records)
    tail.size += len(records[0]) if count == 1 else sum(map(len, records))
    tail.next_offset = end = tail.next_offset + count
    return _new(AppendResult, (end, False, False, None, tail.incarnation_number))


def _advance_tail(
    tail: _Tail, request: Append, keys: Sequence[bytes | None] | None, now_ms: int
) -> None:
    records, producer = request.records, request.producer
    if records:
        at = len(tail.records)
        if keys is not None:
            tail.keyed += [
                (at + number, at + number + 1, key)
                for number, key in enumerate(keys)
                if key is not None
            ]
        elif request.routing_key is not None:
            tail.keyed.append((at, at + len(records), request.routing_key))
        if request.headers is not None:
            tail.headers.append((at, at + len(records), request.headers))
        tail.records.extend(records)
        tail.next_offset += len(records)
        tail.size += sum(map(len, records))
    if tail.ttl_seconds is not None:
        tail.expires_at_ms = now_ms + 1000 * tail.ttl_seconds
    if producer is not None:
        tail.producers[producer.id] = KnownProducer(producer.epoch, producer.seq)
        tail.produced.add(producer.id)
    if request.close:
        tail.closed, tail.closed_by, tail.close = True, producer, True
        tail.is_plain = False


def _known(txn: Transaction, tail: _Tail, producer: Producer) -> KnownProducer | None:
    producers = tail.producers
    if producer.id not in producers:
        if len(producers) - len(tail.produced) > STREAM_PRODUCERS_REMEMBERED:
            tail.producers = producers = {key: producers[key] for key in tail.produced}
        row = txn.one(SQL.producer, (tail.sid, producer.id))
        producers[producer.id] = None if row is None else KnownProducer(*row)
    return producers[producer.id]


def _write(txn: Transaction, tails: Any, now_ms: int, places: Places) -> None:
    held = places.hold_id(txn)
    rows: list[tuple[Any, ...]] = []
    advanced, produced, closed = [], [], []
    for tail in tails:
        sid, records = tail.sid, tail.records
        first = tail.next_offset - len(records)
        tail.time_ms = time_ms = max(now_ms, tail.time_ms)
        if tail.keyed or tail.headers:
            if tail.headers:
                txn.execute(SQL.mark_headers, (sid,))
            _insert(txn, *_with_extras(tail, first), places)
        elif len(records) >= _SERIES_MIN:
            txn.insert_series(
                "wal_log",
                fixed={"sid": sid, "ts_ms": time_ms},
                counter=("offset", first),
                values=("payload", records),
                lengths="payload_len",
            )
            places.add_together(txn, len(records))
        else:
            for offset, record in enumerate(records, first):
                rows.append((sid, offset, time_ms, record, len(record)))
        end = tail.expires_at_ms
        advanced.append((sid, len(records), tail.size, now_ms, end, tail.stream_seq))
        for producer_id in tail.produced:
            known = tail.producers[producer_id]
            produced.append((sid, producer_id, known.epoch, known.last_seq, now_ms))
        if tail.close:
            closed.append((sid, *(tail.closed_by or (None, None, None)), now_ms, end))
            tail.close = False
        tail.records, tail.size, tail.produced = [], 0, set()
    _insert(txn, _COLUMNS, rows, places)
    record_ids.release(txn, held)
    _advance(txn, advanced, now_ms)
    if produced:
        txn.execute_many(SQL.put_producer, produced)
    if closed:
        txn.execute_many(SQL.close, closed)


def _insert(
    txn: Transaction, columns: tuple[str, ...], rows: list[tuple[Any, ...]], places: Places
) -> None:
    """Insert rows of the log, grouped by stream, and index them."""
    if len(rows) == 1:
        # A single row needs no batching.
        txn.execute(values_statement("wal_log", columns, 1), rows[0])
        places.add_one(txn, *rows[0][:2])
    elif rows:
        txn.insert_many("wal_log", columns, rows)
        if rows[0][0] == rows[-1][0]:
            places.add_together(txn, len(rows))
        else:
            places.add_scattered(txn, len(rows))


def _advance(txn: Transaction, moved: list[tuple[Any, ...]], now_ms: int) -> None:
    """Advance the counters of streams, and their expiry where they have one."""
    if len(moved) > 1:
        plain = [row[:3] for row in moved if row[4] is None and row[5] is None]
        txn.execute_rows(SQL.advance_all, plain, (now_ms,))
        if len(plain) == len(moved):
            return
        moved = [row for row in moved if row[4] is not None or row[5] is not None]
    txn.execute_many(SQL.advance, moved)


def _with_extras(tail: _Tail, first: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return the columns and rows of a stream where some records have a routing key or headers."""
    keys, headers = (_spread(ranges, len(tail.records)) for ranges in (tail.keyed, tail.headers))
    rows: list[tuple[Any, ...]] = [
        (tail.sid, offset, tail.time_ms, record, len(record), key)
        for offset, (record, key) in enumerate(zip(tail.records, keys, strict=True), first)
    ]
    columns: tuple[str, ...] = _KEYED
    if tail.headers:
        columns = _WITH_HEADERS
        rows = [(*row, value) for row, value in zip(rows, headers, strict=True)]
    tail.keyed, tail.headers = [], []
    return columns, rows


def _spread(ranges: list[tuple[int, int, bytes]], count: int) -> list[bytes | None]:
    """Return the value of each record from ranges of records that have one."""
    values: list[bytes | None] = [None] * count
    for start, end, value in ranges:
        values[start:end] = [value] * (end - start)
    return values


OnOutcome = Callable[[Outcome], None]
"""Called with the outcome of an append on the thread of its loop. It must not raise."""


def complete(future: asyncio.Future[AppendResult], outcome: Outcome) -> None:
    """Complete the future of an append with its outcome."""
    if future.done():
        # The caller was cancelled during the commit.
        return
    if isinstance(outcome, FourfoldError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def publish_first(
    publish: Callable[[str], None], name: str, on_outcome: OnOutcome, outcome: Outcome
) -> None:
    """Publish the stream in a thread, then deliver the outcome."""
    if isinstance(outcome, FourfoldError):
        on_outcome(outcome)
        return

    def done(published: asyncio.Future[None]) -> None:
        error = None if published.cancelled() else published.exception()
        if error is not None and not isinstance(error, FourfoldError):
            error = Refused(f"stream {name!r}: cannot publish: {error!r}")
        on_outcome(outcome if error is None else error)

    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, publish, name).add_done_callback(done)
