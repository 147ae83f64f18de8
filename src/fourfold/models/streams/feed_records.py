"""Records of the feed over all streams: its entries, pages and cursors. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from fourfold.errors import HistoryTruncated, InvalidInput
from fourfold.models.streams.records import Record
from fourfold.models.streams.validation import NOW, START, Offset

CURSOR: Final = re.compile(r"([0-9]{1,16})-([0-9]{1,18})(?:-([0-9]{1,18}))?")
"""A cursor: the history, the id, and the horizon that its reader knows."""


class StreamRecord(NamedTuple):
    """A record in the feed over all streams, and the cursor after it."""

    stream: str
    record: Record
    cursor: str
    incarnation_number: int = 0

    @property
    def offset(self) -> Offset:
        """The place of the record in its stream, as an offset to read from."""
        return Offset(self.record.offset, self.incarnation_number)


class FeedGap(NamedTuple):
    """Records that are missing in the feed, and the cursor after them.

    Without a stream, they are of streams that are not known any more.
    """

    cursor: str
    stream: str | None = None
    records: int = 0

    def to_error(self) -> HistoryTruncated:
        """Return the error that a follower raises."""
        if self.stream is None:
            message = "streams: the feed begins after this cursor"
        else:
            message = f"stream {self.stream!r}: retention removed {self.records} records"
        return HistoryTruncated(
            message,
            hint="Continue with the cursor in the details; read other records from the streams.",
            details={"cursor": self.cursor, "stream": self.stream, "records": self.records},
        )


class FeedPage(NamedTuple):
    """Entries of the feed, and where to continue."""

    items: tuple[StreamRecord | FeedGap, ...]
    cursor: str
    up_to_date: bool


def check_after(after: object) -> str | None:
    """Return where a feed begins if it is a cursor, `-1` or `now`."""
    if after is None or after in {START, NOW}:
        return None if after is None else str(after)
    if isinstance(after, str) and CURSOR.fullmatch(after):
        return after
    raise InvalidInput(
        f"invalid cursor {after!r:.80}",
        hint="Use -1 for the earliest record, now for the newest, or a cursor of the feed.",
    )
