"""Appending: many appends in one transaction, each with its own outcome.

An append reserves its offsets, adds its records, moves the counters and the producer on, all in one
transaction, so that what was acknowledged is there, once, in order. Appends that share a
transaction share its statements too: the records of a stream go in together, and its counters move
once. One that is refused leaves nothing behind and does not concern the others.

What the last transaction knew of its streams is kept for the next one. It is used only when nothing
at all was written between the two; so it never has to be told of anything.

Where records lie in the log: an index in two levels.

The log has its records in the order in which they came. They are found by stream and offset in
`wal_index`, which is as large as the log. Appends to many streams would each change another page of
it; so those that share a commit are noted in `wal_recent`, which never has many pages. When it is
full, a portion moves on in the order of the streams, one portion after the other, so that each
stream has gathered several places until its turn comes.

    record ──> wal_log, and its place ──> wal_recent ── portions ──> wal_index
                                     └──── one stream, or few ───────┘

All of that happens in the transaction of the append, and a reader asks both levels: which of them
has a place makes no difference to anybody.

Appends of coroutines, gathered: those of one turn of an event loop are one piece of work for the
writer, and each is told its own outcome.

A batch goes to the writer as soon as the loop comes round without anybody new. So those whom one
commit answered ride the next one together, and an append that comes alone waits for nobody.

    append ──> batch ──> [ the loop comes round ] ──> writer ──> each its outcome
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput, NotFound, Refused, StreamGone
from fourfold.kernel import Transaction, load_queries
from fourfold.kernel.bulk_insert import values_statement
from fourfold.models.streams import admission, validation
from fourfold.models.streams import rules as stream_rules
from fourfold.models.streams.admission import KnownProducer
from fourfold.models.streams.records import Appended, Producer, StreamInfo
from fourfold.models.streams.rules import Rules
from fourfold.models.streams.writer import SQL, StreamClock, info_of

_SQL = load_queries("fourfold.models.streams")
_BEHIND_ALL = (2**63 - 1, 0)


class Places:
    """Notes where the records are that a transaction added last."""

    def __init__(self) -> None:
        self._recent: int | None = None
        """How many places are in the small level; None while nobody knows."""
        self._cursor = 0
        """The stream with which the next portion begins."""

    def forget(self) -> None:
        """Others have written, or a transaction was undone."""
        self._recent = None

    def add_one(self, txn: Transaction, sid: int, offset: int) -> None:
        """The record that was added last."""
        txn.execute(_SQL.place, (sid, offset))

    def add_together(self, txn: Transaction, count: int) -> None:
        """The records that were added last, all of one stream: their places are side by side."""
        txn.execute(_SQL.place_last, (count,))

    def add_scattered(self, txn: Transaction, count: int) -> None:
        """The records that were added last, of many streams."""
        if count < limits.STREAM_SCATTERED_PLACES:
            txn.execute(_SQL.place_last, (count,))
            return
        txn.execute(_SQL.note_last, (count,))
        if self._recent is not None:
            self._recent += count
        while self._count(txn) >= limits.STREAM_RECENT_PLACES:
            self._move_on(txn)

    def _count(self, txn: Transaction) -> int:
        if self._recent is None:
            self._recent = int(txn.value(_SQL.recent_count))
        return self._recent

    def _move_on(self, txn: Transaction) -> None:
        """Move one portion into the index."""
        first = self._cursor
        end = txn.one(_SQL.recent_end, (first, limits.STREAM_PLACES_MOVED))
        between = (first, *(end or _BEHIND_ALL))
        txn.execute(_SQL.settle, between)
        txn.execute(_SQL.settled, between)
        if end is None:
            # Once around: what is left is counted anew.
            self._cursor, self._recent = 0, None
        else:
            self._cursor = end[0]
            self._recent = self._count(txn) - txn.changes


_COLUMNS = ("sid", "offset", "ts_ms", "payload", "payload_len")
_KEYED = (*_COLUMNS, "routing_key")
_new = tuple.__new__
"""Makes a named tuple without the call that its class makes of it."""
_SERIES_MIN = 4
"""So many records of one stream are handed over as an array; fewer share a statement with those of
other streams.
"""


class Append(NamedTuple):
    """What is to be appended, and under which conditions."""

    records: Sequence[bytes]
    content_type: str | None
    producer: Producer | None = None
    stream_seq: str | None = None
    close: bool = False
    routing_key: bytes | None = None
    """What its records are found by later."""


Asked = tuple[str, Append]
"""The name of a stream, and what shall be appended to it."""
Outcome = Appended | FourfoldError


class _Tail:
    """The end of a stream, moved on by every append of a transaction."""

    __slots__ = (
        "close",
        "closed",
        "closed_by",
        "content_type",
        "deleted",
        "expires_at_ms",
        "incarnation_number",
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
        self.ttl_seconds = info.ttl_seconds
        self.expires_at_ms = info.expires_at_ms
        self.deleted = info.deleted
        self.producers: dict[str, KnownProducer | None] = {}
        # What is to be written for the transaction under way.
        self.records: list[bytes] = []
        self.keyed: list[tuple[int, int, bytes]] = []
        self.size = 0
        self.produced: set[str] = set()
        self.close = False

    def is_over(self, now: StreamClock) -> bool:
        """Whether its time has passed; uses that are not written down yet count."""
        end = self.expires_at_ms
        if end is None or end > now.ms or self.deleted:
            return False
        used = now.used.get(self.sid)
        return used is None or self.ttl_seconds is None or used + 1000 * self.ttl_seconds <= now.ms


class Appender:
    """Appends to the streams of one database. Whoever calls it is inside of a transaction."""

    def __init__(self) -> None:
        self._tails: dict[str, _Tail] = {}
        self._places = Places()
        self._mark = -1
        """What the connection had written when the tails were right; -1 while nobody knows."""

    def knows(self, name: str) -> bool:
        """Whether a name was one of a stream lately, and so is one that can be."""
        return name in self._tails

    def sid_said(self, name: str) -> int | None:
        """The stream that the last appends found under a name, if what is appended to it is what is
        there to read: by the rules of a stream it may be something else.
        """
        tail = self._tails.get(name)
        return None if tail is None or tail.rules is not None else tail.sid

    def append(self, txn: Transaction, asked: Sequence[Asked], now: StreamClock) -> list[Outcome]:
        """The outcome of each, in order. An error of the database is raised, and concerns all."""
        if txn.total_changes != self._mark or len(self._tails) > limits.STREAM_TAILS_MAX:
            self._tails = {}
            self._places.forget()
        # Until the commit is through the tails are ahead of what is there.
        self._mark = -1
        moved: dict[int, _Tail] = {}
        outcomes: list[Outcome] = []
        tails = self._tails
        for name, request in asked:
            if (tail := tails.get(name)) is not None and _is_simple(tail, request):
                outcomes.append(_take(tail, request[0]))
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
        txn.after_commit(lambda: self._keep(mark))
        return outcomes

    def _keep(self, mark: int) -> None:
        self._mark = mark

    def _admit(
        self,
        txn: Transaction,
        name: str,
        request: Append,
        now: StreamClock,
        moved: dict[int, _Tail],
    ) -> Appended:
        """Take one append in, or raise; nothing has changed when it raises."""
        tail = self._tails.get(name) or self._look(txn, name)
        if tail is None or (tail.expires_at_ms is not None and tail.is_over(now)):
            raise NotFound(f"there is no stream {name!r}")
        if tail.deleted:
            raise StreamGone(f"the stream {name!r} was deleted; only its forks go on")
        producer, records = request.producer, request.records
        if producer is not None and (before := _repeated(txn, tail, producer)) is not None:
            return before
        if tail.closed:
            if not records and request.close and producer is None:
                return Appended(tail.next_offset, True, True, None, tail.incarnation_number)
            admission.refuse_if_closed(tail)
        if records and request.content_type not in {None, tail.content_type}:
            admission.refuse_other_type(tail, request.content_type or "")
        if request.stream_seq is not None:
            admission.refuse_behind(tail, request.stream_seq)
        request, keys = _as_asked(tail, request, now.ms)
        if request.stream_seq is not None:
            tail.stream_seq = request.stream_seq
        moved[tail.sid] = tail
        _move(tail, request, keys, now.ms)
        number = tail.incarnation_number
        return Appended(tail.next_offset, False, request.close, producer, number)

    def _look(self, txn: Transaction, name: str) -> _Tail | None:
        row = txn.one(SQL.stream_by_name, (name,))
        if row is None:
            return None
        info = info_of(row)
        tail = self._tails[name] = _Tail(info, stream_rules.find(txn, info))
        return tail


def check(name: str, request: Append) -> int:
    """Refuse what no stream takes; the number of bytes otherwise."""
    records, _, producer, stream_seq, close, routing_key = request
    if not records and not close:
        raise InvalidInput("there is nothing to append")
    if producer is not None:
        admission.check_producer(producer)
    if stream_seq is not None:
        validation.stored(stream_seq)
    if routing_key is not None:
        validation.check_key(routing_key)
    size = 0
    for record in records:
        if type(record) is not bytes or not record:
            raise InvalidInput(f"{name}: a record is bytes, and not empty")
        size += len(record)
    return size


def _is_simple(tail: _Tail, request: Append) -> bool:
    """Whether an append does nothing but to add records to a stream that takes them for ever, as
    most do.
    """
    records, content_type, producer, stream_seq, close, routing_key = request
    return (
        producer is None
        and stream_seq is None
        and routing_key is None
        and not close
        and not tail.closed
        and not tail.deleted
        and tail.expires_at_ms is None
        and tail.ttl_seconds is None
        and tail.rules is None
        and (content_type is None or content_type == tail.content_type)
        and len(records) > 0
    )


def _repeated(txn: Transaction, tail: _Tail, producer: Producer) -> Appended | None:
    """What became of a request of a producer that came before; None when it is new."""
    known = _known(txn, tail, producer)
    if admission.is_duplicate(producer, known):
        assert known is not None
        highest = Producer(producer.id, known.epoch, known.last_seq)
        return Appended(tail.next_offset, True, tail.closed, highest, tail.incarnation_number)
    if tail.closed and tail.closed_by == producer:
        return Appended(tail.next_offset, True, True, producer, tail.incarnation_number)
    return None


def _as_asked(
    tail: _Tail, request: Append, now_ms: int
) -> tuple[Append, Sequence[bytes | None] | None]:
    """An append as the rules of its stream ask for it, and the routing keys that they give."""
    if tail.rules is None or not request.records:
        return request, None
    records, keys = tail.rules.take(request.records, now_ms, request.routing_key)
    return request._replace(records=records), keys


def _take(tail: _Tail, records: Sequence[bytes]) -> Appended:
    """A simple append."""
    count = len(records)
    tail.records.extend(records)
    tail.size += len(records[0]) if count == 1 else sum(map(len, records))
    tail.next_offset = end = tail.next_offset + count
    return _new(Appended, (end, False, False, None, tail.incarnation_number))


def _move(tail: _Tail, request: Append, keys: Sequence[bytes | None] | None, now_ms: int) -> None:
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


def _known(txn: Transaction, tail: _Tail, producer: Producer) -> KnownProducer | None:
    found = tail.producers
    if producer.id not in found:
        if len(found) - len(tail.produced) > limits.STREAM_PRODUCERS_REMEMBERED:
            tail.producers = found = {each: found[each] for each in tail.produced}
        row = txn.one(SQL.producer, (tail.sid, producer.id))
        found[producer.id] = None if row is None else KnownProducer(*row)
    return found[producer.id]


def _write(txn: Transaction, tails: Any, now_ms: int, places: Places) -> None:
    rows: list[tuple[Any, ...]] = []
    advanced, produced, closed = [], [], []
    for tail in tails:
        sid, records = tail.sid, tail.records
        first = tail.next_offset - len(records)
        if tail.keyed:
            _insert(txn, _KEYED, _with_keys(tail, first, now_ms), places)
        elif len(records) >= _SERIES_MIN:
            txn.insert_series(
                "wal_log",
                fixed={"sid": sid, "ts_ms": now_ms},
                counter=("offset", first),
                values=("payload", records),
                lengths="payload_len",
            )
            places.add_together(txn, len(records))
        else:
            for offset, record in enumerate(records, first):
                rows.append((sid, offset, now_ms, record, len(record)))
        end = tail.expires_at_ms
        advanced.append((sid, len(records), tail.size, now_ms, end, tail.stream_seq))
        for each in tail.produced:
            known = tail.producers[each]
            produced.append((sid, each, known.epoch, known.last_seq, now_ms))
        if tail.close:
            closed.append((sid, *(tail.closed_by or (None, None, None)), now_ms, end))
            tail.close = False
        tail.records, tail.size, tail.produced = [], 0, set()
    _insert(txn, _COLUMNS, rows, places)
    _advance(txn, advanced, now_ms)
    if produced:
        txn.execute_many(SQL.put_producer, produced)
    if closed:
        txn.execute_many(SQL.close, closed)


def _insert(
    txn: Transaction, columns: tuple[str, ...], rows: list[tuple[Any, ...]], places: Places
) -> None:
    """Add records, of which those of one stream stand together."""
    if len(rows) == 1:
        # Whoever comes alone has nothing to be cut into statements.
        txn.execute(values_statement("wal_log", columns, 1), rows[0])
        places.add_one(txn, *rows[0][:2])
    elif rows:
        txn.insert_many("wal_log", columns, rows)
        if rows[0][0] == rows[-1][0]:
            places.add_together(txn, len(rows))
        else:
            places.add_scattered(txn, len(rows))


def _advance(txn: Transaction, moved: list[tuple[Any, ...]], now_ms: int) -> None:
    """Move the counters on, and the ends where there are any."""
    if len(moved) > 1:
        plain = [row[:3] for row in moved if row[4] is None and row[5] is None]
        txn.execute_rows(SQL.advance_all, plain, (now_ms,))
        if len(plain) == len(moved):
            return
        moved = [row for row in moved if row[4] is not None or row[5] is not None]
    txn.execute_many(SQL.advance, moved)


def _with_keys(tail: _Tail, first: int, now_ms: int) -> list[tuple[Any, ...]]:
    """The records of a stream, of which some have a routing key."""
    keys: list[bytes | None] = [None] * len(tail.records)
    for start, end, key in tail.keyed:
        keys[start:end] = [key] * (end - start)
    tail.keyed = []
    return [
        (tail.sid, offset, now_ms, record, len(record), key)
        for offset, (record, key) in enumerate(zip(tail.records, keys, strict=True), first)
    ]


Tell = Callable[[Outcome], None]
"""Is told what became of an append, on the thread of its loop. It must not raise."""
Submit = Callable[["Batch"], "asyncio.Future[list[Outcome]]"]
Run = Callable[[Transaction, list[Asked]], list[Outcome]]
_CROWD = 2
"""From so many on it is worth a turn of the loop to see who else comes."""


class Batch:
    """Appends that go to the writer together. Only the thread of its loop adds to it."""

    def __init__(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        self._run = run
        self._loop = loop
        self._asked: list[Asked] = []
        self._tell: list[Tell] = []
        self.size = 0
        self.handed_over = False
        """Whether the writer has it; from then on it is what it is."""
        self.told = False
        self._thread = threading.get_ident()

    def __len__(self) -> int:
        return len(self._asked)

    def take_in(self, name: str, request: Append, size: int, tell: Tell) -> bool:
        """Whether there was still room, and time."""
        asked = self._asked
        if (
            self.handed_over
            or len(asked) >= limits.APPEND_BATCH_REQUESTS
            or (asked and self.size + size > limits.APPEND_BATCH_BYTES)
        ):
            return False
        asked.append((name, request))
        self._tell.append(tell)
        self.size += size
        return True

    def work(self, txn: Transaction) -> list[Outcome]:
        """What the writer runs, once or more."""
        outcomes = self._run(txn, self._asked)
        txn.after_commit(partial(self._committed, outcomes))
        return outcomes

    def _committed(self, outcomes: list[Outcome]) -> None:
        """Tell the outcomes at once where the commit ran on the loop's own thread. From another one
        it is the first thing that the loop does: before it wakes readers.
        """
        if threading.get_ident() == self._thread:
            self._tell_all(outcomes)
        else:
            # A closed loop has no callers left.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._tell_all, outcomes)

    def deliver(self, done: asyncio.Future[list[Outcome]]) -> None:
        """Tell everybody who was not told yet, on the loop's own thread."""
        if done.cancelled():
            self.refuse(Refused("the append was called off"))
        elif (error := done.exception()) is None:
            self._tell_all(done.result())
        elif isinstance(error, FourfoldError):
            self.refuse(error)
        else:
            self.refuse(Refused(f"the append failed: {error!r}"))
            raise error

    def refuse(self, error: FourfoldError) -> None:
        """One error for everybody."""
        self._tell_all([error.copy() for _ in self._tell])

    def _tell_all(self, outcomes: Sequence[Outcome]) -> None:
        if not self.told:
            self.told = True
            for tell, outcome in zip(self._tell, outcomes, strict=True):
                tell(outcome)


class Batches:
    """The open batch of each event loop, and when it goes to the writer."""

    def __init__(self, run: Run, submit: Submit) -> None:
        self._run = run
        self._submit = submit
        self._open: dict[asyncio.AbstractEventLoop, Batch] = {}
        self._crowd = 0
        """About how many appends the latest batches had."""

    def add(
        self,
        name: str,
        request: Append,
        size: int,
        tell: Tell,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """From a coroutine or a callback of `loop`, while it runs: append soon, and tell."""
        current = self._open.get(loop)
        if current is not None:
            if current.take_in(name, request, size, tell):
                return
            # It goes before the next one begins, so that nothing overtakes anything.
            self._hand_over(current)
            if not current.told and self._crowd < _CROWD:
                self._crowd = _CROWD
        elif self._open:
            self._forget_closed()
        batch = self._open[loop] = Batch(self._run, loop)
        batch.take_in(name, request, size, tell)
        if self._crowd < _CROWD:
            # Whoever comes alone need not wait to see whether others do.
            self._hand_over(batch)
        else:
            loop.call_soon(self._gather, loop, batch, 0)

    def _gather(self, loop: asyncio.AbstractEventLoop, batch: Batch, seen: int) -> None:
        """Hand a batch over once the loop came round without bringing anybody new, or when as many
        are there as came lately. So those whom the last commit answered ride together again, and
        nobody waits for somebody who does not come.
        """
        count = len(batch)
        if seen < count < self._crowd and not batch.handed_over:
            loop.call_soon(self._gather, loop, batch, count)
            return
        self._crowd = max(count, self._crowd - 1)
        self._hand_over(batch)

    def _hand_over(self, batch: Batch) -> None:
        if batch.handed_over:
            return
        batch.handed_over = True
        try:
            future = self._submit(batch)
        except FourfoldError as error:
            batch.refuse(error)
        else:
            future.add_done_callback(batch.deliver)

    def _forget_closed(self) -> None:
        for loop in [each for each in self._open if each.is_closed()]:
            del self._open[loop]


def settle(future: asyncio.Future[Appended], outcome: Outcome) -> None:
    """Tell a coroutine what became of its append."""
    if future.done():
        # Its caller was cancelled while the commit was under way.
        return
    if isinstance(outcome, FourfoldError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def settle_first(publish: Callable[[str], None], name: str, tell: Tell, outcome: Outcome) -> None:
    """Publish the stream in a thread, then tell."""
    if isinstance(outcome, FourfoldError):
        tell(outcome)
        return

    def done(settled: asyncio.Future[None]) -> None:
        error = None if settled.cancelled() else settled.exception()
        if error is not None and not isinstance(error, FourfoldError):
            error = Refused(f"the stream {name!r} could not be published: {error!r}")
        tell(outcome if error is None else error)

    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, publish, name).add_done_callback(done)
