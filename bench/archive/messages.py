"""What the streams of this benchmark hold, and the stores with them, made once and kept.

notes    200 bytes, of which 160 are noise: the messages of the benchmark of streams
orders   an event of a shop: names repeat, numbers do not
tokens   pieces of an answer, as a language model streams them
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import fourfold
from bench.place import BUILD
from fourfold.archive.manifest import name_hash
from fourfold.models.streams import Append

JSON = "application/json"
NAME = "large"
SMALL = "small"
"""A stream of one message, so that a server can be made ready without reading the other."""
BATCH = 1_000
NOTE_BYTES = 200
WORDS = ("a", "log", "is", "only", "ever", "added", "to", "and", "read", "as", "a", "fold")


def notes(count: int) -> Iterator[bytes]:
    chance = random.Random(1)
    for number in range(count):
        text = json.dumps({"id": number, "note": chance.randbytes(80).hex()})
        yield (text[:-1] + " " * (NOTE_BYTES - len(text)) + "}").encode()


def orders(count: int) -> Iterator[bytes]:
    chance = random.Random(2)
    for number in range(count):
        order = {
            "type": chance.choice(("order.placed", "order.paid", "order.sent")),
            "order": f"o-{number:08}",
            "customer": f"c-{chance.randrange(100_000):06}",
            "total": chance.randrange(10**6) / 100,
            "items": [{"sku": f"s-{chance.randrange(2_000):05}", "count": chance.randrange(1, 5)}],
            "at": 1_790_000_000_000 + 37 * number,
        }
        yield json.dumps(order, separators=(",", ":")).encode()


def tokens(count: int) -> Iterator[bytes]:
    chance = random.Random(3)
    for number in range(count):
        piece = {"i": number, "delta": f" {chance.choice(WORDS)}"}
        yield json.dumps(piece, separators=(",", ":")).encode()


KINDS: dict[str, Callable[[int], Iterator[bytes]]] = {
    "notes": notes,
    "orders": orders,
    "tokens": tokens,
}


def append_all(root: Path, name: str, messages: Iterable[bytes]) -> None:
    waiting = iter(messages)
    with fourfold.open(root) as store:
        store.streams.create(name, content_type=JSON)
        while batch := list(islice(waiting, BATCH)):
            store.streams.append(name, Append(batch, JSON))


def store(kind: str, count: int, *, published: bool) -> Path:
    """A store with one stream of so many messages; one that is there already is taken as it is."""
    state = "published" if published else "pending"
    root = BUILD / "archive" / f"{kind}-{count}-{state}"
    if (root / "complete").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    append_all(root, NAME, KINDS[kind](count))
    append_all(root, SMALL, notes(1))
    if published:
        with fourfold.open(root) as opened:
            done = opened.archive.publish_all()
            assert not done.failures
            assert opened.archive.standing().unpublished_records == 0
    (root / "complete").touch()
    return root


def segment_files(root: Path) -> list[Path]:
    """The objects of the large stream of a store, in the order of its records."""
    # Their names begin with the incarnation, then the first offset.
    return sorted((root / "objects").glob(f"**/{name_hash(NAME)}*/**/*.parquet"))
