"""The canonical encoding "c1" by example: what it writes, what it refuses, and where."""

from __future__ import annotations

import decimal
import enum
import sys
from collections import OrderedDict, defaultdict, namedtuple
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from fourfold import limits
from fourfold.content import PayloadRef, decode, encode, encode_each
from fourfold.content.canonical import write_text
from fourfold.errors import ContentError

REF = PayloadRef("sha256:" + "ab" * 32, "vars", 1234)


class Colour(enum.IntEnum):
    RED = 1


class Word(enum.StrEnum):
    HELLO = "hello"


class Text(str):
    __slots__ = ()


class Moment(datetime):
    pass


Point = namedtuple("Point", "x y")  # noqa: PYI024 - the untyped kind is what users pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1, "1"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e16, "1e+16"),
        (1e-7, "1e-07"),
        (2**65, "36893488147419103232"),
        ('a"b\\c\n\x1f\x7fé\u2028\U0001f600', '"a\\"b\\\\c\\n\\u001f\x7fé\u2028\U0001f600"'),
        ([1, "a", []], '[1,"a",[]]'),
        ((1, 2), "[1,2]"),
        ({"b": 1, "a": 2, "é": 3, "Z": 4, "": 5}, '{"":5,"Z":4,"a":2,"b":1,"é":3}'),
        ({"\U0001f600": 1, "\uffff": 2}, '{"\uffff":2,"\U0001f600":1}'),
        (b"\x00\x01\x02", '{"~bytes":"AAEC"}'),
        (b"\x00", '{"~bytes":"AA=="}'),
        ({10, 9, "a", None, 1.5}, '{"~set":["a",1.5,10,9,null]}'),
        (frozenset({(1, 2), frozenset()}), '{"~set":[[1,2],{"~set":[]}]}'),
        (UUID(int=10), '{"~uuid":"00000000-0000-0000-0000-00000000000a"}'),
        (Decimal("1.50"), '{"~decimal":"1.50"}'),
        (Decimal("-0E+9"), '{"~decimal":"-0E+9"}'),
        (
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            '{"~datetime":"2026-01-02T03:04:05.000000Z"}',
        ),
        (
            datetime(1, 1, 2, 0, 0, 0, 7, tzinfo=timezone(timedelta(hours=2))),
            '{"~datetime":"0001-01-01T22:00:00.000007Z"}',
        ),
        (REF, f'{{"~ref":{{"id":"{REF.id}","kind":"vars","size":1234}}}}'),
        ({"~set": [1]}, '{"~~set":[1]}'),
        ({"~": 1, "~~": 2, "a~": 3}, '{"a~":3,"~~":1,"~~~":2}'),
        (["~set", "~"], '["~set","~"]'),
    ],
)
def test_a_value_has_this_text(value, text):
    assert encode(value) == text.encode()
    assert encode(decode(text.encode())) == text.encode()


def test_numbers_that_python_calls_equal_have_different_bytes():
    same = [1, 1.0, True, Decimal(1), Decimal("1.0")]
    assert len({encode(value) for value in same}) == len(same)
    assert encode({"n": [0.0]}) != encode({"n": [-0.0]})
    assert encode({(1, 2)}) != encode({(True, 2)}) != encode({(1.0, 2)})


def test_text_is_not_normalised():
    assert encode("\u00e9") != encode("e\u0301")


def test_a_dict_that_looks_like_a_tag_stays_a_dict():
    for value in ({"~set": [1]}, {"~ref": {"id": REF.id, "kind": "vars", "size": 1234}}, {"~~": 1}):
        assert decode(encode(value)) == value
        assert type(decode(encode(value))) is dict


def test_an_instant_has_one_encoding_in_every_zone():
    noon = datetime(2026, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)
    for zone in (ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=-11, minutes=30))):
        assert encode(noon.astimezone(zone)) == encode(noon)
    assert decode(encode(noon)).tzinfo is UTC


def test_the_hour_that_a_zone_has_twice_is_two_instants():
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 10, 25, 2, 30, tzinfo=berlin)
    second = first.replace(fold=1)
    assert decode(encode(first)) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert decode(encode(second)) == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)


def test_one_instant_twice_in_a_set_is_refused():
    ambiguous = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    with pytest.raises(ContentError, match="same bytes"):
        encode({ambiguous, ambiguous.astimezone(UTC)})


def test_the_decimal_context_of_the_caller_changes_nothing():
    with decimal.localcontext() as context:
        context.capitals = 0
        context.prec = 2
        value = Decimal("1.23456789E+50")
        assert encode(value) == b'{"~decimal":"1.23456789E+50"}'
        assert decode(encode(value)).as_tuple() == value.as_tuple()


@pytest.mark.parametrize("digits", [4300, 4301, 20_000])
def test_integers_beyond_the_interpreters_limit_come_back(digits):
    for number in (10**digits, -(10**digits) + 1, int("7" * 600) ** (digits // 600)):
        assert decode(encode([number])) == [number]


def test_the_interpreters_limit_on_digits_changes_nothing():
    number = 3**2000
    before = encode(number)
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        assert encode(number) == before
        assert decode(before) == number
        assert sys.get_int_max_str_digits() == 640
    finally:
        sys.set_int_max_str_digits(limit)


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (object(), "$", "object has no canonical form"),
        ({"rows": [1, {"odd key": 1j}]}, '$.rows[1]["odd key"]', "complex"),
        ({"a": float("nan")}, "$.a", "not a finite float"),
        ([1.5, float("-inf")], "$[1]", "not a finite float"),
        ({"a": [Decimal("NaN")]}, "$.a[0]", "not a finite Decimal"),
        (Decimal("Infinity"), "$", "not a finite Decimal"),
        ({"a": "x\ud800"}, "$.a", "lone surrogate at character 1"),
        ({"a": {"\udfff": 1}}, '$.a["\\udfff"]', "lone surrogate"),
        ([datetime(2026, 1, 1)], "$[0]", "naive"),  # noqa: DTZ001
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), "$", "no year in UTC"),
        ({"a": {1: 2}}, "$.a", "the key 1 is int"),
        ({"a": {None: 2, "b": 1}}, "$.a", "the key None"),
        ({True: 2}, "$", "the key True is bool"),
        ({"a": {(1, object())}}, "$.a{}[1]", "object"),
        ([Colour.RED], "$[0]", "subclass of int"),
        ({"a": Word.HELLO}, "$.a", "subclass of str"),
        ({Text("a"): 1}, "$", "keys must be exactly str"),
        ([Text("a")], "$[0]", "subclass of str"),
        ([Point(1, 2)], "$[0]", "subclass of tuple"),
        ({"a": OrderedDict(a=1)}, "$.a", "subclass of dict"),
        ({"a": defaultdict(int)}, "$.a", "subclass of dict"),
        (Moment(2026, 1, 1, tzinfo=UTC), "$", "subclass of datetime"),
        ([bytearray(b"a")], "$[0]", "bytearray"),
        ([memoryview(b"a")], "$[0]", "memoryview"),
        (range(3), "$", "range"),
    ],
)
def test_what_cannot_be_encoded_is_refused_with_its_path(value, path, reason):
    with pytest.raises(ContentError) as caught:
        encode(value)
    assert str(caught.value).startswith(f"cannot encode: {path}: ")
    assert reason in str(caught.value)


def test_deepest_value_comes_back_and_one_level_more_is_refused():
    value: object = []
    for _ in range(limits.CONTENT_DEPTH_MAX - 1):
        value = [value]
    assert encode(decode(encode(value))) == encode(value)
    with pytest.raises(ContentError, match="brackets deep"):
        encode([value])
    with pytest.raises(ContentError, match="brackets deep"):
        decode(b"[" * 501 + b"]" * 501)
    with pytest.raises(ContentError):
        decode(b"[" * 100_000 + b"]" * 100_000)


def test_values_encoded_together_leave_room_for_one_more_bracket():
    deepest = ["x"]
    for _ in range(limits.CONTENT_DEPTH_MAX - 2):
        deepest = {"a": deepest} if type(deepest) is list else [deepest]
    # The result in brackets must be readable again.
    for value in (deepest, [deepest]):
        found = encode_each([value, 1])
        if found is not None:
            assert decode(b"[" + found[0] + b"]") == [value]
    assert encode_each([[deepest]]) is None
    assert encode_each([{"a": {"b": ["c", 1, None, True]}}, "d"]) is not None


def test_what_must_be_looked_at_alone_is_not_encoded_together():
    holds_itself = {}
    holds_itself.update(a=holds_itself, b=holds_itself)
    odd = (1.5, "\ud800", b"", {1: 2}, {"~a": 1}, OrderedDict(a=1), Text("a"), holds_itself)
    for value in ("~", '"~', 2**70):
        found = encode_each([{"a": 1}, {"b": value}])
        assert found is None or found[1] == encode({"b": value})
    for value in odd:
        assert encode_each([{"a": 1}, {"b": value}]) is None


def test_set_counts_as_two_brackets_and_tagged_leaf_as_one():
    value: frozenset[object] = frozenset()
    for _ in range(limits.CONTENT_DEPTH_MAX // 2 - 1):
        value = frozenset({value})
    assert decode(encode(value)) == value
    with pytest.raises(ContentError, match="brackets deep"):
        encode([value])
    for leaf in (b"", Decimal(1), UUID(int=0), datetime(2026, 1, 1, tzinfo=UTC), REF):
        nested: object = leaf
        for _ in range(limits.CONTENT_DEPTH_MAX - 2):
            nested = [nested]
        assert encode(decode(encode(nested))) == encode(nested)
        with pytest.raises(ContentError, match="brackets deep"):
            encode([[nested]])


def test_a_value_that_contains_itself_is_refused():
    twice: list[object] = []
    twice.extend([twice, twice])
    ring: dict[str, object] = {"x": {1, 2}}
    ring["self"] = ring
    for value in (twice, ring):
        with pytest.raises(ContentError, match="contains itself"):
            encode(value)


def test_a_stack_that_is_already_deep_gets_a_clear_error():
    # The tag makes it take the careful way, which needs a frame for each level.
    value: object = b""
    for _ in range(limits.CONTENT_DEPTH_MAX - 2):
        value = [value]
    data = encode(value)

    def at_depth(frames: int, work) -> object:
        return work() if frames == 0 else at_depth(frames - 1, work)

    for work in (lambda: encode(value), lambda: decode(data)):
        with pytest.raises(ContentError, match="stack"):
            at_depth(sys.getrecursionlimit() - len_of_stack() - 100, work)


def len_of_stack() -> int:
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b"", "$"),
        (b" 1", "$"),
        (b"1 ", "$"),
        (b"[1,2]x", "$"),
        (b"[1, 2]", "$[1]"),
        (b'{"b":1,"a":2}', "$.b"),
        (b'{"a":1,"a":1}', "$.a"),
        (b'{"a":{"b":1,"b":2}}', "$.a.b"),
        (b"-0", "$"),
        (b"01", "$"),
        (b"+1", "$"),
        (b"[0,1E5]", "$[1]"),
        (b"[1.50]", "$[0]"),
        (b"[1e16]", "$[0]"),
        (b"[1e400]", "$[0]"),
        (b"[NaN]", "$"),
        (b"Infinity", "$"),
        (b'{"a":["\\u0041"]}', "$.a[0]"),
        (b'["\\/"]', "$[0]"),
        (b'["\\u001F"]', "$[0]"),
        (b'["\\ud83d\\ude00"]', "$[0]"),
        (b'["\\ud800"]', "$[0]"),
        (b'["a\nb"]', "$[0]"),
        (b"[1,2", "$[1]"),
        (b'{"a":tru}', "$.a"),
        (b'{"a" :1}', "$.a"),
        (b"\xef\xbb\xbf1", "$"),
        (b'{"~set":[2,1]}', '$["~set"][0]'),
        (b'{"~set":[1,1]}', "$"),
        (b'{"~set":[1,true]}', "$"),
        (b'{"~set":[[1],[1.0]]}', "$"),
        (b'{"a":{"~set":[{}]}}', "$.a{}"),
        (b'{"a":{"~set":[[{"b":1}]]}}', "$.a{}[0]"),
        (b'{"~set":{}}', "$"),
        (b'{"a":1,"~set":[]}', "$"),
        (b'{"~unknown":1}', "$"),
        (b'{"~":1}', "$"),
        (b'[{"~bytes":"AA"}]', "$[0]"),
        (b'[{"~bytes":"AB=="}]', '$[0]["~bytes"]'),
        (b'[{"~bytes":"_w=="}]', "$[0]"),
        (b'[{"~bytes":7}]', "$[0]"),
        (b'{"~uuid":"0000000000000000000000000000000a"}', '$["~uuid"]'),
        (b'{"~uuid":"x"}', "$"),
        (b'{"~decimal":"1.5e3"}', '$["~decimal"]'),
        (b'{"~decimal":" 1"}', '$["~decimal"]'),
        (b'{"~decimal":"1E+99999999999999999999"}', "$"),
        (b'{"~decimal":"NaN"}', "$"),
        (b'{"~datetime":"2026-01-02T03:04:05Z"}', '$["~datetime"]'),
        (b'{"~datetime":"2026-01-02T03:04:05.000000+00:00"}', '$["~datetime"]'),
        (b'{"~datetime":"2026-01-02T03:04:05.000000"}', "$"),
        (b'{"~datetime":"2026-13-02T03:04:05.000000Z"}', "$"),
        (b'{"~ref":{"id":"sha256:0","kind":"vars","size":1}}', "$"),
        (b'{"~ref":{"kind":"vars","size":1}}', "$"),
        (b'{"~ref":"sha256:0"}', "$"),
    ],
)
def test_bytes_that_are_not_canonical_are_refused_with_the_path(data, path):
    with pytest.raises(ContentError) as caught:
        decode(data)
    message = str(caught.value)
    assert message.startswith("cannot decode: ")
    assert f"{path}: " in message


def test_bytes_that_are_not_utf_8_are_refused():
    for data in (b"\xff", b'"\xed\xa0\x80"', b'["\xc3("]'):
        with pytest.raises(ContentError, match="is not UTF-8"):
            decode(data)


def test_only_bytes_are_decoded():
    for data in ("1", bytearray(b"1"), None):
        with pytest.raises(ContentError, match="canonical content is bytes"):
            decode(data)  # type: ignore[arg-type]


def test_reference_is_not_dict_and_comes_back_as_reference():
    value = {"vars": REF, "more": [REF, {REF}], "like": REF.as_dict()}
    assert decode(encode(value)) == value
    assert type(decode(encode(value))["vars"]) is PayloadRef
    assert type(decode(encode(value))["like"]) is dict


def test_every_code_point_is_written_as_json_writes_it():
    # The faster encoder is a library's: its idea of what to escape must be ours, everywhere.
    everything = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF)
    assert encode(everything) == write_text(everything).encode()
    assert decode(encode(everything)) == everything
