"""Append the lines of a file to a stream.

Without a producer a batch of lines is one append. With one, every line is an append of its own,
numbered by its place among the lines, because a number stands for one append and not for a range:
whatever the batches of an earlier run were, and wherever it was cut short, its lines are known one
by one. In a folder the appends of a batch share a commit; over HTTP each is a request.

The answer to a line that was sent before tells how far the producer is, so that what lies between
is not even sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from fourfold import limits
from fourfold.cli.output import Output, counted
from fourfold.cli.stream.arguments import Place
from fourfold.cli.stream.lines import BadLine, Batch, Line, Lines, batches
from fourfold.errors import (
    CommitUncertain,
    FourfoldError,
    InvalidInput,
    OutcomeUnknown,
    StorageError,
)
from fourfold.models.streams import Append, Appended, Producer, StreamInfo, Streams
from fourfold.models.streams.messages import split


class Load(NamedTuple):
    """What shall be appended, and how."""

    source: str
    producer: Producer | None
    """Who appends, with the number of the first line."""
    routing_key: bytes | None
    closing: bool


class Loaded(NamedTuple):
    """What became of it."""

    done: Appended
    records: int
    """Those that this run has appended."""
    sent_before: int
    """Lines that the producer had sent before."""


def load(out: Output, streams: Place, info: StreamInfo, asked: Load) -> Loaded:
    """Append every line; it returns when they are on disk."""
    loading = _Loading(streams, info, asked)
    with out.progress(f"appending to {info.name}") as advance, Lines(asked.source) as lines:
        for _ in loading.steps(iter(lines)):
            advance(counted(loading.records, "record"), lines.read_bytes, lines.bytes)
    if asked.closing and not loading.done.closed:
        # No line was left that could have closed it.
        loading.done = streams.append(info.name, Append((), info.content_type, close=True))
    return Loaded(loading.done, loading.records, loading.sent_before)


class _Loading:
    """A run, and how far it is."""

    def __init__(self, streams: Place, info: StreamInfo, asked: Load) -> None:
        self._streams, self._info, self._asked = streams, info, asked
        self.done = Appended(info.next_offset, False, info.closed, None, info.incarnation_number)
        self.records = 0
        self.sent_before = 0
        self._asked_where = asked.producer is None
        """Whether it is known how far the producer is."""
        self._reached = -1
        """The last number of the producer that is known to be accepted."""

    def steps(self, lines: Iterator[Line]) -> Iterator[None]:
        """Append batch by batch, coming back after each."""
        read = partial(split, content_type=self._info.content_type)
        append = self._together if self._asked.producer is None else self._one_by_one
        try:
            for batch in batches(self._unsent(lines), read, together=self._most):
                append(batch)
                yield
        except BadLine as bad:
            raise self._failed([bad.line], bad.error) from bad.error

    def _most(self) -> int:
        """How many lines go together now."""
        if not self._asked_where:
            return 1
        if self._asked.producer is None and _is_one_record(self._streams, self._info):
            return 1
        return limits.APPEND_LINES

    def _unsent(self, lines: Iterator[Line]) -> Iterator[Line]:
        """Without those that are known to be sent."""
        producer = self._asked.producer
        for line in lines:
            if producer is None or producer.seq + line.seq > self._reached:
                yield line
            else:
                self.sent_before += 1

    def _together(self, batch: Batch) -> None:
        records = [each for one in batch.records for each in one]
        try:
            self.done = self._streams.append(self._info.name, self._append(records, batch.last))
        except FourfoldError as error:
            raise self._failed(batch.lines, error) from error
        self.records += len(records)

    def _one_by_one(self, batch: Batch) -> None:
        asked = [
            self._append(records, batch.last and line is batch.lines[-1], line)
            for line, records in zip(batch.lines, batch.records, strict=True)
        ]
        for line, request, outcome in zip(
            batch.lines, asked, _outcomes(self._streams, self._info.name, asked), strict=False
        ):
            if isinstance(outcome, FourfoldError):
                raise self._failed([line], outcome) from outcome
            self.done = outcome
            if outcome.duplicate:
                self.sent_before += 1
            else:
                self.records += len(request.records)
            if outcome.producer is not None:
                self._reached = outcome.producer.seq
        self._asked_where = True

    def _append(self, records: Sequence[bytes], last: bool, line: Line | None = None) -> Append:
        who = self._asked.producer
        if who is not None and line is not None:
            who = who._replace(seq=who.seq + line.seq)
        return Append(
            records,
            self._info.content_type,
            who,
            close=last and self._asked.closing,
            routing_key=self._asked.routing_key,
        )

    def _failed(self, lines: Sequence[Line], error: FourfoldError) -> FourfoldError:
        """The error, and where it happened, what is appended, and how to go on."""
        first, last = lines[0].number, lines[-1].number
        source = "stdin" if self._asked.source == "-" else self._asked.source
        where = f"line {first}" if first == last else f"lines {first} to {last}"
        were = "was" if self.records == 1 else "were"
        before = f"{counted(self.records, 'record')} {were} appended before"
        return type(error)(
            f"{source}, {where}: {error.message}; {before}",
            hint=self._hint(first, error),
            retry_after=error.retry_after,
            details={**error.details, "line": first, "appended": self.records},
        )

    def _hint(self, line: int, error: FourfoldError) -> str:
        numbered = self._asked.producer is not None
        if not (isinstance(error, InvalidInput | StorageError) or error.retryable):
            # The same lines would be refused again.
            return error.hint
        if isinstance(error, OutcomeUnknown | CommitUncertain) and not numbered:
            return error.hint
        # That would be true of this append, and not of the file.
        own = "" if "othing was written" in error.hint else f"{error.hint} "
        again = "Mend that and run" if isinstance(error, InvalidInput) else "Run"
        if numbered:
            return f"{own}{again} the same command again: lines that were sent before are skipped."
        if not self.records:
            return f"{own}{again} the same command again."
        rest = "" if self._asked.source == "-" else f" (`tail -n +{line} {self._asked.source}`)"
        return (
            f"{own}Append the lines from {line} on{rest}; the same command again would append the "
            "others twice. A run that was begun with --producer can be repeated whole."
        )


def _is_one_record(streams: Place, info: StreamInfo) -> bool:
    """Whether a request is one record: over HTTP, of a stream of bytes."""
    return not isinstance(streams, Streams) and not info.is_json


def _outcomes(
    streams: Place, name: str, asked: Sequence[Append]
) -> Iterator[Appended | FourfoldError]:
    """What became of each, in order, up to the first that failed."""
    if isinstance(streams, Streams):
        yield from asyncio.run(_in_one_commit(streams, name, asked))
        return
    for request in asked:
        # One at a time: requests that overtake each other are refused, and sent again.
        try:
            yield streams.append(name, request)
        except FourfoldError as error:
            yield error
            return


async def _in_one_commit(
    streams: Streams, name: str, asked: Sequence[Append]
) -> list[Appended | FourfoldError]:
    """Where one is refused, those behind it are, too: their numbers do not follow on."""
    found = await asyncio.gather(
        *(streams.append_async(name, request) for request in asked), return_exceptions=True
    )
    outcomes: list[Appended | FourfoldError] = []
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, FourfoldError):
            raise each
        outcomes.append(each)
    return outcomes
