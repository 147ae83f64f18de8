"""Validation of messages by schemas, and schemas that are rejected."""

from __future__ import annotations

import pytest

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.streams.schemas import unfolded_size
from fourfold.models.streams.schemas.compatibility import compiled

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


@pytest.mark.parametrize(("schema", "message", "reason"), VALIDATED)
def test_invalid_message_has_a_short_reason(schema, message, reason):
    problem = compiled(schema).problem(message)
    if reason is None:
        assert problem is None
    else:
        assert reason in problem
        assert len(problem) <= limits.SCHEMA_REASON_CHARS


def test_reason_does_not_quote_the_message():
    assert "hunter2" not in compiled(INTEGER).problem(b'"hunter2"')


def nested_schema():
    schema = {}
    for _ in range(400):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ([], "a JSON object, true or false"),
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
def test_invalid_schema_is_rejected(schema, reason):
    with pytest.raises(InvalidInput) as refused:
        compiled(schema)
    assert reason in refused.value.message


# Expansion of references


def reference(name):
    return {"$ref": f"#/$defs/{name}"}


def doubling(levels, last):
    """Return definitions that each refer twice to the next one."""
    defs = {
        f"a{at}": {"allOf": [reference(f"a{at + 1}"), reference(f"a{at + 1}")]}
        for at in range(levels)
    }
    return {"$defs": {**defs, f"a{levels}": last}, **reference("a0")}


@pytest.mark.parametrize(
    "schema",
    [
        doubling(30, {"type": "object"}),
        doubling(30, {"properties": {"x": reference("a0")}}),
        {"items": doubling(30, True)["$defs"]["a0"], "$defs": doubling(30, True)["$defs"]},
        {
            "$defs": {
                f"a{at}": {"properties": {"x": {"allOf": [reference(f"a{at + 1}")] * 2}}}
                for at in range(30)
            }
            | {"a30": True},
            **reference("a0"),
        },
        {
            "$id": "http://example.org/root",
            "$defs": {
                f"a{at}": {"$anchor": f"a{at}", "anyOf": [{"$ref": f"#a{at + 1}"}] * 2}
                for at in range(30)
            }
            | {"a30": {"$anchor": "a30", "type": "object"}},
            "$ref": "http://example.org/root#a0",
        },
    ],
    ids=["in place", "in a cycle", "items", "properties", "anchors"],
)
def test_schema_with_unbounded_expansion_is_rejected(schema):
    with pytest.raises(InvalidInput, match=r"more than \d+ parts"):
        compiled(schema)


@pytest.mark.parametrize(
    "schema",
    [
        doubling(6, {"type": "object"}),
        {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}},
        {"anyOf": [{"type": "object", "additionalProperties": {"$ref": "#"}}, {"type": "string"}]},
        {"oneOf": [{"type": "object", "properties": {"k": {"const": n}}} for n in range(200)]},
        {"$ref": "#"},
    ],
    ids=["small", "tree", "values", "variants", "itself"],
)
def test_schema_of_usual_size_is_accepted(schema):
    assert compiled(schema).problem(b"{}") is None or "oneOf" in schema


def test_unfolded_size_equals_size_of_expanded_schema():
    schema = doubling(5, {"properties": {"x": {"type": "string"}}})

    def written_out(part):
        if isinstance(part, list):
            return sum(map(written_out, part))
        if "$ref" in part:
            return 1 + written_out(schema["$defs"][part["$ref"].removeprefix("#/$defs/")])
        inner = [*part.get("allOf", []), *part.get("properties", {}).values()]
        return 1 + written_out(inner)

    assert unfolded_size.measure(schema).parts == written_out({"$ref": schema["$ref"]})


def test_reason_is_not_searched_in_deeply_recursive_schema():
    schema = {"type": "object", "properties": {"x": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
    validator = compiled(schema)
    assert "'/x/x'" in validator.problem(b'{"x":{"x":1}}')
    deep = b'{"x":' * 60 + b"1" + b"}" * 60
    assert "not searched" in validator.problem(deep)


def test_append_with_too_many_values_for_large_schema_is_rejected(monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.schemas.validation.SCHEMA_CHECKS_MAX", 1_000)
    validator = compiled({"items": doubling(5, True)["$defs"]["a0"], **doubling(5, True)})
    assert not validator.is_too_much([b"[1,2]"])
    assert not validator.is_too_much([b'"' + b"x" * 1_000 + b'"'])
    assert validator.is_too_much([b"[" + b"1," * 100 + b"1]"])
    # The messages of an append count together.
    assert not validator.is_too_much([b"[1,2,3]"] * 2)
    assert validator.is_too_much([b"[1,2,3]"] * 20)
    assert validator.is_too_much([b"1"] * 100)
