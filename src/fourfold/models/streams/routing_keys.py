"""Routing keys of a stream: each with its newest record.

The index of the log has the keys of records in the log. Records that leave it leave their keys in
`stream_keys`. Both are read in the order of the keys, so a page takes as long for a stream with
many keys as for one with few.

Segments that another node has written, or that are older than `stream_keys`, are a gap: their keys
are added segment by segment when the archive indexes. Until then a page says from where on it is
complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.kernel import ReadTransaction, Transaction, load_queries
from fourfold.models.streams.records import StreamInfo
from fourfold.models.streams.validation import Offset, check_key
from fourfold.tabular import Rows

KEYS_EXAMINED: Final = 10_000
"""Keys that one page examines, where retention has removed the records of most."""
KEYS_FORGOTTEN: Final = 1_000
"""Keys without records that one transaction of retention drops."""

_SQL = load_queries("fourfold.models.streams")
_AFTER_ALL: Final = b"\xff" * (limits.ROUTING_KEY_MAX + 1)


class RoutingKeyInfo(NamedTuple):
    """A routing key, and the offset of its newest record."""

    key: bytes
    offset: Offset

    @property
    def text(self) -> str:
        """The key as text; bytes that are not UTF-8 are escaped."""
        return self.key.decode(errors="backslashreplace")


class KeyPage(msgspec.Struct, frozen=True):
    """A page of the routing keys of a stream, in the order of their bytes. Iterating yields them.

    `after` is where the next page continues, or None. Keys whose newest record is below
    `complete_from` may be missing.
    """

    keys: Rows[RoutingKeyInfo]
    after: bytes | None
    complete_from: Offset

    def __iter__(self) -> Iterator[RoutingKeyInfo]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)


def read_keys(
    snapshot: ReadTransaction,
    info: StreamInfo,
    prefix: str | bytes,
    after: str | bytes | None,
    limit: int,
) -> KeyPage:
    """Return the keys of the records of a stream itself, without those that a fork shares."""
    if type(limit) is not int or not 1 <= limit <= limits.PAGE_ITEMS_MAX:
        raise InvalidInput(f"limit must be 1 to {limits.PAGE_ITEMS_MAX}, got {limit!r:.40}")
    low = _to_bytes(prefix)
    last = b"" if after is None else check_key(after)
    number = info.incarnation_number
    keys: list[RoutingKeyInfo] = []
    examined, has_more = 0, True
    while has_more and len(keys) < limit and examined < KEYS_EXAMINED:
        page = _page(snapshot, (info.sid, last, low, _end_of(low), limit + 1))
        has_more = len(page) > limit
        for key, offset in page[:limit]:
            if len(keys) == limit:
                has_more = True
                break
            last = key
            examined += 1
            # Retention has removed the records of the others.
            if offset >= info.first_offset:
                keys.append(RoutingKeyInfo(key, Offset(offset, number)))
    gap = snapshot.value(_SQL.key_gap, (info.sid,))
    begin = max(info.first_offset, info.fork_offset or 0, gap or 0)
    return KeyPage(Rows(keys, RoutingKeyInfo), last if has_more else None, Offset(begin, number))


def _page(
    snapshot: ReadTransaction, params: tuple[int, bytes, bytes, bytes, int]
) -> list[tuple[bytes, int]]:
    """Return the next keys, of the log and of what has left it, each with its newest offset."""
    kept = snapshot.all(_SQL.keys_kept, params)
    logged = snapshot.all(_SQL.keys_in_log, params)
    both = groupby(merge(kept, logged), itemgetter(0))
    newest = [(key, max(row[1] for row in rows)) for key, rows in both]
    return newest[: params[4]]


def _to_bytes(prefix: str | bytes) -> bytes:
    return check_key(prefix) if prefix else b""


def _end_of(prefix: bytes) -> bytes:
    """Return the first bytes that sort after every key with a prefix."""
    base = prefix.rstrip(b"\xff")
    return base[:-1] + bytes([base[-1] + 1]) if base else _AFTER_ALL


def note_gap(txn: Transaction, name: str) -> None:
    """Note that the keys of a restored stream are only in its segments."""
    txn.execute(_SQL.note_key_gap, (name,))


def forget(txn: Transaction, sid: int, first_offset: int) -> None:
    """Drop some keys whose records retention has removed; reads leave out the others."""
    txn.execute(_SQL.forget_keys, (sid, first_offset, KEYS_FORGOTTEN))


def keep(txn: Transaction, sid: int, offset: int) -> None:
    """Store the keys of the records below an offset, which are trimmed from the log."""
    if txn.value(_SQL.has_keys, (sid,)):
        txn.execute(_SQL.keep_keys, (sid, offset))
