"""A process that appends to a stream, changes its schema, and prints what was acknowledged."""

from __future__ import annotations

import json
import sys

import fourfold
from support.crash import acknowledge, ready

ROOT = sys.argv[1]
VERSIONS_MAX = 200
"""Maximum number of versions, since the size of a registry is limited."""


def schema(name):
    return {
        "type": "object",
        "properties": {name: {"type": "integer"}, "by": {"type": "string"}},
        "required": [name],
        "additionalProperties": False,
    }


def main():
    with fourfold.open(ROOT) as store:
        streams = store.streams
        stream = streams.create("s", "application/json")
        version = streams.schemas.get("s").current_version
        if not version:
            first = {"schema": schema("n1"), "routingKey": {"jsonPointer": "/by"}}
            version = streams.schemas.put("s", first).current_version
        ready()
        while True:
            for _ in range(3):
                number = stream.info.next_offset
                message = {f"n{version}": number, "by": f"k{number % 3}"}
                stream.append(json.dumps(message).encode())
                acknowledge(json.dumps(["append", number]))
            if version >= VERSIONS_MAX:
                continue
            ops = [{"op": "rename", "from": f"n{version}", "to": f"n{version + 1}"}]
            streams.schemas.put("s", {"schema": schema(f"n{version + 1}"), "lens": ops})
            version += 1
            acknowledge(json.dumps(["version", version]))


main()
