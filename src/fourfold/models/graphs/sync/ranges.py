"""Range-based reconciliation: two nodes find the entries that only one of them has. Pure.

The space of ids is divided into ranges. One node sends a fingerprint of each, and the other answers
for those that differ: with smaller ranges, or, if a range has few entries, with their ids. After a
few messages both know the difference, and its size decides what they send, not that of their logs.

    client: 16 fingerprints ──> server: 16 ranges of those that differ ──> client: 8 of each ...
            ... ──> ids of a small range ──> what the server has besides, and what it lacks

A fingerprint is the hash of the sum of the ids and of their number. Ids are sent as prefixes of 12
bytes: to hide an entry, another one with an equal prefix would have to be found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

import msgspec

from fourfold import limits
from fourfold.errors import PackageRefused

ID_BYTES: Final = 32
PREFIX_BYTES: Final = 12
RANGE_FANOUT: Final = 8
RANGE_IDS_MAX: Final = 8
"""A range with at most so many entries is sent as ids."""
RANGES_MAX: Final = 20_000
"""Ranges of a message; more are compared in the next round."""
IDS_MAX: Final = 20_000
"""Ids of a message in all its ranges."""
MESSAGE_BYTES_MAX: Final = 2 * limits.MIB
_LARGE: Final = 128 * RANGE_IDS_MAX
"""A range with more entries is divided, also if the other node has few in it."""
_FORMAT: Final = 1
_MODULUS: Final = 1 << 256


class Summary(NamedTuple):
    """The number of entries of a range, and the sum of their ids."""

    size: int
    total: int

    def fingerprint(self) -> bytes:
        """Return the fingerprint of the range."""
        data = self.size.to_bytes(8, "big") + (self.total % _MODULUS).to_bytes(ID_BYTES, "big")
        return hashlib.sha256(data).digest()[:PREFIX_BYTES]


class EntrySet(Protocol):
    """The ids of the entries of a domain, in ranges. Without an upper bound a range is the rest."""

    def summary(self, lower: bytes, upper: bytes) -> Summary:
        """Return the summary of the ids from `lower` to before `upper`."""

    def ids(self, lower: bytes, upper: bytes) -> Sequence[bytes]:
        """Return the ids from `lower` to before `upper`, sorted; called for small ranges."""

    def bounds(self, lower: bytes, upper: bytes, parts: int) -> Sequence[bytes]:
        """Return where to divide a range into about equal parts, in order."""


class IdRange(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The ids from the end of the range before it to before `until`; empty for the end of all ids.

    Without a fingerprint and without ids there is nothing left to compare in it.
    """

    until: bytes
    fingerprint: bytes | None = None
    ids: tuple[bytes, ...] | None = None

    @property
    def is_open(self) -> bool:
        """True if there is something left to compare."""
        return self.fingerprint is not None or self.ids is not None


class RangeMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message of a reconciliation. Its ranges cover all ids, unless nothing is left to compare.

    `extra` are ids that its sender has and the receiver lacks, `lacking` prefixes of those that it
    lacks.
    """

    format: int
    ranges: tuple[IdRange, ...]
    extra: tuple[bytes, ...] = ()
    lacking: tuple[bytes, ...] = ()


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(RangeMessage).decode


def encode_message(message: RangeMessage) -> bytes:
    """Return the bytes of a message about ranges."""
    return _encode(message)


def decode_message(data: bytes) -> RangeMessage:
    """Parse a message; raise PackageRefused if it is not one."""
    if len(data) > MESSAGE_BYTES_MAX:
        raise PackageRefused(f"a message of {len(data)} bytes is more than {MESSAGE_BYTES_MAX}")
    try:
        message = _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PackageRefused(f"not a message of a reconciliation: {error}") from None
    if message.format != _FORMAT:
        raise PackageRefused(f"expected a reconciliation of format {_FORMAT}")
    _check(message)
    return message


def _check(message: RangeMessage) -> None:
    ranges, ends = message.ranges, [each.until for each in message.ranges]
    ordered = all(low < high for low, high in pairwise(ends[:-1]))
    if (
        len(ranges) > RANGES_MAX
        or (ends and (ends[-1] != b"" or b"" in ends[:-1]))
        or not ordered
        or any(len(end) > ID_BYTES for end in ends)
        or any(len(each.fingerprint or b"") not in {0, PREFIX_BYTES} for each in ranges)
        or sum(len(each.ids or ()) for each in ranges) > IDS_MAX
        or any(len(prefix) != PREFIX_BYTES for each in ranges for prefix in each.ids or ())
        or any(len(entry) != ID_BYTES for entry in message.extra)
        or any(len(prefix) != PREFIX_BYTES for prefix in message.lacking)
    ):
        raise PackageRefused("not a message of a reconciliation: its ranges are not valid")


def begin(entries: EntrySet, parts: int = 2 * RANGE_FANOUT) -> RangeMessage:
    """Return the first message of a reconciliation."""
    answer = _Answer(entries)
    answer.divide(b"", b"", parts)
    return answer.message()


def respond(entries: EntrySet, message: RangeMessage) -> RangeMessage:
    """Return the answer to a message; without ranges if nothing is left to compare."""
    answer = _Answer(entries)
    lower = b""
    for each in message.ranges:
        if each.ids is not None:
            answer.compare(lower, each)
        elif each.fingerprint is None:
            answer.add(IdRange(each.until))
        else:
            answer.answer(lower, each.until, each.fingerprint)
        lower = each.until
    return answer.message()


class _Answer:
    """The message that answers another one."""

    def __init__(self, entries: EntrySet) -> None:
        self._entries = entries
        self._ranges: list[IdRange] = []
        self._ids = 0
        self._extra: list[bytes] = []
        self._lacking: list[bytes] = []

    def message(self) -> RangeMessage:
        """Return the message, without ranges if none is left to compare."""
        ranges = self._ranges
        is_open = any(each.is_open for each in ranges)
        extra, lacking = tuple(self._extra), tuple(self._lacking)
        return RangeMessage(_FORMAT, tuple(ranges) if is_open else (), extra, lacking)

    def add(self, part: IdRange) -> None:
        """Add a range; ranges without anything to compare are joined."""
        last = self._ranges[-1] if self._ranges else None
        if last is not None and not part.is_open and not last.is_open:
            self._ranges.pop()
        self._ranges.append(part)
        self._ids += len(part.ids or ())

    def answer(self, lower: bytes, upper: bytes, fingerprint: bytes) -> None:
        """Answer for a range by its fingerprint."""
        summary = self._entries.summary(lower, upper)
        own = summary.fingerprint()
        if own == fingerprint:
            self.add(IdRange(upper))
        elif summary.size <= RANGE_IDS_MAX and self._ids + summary.size <= IDS_MAX:
            prefixes = tuple(entry[:PREFIX_BYTES] for entry in self._entries.ids(lower, upper))
            self.add(IdRange(upper, None, prefixes))
        elif len(self._ranges) + 4 * RANGE_FANOUT > RANGES_MAX or summary.size <= RANGE_IDS_MAX:
            # The message is full: the other node answers for the whole range again.
            self.add(IdRange(upper, own))
        else:
            self.divide(lower, upper, RANGE_FANOUT)

    def divide(self, lower: bytes, upper: bytes, parts: int) -> None:
        """Add the parts of a range with their fingerprints."""
        for until in (*self._entries.bounds(lower, upper, parts), upper):
            summary = self._entries.summary(lower, until)
            self.add(IdRange(until, summary.fingerprint()))
            lower = until

    def compare(self, lower: bytes, part: IdRange) -> None:
        """Record the difference of a range whose ids are known."""
        theirs = set(part.ids or ())
        count = self._entries.summary(lower, part.until).size
        if count > _LARGE and len(self._ranges) + 4 * RANGE_FANOUT <= RANGES_MAX:
            # Many more than the other node has: find the difference in smaller ranges.
            self.divide(lower, part.until, RANGE_FANOUT)
            return
        if len(self._extra) + count > IDS_MAX:
            self.add(IdRange(part.until, self._entries.summary(lower, part.until).fingerprint()))
            return
        own = {entry[:PREFIX_BYTES]: entry for entry in self._entries.ids(lower, part.until)}
        self._extra += [entry for prefix, entry in own.items() if prefix not in theirs]
        self._lacking += [prefix for prefix in part.ids or () if prefix not in own]
        self.add(IdRange(part.until))
