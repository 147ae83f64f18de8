"""Values in memory: exact fingerprints of lists, and copies that are cheaper than reading anew.

LangGraph hands over the whole list of messages at every step, and its nodes may change a message in
place. So whether the beginning of a list is still what was stored is found out by its content: the
fields of every item, compared one by one where that is exact, else packed by the library that packs
them for storage too. Both cost a fraction of serialising them. What cannot be packed is serialised
and compared instead.

What was read once is kept, and handed out in copies: whoever changes a message changes a copy.
"""

from __future__ import annotations

import gc
import threading
from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
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
_EXACTLY_EQUAL = _LEAVES - {float}
"""Types whose equal values are the same; 0.0 and -0.0 are not."""


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
    """The items of a list that grows at its end, in a form that tells whether another list begins
    with the same ones.

    Most items are models whose fields are texts, whole numbers and empty containers. Those are
    compared field by field: the fields must have the same types and be equal, which for such types
    is the same as having the same bytes, and costs little, because what was handed out and left
    alone holds the very same objects. All others are packed, and their bytes compared.
    """

    def __init__(self) -> None:
        self._models: list[int] = []
        """Which items are compared field by field; their classes, fields, and types of these."""
        self._classes: list[type] = []
        self._fields: list[dict[str, Any]] = []
        self._types: list[type] = []
        self._types_end: list[int] = []
        self._packed: list[int] = []
        """Which items are packed; their bytes, and where those of each end."""
        self._data = bytearray()
        self._data_end: list[int] = []

    def __len__(self) -> int:
        return len(self._models) + len(self._packed)

    def add(self, item: Any) -> bool:
        """Append an item, which nobody changes from now on; False if it has no fingerprint."""
        at = len(self)
        if _is_simple(item):
            self._models.append(at)
            self._classes.append(type(item))
            self._fields.append(item.__dict__)
            self._types += map(type, item.__dict__.values())
            self._types_end.append(len(self._types))
            return True
        data = packed([item])
        if data is None:
            return False
        self._packed.append(at)
        self._data += data
        self._data_end.append(len(self._data))
        return True

    def covers(self, items: Sequence[Any]) -> bool:
        """Whether the list begins with exactly these items, as far as is known."""
        if len(items) > len(self):
            return False
        if not self._packed or self._packed[0] >= len(items):
            return self._are_models(items)
        models = self._models[: bisect_left(self._models, len(items))]
        others = self._packed[: bisect_left(self._packed, len(items))]
        return self._are_models([items[at] for at in models]) and self._are_packed(
            [items[at] for at in others]
        )

    def _are_models(self, items: Sequence[Any]) -> bool:
        """Whether these are the first of the items that are compared field by field."""
        count = len(items)
        if not count:
            return True
        if list(map(type, items)) != self._classes[:count]:
            return False
        # Their classes are those of models, so they have all that models have.
        fields = list(map(_fields_of, items))
        types = list(map(type, chain.from_iterable(map(dict.values, fields))))
        return (
            types == self._types[: self._types_end[count - 1]]
            and fields == self._fields[:count]
            and not any(map(_extra_of, items))
            and not any(map(_private_of, items))
        )

    def _are_packed(self, items: Sequence[Any]) -> bool:
        data = packed(items)
        end = self._data_end[len(items) - 1]
        return data is not None and len(data) == end and self._data.startswith(data)


def _is_simple(item: Any) -> bool:
    """Whether an item is a model whose equal fields of the same types are the same fields."""
    if not isinstance(item, BaseModel) or item.__pydantic_extra__ or item.__pydantic_private__:
        return False
    return all(
        type(each) in _EXACTLY_EQUAL or (type(each) in _CONTAINERS and not each)
        for each in item.__dict__.values()
    )


_fields_of = attrgetter("__dict__")
_extra_of = attrgetter("__pydantic_extra__")
_private_of = attrgetter("__pydantic_private__")


class Uncopied(Exception):
    """A value that only its serialiser can make a second one of."""


class Original:
    """A value that is never handed out, only copies of it."""

    __slots__ = ("_empty", "_fields", "_full", "_is_model", "_kind", "_set", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        """The value itself, to be looked at only."""
        self._is_model = isinstance(value, BaseModel)
        if not self._is_model:
            _copy(value)
            return
        if value.__pydantic_private__ is not None or value.__pydantic_extra__:
            raise Uncopied
        self._kind = type(value)
        self._fields = value.__dict__
        self._set = value.__pydantic_fields_set__
        held = [(name, each) for name, each in self._fields.items() if type(each) not in _LEAVES]
        # Most containers of a message are empty, and a new one costs less than a copy.
        self._empty = [(name, type(each)) for name, each in held if not each]
        self._full = [name for name, each in held if each]
        for _, each in held:
            _copy(each)

    def copy(self) -> Any:
        if not self._is_model:
            return _copy(self.value)
        fields = self._fields.copy()
        for name, container in self._empty:
            fields[name] = container()
        for name in self._full:
            fields[name] = _copy(fields[name])
        made = _new(self._kind)
        _set_dict(made, fields)
        _set_fields_set(made, self._set.copy())
        _set_extra(made, None if self.value.__pydantic_extra__ is None else {})
        _set_private(made, None)
        return made


_new = object.__new__
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
