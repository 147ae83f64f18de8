"""Values of LangGraph as a log keeps them: typed bytes, by LangGraph's own serialiser.

Nothing here is ever a pickle: a serialiser that falls back to pickles is refused, when it writes
one as well as when one is found.

An *item* is one serialised value. In an event it is a text or bytes, or the name of a larger one
among the event's values, or among those of an earlier event, which it names too; where its type is
not LangGraph's usual one, it stands with its type. Bytes that are shorter as a text are kept as one
(each byte a character), so that what is mostly text can be read in the log; those that become much
smaller by compression are compressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from fourfold.content import PayloadRef, content_id, encode
from fourfold.errors import CorruptData, InvalidInput, Refused
from fourfold.models.sessions import Payload

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
