"""A message is valid under a schema, or there is a reason; not every schema is taken."""

from __future__ import annotations

import pytest

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.streams.schemas.proof import compiled

TEXT = {"type": "string"}
INTEGER = {"type": "integer"}


def closed(**properties):
    return {"type": "object", "properties": properties, "additionalProperties": False}


VALIDATED = [
    (INTEGER, b"1180591620717411303424", None),
    (INTEGER, b"1.0", None),
    (INTEGER, b"1.5", 'at its top: the value is not of type "integer"'),
    ({"maximum": 2**70}, b"1180591620717411303425", "greater than"),
    (closed(**{"a/b": TEXT}), b'{"a/b":1}', "at '/a~1b': the value is not of type"),
    (closed(a=TEXT), b'{"secret":1}', "Additional properties"),
    ({"format": "date-time"}, b'"yesterday"', "date-time"),
    ({"format": "date-time"}, b'"2024-01-01T00:00:00Z"', None),
    (True, b"1e400", "cannot be read"),
    (True, b"9" * 5_000, "cannot be read"),
    (True, b'"\\ud800"', "cannot be read"),
    (True, b'"\xff"', "cannot be read"),
    (True, b"[" * 100_000 + b"]" * 100_000, "nested more than"),
    (True, b"[" * 201 + b"]" * 201, "nested more than"),
    (True, b"[" * 200 + b"]" * 200, None),
    (TEXT, b"[" * 200 + b"]" * 200, "not of type"),
    (True, b"[" + b"[]," * 300 + b"[]]", None),
]


@pytest.mark.parametrize(("schema", "message", "told"), VALIDATED)
def test_a_message_is_valid_or_there_is_a_short_reason(schema, message, told):
    problem = compiled(schema).problem(message)
    if told is None:
        assert problem is None
    else:
        assert told in problem
        assert len(problem) <= limits.SCHEMA_REASON_CHARS


def test_a_reason_does_not_quote_the_message():
    assert "hunter2" not in compiled(INTEGER).problem(b'"hunter2"')


def nested_schema():
    schema = {}
    for _ in range(400):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ([], "a JSON object, or true or false"),
        ({"type": "text"}, "not valid at '/type'"),
        ({"$ref": "http://example.com/x"}, "refers to another one"),
        ({"properties": {"a": {"$ref": "file:///etc/hosts"}}}, "refers to another one"),
        ({"$ref": "#/$defs/none"}, "/$defs/none"),
        ({"$schema": "http://example.com/own"}, "meta-schema"),
        ({"pattern": "(?=a)b"}, "regular expression"),
        ({"pattern": "(a)\\1"}, "regular expression"),
        ({"pattern": "(a{1000}){1000}"}, "regular expression"),
        ({"const": object()}, "not JSON"),
        (nested_schema(), "cannot be read"),
    ],
)
def test_a_schema_that_is_not_taken_is_refused(schema, told):
    with pytest.raises(InvalidInput) as refused:
        compiled(schema)
    assert told in refused.value.message
