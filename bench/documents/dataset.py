"""What is written and asked: documents of about 330 bytes, small patches, seeded choices."""

from __future__ import annotations

import random
from typing import Any

SEED = 20_260_102
WRITTEN = 100
"""Entities that single commits change: as many as a lively application has open."""
DEPTHS = 11
"""Entities that are read have 0 to 10 patches on top of a whole document."""
LARGE_FILLER = 20_000

Operation = dict[str, Any]


def entity(number: int) -> str:
    return f"urn:entity:{number:07d}"


def document(number: int, filler: int = 200) -> dict[str, Any]:
    return {
        "value": {
            "title": f"Entity number {number}",
            "body": f"{number:08d}" * (filler // 8),
            "count": number,
            "tags": ["alpha", "beta", "gamma"],
            "nested": {"flag": True, "weight": number / 8},
        }
    }


def set_operation(number: int, version: int, filler: int = 200) -> Operation:
    return {"op": "set", "id": entity(number), "value": document(version, filler)}


def patch_operation(number: int, version: int) -> Operation:
    patches = [{"op": "replace", "path": "/value/count", "value": version}]
    return {"op": "patch", "id": entity(number), "patches": patches}


def choices(count: int, among: int) -> list[int]:
    """A seeded, random sequence: neighbours would share pages, and flatter whoever has them."""
    return random.Random(SEED).choices(range(among), k=count)


def shuffled(count: int) -> list[int]:
    numbers = list(range(count))
    random.Random(SEED).shuffle(numbers)
    return numbers
