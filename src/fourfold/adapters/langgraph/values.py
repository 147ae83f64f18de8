"""Values of LangGraph in a log: typed bytes from LangGraph's own serializer, in three parts.

Pickles are never used: a serializer that falls back to pickles is refused, when it writes one and
when one is read.

An *item* is one serialized value. In an event it is text or bytes, or the name of a larger value of
the event, or of an earlier event, which it names too; if its type is not LangGraph's usual one, it
is stored with its type. Bytes that are shorter as text are stored as text (one character per byte),
so that mostly textual values are readable in the log; values that compress well are compressed.

A *chain* is a list that grows, composed from the events that each hold a part of it.

LangGraph passes the whole list of messages at every step, and its nodes may change a message in
place. So whether a list still starts with the stored items is decided by content: the fields of
every item, compared one by one where that is exact, otherwise packed by the library that also packs
them for storage. Both cost a fraction of serializing them. Items that cannot be packed are
serialized and compared. Values that were read are cached, and returned as copies.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import ormsgpack
from pydantic import BaseModel

from fourfold.adapters.langgraph_items import (
    COMPRESSED,
    DICTIONARY,
    NULL,
    USUAL_COMPRESSED,
    USUAL_TYPE,
    Item,
    Stored,
    Values,
    decompress,
    parse_item,
)
from fourfold.cache import LruCache
from fourfold.content import Inline, InternedPayload, PayloadRef, content_id, decide, encode
from fourfold.errors import CorruptData, InvalidInput, Refused
from fourfold.kernel.collector import gc_paused

PICKLE = "pickle"
_COMPRESSED_BYTES_MIN = 128
_SMALL_BYTES_MAX = 4_096
_NAMED_BYTES_MIN = 64
"""Minimum size of a value that has a name in its event, so that others can refer to it."""


class Serde:
    """A serializer of LangGraph, with typed errors, and without pickles."""

    def __init__(self, serde: Any) -> None:
        self._serde = serde

    def dumps(self, value: Any, label: str) -> Item:
        """Serialize a value; raise InvalidInput if that fails, and Refused for a pickle."""
        try:
            kind, data = self._serde.dumps_typed(value)
        except Exception as error:
            raise InvalidInput(
                f"{label}: cannot serialize: {error}",
                hint="Use plain values, dataclasses, pydantic models or messages in the state.",
            ) from error
        if kind == PICKLE:
            raise Refused(
                f"{label}: would be stored as a pickle, which can run code when it is read",
                hint="Use a serializer without pickle_fallback.",
            )
        return make_item(kind, bytes(data))

    def loads(self, item: Item, read: Callable[[Any], Any]) -> Any:
        """Return the value of an item; `read` follows references."""
        if item.type.startswith(PICKLE):
            raise Refused("stored value: is a pickle, which can run code when it is read")
        data = read(item.data)
        try:
            return self._serde.loads_typed(decompress(item.type, data))
        except Exception as error:
            raise CorruptData(f"stored value: cannot read: {error}") from error


def make_item(kind: str, data: bytes) -> Item:
    """Return an item of these bytes, compressed if that makes it much smaller."""
    stored = encode_stored(data)
    if len(data) >= _COMPRESSED_BYTES_MIN:
        # A small window is much faster to set up, and most messages are small.
        is_small = len(data) <= _SMALL_BYTES_MAX
        window, memory = (-12, 5) if is_small else (-15, 8)
        deflate = zlib.compressobj(6, zlib.DEFLATED, window, memory, zdict=DICTIONARY)
        compressed = deflate.compress(data) + deflate.flush()
        if len(compressed) * 5 < len(data) * (3 if is_small else 4):
            return Item(f"{kind}{COMPRESSED}1", compressed)
    return Item(kind, stored)


def encode_stored(data: bytes) -> str | bytes:
    """Return bytes, or the text of their characters, whichever is shorter in an event."""
    text = data.decode("latin-1")
    in_base64 = (len(data) + 2) // 3 * 4 + len('{"~bytes":""}')
    return text if len(encode(text)) <= in_base64 else data


def is_same(item: Item, other: Item) -> bool:
    """Return True if two items have the same bytes; one of them may be a reference."""
    if item.type != other.type:
        return False
    if isinstance(item.data, PayloadRef) or isinstance(other.data, PayloadRef):
        return _name(item.data) == _name(other.data)
    return item.data == other.data


def _name(data: Stored) -> str:
    return data.id if isinstance(data, PayloadRef) else content_id(encode(data))


class EventValues:
    """Larger values of a new event: each becomes a payload, stored once however often it occurs."""

    def __init__(self, known: LruCache[Item, tuple[str, int]] | None = None) -> None:
        self.values: dict[str, str | bytes | InternedPayload | PayloadRef] = {}
        self.items: dict[Item, str] = {}
        """Names of the items in the event."""
        self._known = known

    def put(self, item: Item) -> Any:
        """Add an item and return its representation in the event."""
        data: Any = item.data
        if item.type == NULL:
            return None
        if isinstance(data, PayloadRef) or len(data) >= _NAMED_BYTES_MIN:
            known = None if self._known is None else self._known.get(item)
            if known is not None:
                return _typed(item.type, [*known])
            name = str(len(self.values))
            self.items[item] = name
            if not isinstance(data, PayloadRef):
                decision = decide(data, "langgraph")
                data = decision.value if isinstance(decision, Inline) else decision
            self.values[name] = data
            data = [name]
        return _typed(item.type, data)


def _typed(kind: str, data: Any) -> Any:
    if kind == USUAL_TYPE:
        return data
    return {"deflated": data} if kind == USUAL_COMPRESSED else {"type": kind, "data": data}


class NotPlainError(Exception):
    """A value that an event cannot store as it is."""


def copy_plain(value: Any, *, tuples: bool = False) -> Any:
    """Return a copy of a value, as an event that stores it returns it.

    With `tuples`, they become lists. Raises NotPlainError if an event would change it otherwise.
    """
    kind = type(value)
    if kind in _PLAIN_TYPES or (kind is float and value - value == 0):
        return value
    if kind is list or (tuples and kind is tuple):
        return [copy_plain(item, tuples=tuples) for item in value]
    if kind is dict and _NAMES.issuperset(map(type, value)):
        return {name: copy_plain(value[name], tuples=tuples) for name in sorted(value)}
    raise NotPlainError


_PLAIN_TYPES = frozenset({str, int, bool, type(None)})
_NAMES = frozenset({str})


def parse_items(nodes: Iterable[Any], values: Values) -> list[Item]:
    """Return the items of nodes."""
    return [parse_item(node, values) for node in nodes]


def write_node(value: Any, serde: Serde, event_values: EventValues, label: str) -> dict[str, Any]:
    """Return the node of a value.

    Lists and dicts of larger values are written item by item, so that the same message in two
    places is stored once.
    """
    if is_itemized(value):
        return {"list": [event_values.put(serde.dumps(item, label)) for item in value]}
    if type(value) is dict and any(map(is_itemized, value.values())):
        names = list(value)
        if all(type(name) is str for name in names) and names == sorted(names):
            parts = {
                name: write_node(item, serde, event_values, label) for name, item in value.items()
            }
            return {"dict": parts}
    return {"value": event_values.put(serde.dumps(value, label))}


def is_itemized(value: Any) -> bool:
    """Return True if a value is a list that is stored item by item.

    Empty lists and lists of numbers, which are small and change as a whole, are not.
    """
    if type(value) is not list or not value:
        return False
    return not _NUMBERS.issuperset(map(type, value))


_NUMBERS = frozenset({int, float, bool})


def read_value(
    node: Mapping[str, Any], values: Values, serde: Serde, read: Callable[[Any], Any]
) -> Any:
    """Return the value of a node that does not refer to another event."""
    if "list" in node:
        return [serde.loads(item, read) for item in parse_items(node["list"], values)]
    if "dict" in node:
        parts = node["dict"].items()
        return {name: read_value(item, values, serde, read) for name, item in parts}
    return serde.loads(parse_item(node["value"], values), read)


EXACT = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
"""Types whose packed form could be mistaken for another type's are refused."""
_LEAVES = frozenset({str, int, float, bool, bytes, type(None)})
_CONTAINERS = frozenset({dict, list})
_EXACTLY_EQUAL = _LEAVES - {float}
"""Types whose equal values are identical; 0.0 and -0.0 are not."""


def pack_items(items: Sequence[Any]) -> bytes | None:
    """Return bytes that identify these items, or None if there are none."""
    try:
        with gc_paused:
            data = ormsgpack.packb([_item_parts(item) for item in items], option=EXACT)
    except (TypeError, ValueError, KeyError):
        return None
    return data[1 if len(items) < 16 else 3 if len(items) < 65536 else 5 :]


class _ClassNames(dict[type, str]):
    """Names of the classes that occurred, so that each is inspected once."""

    def __missing__(self, kind: type) -> str:
        if kind in _LEAVES or kind in _CONTAINERS:
            name = ""
        elif issubclass(kind, BaseModel):
            name = f"{kind.__module__}.{kind.__qualname__}"
        else:
            raise KeyError(kind)
        self[kind] = name
        return name


_class_names = _ClassNames()


def _item_parts(item: Any) -> list[Any]:
    """Return everything that an item consists of; raise KeyError if that is unknown."""
    name = _class_names[type(item)]
    if not name:
        return [item]
    return [name, item.__dict__, item.__pydantic_extra__, item.__pydantic_private__]


class Fingerprint:
    """Fingerprint of a growing list; compares whether another list starts with the same items.

    Most items are models whose fields are strings, whole numbers and empty containers. Those are
    compared field by field: the fields must have the same types and be equal, which for such types
    means the same bytes. That is cheap, because an unchanged copy holds the same objects. All other
    items are packed, and their bytes compared.
    """

    def __init__(self) -> None:
        self._models: list[int] = []
        """Items that are compared field by field, with their classes, fields and field types."""
        self._classes: list[type] = []
        self._fields: list[dict[str, Any]] = []
        self._types: list[type] = []
        self._types_end: list[int] = []
        self._packed: list[int] = []
        """Items that are packed, with their bytes and where those of each end."""
        self._data = bytearray()
        self._data_end: list[int] = []

    def __len__(self) -> int:
        return len(self._models) + len(self._packed)

    def add(self, item: Any) -> bool:
        """Append an item, which must not change any more; return False if it has no fingerprint."""
        index = len(self)
        if _is_simple(item):
            self._models.append(index)
            self._classes.append(type(item))
            self._fields.append(item.__dict__)
            self._types += map(type, item.__dict__.values())
            self._types_end.append(len(self._types))
            return True
        data = pack_items([item])
        if data is None:
            return False
        self._packed.append(index)
        self._data += data
        self._data_end.append(len(self._data))
        return True

    def starts_with(self, items: Sequence[Any]) -> bool:
        """Return True if the list starts with exactly these items, as far as known."""
        if len(items) > len(self):
            return False
        if not self._packed or self._packed[0] >= len(items):
            return self._are_models(items)
        models = self._models[: bisect_left(self._models, len(items))]
        packed = self._packed[: bisect_left(self._packed, len(items))]
        return self._are_models([items[index] for index in models]) and self._are_packed(
            [items[index] for index in packed]
        )

    def _are_models(self, items: Sequence[Any]) -> bool:
        """Return True if these are the first items that are compared field by field."""
        count = len(items)
        if not count:
            return True
        if list(map(type, items)) != self._classes[:count]:
            return False
        # Their classes are model classes, so they have all attributes of models.
        fields = list(map(_fields_of, items))
        types = list(map(type, chain.from_iterable(map(dict.values, fields))))
        return (
            types == self._types[: self._types_end[count - 1]]
            and fields == self._fields[:count]
            and not any(map(_extra_of, items))
            and not any(map(_private_of, items))
        )

    def _are_packed(self, items: Sequence[Any]) -> bool:
        data = pack_items(items)
        end = self._data_end[len(items) - 1]
        return data is not None and len(data) == end and self._data.startswith(data)


def _is_simple(item: Any) -> bool:
    """Return True for a model whose equal fields of the same types are identical."""
    if not isinstance(item, BaseModel) or item.__pydantic_extra__ or item.__pydantic_private__:
        return False
    return all(
        type(value) in _EXACTLY_EQUAL or (type(value) in _CONTAINERS and not value)
        for value in item.__dict__.values()
    )


_fields_of = attrgetter("__dict__")
_extra_of = attrgetter("__pydantic_extra__")
_private_of = attrgetter("__pydantic_private__")


class UncopiedValue(Exception):
    """A value that only its serializer can copy."""


class Original:
    """A cached value that is never returned itself, only copies of it."""

    __slots__ = ("_empty", "_fields", "_full", "_is_model", "_kind", "_set", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        """The value itself; must not be changed."""
        self._is_model = isinstance(value, BaseModel)
        if not self._is_model:
            _copy(value)
            return
        if value.__pydantic_private__ is not None or value.__pydantic_extra__:
            raise UncopiedValue
        self._kind = type(value)
        self._fields = value.__dict__
        self._set = value.__pydantic_fields_set__
        containers = [
            (name, field) for name, field in self._fields.items() if type(field) not in _LEAVES
        ]
        # Most containers of a message are empty, and a new one is cheaper than a copy.
        self._empty = [(name, type(field)) for name, field in containers if not field]
        self._full = [name for name, field in containers if field]
        for _, field in containers:
            _copy(field)

    def copy(self) -> Any:
        """Return a copy of the value."""
        if not self._is_model:
            return _copy(self.value)
        fields = self._fields.copy()
        for name, container in self._empty:
            fields[name] = container()
        for name in self._full:
            fields[name] = _copy(fields[name])
        copied = _new(self._kind)
        _set_dict(copied, fields)
        _set_fields_set(copied, self._set.copy())
        _set_extra(copied, None if self.value.__pydantic_extra__ is None else {})
        _set_private(copied, None)
        return copied


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
        return {_leaf(name): _copy(item) for name, item in value.items()} if value else {}
    if kind is list:
        return [_copy(item) for item in value] if value else []
    raise UncopiedValue


def _leaf(value: Any) -> Any:
    if type(value) not in _LEAVES:
        raise UncopiedValue
    return value


Read = Callable[[Any], Any]
