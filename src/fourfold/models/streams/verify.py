"""The invariants of the streams, checked row by row. Each fault names its stream."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from fourfold.kernel import ReadTransaction, load_queries
from fourfold.models.streams.archive import verify

_SQL = load_queries("fourfold.models.streams")
_SUBSCRIPTIONS = load_queries("fourfold.models.streams.subscriptions")
_RULES = load_queries("fourfold.models.streams", "rules.sql")
_NAMED_MAX = 20


def problems(snapshot: ReadTransaction) -> list[str]:
    """Everything that is wrong, in plain words; empty when all is well."""
    found = [
        f"streams: the counters or offsets of {row[0]!r} do not fit its records"
        for row in snapshot.all(_SQL.broken_streams, (_NAMED_MAX,))
    ]
    found += [
        f"wal: record {row[1]} of stream {row[0]} lies outside of its stream, or has a wrong length"
        for row in snapshot.all(_SQL.stray_records, (_NAMED_MAX,))
    ]
    found += [
        f"wal: record {row[1]} of stream {row[0]} is not where the index says"
        for row in snapshot.all(_SQL.lost_records, (_NAMED_MAX,))
    ]
    found += [
        f"producer_state: producer {row[1]!r} of stream {row[0]} is of no stream, or has no number"
        for row in snapshot.all(_SQL.stray_producers, (_NAMED_MAX,))
    ]
    found += [
        f"deleted_streams: {row[0]!r} is deleted, and still among the streams"
        for row in snapshot.all(_SQL.broken_tombstones, (_NAMED_MAX,))
    ]
    found += [
        f"streams: {row[0]!r} was forked from a stream or an offset that is not there"
        for row in snapshot.all(_SQL.broken_forks, (_NAMED_MAX,))
    ]
    wrong = (row[0] for row in snapshot.all(_SQL.wrong_sizes, (_NAMED_MAX,)))
    found += [
        f"streams: the size of {name!r} is not that of its records"
        for name in islice(chain(wrong, _wrong_forks(snapshot)), _NAMED_MAX)
    ]
    found += [
        f"stream_names: {row[0]!r} has an incarnation number that an earlier stream had"
        for row in snapshot.all(_SQL.reused_incarnations, (_NAMED_MAX,))
    ]
    found += [
        f"subscription_links: a cursor in {row[0]!r} is of no subscription, or not where it can be"
        for row in snapshot.all(_SUBSCRIPTIONS.broken_links, (_NAMED_MAX,))
    ]
    found += [
        f"streams: the rules of {row[0]!r} are missing, or are not what its row says"
        for row in snapshot.all(_RULES.unruly_streams, (_NAMED_MAX,))
    ]
    found += [
        f"{row[0]}: a row of {row[1]!r}, which does not have such rules"
        for row in snapshot.all(_RULES.stray_rules, (_NAMED_MAX,))
    ]
    return found + verify.problems(snapshot)


def _wrong_forks(snapshot: ReadTransaction) -> Iterator[str]:
    """Yield the forks whose size is not that of what they share and of their own records."""
    source, end, left = None, 0, 0
    for name, shared, sid, offset, source_end, source_size in snapshot.rows(_SQL.fork_sizes):
        if sid != source:
            source, end, left = sid, source_end, source_size
        left -= snapshot.value(_SQL.bytes_between, (sid, offset, end))
        end = offset
        if shared != left:
            yield name
