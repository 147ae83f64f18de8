"""RFC 8785: its own example, the rules that differ from ours, and refusals as our error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourfold.content import encode, encode_jcs
from fourfold.errors import ContentError


def test_the_example_of_the_standard():
    value = json.loads(
        r"""{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
        }"""
    )
    assert (
        encode_jcs(value)
        == (
            '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
            '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
        ).encode()
    )


def test_jcs_sorts_keys_by_utf_16_and_ours_by_codepoint():
    value = {"\U0001f600": 1, "\ufb33": 2}
    assert encode_jcs(value) == '{"\U0001f600":1,"\ufb33":2}'.encode()
    assert encode(value) == '{"\ufb33":2,"\U0001f600":1}'.encode()


def test_numbers_have_one_kind():
    assert encode_jcs([1, 1.0, -0.0, 1e21, 1e20]) == b"[1,1,0,1e+21,100000000000000000000]"


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(-(2**53) + 1, 2**53 - 1))))
def test_what_is_encoded_is_json_for_the_same_value(value):
    assert json.loads(encode_jcs(value)) == value


@pytest.mark.parametrize(
    "value",
    [
        *(float("nan"), float("inf"), 2**53, -(2**53), [10**5000], "\ud800", {"\ud800": 1}, {1: 2}),
        *(b"bytes", {1, 2}, object(), [object()]),
    ],
)
def test_what_the_standard_has_no_form_for_is_refused(value):
    with pytest.raises(ContentError, match="cannot encode as RFC 8785"):
        encode_jcs(value)


def test_a_value_that_contains_itself_is_refused():
    ring: list[object] = []
    ring.append(ring)
    with pytest.raises(ContentError, match="contains itself"):
        encode_jcs(ring)
