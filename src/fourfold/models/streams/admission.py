"""Admission of appends: accepted, duplicate or rejected. Pure.

    producer ──> closed ──> content type ──> expected end ──> Stream-Seq

The producer is checked first: a repeated request is recognized even if the stream was closed
since, and a request of an older epoch is fenced. Nothing here uses a clock or a database.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from fourfold.errors import (
    ContentTypeMismatch,
    InvalidInput,
    PreconditionFailed,
    ProducerFenced,
    ProducerGap,
    StreamClosed,
    StreamSeqOutOfOrder,
)
from fourfold.models.streams.records import Producer
from fourfold.models.streams.validation import (
    Offset,
    check_storable,
    format_offset,
    plain_type,
)

PRODUCER_NUMBER_MAX = 2**53 - 1
PRODUCER_ID_BYTES_MAX = 1_024
"""Maximum UTF-8 bytes of a producer id; the state of every producer of a stream is stored."""


class StreamTail(Protocol):
    """The properties of the end of a stream that admission depends on."""

    @property
    def name(self) -> str:
        """Name of the stream."""
        ...

    @property
    def next_offset(self) -> int:
        """Offset of the next record."""
        ...

    @property
    def incarnation_number(self) -> int:
        """Number of the incarnation."""
        ...

    @property
    def content_type(self) -> str:
        """Content type of the stream."""
        ...

    @property
    def stream_seq(self) -> str | None:
        """The newest Stream-Seq, or None."""
        ...

    @property
    def closed(self) -> bool:
        """True if the stream is closed."""
        ...


class KnownProducer(NamedTuple):
    """The stored state of a producer: its epoch, and its last accepted request."""

    epoch: int
    last_seq: int


def check_producer(producer: Producer) -> Producer:
    """Return `producer` if its id, epoch and seq are valid."""
    if not isinstance(producer.id, str) or not producer.id:
        raise InvalidInput(f"producer id must be non-empty text, got {producer.id!r:.80}")
    if (size := len(check_storable(producer.id).encode())) > PRODUCER_ID_BYTES_MAX:
        raise InvalidInput(
            f"producer id must have at most {PRODUCER_ID_BYTES_MAX} bytes, got {size}"
        )
    for name, value in (("epoch", producer.epoch), ("seq", producer.seq)):
        if type(value) is not int or not 0 <= value <= PRODUCER_NUMBER_MAX:
            raise InvalidInput(
                f"producer {name} must be an integer from 0 to 2**53 - 1, got {value!r:.80}"
            )
    return producer


def is_duplicate(producer: Producer, known: KnownProducer | None) -> bool:
    """Return True if the request was accepted before.

    Raises:
        ProducerFenced: the producer has a newer epoch.
        ProducerGap: a request before this one is missing.
    """
    if known is None:
        if producer.seq != 0:
            raise _gap(producer, 0)
        return False
    if producer.epoch < known.epoch:
        raise ProducerFenced(
            f"producer {producer.id!r}: epoch must be at least {known.epoch}, got {producer.epoch}",
            details={"epoch": known.epoch},
        )
    if producer.epoch > known.epoch:
        if producer.seq != 0:
            raise InvalidInput(
                f"producer {producer.id!r}: seq must be 0 in new epoch {producer.epoch}, "
                f"got {producer.seq}",
                hint="Start each epoch with seq 0.",
            )
        return False
    if producer.seq <= known.last_seq:
        return True
    if producer.seq > known.last_seq + 1:
        raise _gap(producer, known.last_seq + 1)
    return False


def check_open(info: StreamTail) -> None:
    """Raise StreamClosed if the stream is closed."""
    if info.closed:
        raise StreamClosed(
            f"stream {info.name!r} is closed",
            details={"next_offset": format_offset(info.next_offset, info.incarnation_number)},
        )


def check_same_type(info: StreamTail, content_type: str) -> None:
    """Raise ContentTypeMismatch if `content_type` is not that of the stream."""
    if plain_type(content_type) != plain_type(info.content_type):
        raise ContentTypeMismatch(
            f"stream {info.name!r}: content type must be {info.content_type}, got {content_type}"
        )


def check_expected(info: StreamTail, expected: Offset | int) -> None:
    """Raise PreconditionFailed unless the stream ends exactly at `expected`."""
    number = info.incarnation_number
    end = Offset(info.next_offset, number)
    if not isinstance(expected, Offset):
        expected = Offset(expected, number)
    if expected != end:
        raise PreconditionFailed(
            f"stream {info.name!r}: expected the end at {expected}, found {end}",
            hint="Read the records after the expected offset, then append at the new end.",
            details={"expected": str(expected), "next_offset": str(end)},
        )


def check_stream_seq(info: StreamTail, stream_seq: str | None) -> None:
    """Raise StreamSeqOutOfOrder unless `stream_seq` is greater than the last one, byte by byte."""
    if stream_seq is None or info.stream_seq is None:
        return
    if stream_seq.encode() <= info.stream_seq.encode():
        raise StreamSeqOutOfOrder(
            f"stream {info.name!r}: Stream-Seq must be greater than {info.stream_seq!r}, "
            f"got {stream_seq!r}"
        )


def _gap(producer: Producer, expected: int) -> ProducerGap:
    return ProducerGap(
        f"producer {producer.id!r}: expected seq {expected}, got {producer.seq}",
        details={"expected": expected, "received": producer.seq},
    )
