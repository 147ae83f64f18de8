r"""The canonical encoding "c1": one value, one sequence of bytes, on every machine and every day.

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
"""

from __future__ import annotations

import json
from itertools import chain, repeat
from operator import contains
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fourfold import limits
from fourfold.content.reading import read_text
from fourfold.content.writing import write_text
from fourfold.errors import ContentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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
    """The faster of two encoders for values without floats, provided that both write the same."""
    fast = msgspec.json.Encoder(order="sorted").encode
    probe = {
        "\U0001f600": [None, True, -(2**63), 2**64 - 1],
        "\uffff": "".join(map(chr, range(0x20))),
        "": '"\\/<>&\x7f\x80\u2028',
    }
    return fast if fast(probe) == _encode_with_json(probe) else _encode_with_json


_encode_without_floats = _choose_encoder()


def encode(value: object) -> bytes:
    """The canonical bytes of `value`."""
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
    """The canonical bytes of a dict whose values are texts, integers, truth values or None, which
    needs the fewest looks; None for any other, which `encode` knows what to do with.
    """
    if not (_KEYS.issuperset(map(type, value)) and _LEAVES.issuperset(map(type, value.values()))):
        return None
    try:
        data = _encode_without_floats(value)
    except (ValueError, OverflowError):
        return None
    return None if _TILDE in data and _MARK in data else data


def encode_each(values: Sequence[object]) -> list[bytes] | None:
    """The canonical bytes of several values, which are looked at together; None if one of them is
    such that `encode` needs a closer look at it. There is room for one more bracket around each.
    """
    if not _are_plain(values):
        return None
    try:
        found = list(map(_encode_without_floats, values))
    except (ValueError, OverflowError, RecursionError):
        return None
    if True in map(contains, found, repeat(_TILDE)) and any(_MARK in data for data in found):
        return None
    return found


def decode(data: bytes) -> Any:
    """The value whose canonical bytes these are."""
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


def _survey(value: object) -> Callable[[object], bytes] | None:  # noqa: C901 - one hot loop
    """The encoder that may take `value` as it is, or None if something in it needs a closer look.

    It works level by level and takes each object of a level once, so a value that contains itself
    comes to an end at the depth limit. The types of a whole container are checked in one C call.
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
    """Whether none of several values holds a float or anything that needs a closer look: the same
    survey with fewer steps for many values, and more for a single one.
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
