"""Values in memory: exact fingerprints of lists, and copies that are cheaper than reading anew.

LangGraph hands over the whole list of messages at every step, and its nodes may change a message in
place. So whether the beginning of a list is still what was stored is found out by its content: the
fields of every item, packed by the library that packs them for storage too, byte by byte. That
costs a fraction of serialising them. What cannot be packed is serialised and compared instead.

What was read once is kept, and handed out in copies: whoever changes a message changes a copy.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from typing import Any

import ormsgpack
from pydantic import BaseModel

_EXACT = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
"""Everything whose packed form could be taken for another type's is refused."""
_LEAVES = frozenset({str, int, float, bool, bytes, type(None)})
_CONTAINERS = frozenset({dict, list})


class _Pause:
    """While thousands of objects are made that all stay, the cyclic collector would look through
    everything again and again to find nothing. Pauses may overlap, in several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pauses = 0
        self._was_on = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._pauses:
                self._was_on = gc.isenabled()
                gc.disable()
            self._pauses += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._pauses -= 1
            if not self._pauses and self._was_on:
                gc.enable()


collector_paused = _Pause()


def packed(items: Sequence[Any]) -> bytes | None:
    """The bytes that tell these items from any others; None if there are no such bytes."""
    try:
        with collector_paused:
            data = ormsgpack.packb([_shape(item) for item in items], option=_EXACT)
    except (TypeError, ValueError, KeyError):
        return None
    return data[1 if len(items) < 16 else 3 if len(items) < 65536 else 5 :]


class _Names(dict[type, str]):
    """The names of the classes that were met, so that each is looked at once."""

    def __missing__(self, kind: type) -> str:
        if kind in _LEAVES or kind in _CONTAINERS:
            name = ""
        elif issubclass(kind, BaseModel):
            name = f"{kind.__module__}.{kind.__qualname__}"
        else:
            raise KeyError(kind)
        self[kind] = name
        return name


_names = _Names()


def _shape(item: Any) -> list[Any]:
    """All that an item is made of; KeyError if that cannot be told."""
    name = _names[type(item)]
    if not name:
        return [item]
    return [name, item.__dict__, item.__pydantic_extra__, item.__pydantic_private__]


class Fingerprint:
    """The packed items of a list that grows at its end, and where each of them ends."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ends: list[int] = []

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, item: Any) -> bool:
        """Append an item; False if it has no fingerprint."""
        data = packed([item])
        if data is None:
            return False
        self._data += data
        self._ends.append(len(self._data))
        return True

    def cut(self, length: int) -> None:
        """Forget what lies behind the first items."""
        if length < len(self._ends):
            del self._ends[length:]
            del self._data[self._end(length) :]

    def covers(self, items: Sequence[Any]) -> bool:
        """Whether the list begins with exactly these items, as far as is known."""
        if len(items) > len(self._ends):
            return False
        data = packed(items)
        if data is None or len(data) != self._end(len(items)):
            return False
        return self._data.startswith(data)

    def _end(self, length: int) -> int:
        return self._ends[length - 1] if length else 0


class Uncopied(Exception):
    """A value that only its serialiser can make a second one of."""


class Original:
    """A value that is never handed out, only copies of it."""

    __slots__ = ("_fields", "_value")

    def __init__(self, value: Any) -> None:
        self._value = value
        self._fields: tuple[str, ...] | None = None
        if isinstance(value, BaseModel):
            if value.__pydantic_private__ is not None or value.__pydantic_extra__:
                raise Uncopied
            held = value.__dict__.items()
            self._fields = tuple(name for name, each in held if type(each) not in _LEAVES)
        _copy(value if self._fields is None else {n: value.__dict__[n] for n in self._fields})

    @property
    def value(self) -> Any:
        """The value itself, to be looked at only."""
        return self._value

    def copy(self) -> Any:
        value = self._value
        if self._fields is None:
            return _copy(value)
        fields = value.__dict__.copy()
        for name in self._fields:
            held = fields[name]
            fields[name] = _copy(held) if held else type(held)()
        kind = value.__class__
        made = kind.__new__(kind)
        _set_dict(made, fields)
        _set_fields_set(made, value.__pydantic_fields_set__.copy())
        _set_extra(made, None if value.__pydantic_extra__ is None else {})
        _set_private(made, None)
        return made


_set_dict = BaseModel.__dict__["__dict__"].__set__
_set_fields_set = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_extra = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_private = BaseModel.__dict__["__pydantic_private__"].__set__


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind in _LEAVES:
        return value
    if kind is dict:
        return {_leaf(name): _copy(each) for name, each in value.items()} if value else {}
    if kind is list:
        return [_copy(each) for each in value] if value else []
    raise Uncopied


def _leaf(value: Any) -> Any:
    if type(value) not in _LEAVES:
        raise Uncopied
    return value
