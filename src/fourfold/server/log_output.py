"""Output of the log of a server: lines of text or JSON on standard error.

A library installs no handlers: only `fourfold serve` does, for the loggers below `fourfold`. The
fields of a line are those that its caller passed as `extra={"fields": {...}}`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec

from fourfold.settings import LogSettings

_ROOT: Final = "fourfold"


class TextFormatter(logging.Formatter):
    """Formats a line as its time, level, logger and message."""

    def __init__(self) -> None:
        super().__init__("%(time)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        record.time = _time_of(record)
        return super().format(record)


class JsonFormatter(logging.Formatter):
    """Formats a line as a JSON object, with the fields of the record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, object] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


@contextmanager
def logging_to(settings: LogSettings, output: TextIO | None = None) -> Iterator[None]:
    """Write the log to `output`, by default standard error, until the block ends."""
    logger = logging.getLogger(_ROOT)
    handler = logging.StreamHandler(output or sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format == "json" else TextFormatter())
    before = logger.level, logger.propagate
    logger.setLevel(settings.level.upper())
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


def _time_of(record: logging.LogRecord) -> str:
    time = datetime.fromtimestamp(record.created, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
