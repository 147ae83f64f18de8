"""Payloads: 512 canonical bytes stay inline, 513 become a reference, lookalikes stay values."""

from __future__ import annotations

import pytest
from hypothesis import given

from fourfold import limits
from fourfold.content import (
    PAYLOAD_KINDS,
    Inline,
    InternedPayload,
    PayloadRef,
    content_id,
    decide,
    decode,
    encode,
    find_refs,
    is_ref,
    read_payload,
)
from fourfold.errors import ContentError, CorruptData
from fourfold.testing.strategies import content_values, payload_refs, typed_form

ID = "sha256:" + "ab" * 32


@pytest.mark.parametrize("letter", ["a", "é", "\U0001f600"])
def test_the_limit_counts_canonical_bytes_and_not_characters(letter):
    room = limits.PAYLOAD_INLINE_BYTES_MAX - 2
    fits = letter * (room // len(letter.encode()))
    fits += "a" * (room - len(fits.encode()))
    assert len(encode(fits)) == 512
    assert decide(fits, "message") == Inline(fits)
    decision = decide(fits + "a", "message")
    assert isinstance(decision, InternedPayload)
    assert decision.ref.size == 513


@given(content_values())
def test_a_decision_loses_nothing(value):
    match decide(value, "vars"):
        case Inline(kept):
            assert kept is value
            assert len(encode(value)) <= limits.PAYLOAD_INLINE_BYTES_MAX
        case InternedPayload(ref, data):
            assert data == encode(value)
            assert ref == PayloadRef(content_id(data), "vars", len(data))
            assert typed_form(read_payload(ref, data)) == typed_form(value)


def test_the_kind_is_no_part_of_the_id():
    value = "x" * 1000
    one, other = decide(value, "message"), decide(value, "vars")
    assert isinstance(one, InternedPayload)
    assert isinstance(other, InternedPayload)
    assert one.ref.id == other.ref.id
    assert one.ref != other.ref
    assert one.data == other.data


def test_a_reference_is_already_decided():
    ref = PayloadRef(ID, "vars", 999)
    assert decide(ref, "message") == Inline(ref)


def test_a_value_that_cannot_be_encoded_is_refused():
    with pytest.raises(ContentError, match=r"\$\.a: object has no canonical form"):
        decide({"a": object()}, "vars")


@pytest.mark.parametrize("kind", ["", "Vars", "two words", "a--b", "-a", "a-", "x" * 65, None, 7])
def test_a_kind_is_a_lowercase_name(kind):
    with pytest.raises(ContentError, match="not a payload kind"):
        decide(1, kind)
    with pytest.raises(ContentError, match="not a payload kind"):
        PayloadRef(ID, kind, 1)


def test_the_kinds_of_the_specification_and_later_ones_are_taken():
    for kind in (*PAYLOAD_KINDS, "view-snapshot"):
        assert PayloadRef(ID, kind, 0).kind == kind


@pytest.mark.parametrize(
    ("id_", "size"),
    [("x", 1), (ID.upper(), 1), (None, 1), (ID, -1), (ID, True), (ID, 1.0), (ID, "1"), (ID, 2**63)],
)
def test_a_malformed_reference_cannot_be_made(id_, size):
    with pytest.raises(ContentError):
        PayloadRef(id_, "vars", size)


@given(payload_refs())
def test_the_printed_form_reads_back_only_on_request(ref):
    printed = ref.as_dict()
    assert PayloadRef.from_dict(printed) == ref
    assert not is_ref(printed)
    assert find_refs([printed]) == []
    assert decode(encode(printed)) == printed


@pytest.mark.parametrize(
    "value",
    [
        *(None, "x", [], {}, {"ref": "payload"}),
        {"ref": "payload", "payload_id": ID, "payload_kind": "vars", "payload_size": 1, "more": 1},
        {"ref": "link", "payload_id": ID, "payload_kind": "vars", "payload_size": 1},
        {"ref": "payload", "payload_id": "x", "payload_kind": "vars", "payload_size": 1},
    ],
)
def test_what_is_no_printed_reference_is_refused(value):
    with pytest.raises(ContentError):
        PayloadRef.from_dict(value)


def test_lookalikes_of_every_form_stay_what_they_are():
    ref = PayloadRef(ID, "vars", 600)
    tagged = {"~ref": {"id": ID, "kind": "vars", "size": 600}}
    spec = {"fractal/ref": "payload", "payload/id": ID, "payload/kind": "vars", "payload/size": 600}
    value = [ref, tagged, spec, ref.as_dict(), encode(ref).decode()]
    back = decode(encode(value))
    assert back == value
    assert [is_ref(item) for item in back] == [True, False, False, False, False]
    assert find_refs(back) == [ref]


def test_references_are_found_in_values_that_share_and_contain_themselves():
    one, two = PayloadRef(ID, "vars", 1), PayloadRef(ID, "code", 1)
    shared = [one]
    ring: dict[str, object] = {"a": shared, "b": shared, "c": {(two, 1)}}
    ring["self"] = ring
    assert find_refs(ring) == [two, one]
    assert find_refs(one) == [one]
    assert find_refs(7) == []


def test_stored_bytes_that_are_not_the_named_ones_are_corrupt():
    decision = decide(["x" * 1000], "vars")
    assert isinstance(decision, InternedPayload)
    ref, data = decision.ref, decision.data
    for wrong in (b"", data[:-1], data + b" ", data.replace(b"x", b"y", 1)):
        with pytest.raises(CorruptData, match=ref.id):
            read_payload(ref, wrong)
    text = b"not canonical"
    with pytest.raises(CorruptData, match="not canonical content"):
        read_payload(PayloadRef(content_id(text), "vars", len(text)), text)
