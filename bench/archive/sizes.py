"""D: bytes of a message once it is published, beside what it had when it came.

Everything that the object store has of a stream is counted: its segments and its manifest. The
small segments are those of a stream that is published after every hundred messages.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import fourfold
from bench.archive import messages
from bench.parts import Figure, Part, one
from bench.place import BUILD
from fourfold.archive.manifest import name_hash
from fourfold.models.streams import Append

MESSAGES = 500_000
QUICK = 50_000
SMALL_SEGMENT = 100
SMALL_SEGMENTS = 50


def measure(rounds: int, *, quick: bool) -> Part:
    del rounds
    count = QUICK if quick else MESSAGES
    figures: list[Figure] = []
    facts: dict[str, float] = {}
    for kind, made in messages.KINDS.items():
        raw = sum(map(len, made(count))) / count
        published = _published(messages.store(kind, count, published=True), messages.NAME) / count
        small = _small(kind)
        facts |= {f"{kind}, raw": raw, f"{kind}, published": published, f"{kind}, small": small}
        figures += [
            one(f"{kind}, raw", raw, "B"),
            one(f"{kind}, published", published, "B"),
            one(f"{kind}, published to raw", published / raw, ""),
            one(f"{kind}, in segments of {SMALL_SEGMENT}", small, "B"),
        ]
    return Part(title="D. Bytes of a message", rows=count, figures=figures, facts=facts)


def _published(root: Path, name: str) -> int:
    files = (root / "objects").glob(f"**/{name_hash(name)}*/**/*")
    return sum(file.stat().st_size for file in files if file.is_file())


def _small(kind: str) -> float:
    count = SMALL_SEGMENT * SMALL_SEGMENTS
    waiting = messages.KINDS[kind](count)
    with TemporaryDirectory(dir=BUILD, prefix="work-") as folder:
        root = Path(folder) / "store"
        with fourfold.open(root) as store:
            store.streams.create(messages.NAME, content_type=messages.JSON)
            while batch := list(islice(waiting, SMALL_SEGMENT)):
                store.streams.append(messages.NAME, Append(batch, messages.JSON))
                store.archive.publish_all()
        return _published(root, messages.NAME) / count
