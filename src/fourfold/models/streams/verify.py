"""Invariants of the streams, checked row by row. Each problem names its stream."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from fourfold.kernel import ReadTransaction, load_queries

_SQL = load_queries("fourfold.models.streams")
_SUBSCRIPTIONS = load_queries("fourfold.models.streams.subscriptions")
_RULES = load_queries("fourfold.models.streams", "rules.sql")
_NAMED_MAX = 20


def problems(snapshot: ReadTransaction) -> list[str]:
    """Return a message for each violated invariant; empty if there are none."""
    from fourfold.models.streams.archive import verify  # noqa: PLC0415 - rare

    messages = [
        f"streams: the counters or offsets of {row[0]!r} do not match its records"
        for row in snapshot.all(_SQL.broken_streams, (_NAMED_MAX,))
    ]
    messages += [
        f"wal: record {row[1]} of stream {row[0]} is outside of its stream, or has a wrong length"
        for row in snapshot.all(_SQL.stray_records, (_NAMED_MAX,))
    ]
    messages += [
        f"wal: record {row[1]} of stream {row[0]} is not at its indexed position"
        for row in snapshot.all(_SQL.lost_records, (_NAMED_MAX,))
    ]
    messages += [
        f"producer_state: producer {row[1]!r} of {row[0]} has no stream, or an invalid number"
        for row in snapshot.all(_SQL.stray_producers, (_NAMED_MAX,))
    ]
    messages += [
        f"deleted_streams: {row[0]!r} is deleted, but still in streams"
        for row in snapshot.all(_SQL.broken_tombstones, (_NAMED_MAX,))
    ]
    messages += [
        f"streams: {row[0]!r} was forked from a missing stream or offset"
        for row in snapshot.all(_SQL.broken_forks, (_NAMED_MAX,))
    ]
    wrong = (row[0] for row in snapshot.all(_SQL.wrong_sizes, (_NAMED_MAX,)))
    messages += [
        f"streams: the size of {name!r} does not match its records"
        for name in islice(chain(wrong, _wrong_forks(snapshot)), _NAMED_MAX)
    ]
    messages += [
        f"stream_names: {row[0]!r} reuses the incarnation number of an earlier stream"
        for row in snapshot.all(_SQL.reused_incarnations, (_NAMED_MAX,))
    ]
    messages += [
        f"streams: {row[0]!r} has headers, but is not marked so"
        for row in snapshot.all(_SQL.unmarked_headers, (_NAMED_MAX,))
    ]
    messages += [
        f"stream_keys: stream {row[0]} has keys of records that it does not have"
        for row in snapshot.all(_SQL.stray_keys, (_NAMED_MAX,))
    ]
    messages += [
        f"feed_trail: it does not match the log ({row[0]})"
        for row in snapshot.all(_SQL.broken_feed, (_NAMED_MAX,))
    ]
    messages += [
        f"subscription_links: a cursor in {row[0]!r} has no subscription, or an invalid offset"
        for row in snapshot.all(_SUBSCRIPTIONS.broken_links, (_NAMED_MAX,))
    ]
    messages += [
        f"streams: the rules of {row[0]!r} are missing, or do not match its row"
        for row in snapshot.all(_RULES.unruly_streams, (_NAMED_MAX,))
    ]
    messages += [
        f"{row[0]}: a row of {row[1]!r}, which has no such rules"
        for row in snapshot.all(_RULES.stray_rules, (_NAMED_MAX,))
    ]
    return messages + verify.problems(snapshot)


def _wrong_forks(snapshot: ReadTransaction) -> Iterator[str]:
    """Yield the forks whose size does not match their shared and own records."""
    source, end, left = None, 0, 0
    for name, shared, sid, offset, source_end, source_size in snapshot.rows(_SQL.fork_sizes):
        if sid != source:
            source, end, left = sid, source_end, source_size
        left -= snapshot.value(_SQL.bytes_between, (sid, offset, end))
        end = offset
        if shared != left:
            yield name
