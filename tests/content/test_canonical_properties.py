"""What holds of the canonical encoding for all values and all bytes."""

from __future__ import annotations

import json
import random

from hypothesis import given, reject
from hypothesis import strategies as st

from fourfold.content import PayloadRef, decode, encode, encode_each, find_refs
from fourfold.content.canonical import integer_text, parse_integer, write_text
from fourfold.errors import ContentError
from fourfold.testing.strategies import (
    confusable_values,
    content_values,
    json_values,
    typed_form,
)


def reordered(value, rng: random.Random):
    """The same value with every dict filled in another order."""
    if isinstance(value, dict):
        items = [(key, reordered(item, rng)) for key, item in value.items()]
        rng.shuffle(items)
        return dict(items)
    if isinstance(value, list | tuple):
        return type(value)(reordered(item, rng) for item in value)
    return value


def kinds(value) -> object:
    """The shape of exact types, as they must come back."""
    if isinstance(value, dict):
        return {key: kinds(item) for key, item in value.items()}
    if isinstance(value, list):
        return [kinds(item) for item in value]
    return type(value)


@given(content_values())
def test_a_value_comes_back_with_its_types(value):
    assert typed_form(decode(encode(value))) == typed_form(value)


@given(json_values())
def test_a_json_value_comes_back_with_exactly_its_types(value):
    back = decode(encode(value))
    assert back == value
    assert kinds(back) == kinds(value)


@given(content_values())
def test_decoding_and_encoding_again_changes_no_byte(value):
    data = encode(value)
    assert encode(decode(data)) == data


@given(content_values())
def test_the_fast_way_and_the_careful_way_agree(value):
    assert encode(value) == write_text(value).encode()


@given(st.lists(st.one_of(json_values(max_leaves=6), content_values(max_leaves=6)), max_size=6))
def test_values_encoded_together_have_bytes_that_each_has_alone(values):
    found = encode_each(values)
    if found is not None:
        assert found == [encode(value) for value in values]
    elif not values:
        raise AssertionError("nothing at all needs no closer look")


@given(content_values(), st.randoms(use_true_random=False))
def test_the_order_of_insertion_changes_nothing(value, rng):
    assert encode(reordered(value, rng)) == encode(value)


@given(confusable_values(), confusable_values())
def test_two_values_share_bytes_only_if_same_typed_value(one, other):
    assert (encode(one) == encode(other)) == (typed_form(one) == typed_form(other))


@given(st.one_of(st.binary(), st.text().map(str.encode)))
def test_any_bytes_are_refused_or_canonical(data):
    assert_refused_or_canonical(data)


@given(
    content_values(max_leaves=6).map(encode),
    st.integers(0, 200),
    st.sampled_from([b" ", b"~", b'"', b"0", b"e1", b"[", b"}", b",", b"\\u0041", b"-", b"\xff"]),
    st.booleans(),
)
def test_damaged_bytes_are_refused_or_canonical(data, at, piece, replace):
    at %= len(data) + 1
    assert_refused_or_canonical(data[:at] + piece + data[at + (len(piece) if replace else 0) :])


@given(json_values(max_leaves=6))
def test_json_in_another_style_is_refused_or_canonical(value):
    try:
        texts = [json.dumps(value), json.dumps(value, ensure_ascii=False, sort_keys=True)]
    except ValueError:
        reject()  # The interpreter's own limit on the digits of an integer.
    for text in texts:
        assert_refused_or_canonical(text.encode())


def assert_refused_or_canonical(data: bytes) -> None:
    try:
        value = decode(data)
    except ContentError:
        return
    assert encode(value) == data


@given(st.integers(0, 30_000), st.integers(), st.booleans())
def test_integers_of_any_size_are_spelt_and_read(bits, noise, negative):
    number = (1 << bits) ^ noise
    number = -number if negative else number
    text = integer_text(number)
    assert parse_integer(text) == number
    assert text.removeprefix("-").isdigit()
    assert text == "0" or not text.removeprefix("-").startswith("0")


@given(content_values())
def test_references_are_found_wherever_they_stand(value):
    def walk(item):
        if isinstance(item, PayloadRef):
            yield item
        elif isinstance(item, dict):
            for part in item.values():
                yield from walk(part)
        elif isinstance(item, list | tuple | set | frozenset):
            for part in item:
                yield from walk(part)

    assert find_refs(value) == sorted(set(walk(value)))
    assert find_refs(decode(encode(value))) == find_refs(value)
