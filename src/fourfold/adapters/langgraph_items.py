"""Serialized values in the events of LangGraph threads, and the words of their messages.

Nothing here imports LangGraph, so that a store without it can index what its threads say. A
message is decoded as plain MessagePack data: no class is imported, no object is built from it, and
no pickle is read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from fourfold.content import PayloadRef
from fourfold.errors import CorruptData
from fourfold.models.sessions import Event

USUAL_TYPE = "msgpack"
NULL = "null"
COMPRESSED = "/deflate-"
"""Suffix of the type of compressed bytes; the number of the dictionary follows."""
USUAL_COMPRESSED = f"{USUAL_TYPE}{COMPRESSED}1"
DICTIONARY = (
    b"additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa4tool\xa4name\xc0\xa2id\xd9$"
    b"\xactool_call_id\xa8artifact\xc0\xa6status\xa7success\xb9langchain_core.messages.system"
    b"\xadSystemMessage\xb8langchain_core.messages.tool\xabToolMessage"
    b"\x94\xbdlangchain_core.messages.human\xacHumanMessage\x86\xa7content\xd9"
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0\xa2id\xc0"
    b"\xb3model_validate_json\x94\xd9\x1alangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xda"
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa2ai\xa4name\xc0\xa2id\xd9$"
    b"\xaatool_calls\x90\xb2invalid_tool_calls\x90\xaeusage_metadata\xc0\xb3model_validate_json"
)
"""Compression dictionary: common parts of LangChain messages. It never changes; another one would
have another number.
"""

Stored: TypeAlias = str | bytes | PayloadRef
"""Serialized bytes in an event."""


Values: TypeAlias = Callable[..., Any]
"""Returns a larger value of an event by its name, or of another event by name and event id."""


class Item(NamedTuple):
    """A serialized value: its type, and its bytes or a reference to them."""

    type: str
    data: Stored

    @property
    def size(self) -> int:
        """The number of stored bytes or characters."""
        return self.data.size if isinstance(self.data, PayloadRef) else len(self.data)


def parse_item(node: Any, values: Values) -> Item:
    """Return the item that `EventValues.put` wrote into an event with these values."""
    if node is None:
        return Item(NULL, "")
    kind, data = USUAL_TYPE, node
    if isinstance(node, dict) and "deflated" in node:
        kind, data = USUAL_COMPRESSED, node["deflated"]
    elif isinstance(node, dict):
        kind, data = node["type"], node["data"]
    if isinstance(data, list):
        data = values(*data)
    if not isinstance(data, (str, bytes, PayloadRef)):
        raise CorruptData("event of a LangGraph thread: expected bytes")
    return Item(kind, data)


def value_reader(event: Event, find: Callable[[int], Event]) -> Values:
    """Return a function that reads the larger values of an event, or those it refers to."""

    def value(name: str, event_id: int | None = None) -> Any:
        source = event if event_id is None else find(event_id)
        return source.data["values"][name]

    return value


def decompress(kind: str, data: str | bytes, max_bytes: int = 0) -> tuple[str, bytes]:
    """Return the type and the bytes of an item, the first `max_bytes` of them if that is not 0."""
    raw = data.encode("latin-1") if isinstance(data, str) else data
    kind, _, pack = kind.partition(COMPRESSED)
    if pack:
        raw = zlib.decompressobj(-15, zdict=DICTIONARY).decompress(raw, max_bytes)
    return kind, raw


# Words

_CHECKPOINTS: Final = frozenset({"step/started", "step/put"})
_PYDANTIC: Final = 5
"""Code of a pydantic model in the MessagePack of LangGraph: module, class and fields."""
_BYTES_MAX: Final = 1024 * 1024
"""A larger message is not indexed."""
_ROLES: Final = {"human": "user", "ai": "assistant"}


class _Model(NamedTuple):
    """The fields of a model, which is not built."""

    fields: Any


def message_texts(
    event: Event, find: Callable[[int], Event], read: Callable[[PayloadRef], Any]
) -> Iterator[tuple[str, Any]]:
    """Yield the roles and the contents of the messages that a checkpoint added.

    Messages of other serializers, as of one that encrypts, have no words.

    Args:
        event: An event of a thread.
        find: Returns another event of its session.
        read: Returns a payload; None if it is large or missing.
    """
    if event.type not in _CHECKPOINTS:
        return
    values = value_reader(event, find)
    for channel, node in event.data["step"].get("channels", {}).items():
        if channel.startswith(("__", "branch:")):
            continue
        for stored in node.get("list", ()):
            message = _message(parse_item(stored, values), read)
            if message is not None:
                yield message


def _message(item: Item, read: Callable[[PayloadRef], Any]) -> tuple[str, Any] | None:
    data = read(item.data) if isinstance(item.data, PayloadRef) else item.data
    if data is None:
        return None
    try:
        kind, raw = decompress(item.type, data, _BYTES_MAX)
        value = msgspec.msgpack.decode(raw, ext_hook=_decode_model) if kind == USUAL_TYPE else None
    except (msgspec.MsgspecError, zlib.error, ValueError, TypeError, RecursionError):
        return None
    fields = value.fields if isinstance(value, _Model) else value
    if not isinstance(fields, dict) or "content" not in fields:
        return None
    role = fields.get("type") if isinstance(value, _Model) else fields.get("role")
    if not isinstance(role, str):
        return None
    content: Any = fields["content"]
    calls = fields.get("tool_calls")
    if isinstance(calls, list) and calls:
        content = {
            "content": content,
            "tool_calls": [{**call, "type": "tool_call"} for call in calls],
        }
    return _ROLES.get(role, role), content


def _decode_model(code: int, data: memoryview) -> Any:
    """Return the fields of a model; None for values of other types, also inside of it."""
    if code != _PYDANTIC:
        return None
    parts = msgspec.msgpack.decode(data, ext_hook=lambda _code, _data: None)
    return _Model(parts[2]) if isinstance(parts, list) and len(parts) > 2 else None
