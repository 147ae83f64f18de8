"""The profile `state-protocol`: every message is a change of one row of one entity. Pure.

    {"type": "user", "key": "17", "value": {...}, "headers": {"operation": "update"}}

The operation is insert, update, upsert or delete; all but a delete have a value, and `old_value`
may tell what was there before. Beside changes there are messages about the stream itself,
`{"headers": {"control": "snapshot-start"}}`. Messages are written as they came.

What is taken here, the fold (`models/streams/fold.py`) takes too. So a message is decoded as a
whole, as it will be for the fold: one number too large for that, anywhere in it, and the state of
the stream could never be read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec

from fourfold.models.streams.profiles.profile import (
    AdmittedMessages,
    Profile,
    refuse_too_deep,
    refused,
)

WRITES: Final = ("insert", "update", "upsert")
OPERATIONS: Final = (*WRITES, "delete")
_HINT = (
    'A change is {"type": "user", "key": "17", "value": ..., "headers": {"operation": "insert"}}, '
    f"where the operation is one of {', '.join(OPERATIONS)}; "
    'a message about the stream is {"headers": {"control": "reset"}}.'
)
_MESSAGE = msgspec.json.Decoder()


@dataclass(frozen=True)
class StateProtocol(Profile):
    """See the module."""

    kind: ClassVar[str] = "state-protocol"
    needs_json: ClassVar[bool] = True

    touch: bool = False

    @property
    def touch_enabled(self) -> bool:
        return self.touch

    def plain(self) -> dict[str, Any]:
        return {"kind": self.kind, "touch": {"enabled": self.touch}}

    def take(self, records: Sequence[bytes], now_ms: int) -> AdmittedMessages:
        del now_ms
        for number, record in enumerate(records, start=1):
            refuse_too_deep(self.kind, number, record)
            try:
                complaint = _complaint(_MESSAGE.decode(record))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                complaint = f"it cannot be decoded: {error}"
            if complaint is not None:
                raise refused(self.kind, number, complaint, hint=_HINT)
        return AdmittedMessages(records, None)


def _complaint(message: Any) -> str | None:
    """What is wrong with a message; None when it is a change, or is about the stream."""
    if not isinstance(message, dict):
        return "it is not an object"
    headers = message.get("headers")
    if not isinstance(headers, dict):
        return "it has no object 'headers'"
    if "control" in headers:
        if "operation" in headers:
            # Some readers would take it for the one, and some for the other.
            return "its headers have both an operation and a control"
        return None if isinstance(headers["control"], str) else "its 'control' is not text"
    return _complaint_about_change(message, headers.get("operation"))


def _complaint_about_change(message: dict[str, Any], operation: Any) -> str | None:
    if operation not in OPERATIONS:
        return f"its headers have no operation of {', '.join(OPERATIONS)}"
    for name in ("type", "key"):
        if not isinstance(message.get(name), str) or not message[name]:
            return f"its {name!r} is not text, or is empty"
    if operation in WRITES and "value" not in message:
        return f"it has no 'value', which {operation} needs"
    return None
