"""Lenses convert messages as they derive schemas, and proofs accept no wrong lens."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from fourfold.errors import InvalidInput
from fourfold.models.streams.schemas.compatibility import PROOF_DEPTH_MAX, check_proven, compiled
from fourfold.models.streams.schemas.lens import LENS_DEPTH_MAX, LENS_OPS_MAX, Lens
from support.properties import examples

TEXT = {"type": "string"}
INTEGER = {"type": "integer"}


def lens(*ops):
    return Lens.read({"ops": list(ops)})


def op(kind, /, **fields):
    return {"op": kind, **{key.rstrip("_"): value for key, value in fields.items()}}


def closed(required=(), /, **properties):
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


RENAME = op("rename", from_="a", to="b")

EXAMPLES = [
    (RENAME, b'{"a": 1.0 ,"c":2}', b'{"c":2,"b":1.0}'),
    (op("copy", from_="a", to="b"), b'{"a":1}', b'{"a":1,"b":1}'),
    (op("add", name="b", value={"x": [1, None]}), b'{"a":1}', b'{"a":1,"b":{"x":[1,null]}}'),
    (op("add", name="b", value=1), b'{"b":null}', b'{"b":null}'),
    (op("remove", name="a"), b'{"a":1,"b":2}', b'{"b":2}'),
    (op("hoist", host="h", name="a"), b'{"h":{"a": 1e5 ,"b":2}}', b'{"h":{"b":2},"a":1e5}'),
    (op("hoist", host="h", name="a"), b'{"h":[1]}', b'{"h":[1]}'),
    (op("plunge", name="a", host="h"), b'{"a":1,"h":{"b":2}}', b'{"h":{"b":2,"a":1}}'),
    (op("plunge", name="a", host="h"), b'{"a":1}', b'{"h":{"a":1}}'),
    (op("plunge", name="a", host="h"), b'{"a":1,"h":7}', b'{"a":1,"h":7}'),
    (op("wrap", name="a"), b'{"a": "\\u0061" }', b'{"a":["\\u0061"]}'),
    (op("head", name="a"), b'{"a":[ 1.50 ,2]}', b'{"a":1.50}'),
    (op("head", name="a"), b'{"a":[],"b":1}', b'{"b":1}'),
    (op("head", name="a"), b'{"a":"x"}', b'{"a":"x"}'),
    (op("convert", name="a", to="string"), b'{"a":1.50}', b'{"a":"1.50"}'),
    (op("convert", name="a", to="string"), b'{"a":true}', b'{"a":"true"}'),
    (op("convert", name="a", to="string"), b'{"a":null}', b'{"a":null}'),
    (op("convert", name="a", to="string"), b'{"a":[1]}', b'{"a":[1]}'),
    (op("convert", name="a", to="integer"), b'{"a":"\\u0031\\u0032"}', b'{"a":12}'),
    (op("convert", name="a", to="integer"), b'{"a":"012"}', b'{"a":"012"}'),
    (op("convert", name="a", to="integer"), b'{"a":"1.5"}', b'{"a":"1.5"}'),
    (op("convert", name="a", to="number"), b'{"a":"-1.50e3"}', b'{"a":-1.50e3}'),
    (op("convert", name="a", to="number"), b'{"a":"1e400"}', b'{"a":"1e400"}'),
    (op("convert", name="a", to="boolean"), b'{"a":"false"}', b'{"a":false}'),
    (op("convert", name="a", to="boolean"), b'{"a":"no"}', b'{"a":"no"}'),
    (op("convert", name="a", map={"x": "y"}), b'{"a":"\\u0078"}', b'{"a":"y"}'),
    (op("convert", name="a", map={"x": "y"}), b'{"a":"z"}', b'{"a":"z"}'),
    (op("convert", name="a", map={"x": "y"}, default=None), b'{"a":"z"}', b'{"a":null}'),
    (op("convert", name="a", map={"x": "y"}, default="d"), b'{"a":7}', b'{"a":"d"}'),
    (op("in", name="h", ops=[RENAME]), b'{"h":{"a":1,"c": 2 }}', b'{"h":{"c":2,"b":1}}'),
    (op("map", name="h", ops=[RENAME]), b'{"h":[{"a":1},5,{}]}', b'{"h":[{"b":1},5,{}]}'),
]


@pytest.mark.parametrize(("given", "before", "after"), EXAMPLES)
def test_op_converts_messages(given, before, after):
    assert lens(given).promote(before) == after


@pytest.mark.parametrize("given", [each[0] for each in EXAMPLES])
def test_op_keeps_other_bytes(given):
    alone = lens(given)
    for message in (b' { "z" : 1.0 } ', b"[ 1 ]", b'"text"', b" null", b"1e400", b'{"\\ud800":1}'):
        if given["op"] != "add":
            assert alone.promote(message) == message
    assert alone.to_json() == {"ops": [given]}
    kept = rb'12345678901234567890123,"y":"\u0061\/","x":[ 1.0,1e400 , {"a" :1} ]}'
    promoted = alone.promote(b'{"a":"x","h":{"a":1},"z":' + kept)
    raws = msgspec.json.decode(promoted, type=dict[str, msgspec.Raw])
    assert bytes(raws["z"]) == b"12345678901234567890123"
    assert bytes(raws["y"]) == rb'"\u0061\/"'
    assert bytes(raws["x"]) == b'[ 1.0,1e400 , {"a" :1} ]'


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (5, "the lens: Expected `object`"),
        ({"ops": [], "x": 1}, "unknown field `x`"),
        ([op("wrap", name="a"), op("turn", name="a")], "op 2 of the lens: Invalid value 'turn'"),
        ([op("rename", from_="a")], "op 1 of the lens: Object missing required field `to`"),
        ([op("wrap", name="a", x=1)], "op 1 of the lens: Object contains unknown field `x`"),
        ([op("in", name="a", ops=[RENAME, op("remove")])], "op 1.2 of the lens"),
        ([op("rename", from_="a", to="a")], "the property 'a' twice"),
        ([op("convert", name="a")], "one of the fields"),
        ([op("convert", name="a", to="string", map={"a": "b"})], "one of the fields"),
        ([op("convert", name="a", to="string", default=1)], "without a `map`"),
        ([op("convert", name="a", map={})], "op 1 of the lens"),
        ([op("add", name="a", value=float("nan"))], "not JSON"),
        ([op("add", name="a", value="\ud800")], "not JSON"),
        ([op("wrap", name="a")] * (LENS_OPS_MAX + 1), "at most 256 ops"),
    ],
)
def test_invalid_lens_is_rejected_with_number_of_op(given, reason):
    with pytest.raises(InvalidInput, match=reason.replace("(", r"\(")):
        Lens.read(given)


@pytest.mark.parametrize("depth", [LENS_DEPTH_MAX + 1, 5_000])
def test_nesting_of_ops_is_limited(depth):
    ops = [op("wrap", name="a")]
    for _ in range(depth - 1):
        ops = [op("in", name="a", ops=ops)]
    with pytest.raises(InvalidInput, match="deep"):
        Lens.read(ops)


def test_deeply_nested_message_is_not_promoted():
    message = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert lens(RENAME).promote(message) == message


OPEN = {"type": "object", "properties": {"a": TEXT}, "required": ["a"]}

DERIVED = [
    (closed(["a"], a=TEXT), RENAME, closed(["b"], b=TEXT)),
    (closed(a=TEXT), RENAME, closed(b=TEXT)),
    (closed(c=TEXT), RENAME, closed(c=TEXT)),
    (closed(a=TEXT), op("copy", from_="a", to="b"), closed(a=TEXT, b=TEXT)),
    (closed(), op("add", name="b", value=3), closed(["b"], b={"enum": [3]})),
    (closed(b=TEXT), op("add", name="b", value="x"), closed(["b"], b=TEXT)),
    (OPEN, op("add", name="b", value=3), {**OPEN, "required": ["a", "b"]}),
    (OPEN, op("remove", name="a"), {"type": "object", "properties": {"a": False}}),
    (
        closed(["h"], h=closed(["a", "c"], a=TEXT, c=TEXT)),
        op("hoist", host="h", name="a"),
        closed(["a", "h"], a=TEXT, h=closed(["c"], c=TEXT)),
    ),
    (
        closed(h=closed(["a"], a=TEXT)),
        op("hoist", host="h", name="a"),
        closed(a=TEXT, h=closed()),
    ),
    (
        closed(["a"], a=TEXT, h=closed(["c"], c=TEXT)),
        op("plunge", name="a", host="h"),
        closed(["h"], h={"anyOf": [closed(["a", "c"], a=TEXT, c=TEXT), closed(["a"], a=TEXT)]}),
    ),
    (closed(a=TEXT), op("plunge", name="a", host="h"), closed(h=closed(["a"], a=TEXT))),
    (
        closed(a=TEXT),
        op("wrap", name="a"),
        closed(a={"type": "array", "items": TEXT, "minItems": 1, "maxItems": 1}),
    ),
    (
        closed(["a"], a={"type": "array", "items": TEXT, "minItems": 1}),
        op("head", name="a"),
        closed(["a"], a=TEXT),
    ),
    (closed(["a"], a={"type": "array", "items": TEXT}), op("head", name="a"), closed(a=TEXT)),
    (closed(a=INTEGER), op("convert", name="a", to="string"), closed(a=TEXT)),
    (closed(a=INTEGER), op("convert", name="a", to="number"), closed(a=INTEGER)),
    (closed(a={"enum": [1, 2]}), op("convert", name="a", to="string"), closed(a=TEXT)),
    (
        closed(a={"type": ["boolean", "null"]}),
        op("convert", name="a", to="string"),
        closed(a={"type": ["string", "null"]}),
    ),
    (
        closed(a={"enum": ["1", "20"]}),
        op("convert", name="a", to="integer"),
        closed(a={"enum": [1, 20]}),
    ),
    (
        closed(a={"enum": ["x", "z", None]}),
        op("convert", name="a", map={"x": "y"}),
        closed(a={"enum": ["y", "z", None]}),
    ),
    (
        closed(a=TEXT),
        op("convert", name="a", map={"x": "y"}, default="d"),
        closed(a={"enum": ["y", "d"]}),
    ),
    (
        closed(h={"type": "array", "items": closed(a=TEXT), "uniqueItems": True}),
        op("map", name="h", ops=[op("remove", name="a")]),
        closed(h={"type": "array", "items": closed()}),
    ),
    (
        {**closed(h={"$ref": "#/$defs/h"}), "$defs": {"h": closed(a=TEXT)}},
        op("in", name="h", ops=[RENAME]),
        {**closed(h=closed(b=TEXT)), "$defs": {"h": closed(a=TEXT)}},
    ),
]


@pytest.mark.parametrize(("old", "given", "new"), DERIVED)
def test_derived_schema_is_exact(old, given, new):
    promoted = lens(given).derived(old)
    check_proven(promoted, lens(), new)
    check_proven(new, lens(), promoted)


REFUSED = [
    (OPEN, RENAME, "op 1 of the lens, rename: the message may already have a property 'b'"),
    (closed(a=TEXT, b=TEXT), RENAME, "already"),
    (closed(a=TEXT, b=TEXT), op("copy", from_="a", to="b"), "already"),
    (closed(a=TEXT, h=closed(a=TEXT)), op("hoist", host="h", name="a"), "already"),
    (closed(a=TEXT, h=closed(a=TEXT)), op("plunge", name="a", host="h"), "already"),
    (closed(a=TEXT, h=TEXT), op("plunge", name="a", host="h"), "'h' is not plain"),
    (
        closed(a=TEXT, h={**closed(), "type": ["object", "null"]}),
        op("plunge", name="a", host="h"),
        "a value that is not an object",
    ),
    (
        closed(a=TEXT),
        op("convert", name="a", to="integer"),
        "type string may not be convertible to integer",
    ),
    (
        closed(a={"type": "number"}),
        op("convert", name="a", to="integer"),
        "may not be convertible to integer",
    ),
    (
        closed(a={"enum": ["1", "x"]}),
        op("convert", name="a", to="integer"),
        '"x" is not convertible to integer',
    ),
    (closed(a={}), op("convert", name="a", to="string"), "the type of the value"),
    (
        closed(a={"type": "array"}),
        op("convert", name="a", to="string"),
        "type array may not be convertible",
    ),
    (closed(a={"type": ["array", "null"]}), op("head", name="a"), "that is not an array"),
    (closed(a={"type": "array", "prefixItems": [TEXT]}), op("head", name="a"), "prefixItems"),
    (closed(h={"type": "array"}), op("map", name="h", ops=[RENAME]), "an item of"),
    (closed(h=OPEN), op("in", name="h", ops=[RENAME]), "op 1.1 of the lens, rename"),
    ({**closed(a=TEXT), "minProperties": 1}, RENAME, "has the keyword 'minProperties'"),
    ({**closed(a=TEXT), "patternProperties": {"^b": TEXT}}, RENAME, "patternProperties"),
    ({**closed(a=TEXT), "dependentRequired": {"a": ["b"]}}, RENAME, "dependentRequired"),
    ({"properties": {"a": TEXT}, "additionalProperties": False}, RENAME, '"type": "object"'),
    (True, RENAME, '"type": "object"'),
    (closed(a=TEXT, k={"$ref": "#"}), RENAME, "refers to '#'"),
    (closed(a=TEXT, k={"$ref": "#/properties/a"}), RENAME, "refers to '#/properties/a'"),
    (closed(a=TEXT, k={"$id": "http://example.com/k"}), RENAME, "its own $id"),
    ({"$ref": "#/$defs/x", "$defs": {"x": {"$ref": "#/$defs/x"}}}, RENAME, "circular"),
]


@pytest.mark.parametrize(("old", "given", "reason"), REFUSED)
def test_lens_is_rejected_when_lossy_or_schema_not_plain(old, given, reason):
    with pytest.raises(InvalidInput) as refused:
        lens(given).derived(old)
    assert reason in refused.value.message


def test_lossy_op_is_accepted_after_remove():
    assert lens(op("remove", name="b"), RENAME).derived(OPEN)["required"] == ["b"]


def test_lens_changes_only_top_of_recursive_schema():
    node = closed(a=TEXT, k={"$ref": "#/$defs/node"})
    old = {"$ref": "#/$defs/node", "$defs": {"node": node}}
    promoted = lens(RENAME).derived(old)
    assert promoted["properties"] == {"b": TEXT, "k": {"$ref": "#/$defs/node"}}
    message = lens(RENAME).promote(b'{"a":"x","k":{"a":"y"}}')
    assert compiled(promoted).problem(message) is None


UNPROVEN = [
    (closed(a=TEXT), closed(["b"], b=TEXT), True, "'/b' is required, and may be missing"),
    (closed(["a"], a=TEXT), closed(["b"], b=INTEGER), True, 'may be {"type":"string"}'),
    (closed(["a"], a=TEXT, c=TEXT), closed(["b"], b=TEXT), True, "'/c' may be there, and is not"),
    (
        closed(a=TEXT, h=closed(x={"type": "array", "items": TEXT})),
        closed(b=TEXT, h=closed(x={"type": "array", "items": INTEGER})),
        True,
        "/h/x/*",
    ),
    (
        closed(a={"type": "string", "pattern": "^ab+$"}),
        closed(b={"type": "string", "pattern": "^a"}),
        False,
        "it is not proven",
    ),
    ({**OPEN, "properties": {"a": TEXT, "b": False}}, closed(["b"], b=TEXT), True, "'/*' may be"),
    (
        closed(a=TEXT),
        closed(b={"type": "string", "format": "date-time"}),
        True,
        "does not convert every valid message",
    ),
]


@pytest.mark.parametrize(("old", "new", "disproved", "reason"), UNPROVEN)
def test_unproven_lens_is_rejected_with_its_gaps(old, new, disproved, reason):
    with pytest.raises(InvalidInput) as refused:
        check_proven(old, lens(RENAME), new)
    assert reason in refused.value.message
    assert refused.value.details["disproved"] is disproved


def test_versions_of_different_drafts_are_rejected():
    new = {**closed(b=TEXT), "$schema": "http://json-schema.org/draft-07/schema#"}
    with pytest.raises(InvalidInput, match="Draft202012 and Draft7"):
        check_proven(closed(a=TEXT), lens(RENAME), new)
    check_proven({**closed(a=TEXT), "$schema": new["$schema"]}, lens(RENAME), new)


def test_recursive_schemas_are_compared_once():
    def tree(leaf):
        node = {"$ref": "#/$defs/n"}
        return {**node, "$defs": {"n": closed(a=leaf, k=node, m={"type": "array", "items": node})}}

    nothing = lens(op("remove", name="z"))
    check_proven(tree(INTEGER), nothing, tree({"type": "number"}))
    with pytest.raises(InvalidInput) as refused:
        check_proven(tree({"type": "number"}), nothing, tree(INTEGER))
    assert refused.value.details["places"] == ["/a"]


def test_too_deep_comparison_is_not_a_proof():
    def chain(leaf, **more):
        for _ in range(PROOF_DEPTH_MAX + 2):
            leaf = closed(a=leaf, **more)
        return leaf

    with pytest.raises(InvalidInput, match="became too long"):
        check_proven(chain(TEXT, b=False), lens(), chain(TEXT))
    anything = {"anyOf": [chain(TEXT, b=False), TEXT]}
    with pytest.raises(InvalidInput, match="not proven"):
        check_proven(anything, lens(), {"anyOf": [TEXT, chain(TEXT)]})


NAMES = st.sampled_from("abcd")
LEAVES = {
    "string": ['"x"', '"\\u0061"', '"1"', '"true"', '""'],
    "integer": ["0", "-3", "1.0", "2e1", "12345678901234567890123"],
    "number": ["1.50", "-0.0", "1e300", "7"],
    "boolean": ["true", "false"],
    "null": ["null"],
}
LISTED = ["x", "1", "true", 2, None]


@st.composite
def schemas(draw, depth=2):
    """Draw plain schemas, most of them of objects."""
    kind = draw(st.sampled_from(["leaf", "listed", "array", "object", "ref"]))
    if depth == 2 or (kind == "object" and depth):
        properties = draw(st.dictionaries(NAMES, schemas(depth=depth - 1), max_size=4))
        schema = {"type": "object", "properties": properties}
        if properties:
            schema["required"] = draw(st.lists(st.sampled_from(sorted(properties)), unique=True))
        additional = draw(st.sampled_from([False, False, False, INTEGER, None]))
        return schema if additional is None else {**schema, "additionalProperties": additional}
    if kind == "array" and depth:
        least = draw(st.integers(0, 1))
        return {"type": "array", "items": draw(schemas(depth=depth - 1)), "minItems": least}
    if kind == "ref":
        return {"$ref": "#/$defs/" + draw(st.sampled_from(["text", "pair"]))}
    if kind == "listed":
        return {"enum": draw(st.lists(st.sampled_from(LISTED), min_size=1, unique=True))}
    types = draw(st.lists(st.sampled_from(sorted(LEAVES)), min_size=1, max_size=2, unique=True))
    return {"type": types[0] if len(types) == 1 else types}


DEFS = {"text": TEXT, "pair": closed(["a"], a=TEXT, b=INTEGER)}


def messages(schema):
    """Draw JSON text of valid values of a schema, with numbers in any spelling."""
    if "$ref" in schema:
        return messages(DEFS[schema["$ref"].removeprefix("#/$defs/")])
    if "enum" in schema:
        texts = [msgspec.json.encode(value).decode() for value in schema["enum"]]
        return st.sampled_from([*texts, "2.0"] if 2 in schema["enum"] else texts)
    if schema["type"] == "array":
        items = st.lists(messages(schema["items"]), min_size=schema["minItems"], max_size=3)
        return items.map(lambda texts: "[ " + " , ".join(texts) + " ]")
    if schema["type"] != "object":
        types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        return st.sampled_from([text for each in types for text in LEAVES[each]])
    required = {name: messages(schema["properties"][name]) for name in schema.get("required", ())}
    optional = {name: messages(each) for name, each in schema["properties"].items()}
    if schema.get("additionalProperties") is not False:
        for name in set("abcdz") - set(schema["properties"]):
            optional[name] = st.sampled_from(LEAVES["integer"])
    optional = {name: each for name, each in optional.items() if name not in required}
    return st.fixed_dictionaries(required, optional=optional).map(
        lambda fields: "{" + " , ".join(f'"{name}" : {text}' for name, text in fields.items()) + "}"
    )


def ops(depth=1):
    pair = st.lists(NAMES, min_size=2, max_size=2, unique=True)
    values = st.sampled_from([1, "x", None, {}, {"a": "x"}, [1.5]])
    target = st.sampled_from(["string", "integer", "number", "boolean"])
    table = st.dictionaries(st.sampled_from(["x", "1"]), values, min_size=1)
    kinds = [
        pair.map(lambda two: op("rename", from_=two[0], to=two[1])),
        pair.map(lambda two: op("copy", from_=two[0], to=two[1])),
        pair.map(lambda two: op("hoist", host=two[0], name=two[1])),
        pair.map(lambda two: op("plunge", host=two[0], name=two[1])),
        st.builds(lambda name, value: op("add", name=name, value=value), NAMES, values),
        NAMES.map(lambda name: op("remove", name=name)),
        NAMES.map(lambda name: op("wrap", name=name)),
        NAMES.map(lambda name: op("head", name=name)),
        st.builds(lambda name, to: op("convert", name=name, to=to), NAMES, target),
        st.builds(lambda name, each: op("convert", name=name, map=each), NAMES, table),
        st.builds(
            lambda name, each, value: op("convert", name=name, map=each, default=value),
            NAMES,
            table,
            values,
        ),
    ]
    if depth:
        inner = st.lists(ops(depth - 1), min_size=1, max_size=2)
        kinds.append(st.builds(lambda name, each: op("in", name=name, ops=each), NAMES, inner))
        kinds.append(st.builds(lambda name, each: op("map", name=name, ops=each), NAMES, inner))
    return st.one_of(kinds)


def provable(old, candidates):
    """Return the ops that can be derived after each other, skipping the others."""
    kept = []
    for each in candidates:
        try:
            lens(*kept, each).derived(old)
        except InvalidInput:
            continue
        kept.append(each)
    return lens(*kept)


@st.composite
def changed(draw, schema):
    """Draw a variation of a schema, stricter or looser in places."""
    if not isinstance(schema, dict):
        return draw(st.sampled_from([schema, True]))
    if draw(st.integers(0, 3)) == 0:
        return draw(st.one_of(schemas(depth=1), st.just(schema)))
    out = dict(schema)
    if "properties" in out:
        out["properties"] = {
            name: draw(changed(each))
            for name, each in out["properties"].items()
            if draw(st.integers(0, 5))
        }
        if draw(st.booleans()):
            out["required"] = draw(st.lists(NAMES, max_size=1))
        if draw(st.booleans()):
            out.pop("additionalProperties", None)
    if "items" in out:
        out["items"] = draw(changed(out["items"]))
    return out


@settings(max_examples=examples(60))
@drawn(st.data())
def test_proof_holds_for_every_message(data):
    old = {**data.draw(schemas()), "$defs": DEFS}
    found = provable(old, data.draw(st.lists(ops(), min_size=1, max_size=5)))
    derived = found.derived(old)
    check_proven(old, found, derived)
    check_proven(old, found, {**derived, "required": []})
    new = {**data.draw(changed(derived)), "$defs": DEFS}
    try:
        check_proven(old, found, new)
        proven = [derived, new]
    except InvalidInput:
        proven = [derived]
    for _ in range(3):
        message = data.draw(messages(old)).encode()
        assert compiled(old).problem(message) is None
        promoted = found.promote(message)
        for schema in proven:
            assert compiled(schema).problem(promoted) is None


JSON_TEXT = st.recursive(
    st.sampled_from([text for texts in LEAVES.values() for text in texts] + ["1e400"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda texts: "[" + ",".join(texts) + "]"),
        st.dictionaries(st.sampled_from("abcdz"), inner, max_size=4).map(
            lambda fields: "{" + ",".join(f'"{key}":{text}' for key, text in fields.items()) + "}"
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=examples(60))
@drawn(JSON_TEXT, JSON_TEXT, st.lists(ops(), min_size=1, max_size=5))
def test_promoted_message_is_json_and_keeps_other_properties(text, kept, several):
    found = Lens.read(several)
    msgspec.json.decode(found.promote(text.encode()), type=msgspec.Raw)
    whole = b'{"z":%b,"a":%b}' % (kept.encode(), text.encode())
    raws = msgspec.json.decode(found.promote(whole), type=dict[str, msgspec.Raw])
    assert bytes(raws["z"]) == kept.encode()
