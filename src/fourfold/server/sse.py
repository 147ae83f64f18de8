"""Server-sent events: data and control, with nothing in the data that could pose as either."""

from __future__ import annotations

import base64
import json
import re

from fourfold.models.streams import Chunk, StreamInfo
from fourfold.models.streams.messages import join
from fourfold.models.streams.names import plain_type

KEEP_ALIVE = b": keep-alive\n\n"
_LINE_END = re.compile(rb"\r\n|\n|\r")


def is_text(info: StreamInfo) -> bool:
    """Whether the data goes out as it is; anything else goes as base64."""
    return info.is_json or plain_type(info.content_type).startswith("text/")


def data(info: StreamInfo, chunk: Chunk) -> bytes:
    """One event with the records of a chunk. Every line of it is marked as data, whatever ends
    it.
    """
    body = join([record.payload for record in chunk.records], info.content_type)
    if not is_text(info):
        body = base64.b64encode(body)
    lines = b"".join(b"data:" + _shield(line) + line + b"\n" for line in _LINE_END.split(body))
    return b"event: data\n" + lines + b"\n"


def _shield(line: bytes) -> bytes:
    # A reader drops one space behind the colon: it shall not be the line's own.
    return b" " if line.startswith(b" ") else b""


def control(chunk: Chunk, cursor: str) -> bytes:
    """Where the reader is now."""
    told: dict[str, object] = {"streamNextOffset": chunk.offset}
    if chunk.closed:
        told["streamClosed"] = True
        told["upToDate"] = True
    else:
        told["streamCursor"] = cursor
        if chunk.up_to_date:
            told["upToDate"] = True
    return b"event: control\ndata:" + json.dumps(told).encode() + b"\n\n"
