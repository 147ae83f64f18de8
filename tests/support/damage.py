"""Hypothesis strategies for damaged files: what a fault or another program may make of a file.

`damaged(content)` draws bytes: with flipped bits, cut, with parts removed, repeated, moved or
inserted. `damaged_json(content)` decodes lines or a document of JSON, and replaces, removes or adds
values in it; `rewrite` brings checksums up to date afterwards, so that the damage gets past them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

_ODD_NUMBERS = [0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 0.5, 1e308, -0.0]
_ODD_TEXTS = [
    "",
    "\x00",
    "../../etc/passwd",
    "/etc/passwd",
    "a" * 5000,
    "\ud800",
    "sha256:" + "0" * 64,
    "9999-12-31T23:59:59.999Z",
    "2026-13-01T00:00:00Z",
    "\u202e",
    "~",
    "did:web:x",
    "-1",
    "1e999",
]


def odd_values() -> st.SearchStrategy[Any]:
    """Draw JSON values that programs often forget."""
    nested: Any = 1
    for _ in range(300):
        nested = [nested]
    return st.one_of(
        st.sampled_from(
            [None, True, False, [], {}, [None], {"": None}, nested, *_ODD_NUMBERS, *_ODD_TEXTS]
        ),
        st.integers(),
        st.text(max_size=20),
        st.lists(st.integers(), max_size=3),
    )


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Draw `content` with up to three damages."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, max(0, len(data) - 1)))
        size = draw(st.integers(1, 64))
        match draw(st.sampled_from(["flip", "cut", "remove", "repeat", "move", "insert", "zero"])):
            case "flip" if data:
                data[start] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[start:]
            case "remove":
                del data[start : start + size]
            case "repeat":
                data[start:start] = data[start : start + size]
            case "move":
                part = data[start : start + size]
                del data[start : start + size]
                to = draw(st.integers(0, len(data)))
                data[to:to] = part
            case "zero":
                data[start : start + size] = bytes(len(data[start : start + size]))
            case _:
                data[start:start] = draw(st.binary(min_size=1, max_size=16))
    return bytes(data)


@st.composite
def damaged_json(
    draw: st.DrawFn, content: bytes, rewrite: Callable[[list[Any]], None] | None = None
) -> bytes:
    """Draw lines of JSON with up to three changed values, or with changed lines."""
    try:
        lines = [json.loads(content)]
    except ValueError:
        lines = [json.loads(line) for line in content.splitlines() if line.strip()]
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["value"] * 5 + ["swap", "remove", "repeat"])):
            case "swap":
                other = draw(st.integers(0, len(lines) - 1))
                lines[place], lines[other] = lines[other], lines[place]
            case "remove" if len(lines) > 1:
                del lines[place]
            case "repeat":
                lines.insert(place, lines[place])
            case _:
                lines[place] = draw(changed(lines[place]))
    if rewrite is not None:
        rewrite(lines)
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """Draw the value with one place in it replaced, removed or added to."""
    value = deepcopy(value)
    places = list(_places(value))
    if not places:
        return draw(odd_values())
    container, key = draw(st.sampled_from(places))
    match draw(st.sampled_from(["replace", "replace", "replace", "remove", "add", "text"])):
        case "remove":
            del container[key]
        case "add" if isinstance(container, dict):
            container[draw(st.sampled_from(["", "id", "extra", key + "x"]))] = draw(odd_values())
        case "add":
            container.insert(key, draw(odd_values()))
        case "text" if isinstance(container[key], str) and container[key]:
            text = container[key].encode()
            container[key] = draw(damaged(text)).decode("utf-8", "replace")
        case _:
            container[key] = draw(odd_values())
    return value


def _places(value: Any) -> Any:
    """Yield (container, key) of every value inside."""
    if not isinstance(value, dict | list):
        return
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        yield from _places(part)
