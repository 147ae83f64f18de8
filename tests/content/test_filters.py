"""The filter grammar against a second, naive reading of the same JSON."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourfold.content import filters
from fourfold.content.filters import parse_filter
from fourfold.errors import InvalidInput

NUMBERS = st.sampled_from([0, 1, 1.0, -1, 0.5, 2**53, 2**53 + 1, float(2**53), 10**30])
LEAVES = st.one_of(
    st.none(), st.booleans(), NUMBERS, st.sampled_from(["", "a", "ab", "B", "é", "1"])
)
FIELDS = st.sampled_from(["a", "b", "0", "x/y"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(FIELDS, VALUES, max_size=4)
KEYS = st.sampled_from(["a", "b", "/a", "/a/b", "/a/0", "/x~1y", "x/y", "/b/a/0"])
ORDERED = st.one_of(NUMBERS, st.booleans(), st.sampled_from(["", "a", "ab", "é"]))
OPERATORS = st.one_of(
    st.tuples(st.sampled_from(["$eq", "$ne"]), VALUES),
    st.tuples(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), ORDERED),
    st.tuples(st.just("$in"), st.lists(VALUES, max_size=3)),
    st.tuples(st.sampled_from(["$prefix", "$contains"]), st.sampled_from(["", "a", "b"])),
    st.tuples(st.just("$exists"), st.booleans()),
    st.tuples(st.just("$type"), st.sampled_from(filters.TYPES)),
    st.tuples(st.just("$any"), st.one_of(LEAVES, st.just({"$gt": 0}), st.just({"/a": 1}))),
    st.tuples(st.just("$not"), st.just({"$gte": 1})),
).map(lambda pair: {pair[0]: pair[1]})
CONDITIONS = st.tuples(KEYS, st.one_of(LEAVES, OPERATORS)).map(lambda pair: {pair[0]: pair[1]})
WHERES = st.recursive(
    CONDITIONS,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["$and", "$or"]), st.lists(inner, max_size=3)).map(
            lambda pair: {pair[0]: pair[1]}
        ),
        inner.map(lambda where: {"$not": where}),
        st.tuples(inner, CONDITIONS).map(lambda pair: {**pair[0], **pair[1]}),
    ),
    max_leaves=5,
)

MISSING = object()


def kind(value):
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}
    return "null" if value is None else names.get(type(value), "object")


def same(one, other):
    if one is MISSING or kind(one) != kind(other):
        return False
    if kind(one) == "array":
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    if kind(one) == "object":
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other


def value_at(value, key):
    segments = [key]
    if key.startswith("/"):
        segments = [part.replace("~1", "/").replace("~0", "~") for part in key[1:].split("/")]
    for segment in segments:
        if type(value) is dict and segment in value:
            value = value[segment]
        elif type(value) is list and segment.isdigit() and int(segment) < len(value):
            value = value[int(segment)]
        else:
            return MISSING
    return value


def holds(value, name, operand):
    ordered = kind(value) == kind(operand) and value is not MISSING
    text = type(value) is str
    return {
        "$eq": lambda: same(value, operand),
        "$ne": lambda: not same(value, operand),
        "$gt": lambda: ordered and value > operand,
        "$gte": lambda: ordered and value >= operand,
        "$lt": lambda: ordered and value < operand,
        "$lte": lambda: ordered and value <= operand,
        "$in": lambda: any(same(value, member) for member in operand),
        "$prefix": lambda: text and value[: len(operand)] == operand,
        "$contains": lambda: text and value.find(operand) >= 0,
        "$exists": lambda: (value is not MISSING) == operand,
        "$type": lambda: value is not MISSING and kind(value) == operand,
        "$any": lambda: type(value) is list and any(item_holds(item, operand) for item in value),
        "$not": lambda: not all(holds(value, *pair) for pair in operand.items()),
    }[name]()


def item_holds(item, operand):
    if type(operand) is not dict:
        return same(item, operand)
    if all(key.startswith("$") for key in operand):
        return all(holds(item, *pair) for pair in operand.items())
    return naive(item, operand)


def naive(document, where):
    for key, value in where.items():
        if key == "$and":
            result = all(naive(document, part) for part in value)
        elif key == "$or":
            result = any(naive(document, part) for part in value)
        elif key == "$not":
            result = not naive(document, value)
        elif type(value) is dict and value and all(name.startswith("$") for name in value):
            result = all(holds(value_at(document, key), *pair) for pair in value.items())
        else:
            result = same(value_at(document, key), value)
        if not result:
            return False
    return True


@given(where=WHERES, documents=st.lists(DOCUMENTS, max_size=4))
def test_filter_matches_as_read_naively(where, documents):
    parsed = parse_filter(where)
    for document in documents:
        assert parsed.matches(document) is naive(document, where)
        assert all(map(_predicate(document), parsed.conjuncts())) is naive(document, where)


def _predicate(document):
    return lambda condition: filters.compile_condition(condition)(document)


@given(where=WHERES, document=DOCUMENTS)
def test_filter_survives_pickling_and_its_own_json(where, document):
    parsed = parse_filter(where)
    for copy in (pickle.loads(pickle.dumps(parsed)), parse_filter(parsed.where)):
        assert copy == parsed
        assert hash(copy) == hash(parsed)
        assert copy.matches(document) is parsed.matches(document)


def test_changing_what_was_passed_or_received_does_not_change_filter():
    where = {"a": {"$in": [1, {"b": [2]}]}}
    parsed = parse_filter(where)
    where["a"]["$in"][1]["b"].append(3)
    parsed.where["a"]["$in"].clear()
    assert parsed.matches({"a": {"b": [2]}})
    assert parsed.where == {"a": {"$in": [1, {"b": [2]}]}}


@pytest.mark.parametrize("where", [None, {}, {"$and": []}])
def test_empty_filter_matches_everything(where):
    assert parse_filter(where).matches({})
    assert not parse_filter(where)


def test_text_condition_finds_words():
    parsed = parse_filter({"/title": {"$text": 'creme "big car"'}})
    assert parsed.matches({"title": "A big car with Crème"})
    assert not parsed.matches({"title": ["big car", "creme"]})


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ([], "must be an object, got list"),
        ({"a": {"$foo": 1}}, "/a: unknown operator '\\$foo'"),
        ({"$foo": []}, "unknown combination '\\$foo'"),
        ({"a": {"$gt": 1, "b": 2}}, "/a: operators and fields are mixed"),
        ({"a": {"$gt": None}}, "/a: \\$gt must be a number, a string or a boolean, got None"),
        ({"a": {"$in": "x"}}, "/a: \\$in must be a list"),
        ({"a": {"$in": list(range(1001))}}, "at most 1000 values"),
        ({"a": {"$exists": 1}}, "\\$exists must be true or false, got 1"),
        ({"a": {"$type": "int"}}, "\\$type must be one of null"),
        ({"a": {"$prefix": 1}}, "\\$prefix must be a string, got 1"),
        ({"a": {"$not": 1}}, "\\$not must be an object of operators"),
        ({"a": {"$any": {"$gt": 1, "b": 2}}}, "mixed"),
        ({"$or": {"a": 1}}, "\\$or must be a list of filters, got object"),
        ({"$not": [1]}, "\\$not must contain filters, got array"),
        ({"/a~": 1}, "JSON pointer"),
        ({"a": float("nan")}, "nan at /a"),
        ({"a": (1, 2)}, "tuple"),
        ({1: 2}, "not a str"),
        ({"a": {"$text": ""}}, "no word"),
        ({"a": "x" * 70_000}, "at most 65536 characters"),
        ({str(number): 1 for number in range(101)}, "at most 100 conditions"),
    ],
)
def test_bad_filter_is_refused_with_its_place(where, message):
    with pytest.raises(InvalidInput, match=message):
        parse_filter(where)


def test_depth_of_a_filter_is_bounded():
    where = {"a": 1}
    for _ in range(filters.FILTER_DEPTH_MAX - 1):
        where = {"$not": where}
    parse_filter(where)
    with pytest.raises(InvalidInput, match="8 levels"):
        parse_filter({"$not": where})


@pytest.mark.parametrize("text", ["", "[1]", "{", "nul", b"\xff", "[" * 100_000, '{"a": NaN}'])
def test_text_that_is_no_filter_is_refused(text):
    with pytest.raises(InvalidInput):
        filters.decode_filter(text)
    assert filters.decode_filter('{"a": 1}').matches({"a": 1.0})
