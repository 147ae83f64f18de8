"""Lists of streams in the order of their names, with a filter by content type."""

from __future__ import annotations

from typing import Final, NamedTuple

from fourfold import limits
from fourfold.kernel import ReadTransaction
from fourfold.models.streams import validation, writer
from fourfold.models.streams.records import StreamInfo
from fourfold.models.streams.writer import SQL, StreamClock

SCAN_STREAMS: Final = 5_000
"""Streams that one request reads to find those that match: some 20 ms."""


class StreamFilter(NamedTuple):
    """Streams of a list."""

    prefix: str = ""
    content_type: str = ""
    """Only streams of this type, compared without parameters; empty for all."""

    def matches(self, info: StreamInfo) -> bool:
        """Return True if a stream has the type."""
        wanted = self.content_type
        return not wanted or validation.plain_type(info.content_type) == wanted


class StreamMatches(NamedTuple):
    """The streams of a list that match, as far as it was read."""

    infos: list[StreamInfo]
    next_after: str | None
    """The name after which the list continues; None if it was read to its end."""


def parse_filter(prefix: str, content_type: str) -> StreamFilter:
    """Return the filter of a list."""
    return StreamFilter(prefix, validation.plain_type(content_type))


def scan_streams(
    snapshot: ReadTransaction,
    wanted: StreamFilter,
    *,
    after: str,
    limit: int,
    now: StreamClock,
    streams_max: int = SCAN_STREAMS,
) -> StreamMatches:
    """Read up to `streams_max` streams (at least `limit`) after a name; return those that match.

    Expired streams do not count, so the page is filled with the streams after them.
    """
    end = validation.prefix_upper_bound(wanted.prefix)
    place, left = validation.check_storable(after), max(streams_max, limit)
    infos: list[StreamInfo] = []
    while len(infos) < limit and left > 0:
        size = limit - len(infos) if not wanted.content_type else limits.LIST_STREAMS_MAX
        size = min(size, left)
        rows = snapshot.all(SQL.streams_after, (place, wanted.prefix, end, size))
        for row in rows:
            info = writer.info_of(row)
            place = info.name
            if not writer.is_expired(info, now) and wanted.matches(info):
                infos.append(info)
                if len(infos) == limit:
                    return StreamMatches(infos, place)
        if len(rows) < size:
            return StreamMatches(infos, None)
        left -= len(rows)
    return StreamMatches(infos, place)
