"""What is written: conversations with three texts of about 50 bytes and an edge; seeded choices."""

from __future__ import annotations

import random
from typing import Any

from fourfold.models.graphs import Kind

SEED = 20_260_103
APP = 1
OWNER = 1
SHARED = 1
TARGETS = 1_000
"""Parents that every file has from the start, for attributes, edges and ratings to point at."""
TYPES: dict[Kind, int] = {"parent": 1, "attr": 2, "edge": 3, "rating": 4}
BATCH = 10_000
CALLERS = 64
PAGE = 1_000

Row = dict[str, Any]


def text(number: int) -> str:
    return f"A message of about fifty bytes, number {number:012d}"


def rows(kind: Kind, count: int, flags: int = 0) -> list[Row]:
    """Rows of one kind, as an application hands them in."""
    chance = random.Random(SEED)
    of: Row = {"type_id": TYPES[kind], "owner_identity": OWNER}
    if flags:
        of["sync_flags"] = flags
    found = []
    for number in range(count):
        pointed = chance.randrange(TARGETS) + 1
        if kind == "parent":
            found.append(dict(of))
        elif kind == "attr":
            found.append({"parent_id": number % TARGETS + 1, "value_text": text(number), **of})
        elif kind == "edge":
            ends = {"src_parent_id": number % TARGETS + 1, "dst_parent_id": pointed}
            found.append({**ends, **of})
        else:
            found.append({"target_parent_id": pointed, "value_number": number / 8, **of})
    return found


def envelope(number: int, size: str) -> Row:
    """A new conversation; `five` also has three texts and an edge to another one."""
    of = {"app_id": APP, "owner_identity": OWNER}
    ops: list[Row] = [{"op": "parent_create", "type_key": "bench parent", "payload": {}, **of}]
    if size == "five":
        for each in range(3):
            payload = {"parent_id": {"$op": 0}, "value": text(3 * number + each)}
            ops.append({"op": "attr_create", "type_key": "bench attr", "payload": payload, **of})
        ends = {"src_parent_id": {"$op": 0}, "dst_parent_id": number % TARGETS + 1}
        ops.append({"op": "edge_create", "type_key": "bench edge", "payload": ends, **of})
    return {"trace_id": f"trace-{number:08d}", "ops": ops}


def envelopes(count: int, size: str) -> list[Row]:
    return [envelope(number, size) for number in range(count)]


def choices(count: int, among: int) -> list[int]:
    """A seeded, random sequence from 1: neighbours would share pages, and be faster."""
    return [each + 1 for each in random.Random(SEED).choices(range(among), k=count)]
