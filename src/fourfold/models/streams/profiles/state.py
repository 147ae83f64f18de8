"""The profile `state-protocol`: every message is a change of one row of one entity. Pure.

    {"type": "user", "key": "17", "value": {...}, "headers": {"operation": "update"}}

The operation is insert, update, upsert or delete; all but a delete have a value, and `old_value`
may contain the value before. Besides changes there are messages about the stream itself,
`{"headers": {"control": "snapshot-start"}}`. Messages are stored as received.

Every accepted message is accepted by the fold (`models/streams/fold.py`) too. So a message is
decoded as a whole, as the fold does: with one number that is too large, the state of the stream
could never be read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec

from fourfold.models.streams.profiles.profile import (
    AdmittedMessages,
    GenericProfile,
    check_depth,
    invalid_message,
)

WRITES: Final = ("insert", "update", "upsert")
OPERATIONS: Final = (*WRITES, "delete")
_HINT = (
    'Send a change, {"type": "user", "key": "17", "value": ..., '
    '"headers": {"operation": "insert"}}, '
    f"where the operation is one of {', '.join(OPERATIONS)}; "
    'or a message about the stream, {"headers": {"control": "reset"}}.'
)
_MESSAGE = msgspec.json.Decoder()


@dataclass(frozen=True)
class StateProtocol(GenericProfile):
    """The profile `state-protocol`; see the module."""

    kind: ClassVar[str] = "state-protocol"
    needs_json: ClassVar[bool] = True

    touch: bool = False

    @property
    def touch_enabled(self) -> bool:
        """True if changes of the stream can be waited for."""
        return self.touch

    def to_json(self) -> dict[str, Any]:
        """Return the profile as JSON, including defaults."""
        return {"kind": self.kind, "touch": {"enabled": self.touch}}

    def admit(self, records: Sequence[bytes], now_ms: int) -> AdmittedMessages:
        """Return the messages unchanged if all of them are changes or controls."""
        del now_ms
        for number, record in enumerate(records, start=1):
            check_depth(self.kind, number, record)
            try:
                complaint = _complaint(_MESSAGE.decode(record))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                complaint = f"it cannot be decoded: {error}"
            if complaint is not None:
                raise invalid_message(self.kind, number, complaint, hint=_HINT)
        return AdmittedMessages(records, None)


def _complaint(message: Any) -> str | None:
    """Return what is wrong with a message, or None if it is a change or a control."""
    if not isinstance(message, dict):
        return "it is not an object"
    headers = message.get("headers")
    if not isinstance(headers, dict):
        return "it has no 'headers' object"
    if "control" in headers:
        if "operation" in headers:
            # Readers could interpret it as either.
            return "its headers have both an operation and a control"
        return None if isinstance(headers["control"], str) else "its 'control' is not text"
    return _complaint_about_change(message, headers.get("operation"))


def _complaint_about_change(message: dict[str, Any], operation: Any) -> str | None:
    if operation not in OPERATIONS:
        return f"its operation is not one of {', '.join(OPERATIONS)}"
    for name in ("type", "key"):
        if not isinstance(message.get(name), str) or not message[name]:
            return f"its {name!r} is not text, or is empty"
    if operation in WRITES and "value" not in message:
        return f"it has no 'value', which {operation} needs"
    return None
