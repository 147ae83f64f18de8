r"""The canonical encoding "c1": one value has one sequence of bytes, on every machine.

The bytes are JSON text in UTF-8, without spaces. What JSON has no form for is a *tag*: an object
with exactly one key, which begins with `~`.

    value                     bytes
    None, True, False         null   true   false
    int, of any size          0   -7   36893488147419103232
    float, finite             1.0   -0.0   0.1   1e+16   5e-324      as repr prints it: the fewest
                              digits that read back, always with a point or an exponent
    str                       "a\"b\\c\n\u001f"     quote, backslash and U+0000 to U+001F are
                              escaped (\b \t \n \f \r, else \u00xx), everything else stands as it is
    list, tuple               [1,"a"]
    dict with str keys        {"a":1,"b":2}         keys in code point order
    dict key that begins ~    {"~~set":1}           one more ~ in front
    bytes                     {"~bytes":"AAEC"}     base64 with padding
    set, frozenset            {"~set":[1,2]}        elements in the order of their encoded bytes
    datetime, aware           {"~datetime":"2026-01-02T03:04:05.000006Z"}     UTC, six digits
    UUID                      {"~uuid":"8a6e0804-2bd0-4672-b79d-d97027f9071a"}
    Decimal, finite           {"~decimal":"1.50"}   as str prints it, with a capital E
    PayloadRef                {"~ref":{"id":"sha256:...","kind":"vars","size":1234}}

What holds:

- `decode(encode(x)) == x`, and every part has the type it had, with three exceptions: a tuple comes
  back as a list, a set as a frozenset, a datetime in UTC. Elements of a set must be hashable, so
  inside a set a list comes back as a tuple. (A wall-clock time that a zone has twice is, for
  Python, unequal to every time in another zone; it comes back as the same instant.)
- `encode(a) == encode(b)` only if a and b are the same typed value. 1, 1.0, True and Decimal("1")
  differ; so do 0.0 and -0.0, Decimal("1.0") and Decimal("1.00"). Text is not normalised.
- `decode(b)` takes nothing but canonical bytes: if it returns, `encode(decode(b)) == b`. Spaces,
  unsorted or repeated keys, other spellings of a number, trailing bytes and unknown tags are
  refused. So are elements of one set that Python calls equal, such as 1 and true.
- The bytes depend on the value alone: not on insertion order, hash seed, locale, process, decimal
  context or the interpreter's limit on the digits of an integer.

Only exact types are taken. An instance of a subclass (IntEnum, a str enum, OrderedDict, a named
tuple) would come back as something else, so it is refused: convert it first, as in `dict(x)`.
Refused too: NaN and infinities, naive datetimes, lone surrogates, keys that are not str, and more
than `limits.CONTENT_DEPTH_MAX` brackets open at one place of the encoded text. Every refusal is a
ContentError that names the path, as in `$.rows[3]["odd key"]`; `{}` is an element of a set.

Most values need no tag and are encoded in C; `writing` and `reading` hold the careful way, which
handles everything and finds the path of what is wrong.

The careful way from canonical bytes to the value, with the path of what is refused.

JSON is parsed first, then tags become values, then the value is written again: only if that gives
the very same text were the bytes canonical. The format is drawn in `canonical`.

The careful way to canonical text: every type, every tag, and the path of what is refused.

One function per kind of value, and one stack frame per level of nesting, so that the deepest value
allowed still fits on the interpreter's stack. The format is drawn in `canonical`.

Decimal text of integers of any size, in both directions.

The interpreter refuses to convert more than 4,300 digits (a limit that a program may move), because
its own conversion takes quadratic time. Here the number is cut into halves instead, which is a good
deal faster, and no global setting is read or changed.

Where in a value something is wrong: paths such as `$.rows[3]["odd key"]`.

A refusal is raised where the trouble is found, without knowing the way there; each level that it
passes on its way out adds its own step. So a value without trouble pays nothing for paths.

Portable canonical JSON: the JSON Canonicalization Scheme of RFC 8785.

It is for hashes and signatures that others must recompute with libraries of their own. It is not
c1: JSON has one kind of number, so 1.0 is written `1`, -0.0 is written `0`, and integers beyond
2**53 - 1 are refused; keys are sorted by UTF-16 code units. What Fourfold stores and reads back
itself is encoded by `canonical`.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from datetime import UTC, datetime
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact
from itertools import chain, repeat
from json.encoder import encode_basestring
from operator import contains
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeAlias
from uuid import UUID

import msgspec
import rfc8785

from fourfold import limits
from fourfold.content.refs import PayloadRef
from fourfold.errors import ContentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


# The interpreter's limit cannot be set below 640 digits, so these are always converted.
_LEAF_DIGITS = 600
_LEAF_BITS = 8_192

# An exact context of our own: the caller's may round, or print exponents in another way.
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact])


def integer_text(number: int) -> str:
    """Return the digits of `number`, with a leading minus if it is negative."""
    try:
        return int.__repr__(number)
    except ValueError:
        digits = str(_as_decimal(abs(number), {}))
        return f"-{digits}" if number < 0 else digits


def parse_integer(text: str) -> int:
    """Return the integer in `text`: ASCII digits after an optional minus."""
    try:
        return int(text)
    except ValueError:
        if text.startswith("-"):
            return -_from_digits(text[1:], {})
        return _from_digits(text, {})


def _as_decimal(number: int, powers: dict[int, Decimal]) -> Decimal:
    bits = number.bit_length()
    if bits <= _LEAF_BITS:
        return Decimal(number)
    half = bits >> 1
    high = _as_decimal(number >> half, powers)
    low = _as_decimal(number & ((1 << half) - 1), powers)
    return _EXACT.fma(high, _power_of_two(half, powers), low)


def _power_of_two(exponent: int, powers: dict[int, Decimal]) -> Decimal:
    if exponent <= _LEAF_BITS:
        return Decimal(1 << exponent)
    power = powers.get(exponent)
    if power is None:
        # The halves of one level differ by at most one bit, so most calls end in the cache.
        root = _power_of_two(exponent >> 1, powers)
        power = _EXACT.multiply(root, root)
        if exponent & 1:
            power = _EXACT.multiply(power, Decimal(2))
        powers[exponent] = power
    return power


def _from_digits(digits: str, powers: dict[int, int]) -> int:
    count = len(digits)
    if count <= _LEAF_DIGITS:
        return int(digits)
    low = count >> 1
    power = powers.get(low)
    if power is None:
        power = powers[low] = 10**low
    return _from_digits(digits[: count - low], powers) * power + _from_digits(
        digits[count - low :], powers
    )


class _InSet:
    """The step into a set, whose elements have no names."""


IN_SET: Final = _InSet()

Step: TypeAlias = str | int | _InSet
"""A dict key, a list index, or an element of a set."""

_STEPS_SHOWN = 12
_KEY_SHOWN = 40
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[][{},]', re.DOTALL)


class Refusal(Exception):
    """A value is not accepted, for `reason`; `steps` is its path, innermost first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[Step] = []

    def within(self, step: Step) -> Self:
        """Add the step of a container that encloses the refused value; return the refusal."""
        self.steps.append(step)
        return self

    def error(self, what: str) -> ContentError:
        """Return the error with the path to the refused value."""
        return ContentError(f"{what}: {show_path(self.steps[::-1])}: {self.reason}")


def show_path(steps: list[Step]) -> str:
    """Return a path as text; the middle of a very long one is left out."""
    if len(steps) > _STEPS_SHOWN:
        half = _STEPS_SHOWN // 2
        left_out = len(steps) - 2 * half
        head = "".join(map(_show_step, steps[:half]))
        tail = "".join(map(_show_step, steps[-half:]))
        return f"${head}...({left_out} more)...{tail}"
    return "$" + "".join(map(_show_step, steps))


def _show_step(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if isinstance(step, str):
        shown = step if len(step) <= _KEY_SHOWN else step[: _KEY_SHOWN - 3] + "..."
        return f".{shown}" if step.isidentifier() and shown == step else f"[{json.dumps(shown)}]"
    return "{}"


def path_at(text: str, position: int) -> str:
    """Return the path of `position` in JSON text, which may be invalid from there on."""
    steps: list[Step | None] = []
    expect_key = False
    for token in _TOKEN.finditer(text):
        if token.start() > position or (token.start() == position and steps):
            break
        mark = token[0]
        if mark == "{":
            steps.append(None)
            expect_key = True
        elif mark == "[":
            steps.append(0)
            expect_key = False
        elif mark in ("}", "]"):
            if steps:
                steps.pop()
            expect_key = False
        elif mark == ",":
            last = steps[-1] if steps else 0
            if isinstance(last, int):
                steps[-1:] = [last + 1]
            else:
                expect_key = True
        elif expect_key and steps:
            steps[-1] = _unquote(mark)
            expect_key = False
    return show_path([step for step in steps if step is not None])


def _unquote(token: str) -> str:
    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        return token[1:-1]


def write_text(value: object) -> str:
    """Return the canonical text of `value`."""
    try:
        return _WRITERS.get(type(value), _refuse_type)(value, 0)
    except Refusal as refusal:
        raise refusal.error("cannot encode") from None
    except RecursionError:
        raise ContentError(
            "cannot encode: the value is nested deeper than the stack of this call can follow",
            hint="Nest less deeply, or encode nearer to the top of the call stack.",
        ) from None


# A writer gets a value and the number of brackets that are open around it.


def _write_dict(value: dict[Any, object], depth: int) -> str:
    depth = _deeper(depth, 1)
    fields = []
    for key in _sorted_keys(value):
        item = value[key]
        try:
            name = _write_str("~" + key if key.startswith("~") else key, depth)
            fields.append(f"{name}:{_WRITERS.get(type(item), _refuse_type)(item, depth)}")
        except Refusal as refusal:
            raise refusal.within(key) from None
    return "{" + ",".join(fields) + "}"


def _write_list(value: list[object] | tuple[object, ...], depth: int) -> str:
    depth = _deeper(depth, 1)
    texts = []
    for index, item in enumerate(value):
        try:
            texts.append(_WRITERS.get(type(item), _refuse_type)(item, depth))
        except Refusal as refusal:
            raise refusal.within(index) from None
    return "[" + ",".join(texts) + "]"


def _write_set(value: set[object] | frozenset[object], depth: int) -> str:
    depth = _deeper(depth, 2)
    texts = []
    for item in value:
        try:
            texts.append(_WRITERS.get(type(item), _refuse_type)(item, depth))
        except Refusal as refusal:
            raise refusal.within(IN_SET) from None
    if len(set(texts)) != len(texts):
        # Two datetimes may be one instant and yet unequal, when a zone has their hour twice.
        raise Refusal("the set has two elements with the same bytes")
    # The code point order of texts is the byte order of their UTF-8.
    return '{"~set":[' + ",".join(sorted(texts)) + "]}"


def _write_str(value: str, _depth: int) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Refusal(f"lone surrogate at character {error.start} of a str") from None
    return encode_basestring(value)


def _write_float(value: float, _depth: int) -> str:
    if not math.isfinite(value):
        raise Refusal(f"{value!r} is not a finite float")
    return float.__repr__(value)


def _write_bytes(value: bytes, depth: int) -> str:
    _deeper(depth, 1)
    return f'{{"~bytes":"{binascii.b2a_base64(value, newline=False).decode()}"}}'


def _write_datetime(value: datetime, depth: int) -> str:
    _deeper(depth, 1)
    if value.utcoffset() is None:
        raise Refusal("a naive datetime must have a timezone")
    try:
        moment = value.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        raise Refusal(f"the datetime {value.isoformat()} has no year in UTC") from None
    return f'{{"~datetime":"{moment.isoformat(timespec="microseconds")}Z"}}'


def _write_uuid(value: UUID, depth: int) -> str:
    _deeper(depth, 1)
    return f'{{"~uuid":"{value}"}}'


def _write_decimal(value: Decimal, depth: int) -> str:
    _deeper(depth, 1)
    if not value.is_finite():
        raise Refusal(f"{value!r} is not a finite Decimal")
    # The caller's decimal context may ask for a small e.
    return f'{{"~decimal":"{str(value).replace("e", "E")}"}}'


def _write_ref(value: PayloadRef, depth: int) -> str:
    _deeper(depth, 2)
    return f'{{"~ref":{{"id":"{value.id}","kind":"{value.kind}","size":{value.size}}}}}'


_WRITERS: dict[type, Callable[[Any, int], str]] = {
    type(None): lambda _value, _depth: "null",
    bool: lambda value, _depth: "true" if value else "false",
    int: lambda value, _depth: integer_text(value),
    float: _write_float,
    str: _write_str,
    list: _write_list,
    tuple: _write_list,
    dict: _write_dict,
    set: _write_set,
    frozenset: _write_set,
    bytes: _write_bytes,
    datetime: _write_datetime,
    UUID: _write_uuid,
    Decimal: _write_decimal,
    PayloadRef: _write_ref,
}


def _refuse_type(value: object, _depth: int) -> NoReturn:
    for known in _WRITERS:
        if isinstance(value, known):
            raise Refusal(
                f"{_type_name(value)} is a subclass of {known.__name__} and would lose its type; "
                f"convert it to exactly {known.__name__}"
            )
    raise Refusal(f"{_type_name(value)} has no canonical form")


def _sorted_keys(value: dict[Any, object]) -> list[str]:
    for key in value:
        if type(key) is not str:
            shown = repr(key)[:60]
            raise Refusal(f"the key {shown} is {_type_name(key)}; keys must be exactly str")
    return sorted(value)


def _deeper(depth: int, brackets: int) -> int:
    most = limits.CONTENT_DEPTH_MAX
    if depth + brackets > most:
        raise Refusal(f"more than {most} brackets deep, or the value contains itself")
    return depth + brackets


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def read_text(data: bytes) -> Any:
    """Return the value of canonical bytes; raise ContentError for others."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ContentError(
            f"cannot decode: byte {error.start} is not UTF-8",
            hint="The bytes are not canonical content, or were damaged.",
        ) from None
    try:
        value = _untag(_parser.decode(text), in_set=False)
        again = write_text(value)
    except json.JSONDecodeError as error:
        raise _not_canonical(text, error.pos, f"{error.msg} at character {error.pos}") from None
    except Refusal as refusal:
        raise refusal.error("cannot decode") from None
    except ContentError as error:
        raise ContentError(f"cannot decode: invalid value: {error.message}") from None
    except RecursionError:
        raise ContentError(
            "cannot decode: the value is nested deeper than the stack of this call can follow",
            hint="Decode nearer to the top of the call stack.",
        ) from None
    if again != text:
        at = _first_difference(text, again)
        found, expected = text[at : at + 20], again[at : at + 20]
        raise _not_canonical(text, at, f"found {found!r} where the canonical text has {expected!r}")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise Refusal(f"{name} is not a finite float")


_parser = json.JSONDecoder(parse_int=parse_integer, parse_constant=_refuse_constant)


def _untag(raw: Any, *, in_set: bool) -> Any:
    """Return the value of parsed JSON; inside a set everything must be hashable."""
    reader = _READERS.get(type(raw))
    return raw if reader is None else reader(raw, in_set)


def _read_list(raw: list[Any], in_set: bool) -> Any:
    items: list[Any] = []
    for index, item in enumerate(raw):
        reader = _READERS.get(type(item))
        try:
            items.append(item if reader is None else reader(item, in_set))
        except Refusal as refusal:
            raise refusal.within(index) from None
    return tuple(items) if in_set else items


def _read_dict(raw: dict[str, Any], in_set: bool) -> Any:
    tag = next((key for key in raw if key.startswith("~") and not key.startswith("~~")), None)
    if tag == "~set" and len(raw) == 1 and type(raw[tag]) is list:
        try:
            elements = _read_list(raw[tag], in_set=True)
        except Refusal as refusal:
            refusal.steps[-1] = IN_SET
            raise
        return _set_of(elements)
    if tag is not None:
        return _read_tag(tag, raw)
    if in_set:
        raise Refusal("a dict cannot be an element of a set")
    fields: dict[str, Any] = {}
    for key, item in raw.items():
        name = key.removeprefix("~")
        reader = _READERS.get(type(item))
        try:
            fields[name] = item if reader is None else reader(item, False)
        except Refusal as refusal:
            raise refusal.within(name) from None
    return fields


_READERS: dict[type, Callable[[Any, bool], Any]] = {list: _read_list, dict: _read_dict}


def _set_of(elements: tuple[Any, ...]) -> frozenset[Any]:
    members = frozenset(elements)
    if len(members) != len(elements):
        raise Refusal("the set has two equal elements")
    return members


def _read_tag(tag: str, raw: dict[str, Any]) -> Any:
    if len(raw) > 1:
        raise Refusal(f"the tag {tag[:60]!r} must be the only key")
    reader = _TAGS.get(tag)
    if reader is None:
        raise Refusal(f"the tag {tag[:60]!r} is unknown, or its value is not a list")
    held = raw[tag]
    if type(held) is not (dict if tag == "~ref" else str):
        raise Refusal(f"the tag {tag!r} holds a {type(held).__name__}")
    try:
        return reader(held)
    except (ValueError, ArithmeticError, KeyError):
        raise Refusal(f"{str(held)[:100]!r} does not fit the tag {tag!r}") from None


_TAGS: dict[str, Callable[[Any], Any]] = {
    "~bytes": lambda text: binascii.a2b_base64(text, strict_mode=True),
    "~datetime": datetime.fromisoformat,
    "~uuid": UUID,
    "~decimal": Decimal,
    "~ref": lambda fields: PayloadRef(fields["id"], fields["kind"], fields["size"]),
}


def _first_difference(one: str, other: str) -> int:
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))


def _not_canonical(text: str, position: int, reason: str) -> ContentError:
    return ContentError(
        f"cannot decode: not canonical at {path_at(text, position)}: {reason}",
        hint="Canonical bytes come from `encode`: no spaces, sorted keys, one spelling of a value.",
    )


VERSION: Final = "c1"
"""The name of this encoding, for the metadata of what stores or hashes its bytes."""

# Every tag and every escaped key prints these two characters; bytes without them have neither. Most
# bytes have no tilde at all, which is found out many times faster than that they lack the two.
_MARK: Final = b'"~'
_TILDE: Final = b"~"

_KEYS = frozenset({str})
_LEAVES = frozenset({str, int, bool, type(None)})
_CONTAINERS = frozenset({dict, list, tuple})
_DICTS = {dict}
_PLAIN = _LEAVES | _CONTAINERS

_to_json = json.JSONEncoder(
    ensure_ascii=False,
    check_circular=False,  # The survey has followed the value to its end.
    allow_nan=False,
    sort_keys=True,
    separators=(",", ":"),
)


def _encode_with_json(value: object) -> bytes:
    return _to_json.encode(value).encode()


def _choose_encoder() -> Callable[[object], bytes]:
    """Return the faster of two encoders for values without floats, if both write the same."""
    fast = msgspec.json.Encoder(order="sorted").encode
    probe = {
        "\U0001f600": [None, True, -(2**63), 2**64 - 1],
        "\uffff": "".join(map(chr, range(0x20))),
        "": '"\\/<>&\x7f\x80\u2028',
    }
    return fast if fast(probe) == _encode_with_json(probe) else _encode_with_json


_encode_without_floats = _choose_encoder()


def encode(value: object) -> bytes:
    """Return the canonical bytes of `value`."""
    plain = _survey(value)
    if plain is not None:
        try:
            data = plain(value)
        except (ValueError, OverflowError, RecursionError):
            pass  # A NaN, a lone surrogate, a giant integer: the careful way knows what to do.
        else:
            if _TILDE not in data or _MARK not in data:
                return data
    return write_text(value).encode()


def encode_flat(value: dict[str, object]) -> bytes | None:
    """Return the canonical bytes of a dict of strings, integers, booleans and None.

    The fast path of `encode`; returns None for any other dict.
    """
    if not (_KEYS.issuperset(map(type, value)) and _LEAVES.issuperset(map(type, value.values()))):
        return None
    try:
        data = _encode_without_floats(value)
    except (ValueError, OverflowError):
        return None
    return None if _TILDE in data and _MARK in data else data


def encode_each(values: Sequence[object]) -> list[bytes] | None:
    """Return the canonical bytes of several values, or None if `encode` must check one of them.

    The values are checked together. Each has room for one more bracket around it.
    """
    if not _are_plain(values):
        return None
    try:
        encoded = list(map(_encode_without_floats, values))
    except (ValueError, OverflowError, RecursionError):
        return None
    if True in map(contains, encoded, repeat(_TILDE)) and any(_MARK in data for data in encoded):
        return None
    return encoded


def decode(data: bytes) -> Any:
    """Return the value of canonical bytes."""
    if type(data) is not bytes:
        raise ContentError(
            f"cannot decode: canonical content is bytes, not {type(data).__name__}",
            hint="Pass the bytes that `encode` returned.",
        )
    if _TILDE not in data or _MARK not in data:
        # Any parser will do, because its answer counts only if it encodes to the very same bytes.
        try:
            value = msgspec.json.decode(data)
            if encode(value) == data:
                return value
        except (ValueError, msgspec.MsgspecError, RecursionError):
            pass  # The careful way says what is wrong, and where.
    return read_text(data)


def from_json(value: Any) -> Any:
    """Return the value that parsed JSON stands for: tags become values, other parts stay.

    The text need not be canonical, so that any JSON writer can send a value.

    Raises:
        ContentError: A tag is unknown or does not fit its value.
    """
    try:
        return _untag(value, in_set=False)
    except Refusal as refusal:
        raise refusal.error("cannot decode") from None
    except RecursionError:
        raise ContentError("cannot decode: the value is nested too deeply") from None


def _survey(value: object) -> Callable[[object], bytes] | None:  # noqa: C901 - one hot loop
    """Return the encoder that accepts `value` as it is, or None if it needs a full check.

    It works level by level and visits each object of a level once, so that a value that contains
    itself stops at the depth limit. The types of a whole container are checked in one C call.
    """
    encoder = _encode_without_floats
    level: Any = ((value,),)
    for _ in range(limits.CONTENT_DEPTH_MAX + 1):
        below: dict[int, object] = {}
        for container in level:
            items = container
            if type(container) is dict:
                if not _KEYS.issuperset(map(type, container)):
                    return None
                items = container.values()
            if _LEAVES.issuperset(map(type, items)):
                continue
            for item in items:
                kind = type(item)
                if kind in _CONTAINERS:
                    below[id(item)] = item
                elif kind is float:
                    # Two libraries find the same digits but lay them out differently: c1 is repr.
                    encoder = _encode_with_json
                elif kind not in _LEAVES:
                    return None
        if not below:
            return encoder
        level = below.values()
    return None


def _are_plain(values: Sequence[object]) -> bool:
    """Return True if no value contains a float or anything that needs a full check.

    Like `_survey`, with fewer steps for many values, and more for a single one.
    """
    items: Any = values
    for _ in range(limits.CONTENT_DEPTH_MAX - 1):
        kinds = set(map(type, items))
        if _LEAVES.issuperset(kinds):
            return True
        if not _PLAIN.issuperset(kinds):
            return False
        below = items
        if items is not values or kinds != _DICTS:
            # Each object once, or what holds itself twice would double at every level.
            below = {id(item): item for item in items if type(item) in _CONTAINERS}.values()
        dicts: Any = below
        lists: Any = ()
        if list in kinds or tuple in kinds:
            dicts = [item for item in below if type(item) is dict]
            lists = [item for item in below if type(item) is not dict]
        if not _KEYS.issuperset(map(type, chain.from_iterable(dicts))):
            return False
        if not lists and _LEAVES.issuperset(map(type, _all_values(dicts))):
            return True
        items = [*_all_values(dicts), *chain.from_iterable(lists)]
    return False


def _all_values(dicts: Iterable[dict[str, object]]) -> Iterable[object]:
    return chain.from_iterable(map(dict.values, dicts))


_HINT = (
    "RFC 8785 takes None, bool, int up to 2**53 - 1, finite float, str, list, dict with str keys."
)


def encode_jcs(value: Any) -> bytes:
    """Return the bytes that RFC 8785 prescribes for `value`."""
    try:
        return rfc8785.dumps(value)
    except ValueError as error:
        # Besides its own errors the package lets those of str.encode and of giant ints through.
        raise ContentError(f"cannot encode as RFC 8785: {str(error)[:200]}", hint=_HINT) from None
    except RecursionError:
        raise ContentError(
            "cannot encode as RFC 8785: the value is nested too deeply, or contains itself",
            hint=_HINT,
        ) from None
