"""Values of LangGraph as a log keeps them: typed bytes, by LangGraph's own serialiser.

Nothing here is ever a pickle: a serialiser that falls back to pickles is refused, when it writes
one as well as when one is found.

An *item* is one serialised value. In an event it is a text or bytes, or the name of a larger one
among the event's values, or among those of an earlier event, which it names too; where its type is
not LangGraph's usual one, it stands with its type. Bytes that are shorter as a text are kept as one
(each byte a character), so that what is mostly text can be read in the log; those that become much
smaller by compression are compressed.

Lists that grow, put together from the events that each hold a part of them.

Values in memory: exact fingerprints of lists, and copies that are cheaper than reading anew.

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
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import ormsgpack
from pydantic import BaseModel

from fourfold.content import PayloadRef, content_id, encode
from fourfold.errors import CorruptData, InvalidInput, Refused
from fourfold.models.sessions import Event, Payload

USUAL_TYPE = "msgpack"
PICKLE = "pickle"
NULL = "null"
PACKED = "/deflate-"
"""Behind the type of compressed bytes; the number of the dictionary follows."""
_USUAL_PACKED = f"{USUAL_TYPE}{PACKED}1"
_PACKED_BYTES_MIN = 128
_SMALL_BYTES_MAX = 4_096
_NAMED_BYTES_MIN = 64
"""From this size on a value has a name in its event, so that others can refer to it."""
_WORDS = (
    b"additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa4tool\xa4name\xc0\xa2id\xd9$"
    b"\xactool_call_id\xa8artifact\xc0\xa6status\xa7success\xb9langchain_core.messages.system"
    b"\xadSystemMessage\xb8langchain_core.messages.tool\xabToolMessage"
    b"\x94\xbdlangchain_core.messages.human\xacHumanMessage\x86\xa7content\xd9"
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0\xa2id\xc0"
    b"\xb3model_validate_json\x94\xd9\x1alangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xda"
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa2ai\xa4name\xc0\xa2id\xd9$"
    b"\xaatool_calls\x90\xb2invalid_tool_calls\x90\xaeusage_metadata\xc0\xb3model_validate_json"
)
"""What messages of LangChain have in common: the dictionary of compressed items. It never changes;
another one would get another number.
"""

Stored: TypeAlias = str | bytes | PayloadRef
"""Serialised bytes as an event holds them."""


Values: TypeAlias = Callable[..., Any]
"""Gives the larger value of an event by its name, or that of another by name and event."""


class Item(NamedTuple):
    """A serialised value: its type, and its bytes or the reference to them."""

    type: str
    data: Stored


class Serde:
    """A serialiser of LangGraph's, with typed errors, and without pickles."""

    def __init__(self, serde: Any) -> None:
        self._serde = serde

    def dumps(self, value: Any, what: str) -> Item:
        try:
            kind, data = self._serde.dumps_typed(value)
        except Exception as error:
            raise InvalidInput(
                f"{what} cannot be serialised: {error}",
                hint="Keep plain values, dataclasses, pydantic models or messages in the state.",
            ) from error
        if kind == PICKLE:
            raise Refused(
                f"{what} would be stored as a pickle, which can run code when it is read",
                hint="Use a serialiser without pickle_fallback.",
            )
        return packed_item(kind, bytes(data))

    def loads(self, item: Item, read: Callable[[Any], Any]) -> Any:
        """The value of an item; `read` follows references."""
        if item.type.startswith(PICKLE):
            raise Refused("a stored value is a pickle, which can run code when it is read")
        data = read(item.data)
        try:
            raw = data.encode("latin-1") if isinstance(data, str) else data
            kind, _, pack = item.type.partition(PACKED)
            if pack:
                raw = zlib.decompressobj(-15, zdict=_WORDS).decompress(raw)
            return self._serde.loads_typed((kind, raw))
        except Exception as error:
            raise CorruptData(f"a stored value cannot be read: {error}") from error


def packed_item(kind: str, data: bytes) -> Item:
    """An item of these bytes, compressed where that makes it much smaller."""
    stored = as_stored(data)
    if len(data) >= _PACKED_BYTES_MIN:
        # A small window is set up in a fraction of the time, and most messages are small.
        window, memory = (-12, 5) if len(data) <= _SMALL_BYTES_MAX else (-15, 8)
        deflate = zlib.compressobj(6, zlib.DEFLATED, window, memory, zdict=_WORDS)
        small = deflate.compress(data) + deflate.flush()
        if len(small) * 5 < len(data) * 3:
            return Item(f"{kind}{PACKED}1", small)
    return Item(kind, stored)


def as_stored(data: bytes) -> str | bytes:
    """Bytes, or the text whose characters they are, whichever takes less room in an event."""
    text = data.decode("latin-1")
    in_base64 = (len(data) + 2) // 3 * 4 + len('{"~bytes":""}')
    return text if len(encode(text)) <= in_base64 else data


def same(item: Item, other: Item) -> bool:
    """Whether two items hold the same bytes; one of them may be a reference."""
    if item.type != other.type:
        return False
    if isinstance(item.data, PayloadRef) or isinstance(other.data, PayloadRef):
        return _name(item.data) == _name(other.data)
    return item.data == other.data


def _name(data: Stored) -> str:
    return data.id if isinstance(data, PayloadRef) else content_id(encode(data))


class Shelf:
    """The larger values of an event on their way into it: each becomes a payload, which is stored
    once however often it comes.
    """

    def __init__(self, known: Mapping[Item, tuple[str, int]] | None = None) -> None:
        self.values: dict[str, Payload | PayloadRef] = {}
        self.items: dict[Item, str] = {}
        """What was put here, by the name under which the event has it."""
        self._known = known or {}

    def put(self, item: Item) -> Any:
        """What stands in the event for an item."""
        found: Any = item.data
        if item.type == NULL:
            return None
        if isinstance(found, PayloadRef) or len(found) >= _NAMED_BYTES_MIN:
            if item in self._known:
                return _typed(item.type, [*self._known[item]])
            name = str(len(self.values))
            self.items[item] = name
            kept = found if isinstance(found, PayloadRef) else Payload(found, "langgraph")
            self.values[name] = kept
            found = [name]
        return _typed(item.type, found)


def _typed(kind: str, data: Any) -> Any:
    if kind == USUAL_TYPE:
        return data
    return {"deflated": data} if kind == _USUAL_PACKED else {"type": kind, "data": data}


def item_of(written: Any, values: Values) -> Item:
    """The item that `Shelf.put` wrote into an event with these values."""
    if written is None:
        return Item(NULL, "")
    kind, data = USUAL_TYPE, written
    if isinstance(written, dict) and "deflated" in written:
        kind, data = _USUAL_PACKED, written["deflated"]
    elif isinstance(written, dict):
        kind, data = written["type"], written["data"]
    if isinstance(data, list):
        data = values(*data)
    if not isinstance(data, (str, bytes, PayloadRef)):
        raise CorruptData("an event of a LangGraph thread holds no bytes where it should")
    return Item(kind, data)


def is_plain(value: Any, *, tuples: bool = False) -> bool:
    """Whether an event can hold a value as it is, and gives it back as it was."""
    kind = type(value)
    if kind in {str, int, float, bool, type(None)}:
        return kind is not float or value - value == 0
    if kind is list or (tuples and kind is tuple):
        return all(is_plain(each, tuples=tuples) for each in value)
    if kind is dict:
        return all(type(name) is str for name in value) and all(
            is_plain(each, tuples=tuples) for each in value.values()
        )
    return False


def items_of(written: Iterable[Any], values: Values) -> list[Item]:
    return [item_of(each, values) for each in written]


def written(value: Any, serde: Serde, shelf: Shelf, what: str) -> dict[str, Any]:
    """A value as a node: lists and dicts of larger things item by item, so that the same message in
    two places is stored once.
    """
    if is_itemized(value):
        return {"list": [shelf.put(serde.dumps(each, what)) for each in value]}
    if type(value) is dict and any(map(is_itemized, value.values())):
        names = list(value)
        if all(type(name) is str for name in names) and names == sorted(names):
            parts = {name: written(each, serde, shelf, what) for name, each in value.items()}
            return {"dict": parts}
    return {"value": shelf.put(serde.dumps(value, what))}


def is_itemized(value: Any) -> bool:
    """Whether a value is a list that is kept item by item: any but an empty one, or one of numbers,
    which is small and changes altogether.
    """
    if type(value) is not list or not value:
        return False
    return not _NUMBERS.issuperset(map(type, value))


_NUMBERS = frozenset({int, float, bool})


def value_of(
    node: Mapping[str, Any], values: Values, serde: Serde, read: Callable[[Any], Any]
) -> Any:
    """The value of a node that stands for itself."""
    if "list" in node:
        return [serde.loads(each, read) for each in items_of(node["list"], values)]
    if "dict" in node:
        held = node["dict"].items()
        return {name: value_of(each, values, serde, read) for name, each in held}
    return serde.loads(item_of(node["value"], values), read)


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


class UncopiedValue(Exception):
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
            raise UncopiedValue
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
    raise UncopiedValue


def _leaf(value: Any) -> Any:
    if type(value) not in _LEAVES:
        raise UncopiedValue
    return value


Read = Callable[[Any], Any]


class Chain:
    """The list of one channel up to one event, and with it the lists of earlier events that it
    begins with.
    """

    def __init__(self, tip: int, items: list[Item], lengths: dict[int, int]) -> None:
        self.tip = tip
        self.items = items
        self.lengths = lengths
        """How long the list was at each event. Later events left these items alone."""
        self._originals: list[Original | None] = []
        self._fingerprint: Fingerprint | None = Fingerprint()

    def values(self, length: int, serde: Serde, read: Read) -> list[Any]:
        """The first items, as values of their own."""
        with collector_paused:
            self._load(length, serde, read)
            return [
                serde.loads(self.items[at], read) if original is None else original.copy()
                for at, original in enumerate(self._originals[:length])
            ]

    def kept(self, length: int, value: list[Any], serde: Serde, read: Read) -> int:
        """With how many of the first `length` items a list begins."""
        most = min(length, len(value))
        if self._fingerprint is not None:
            self._load(most, serde, read)
        if self._fingerprint is not None and self._fingerprint.covers(value[:most]):
            return most
        for at in range(most):
            if not same(serde.dumps(value[at], f"item {at} of a list"), self.items[at]):
                return at
        return most

    def grown(self, event: int, keep: int, new: Sequence[Item]) -> Chain:
        """The list of a later event: the first items of this one, and new ones."""
        if keep == len(self.items):
            self.items.extend(new)
            self.lengths[event] = len(self.items)
            self.tip = event
            return self
        lengths = {at: length for at, length in self.lengths.items() if length <= keep}
        chain = Chain(event, [*self.items[:keep], *new], lengths)
        chain.lengths[event] = len(chain.items)
        chain._originals = self._originals[:keep]
        return chain

    def _load(self, length: int, serde: Serde, read: Read) -> None:
        for at in range(len(self._originals), length):
            value = serde.loads(self.items[at], read)
            try:
                self._originals.append(Original(value))
            except UncopiedValue:
                self._originals.append(None)
        prints = self._fingerprint
        if prints is None:
            return
        for at in range(len(prints), length):
            original = self._originals[at]
            if original is None or not prints.add(original.value):
                self._fingerprint = None
                return


def values_of(event: Event, find: Callable[[int], Event]) -> Values:
    """The larger values that an event holds, or refers to."""

    def value(name: str, elsewhere: int | None = None) -> Any:
        holder = event if elsewhere is None else find(elsewhere)
        return holder.data["values"][name]

    return value


def chain_of(channel: str, event: int, find: Callable[[int], Event]) -> Chain:
    """The list that an event holds for a channel, walked back to its beginning."""
    parts: list[list[Item]] = []
    lengths: dict[int, int] = {}
    at: int | None = event
    most = None
    while at is not None:
        held = find(at)
        node = held.data["step"].get("channels", {}).get(channel)
        if node is None or "list" not in node:
            raise CorruptData(f"event {at} holds no list for the channel {channel!r}")
        keep = node.get("keep", 0)
        own = items_of(node["list"], values_of(held, find))
        length = keep + len(own)
        if most is None or length <= most:
            lengths[at] = length
        else:
            own = own[: max(0, most - keep)]
        parts.append(own)
        most = keep if most is None else min(most, keep)
        at = node.get("on") if most else None
    items = [item for part in reversed(parts) for item in part]
    if len(items) != lengths[event]:
        raise CorruptData(f"event {event} keeps more of the list {channel!r} than there was")
    return Chain(event, items, lengths)
