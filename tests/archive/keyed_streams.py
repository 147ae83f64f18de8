"""What tests of indexes and compaction share: a policy of tiny segments, and reads by key."""

from __future__ import annotations

import json

from fourfold.models.streams.archive import Policy
from fourfold.models.streams.archive.verify import object_problems
from fourfold.models.streams.stream import sought

TINY = Policy(
    seal_bytes=10_000,
    seal_rows=4,
    seal_age_s=60.0,
    index_span=4,
    index_fanout=3,
    compact_bytes=10_000,
    compact_rows=1_000,
    compact_segments=2,
    trim_rows=3,
)


def fill(node, name, count, key_of, content_type="text/plain"):
    """A stream of `count` records, each with the key that `key_of` gives its number."""
    stream = node.streams.create(name, content_type)
    for number in range(count):
        body = f"{name}-{number}" if content_type == "text/plain" else json.dumps(number)
        stream.append([body.encode()], key=key_of(number))
    return stream


def by_key(node, name, key, at="-1", **options):
    found = []
    while True:
        _, chunk = node.streams.read(name, at, sought=sought(key=key, **options))
        found += [record.offset for record in chunk.records]
        at = chunk.offset
        if chunk.up_to_date:
            return found


def rows(node, sql, *params):
    with node.database.read() as snapshot:
        return snapshot.all(sql, params)


def sound(node):
    assert node.streams.verify() == []
    with node.database.read() as snapshot:
        assert list(object_problems(snapshot, node.objects)) == []


def key(number):
    return f"key-{number % 5}" if number % 3 else None


def numbers(count, wanted):
    return [number for number in range(count) if key(number) == wanted]


class Crash(BaseException):
    """The process is gone."""
