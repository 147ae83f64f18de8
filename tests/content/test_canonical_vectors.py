"""Golden vectors of the canonical encoding, in a file that any language can read.

`vectors/c1.json` describes each value with its types and gives the text and its SHA-256. To add a
vector, add its name and value (or a text to be refused) and run this file as a program: it fills in
the rest. A vector that is there never changes: that would be another encoding, with another name.
"""

from __future__ import annotations

import hashlib
import json
import struct
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest

from fourfold.content import VERSION, PayloadRef, decode, encode
from fourfold.errors import ContentError
from fourfold.testing.strategies import typed_form

PATH = Path(__file__).with_name("vectors") / "c1.json"
FILE = json.loads(PATH.read_text(encoding="utf-8"))

BUILDERS = {
    "null": lambda: None,
    "bool": bool,
    "int": int,
    "float": lambda bits: struct.unpack(">d", bytes.fromhex(bits))[0],
    "str": str,
    "bytes": bytes.fromhex,
    "list": lambda items: [build(item) for item in items],
    "dict": lambda pairs: {key: build(item) for key, item in pairs},
    "set": lambda items: frozenset(hashable(build(item)) for item in items),
    "datetime": datetime.fromisoformat,
    "uuid": UUID,
    "decimal": Decimal,
    "ref": lambda fields: PayloadRef(**fields),
}


def build(described):
    """The value that a description such as `["int", "7"]` stands for."""
    kind, *held = described
    return BUILDERS[kind](*held)


def hashable(value):
    return tuple(map(hashable, value)) if isinstance(value, list) else value


def names(vectors):
    return [vector["name"] for vector in vectors]


@pytest.mark.parametrize("vector", FILE["vectors"], ids=names(FILE["vectors"]))
def test_the_encoding_is_the_recorded_one(vector):
    value = build(vector["value"])
    data = encode(value)
    assert data.decode() == vector["text"]
    assert hashlib.sha256(data).hexdigest() == vector["sha256"]
    assert typed_form(decode(data)) == typed_form(value)


@pytest.mark.parametrize("vector", FILE["refused"], ids=names(FILE["refused"]))
def test_what_is_recorded_as_refused_is_refused(vector):
    with pytest.raises(ContentError):
        decode(vector["text"].encode())


def test_vectors_are_those_of_this_version_and_have_distinct_names():
    assert FILE["encoding"] == VERSION
    everything = names(FILE["vectors"]) + names(FILE["refused"])
    assert len(set(everything)) == len(everything)
    assert len({vector["text"] for vector in FILE["vectors"]}) == len(FILE["vectors"])


def write() -> None:
    for vector in FILE["vectors"]:
        text = encode(build(vector["value"])).decode()
        if vector.setdefault("text", text) != text:
            raise SystemExit(f"the vector {vector['name']!r} would change; c1 never changes")
        vector["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    parts = [f'"{key}": {json.dumps(FILE[key])}' for key in ("encoding", "about")]
    for key in ("vectors", "refused"):
        rows = ",\n".join("  " + json.dumps(vector) for vector in FILE[key])
        parts.append(f'"{key}": [\n{rows}\n ]')
    PATH.write_text("{\n " + ",\n ".join(parts) + "\n}\n", encoding="ascii")


if __name__ == "__main__":
    write()
