"""Content ids: one spelling, the same for bytes that arrive whole or in pieces."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourfold.content import (
    EMPTY_ID,
    Hasher,
    content_id,
    content_id_of_stream,
    is_content_id,
    parse_content_id,
)
from fourfold.errors import ContentError


def test_the_id_of_known_bytes():
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert content_id(b"abc") == f"sha256:{digest}"
    assert content_id(b"") == EMPTY_ID == f"sha256:{hashlib.sha256().hexdigest()}"
    assert content_id(memoryview(b"abc")) == content_id(bytearray(b"abc")) == content_id(b"abc")


@given(st.lists(st.binary(max_size=50), max_size=8))
def test_pieces_have_the_id_of_the_whole(pieces):
    whole = b"".join(pieces)
    hasher = Hasher()
    for piece in pieces:
        hasher.update(piece)
    assert hasher.id == content_id(whole) == content_id_of_stream(iter(pieces))
    assert hasher.size == len(whole)


@given(st.binary())
def test_an_id_is_parsed_to_its_digits(data):
    name = content_id(data)
    assert is_content_id(name)
    assert parse_content_id(name) == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    "value",
    [
        *("", "sha256:", "sha256:" + "a" * 63, "sha256:" + "a" * 65, "sha256:" + "A" * 64),
        *("sha256:" + "g" * 64, "a" * 64, "sha512:" + "a" * 64, "SHA256:" + "a" * 64),
        *("sha256:" + "a" * 64 + "\n", " sha256:" + "a" * 64, "sha256:" + "\u0661" * 64),
        *(None, 7, b"sha256:" + b"a" * 64, "../" * 30),
    ],
)
def test_another_spelling_is_no_id(value):
    assert not is_content_id(value)
    with pytest.raises(ContentError, match="not a content id"):
        parse_content_id(value)
