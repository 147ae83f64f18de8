"""Search of sessions: what building the index and searching it cost.

python -m bench.sessions.search 5000     # prints the result as JSON
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fourfold

SESSIONS = 100
WORDS = 30
VOCABULARY = 20_000
BATCH = 500
SEARCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "phrase": ('"w10 w20"', {}),
    "prefix": ("w1999*", {}),
    "frequent": ("w50", {}),
    "frequent, newest first": ("w50", {"order": "newest"}),
    "in one session": ("w500", {"sid": "s/7"}),
}


def measure(events: int, rounds: int = 15) -> dict[str, Any]:
    """Return CPU times of indexing and searching so many messages of 30 words."""
    source = random.Random(7)
    words = [f"w{number}" for number in range(VOCABULARY)]
    weights = [1 / (number + 1) for number in range(VOCABULARY)]
    with (
        tempfile.TemporaryDirectory() as folder,
        fourfold.open(Path(folder) / "store") as store,
    ):
        sessions = store.sessions
        for number in range(SESSIONS):
            sessions.create({"id": f"s/{number}"})
        for number in range(events // BATCH):
            texts = (" ".join(source.choices(words, weights, k=WORDS)) for _ in range(BATCH))
            sessions.append_events(
                f"s/{number % SESSIONS}",
                [
                    {"type": "message/appended", "message": {"role": "user", "content": text}}
                    for text in texts
                ],
            )
        began = time.process_time()
        sessions.index_texts()
        index_us = (time.process_time() - began) / events * 1e6
        searches = {}
        for name, (query, options) in SEARCHES.items():
            times = []
            for _ in range(rounds):
                began = time.process_time()
                page = sessions.search(query, **options)
                times.append((time.process_time() - began) * 1e3)
            searches[name] = {"hits": len(page), "cpu_ms": round(statistics.median(times), 2)}
    return {"events": events, "index_cpu_us": round(index_us, 1), "searches": searches}


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(measure(int(sys.argv[1])))}\n")
