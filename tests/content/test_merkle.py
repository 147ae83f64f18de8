"""Merkle references: the vectors of the original implementation, and what the rules imply."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourfold.content import Reference, digest, digest_of_map, refer
from fourfold.content.merkle import _leb128
from fourfold.errors import ContentError

ENTITY = "urn:entity:abc123"
EMPTY = "ba4jcaelsnoi3ncleo4w7wcuke42kbu7xvrk3jazrd76j2ufdwklk3m44"
SET = "ba4jcbqntvjiqluhdwq5om3sbxh62cifdp5s66s7uupecl3w4qabnqwlx"
DELETE = "ba4jca3yi2aft53ppgugs4hmh7vzwt6j7tamixszp73b4lmyx674vz2am"


def values():
    leaves = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=10),
        st.binary(max_size=10),
    )
    return st.recursive(
        leaves,
        lambda parts: st.one_of(
            st.lists(parts, max_size=6), st.dictionaries(st.text(max_size=5), parts, max_size=6)
        ),
        max_leaves=12,
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "ba4jcamfn377raxr3mevhpgfei2q3qxzjxfbntcxaygvinpc2fd57pxph"),
        ({}, "ba4jcbckylwzunx663kx5t7lgkjmgglyhz4fet3pge7dl7wmg677jlyfm"),
        ([1, 2, 3], "ba4jcbnm44boqcmwzssmi2zyknccedj7ge5dczyi7e34zuqzlopaabji6"),
        (1.5, "ba4jca2aumwekeezwfm6rcrvgvqqnpytptesdp6ir43o5uxvuctkbgz3j"),
        ({"b": 1, "a": 2}, "ba4jcbh3cvfeegwyww5qep4unq74mt5hl2q5l5tua7r7hln7aefafk4rt"),
        ({"id": ENTITY}, EMPTY),
    ],
)
def test_a_value_has_the_reference_of_the_original_implementation(value, text):
    assert str(refer(value)) == text


def test_chain_of_facts_has_references_of_original_implementation():
    empty = refer({"id": ENTITY})
    first = refer({"type": "set", "id": ENTITY, "value": {"value": {"n": 1}}, "parent": empty})
    second = refer({"type": "delete", "id": ENTITY, "parent": first})
    assert (str(empty), str(first), str(second)) == (EMPTY, SET, DELETE)


def test_a_parent_given_as_text_is_another_fact():
    fact = {"type": "set", "id": ENTITY, "value": {"value": {"n": 1}}, "parent": EMPTY}
    assert str(refer(fact)).startswith("ba4jcbitfa")
    assert str(refer(fact | {"parent": Reference.parse(EMPTY)})) == SET


@given(values())
def test_a_value_and_a_reference_to_it_hash_alike(value):
    assert refer(refer(value)) == refer(value)
    assert digest([refer(value), {"part": refer(value)}]) == digest([value, {"part": value}])


@given(values())
def test_both_written_forms_read_back(value):
    reference = refer(value)
    assert str(reference).startswith("ba4jc")
    assert reference.wire()["/"].startswith("baedre")
    for form in (str(reference), reference.wire(), reference.wire()["/"]):
        assert Reference.parse(form) == reference


@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=8), st.randoms())
def test_the_order_of_insertion_changes_nothing(value, rng):
    items = list(value.items())
    rng.shuffle(items)
    assert digest(dict(items)) == digest(value)


@given(st.integers(-(2**53), 2**53))
def test_a_whole_float_is_the_integer_that_it_equals(number):
    assert digest(float(number)) == digest(number)


def test_zero_has_no_sign_and_a_bool_is_no_integer():
    assert digest(-0.0) == digest(0)
    assert len({digest(value) for value in (0, False, None, "", b"", "0", [], {})}) == 8
    assert digest(1e21) == digest(10**21)


@given(st.integers())
def test_integers_are_signed_leb128(number):
    data = _leb128(number)
    value = sum((byte & 0x7F) << (7 * at) for at, byte in enumerate(data))
    if data[-1] & 0x40:
        value -= 1 << (7 * len(data))
    assert value == number
    assert all(byte & 0x80 for byte in data[:-1])
    assert not data[-1] & 0x80
    if len(data) > 1:
        # The last group is more than a repetition of the sign before it, so none could be spared.
        assert data[-1] != (0x7F if data[-2] & 0x40 else 0x00)


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=9))
def test_an_odd_last_item_moves_up_unhashed(digests):
    def fold(row):
        if len(row) == 1:
            return row[0]
        pairs = [row[at : at + 2] for at in range(0, len(row), 2)]
        return fold([hashlib.sha256(b"".join(p)).digest() if len(p) == 2 else p[0] for p in pairs])

    tag = hashlib.sha256(b"merkle-structure:list/item/ref-tree").digest()
    expected = hashlib.sha256(tag + fold(digests)).digest()
    assert digest([Reference(item) for item in digests]) == expected


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "$"),
        ({"a": [float("inf")]}, "$.a[0]"),
        ({"a": {1, 2}}, "$.a"),
        ([datetime(2026, 1, 1, tzinfo=UTC)], "$[0]"),
        ({"a": {1: 2}}, "$.a"),
        ({"a": "\ud800"}, "$.a"),
        ({"\ud800": 1}, '$["\\ud800"]'),
    ],
)
def test_what_has_no_reference_is_refused_with_its_path(value, path):
    with pytest.raises(ContentError) as caught:
        digest(value)
    assert str(caught.value).startswith(f"cannot hash: {path}: ")


def test_a_value_that_contains_itself_is_refused():
    ring: list[object] = []
    ring.append(ring)
    with pytest.raises(ContentError, match="contains itself"):
        digest(ring)


@pytest.mark.parametrize(
    "source",
    [
        *("", "b", "ba4jc", EMPTY[:-1], EMPTY + "a", EMPTY.upper(), "c" + EMPTY[1:], "sha256:00"),
        *(None, 7, {}, {"/": 7}, {"/": EMPTY, "x": 1}, {"link": EMPTY}),
    ],
)
def test_what_is_no_reference_is_refused(source):
    with pytest.raises(ContentError, match="not a merkle reference"):
        Reference.parse(source)


def test_a_reference_has_one_spelling():
    # The last character of the wire form carries two bits that belong to no byte; both are zero.
    alphabet = "abcdefghijklmnopqrstuvwxyz234567"
    text = Reference.parse(EMPTY).wire()["/"]
    for stray in (1, 2, 3):
        with pytest.raises(ContentError, match="not a merkle reference"):
            Reference.parse(text[:-1] + alphabet[alphabet.index(text[-1]) + stray])


def test_a_reference_holds_exactly_32_bytes():
    for held in (b"", b"\x00" * 31, b"\x00" * 33, bytearray(32), "x" * 32):
        with pytest.raises(ContentError):
            Reference(held)  # type: ignore[arg-type]


def test_references_can_be_keys():
    assert {refer(1): "one"}[refer(1)] == "one"


@given(st.dictionaries(st.text(max_size=5), values(), max_size=6))
def test_map_can_be_hashed_from_digests_of_its_values(value):
    assert digest_of_map({key: digest(part) for key, part in value.items()}) == digest(value)


@given(st.binary(min_size=32, max_size=32))
def test_the_text_form_is_base32(found):
    spelled = base64.b32encode(bytes.fromhex("071220") + found).decode().rstrip("=").lower()
    assert str(Reference(found)) == f"b{spelled}"
    assert Reference.parse(f"b{spelled}").digest == found
