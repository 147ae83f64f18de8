"""Stores with random streams: of every kind, forked, truncated, closed, deleted, and published
occasionally. Reads of each stream are the expected result.
"""

from __future__ import annotations

import json
import random

import fourfold
from fourfold.store.store import remember

KINDS = ("application/json", "text/plain", "application/octet-stream")
SMALL = {"archive.seal_rows": 5, "archive.seal_bytes": 1024}


def grown(root, seed, steps=120, objects=None):
    """Create a store with a number of random steps, partly published."""
    draw = random.Random(seed)
    with fourfold.open(root):
        remember(root, objects)
    with fourfold.open(root, settings=SMALL) as store:
        for number, kind in enumerate(KINDS):
            store.streams.create(f"kept/{number}", kind)
        store.streams.create("short", KINDS[1], retention_bytes=60)
        store.streams.create("empty")
        for step in range(steps):
            _step(store, draw, step)
        store.archive.publish_all()
        for step in range(steps, steps + 8):
            _append(store, draw, step)
        kept = store.streams.open("kept/1")
        kept.append([b"not published when it was forked"])
        kept.fork("fork/late").append([b"nor is this"])
    return root


def _step(store, draw, step):
    chosen = draw.random()
    if chosen < 0.62:
        _append(store, draw, step)
    elif chosen < 0.7:
        kind = draw.choice(KINDS)
        limit = draw.choice([None, 50])
        store.streams.create(f"made/{step} é", kind, retention_bytes=limit)
    elif chosen < 0.78:
        info = draw.choice(store.streams.list())
        at = draw.randint(info.first_offset, info.next_offset)
        store.streams.open(info.name).fork(f"fork/{step}", at=at)
    elif chosen < 0.82:
        made = [info.name for info in store.streams.list() if info.name.startswith("made/")]
        if made:
            store.streams.delete(draw.choice(made))
    elif chosen < 0.85:
        forks = [info.name for info in store.streams.list() if info.name.startswith("fork/")]
        if forks:
            store.streams.open(draw.choice(forks)).close()
    elif chosen < 0.9:
        store.streams.sweep()
    elif chosen < 0.93:
        store.archive.compact()
        store.archive.index()
    elif draw.random() < 0.5:
        store.archive.publish_all()
    else:
        store.archive.round()


def _append(store, draw, step):
    info = draw.choice([info for info in store.streams.list() if not info.closed])
    records = [_record(draw, info.content_type, step) for _ in range(draw.randint(1, 6))]
    key = draw.choice([None, "k", "l", "m ü"])
    headers = {"trace": key} if key == "l" else None
    store.streams.open(info.name).append(records, key=key, headers=headers)


def _record(draw, kind, step):
    if kind == KINDS[0]:
        value = {"n": step, "é": draw.choice(["x", 1.50, None, "ö" * draw.randint(0, 30)])}
        return json.dumps(value, ensure_ascii=False).encode()
    if kind == KINDS[1]:
        return f"line {step} ü".encode() * draw.randint(1, 4)
    return bytes(draw.randrange(256) for _ in range(draw.randint(1, 40)))


def seen(root):
    """Return the reads of each stream: offsets, times in milliseconds, payloads."""
    with fourfold.open(root, mode="r") as store:
        return {info.name: _records(store, info) for info in store.streams.list()}


def _records(store, info):
    result = []
    at = info.first_offset
    while True:
        _, chunk = store.streams.read(info.name, at, records_max=40)
        result += [(each.offset, each.ts_ms, each.payload) for each in chunk.records]
        at = chunk.offset
        if chunk.up_to_date:
            return result


def origins(root):
    """Return the first own offset of each stream."""
    with fourfold.open(root, mode="r") as store:
        return {info.name: info.fork_offset or 0 for info in store.streams.list()}


def collected(frame):
    """Return the rows of a DataFrame in the same shape, asserting that none is repeated."""
    result = {}
    for row in frame.select("stream", "offset", "time", "payload").collect():
        ms = round(row.time.timestamp() * 1000)
        result.setdefault(row.stream, []).append((row.offset, ms, bytes(row.payload)))
    return {name: sorted(rows) for name, rows in result.items()}
