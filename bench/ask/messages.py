"""The messages that are searched: like those of a log, about 270 bytes each, a day of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

import fourfold
from bench.ask.rounds import batches
from fourfold import Stream

SEED: Final = 19
WORDS: Final = 2_100
SERVICES: Final = ["auth", "pay", "search", "mail", "cart", "stock", "edge", "jobs"]
LEVELS: Final = ["debug", "info", "info", "info", "warn", "error"]
START_MS: Final = 1_767_225_600_000
DAY_MS: Final = 86_400_000
NAME: Final = "logs"
RARE_EVERY: Final = 100_000
"""One of so many messages has a word of its own."""
BATCH: Final = 2_000
TAIL_BYTES: Final = 16 * 1024 * 1024
"""What may be unsealed: the size of a segment."""
DECLARATION: Final[dict[str, Any]] = {
    "text": ["message"],
    "columns": ["service", "level", "status", "duration", "host", "region", "bytes", "user"],
    "timestamp": "time",
    "rollups": [{"every": "1m", "by": ["service", "level"], "measures": ["duration"]}],
}


def messages(count: int) -> Iterator[dict[str, Any]]:
    """Yield the messages of a day, some with a rare word."""
    for number, message in enumerate(_plain_messages(count, SEED)):
        message["time"] = int(START_MS + number * DAY_MS / count)
        if number % RARE_EVERY == 777:
            message["message"] += f" rare{number // RARE_EVERY}"
        yield message


def tail_messages(count: int) -> Iterator[dict[str, Any]]:
    """Yield messages that follow those of a day, without rare words, at most 16 MiB of them."""
    size = 0
    for number, message in enumerate(_plain_messages(count, SEED + 1)):
        message["time"] = int(START_MS + DAY_MS + number * DAY_MS / count)
        size += len(msgspec.json.encode(message))
        if size > TAIL_BYTES:
            return
        yield message


def rare_word(number: int, count: int) -> str:
    """Return a word that one of the messages of a day has."""
    return f"rare{number % max(1, count // RARE_EVERY)}"


def append(stream: Stream, found: Iterator[dict[str, Any]], ndjson: Path | None = None) -> int:
    """Append messages, also to a file if there is one; return the number of their bytes."""
    size = 0
    for batch in batches(map(msgspec.json.encode, found), BATCH):
        stream.append_bytes(b"[" + b",".join(batch) + b"]")
        lines = b"\n".join(batch) + b"\n"
        size += len(lines)
        if ndjson is not None:
            with ndjson.open("ab") as file:
                file.write(lines)
    return size


def append_tail(root: Path, count: int) -> int:
    """Append the tail of a stream; return the number of its messages."""
    with fourfold.open(root) as store:
        stream = store.streams.open(NAME)
        before = stream.info.next_offset
        append(stream, tail_messages(count))
        return int(stream.info.next_offset) - int(before)


def _plain_messages(count: int, seed: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(seed)
    words = [f"word{number:04d}" for number in range(WORDS)]
    weights = [1 / (rank + 10) for rank in range(WORDS)]
    for _ in range(count):
        text = " ".join(chance.choices(words, weights, k=9))
        yield {
            "time": 0,
            "service": chance.choice(SERVICES),
            "level": chance.choice(LEVELS),
            "status": chance.choice([200, 200, 200, 201, 304, 404, 500, 503]),
            "duration": round(chance.expovariate(1 / 40), 2),
            "host": f"host-{chance.randrange(40)}",
            "region": chance.choice(["eu-west", "eu-north", "us-east"]),
            "bytes": chance.randrange(100_000),
            "user": f"u{chance.randrange(50_000)}",
            "message": text,
        }
