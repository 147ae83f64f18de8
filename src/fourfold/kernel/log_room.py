"""Room in the write-ahead log: zeros written ahead of the commits that will need the place.

A sync of a file that has grown also writes where the file now ends and which blocks are its own,
and costs nearly twice what a sync of bytes written over others costs. So a log that grows is made
longer in steps, and the commits between two steps write over zeros. SQLite reads a log up to the
first frame that is not whole, and zeros are never one: a log with room reads as the same log.

Room is only made by whoever holds SQLite's lock for writing, and only beyond the end of the file,
so no frame can be where the zeros go. Where it cannot be made, nothing is lost but time.
"""

from __future__ import annotations

from pathlib import Path

from fourfold import limits
from fourfold.kernel.driver import DriverError, LogFile, log_file

_LOG_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_WRITE_BYTES = 65_536
"""The largest page: SQLite's file layer refuses to write 128 KiB at once."""


class LogRoom:
    """Keeps the log of one database longer than its frames."""

    def __init__(self, log: Path, page_size: int, vfs: str | None) -> None:
        self._log = log
        self._vfs = vfs
        self._frame = page_size + _FRAME_HEADER_BYTES
        self._pages = 0
        self._enough = self._frames(limits.LOG_ROOM_FIRST_BYTES)
        """The number of pages in the log from which on more room is wanted."""
        self.wanted = False

    def grew(self, pages: int) -> None:
        """After a commit that left `pages` in the log."""
        # A log that begins anew may have been cut.
        if pages > self._enough or pages < self._pages:
            self.wanted = True
        self._pages = pages

    def make(self) -> None:
        """Write zeros behind the log. The caller holds the lock for writing."""
        self.wanted = False
        used = _LOG_HEADER_BYTES + self._pages * self._frame
        try:
            with log_file(self._log, self._vfs) as file:
                end = file.xFileSize()
                if used < limits.LOG_ROOM_FIRST_BYTES or end < used:
                    # A short log, or one that somebody else has cut since.
                    self._enough = self._frames(limits.LOG_ROOM_FIRST_BYTES)
                    return
                step = min(used, limits.LOG_ROOM_STEP_BYTES)
                if end - used < step // 2:
                    self._extend(file, end, step)
                    end += step
                self._enough = self._frames(end - step // 4)
        except DriverError:
            # The log is as good without room. What ails the disk is told to the next commit, if it
            # concerns that too.
            self._enough = self._pages + self._frames(limits.CHECKPOINT_BYTES)

    @staticmethod
    def _extend(file: LogFile, end: int, step: int) -> None:
        try:
            for at in range(end, end + step, _WRITE_BYTES):
                file.xWrite(bytes(min(_WRITE_BYTES, end + step - at)), at)
        except DriverError:
            # On a full disk the zeros must not keep the place from the frames.
            file.xTruncate(end)
            raise

    def _frames(self, size: int) -> int:
        return (size - _LOG_HEADER_BYTES) // self._frame
