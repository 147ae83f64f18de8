"""The lines of a file or of stdin, as records, in batches that a stream takes at once.

Empty lines are left out. Every other line has two numbers: the one that an editor shows, for
messages, and the one among the lines that are not empty, for the producer. Batches are cut by lines
and by bytes, so that one is never more than a transaction takes, unless a single line is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from fourfold import limits
from fourfold.errors import FourfoldError, NotFound


class Line(NamedTuple):
    """One line that is not empty."""

    number: int
    """As an editor counts, from 1."""
    seq: int
    """Among those that are not empty, from 0."""
    data: bytes


class Batch(NamedTuple):
    """Lines that go together, each with its records."""

    lines: list[Line]
    records: list[list[bytes]]
    last: bool
    """Whether no line comes after them."""


class BadLine(Exception):
    """A line that is no record, and why."""

    def __init__(self, line: Line, error: FourfoldError) -> None:
        super().__init__(str(error))
        self.line = line
        self.error = error


class Lines:
    """The lines of FILE, or of stdin for `-`; how many bytes were read, of how many."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._file: BinaryIO | None = None
        self.read_bytes = 0
        self.bytes = 0

    def __enter__(self) -> Self:
        if self._source != "-":
            path = Path(self._source)
            try:
                self._file = path.open("rb")
                self.bytes = path.stat().st_size
            except FileNotFoundError:
                raise NotFound(f"{self._source}: there is no such file") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def __iter__(self) -> Iterator[Line]:
        seq = 0
        for number, raw in enumerate(self._file or sys.stdin.buffer, 1):
            self.read_bytes += len(raw)
            if data := raw.rstrip(b"\r\n"):
                yield Line(number, seq, data)
                seq += 1


def batches(
    lines: Iterator[Line], read: Callable[[bytes], list[bytes]], *, together: Callable[[], int]
) -> Iterator[Batch]:
    """The lines in order; `read` gives the records of one, and `together` says how many lines a
    batch may have now. What is before a line that cannot be read comes first, then `BadLine`.
    """
    batch = Batch([], [], last=False)
    size = 0
    for line in lines:
        full = len(batch.lines) >= together() or size + len(line.data) > limits.APPEND_BATCH_BYTES
        if batch.lines and full:
            yield batch
            batch, size = Batch([], [], last=False), 0
        try:
            records = read(line.data)
        except FourfoldError as error:
            if batch.lines:
                yield batch
            raise BadLine(line, error) from error
        batch.lines.append(line)
        batch.records.append(records)
        size += len(line.data)
    if batch.lines:
        yield batch._replace(last=True)
