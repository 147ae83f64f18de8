"""Payloads of the unsealed tail of streams, joined, in memory.

Most searches have a word or a value that the bytes of each match contain. Looking for it in the
payloads of thousands of records at once takes a tenth of the time that SQLite takes record by
record, and the next search need not read them again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec

from fourfold import limits

TEXT_BYTES_MAX: Final = 48 * limits.MIB
"""Payloads in memory, of all streams together."""
PIECE_BYTES_MAX: Final = 4 * limits.MIB
"""Payloads of a piece; larger ones are read from the log every time."""
_ENTRY_BYTES: Final = 32
"""Bytes in memory for each record, besides its payload."""


class TextBlock:
    """The payloads of the records from `start` to before `end`.

    Args:
        data: The payloads, joined by commas.
        sizes: The sizes of the payloads in order, as text that is joined by commas.
    """

    def __init__(self, start: int, end: int, data: bytes, sizes: str) -> None:
        self.start = start
        self.end = end
        self.data = data
        self._text = sizes

    @cached_property
    def has_escapes(self) -> bool:
        """True if a string may be written otherwise than in its own bytes."""
        return b"\\" in self.data

    @cached_property
    def is_ascii(self) -> bool:
        """True if no payload has other characters."""
        return self.data.isascii()

    @cached_property
    def _sizes(self) -> list[int]:
        return msgspec.json.decode(f"[{self._text}]", type=list[int])

    @cached_property
    def _ends(self) -> list[int]:
        return [at - 1 for at in accumulate(size + 1 for size in self._sizes)]

    def payload(self, offset: int) -> bytes:
        """Return the payload at an offset."""
        return self.between(offset, offset + 1)

    def between(self, start: int, end: int) -> bytes:
        """Return the payloads from one offset to before another one, joined by commas."""
        if start <= self.start and self.end <= end:
            return self.data
        first, last = max(start, self.start) - self.start, min(end, self.end) - self.start - 1
        return self.data[self._ends[first] - self._sizes[first] : self._ends[last]]

    def find(self, needle: bytes, *, fold: bool) -> Iterator[int]:
        """Yield the offsets of the records that may contain some bytes, in order.

        With `fold`, the bytes are in lower case, and letters in ASCII match in any case.
        """
        data = self.data.lower() if fold else self.data
        at = data.find(needle)
        while at >= 0:
            row = bisect_right(self._ends, at)
            yield self.start + row
            at = data.find(needle, self._ends[row])


class TailText(NamedTuple):
    """The payloads of the records from `start` to before `end`, in blocks that fit into a cache.

    One buffer for all of them would be written to memory and read from it several times.
    """

    start: int
    end: int
    blocks: tuple[TextBlock, ...]

    @property
    def weight(self) -> int:
        """The number of bytes in memory."""
        return self.size + _ENTRY_BYTES * (1 + self.end - self.start)

    @property
    def size(self) -> int:
        """The number of bytes of the payloads."""
        return sum(len(block.data) for block in self.blocks)

    def within(self, start: int, end: int) -> Iterator[TextBlock]:
        """Yield the blocks with records from `start` to before `end`."""
        for block in self.blocks:
            if block.start < end and start < block.end:
                yield block


def parse_block(start: int, end: int, row: Sequence[Any]) -> TextBlock | None:
    """Return the payloads of some records; None if one of them is not there.

    The row has their joined payloads, their sizes as text, the sum of these, and their number.
    """
    data, sizes, size, count = row
    if count != end - start or len(data) != size + count - 1:
        return None
    return TextBlock(start, end, data, sizes)
