"""Whether an append is accepted, is a repetition, or is refused; and why. Pure.

    producer ──> closed ──> content type ──> Stream-Seq

The producer comes first: a repeated request is known as such even on a stream that was closed
since, and one of an older epoch is told so. Nothing here looks at a clock or a database.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from fourfold.errors import (
    ContentTypeMismatch,
    InvalidInput,
    ProducerFenced,
    ProducerGap,
    StreamClosed,
    StreamSeqBehind,
)
from fourfold.models.streams.records import Producer
from fourfold.models.streams.validation import plain_type, show_offset, stored

PRODUCER_NUMBER_MAX = 2**53 - 1


class Tail(Protocol):
    """What is asked of the end of a stream."""

    @property
    def name(self) -> str: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def incarnation_number(self) -> int: ...
    @property
    def content_type(self) -> str: ...
    @property
    def stream_seq(self) -> str | None: ...
    @property
    def closed(self) -> bool: ...


class KnownProducer(NamedTuple):
    """What is known of a producer: its epoch, and the last request that was accepted in it."""

    epoch: int
    last_seq: int


def check_producer(producer: Producer) -> Producer:
    if not isinstance(producer.id, str) or not producer.id:
        raise InvalidInput("a producer has an id that is not empty")
    stored(producer.id)
    for name, value in (("epoch", producer.epoch), ("seq", producer.seq)):
        if type(value) is not int or not 0 <= value <= PRODUCER_NUMBER_MAX:
            raise InvalidInput(f"the {name} of a producer is an integer from 0 to 2**53 - 1")
    return producer


def is_duplicate(producer: Producer, known: KnownProducer | None) -> bool:
    """Whether this request was accepted before; an error when it does not follow on."""
    if known is None:
        if producer.seq != 0:
            raise _gap(producer, 0)
        return False
    if producer.epoch < known.epoch:
        raise ProducerFenced(
            f"producer {producer.id!r} is in epoch {known.epoch}; {producer.epoch} is over",
            details={"epoch": known.epoch},
        )
    if producer.epoch > known.epoch:
        if producer.seq != 0:
            raise InvalidInput(
                f"producer {producer.id!r} begins epoch {producer.epoch} with request "
                f"{producer.seq}",
                hint="The first request of an epoch is number 0.",
            )
        return False
    if producer.seq <= known.last_seq:
        return True
    if producer.seq > known.last_seq + 1:
        raise _gap(producer, known.last_seq + 1)
    return False


def refuse_if_closed(info: Tail) -> None:
    if info.closed:
        raise StreamClosed(
            f"the stream {info.name!r} is closed",
            details={"next_offset": show_offset(info.next_offset, info.incarnation_number)},
        )


def refuse_other_type(info: Tail, content_type: str) -> None:
    if plain_type(content_type) != plain_type(info.content_type):
        raise ContentTypeMismatch(
            f"the stream {info.name!r} holds {info.content_type}, not {content_type}"
        )


def refuse_behind(info: Tail, stream_seq: str | None) -> None:
    """A Stream-Seq is opaque text that only ever goes up, byte by byte."""
    if stream_seq is None or info.stream_seq is None:
        return
    if stream_seq.encode() <= info.stream_seq.encode():
        raise StreamSeqBehind(
            f"the stream {info.name!r} is at sequence {info.stream_seq!r}; "
            f"{stream_seq!r} does not come after it"
        )


def _gap(producer: Producer, expected: int) -> ProducerGap:
    return ProducerGap(
        f"producer {producer.id!r} sent request {producer.seq}; {expected} comes next",
        details={"expected": expected, "received": producer.seq},
    )
