"""Base class of profiles, and the generic profile. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from fourfold.errors import InvalidInput
from fourfold.models.streams.json_messages import deeper_than

STREAM_PROFILED_DEPTH_MAX: Final = 500
"""Nesting of a message in a stream whose profile parses it."""


class AdmittedMessages(NamedTuple):
    """The records to store for the messages of an append."""

    records: Sequence[bytes]
    keys: list[bytes | None] | None
    """Routing key of each record; None if the profile assigns none."""


@dataclass(frozen=True)
class GenericProfile:
    """The generic profile, and the base class of the others.

    Two profiles with equal settings are equal, and `read(profile.to_json())` equals `profile`.
    """

    kind: ClassVar[str] = "generic"
    needs_empty_stream: ClassVar[bool] = False
    """True if earlier records would break a guarantee of the profile."""
    needs_json: ClassVar[bool] = False

    @property
    def touch_enabled(self) -> bool:
        """True if changes of the stream can be waited for."""
        return False

    def to_json(self) -> dict[str, Any]:
        """Return the profile as JSON, including defaults."""
        return {"kind": self.kind}

    def admit(self, records: Sequence[bytes], now_ms: int) -> AdmittedMessages:
        """Return the records to store for the JSON messages of one append.

        Raises:
            InvalidInput: a message is invalid; then none of them is stored.
        """
        del now_ms
        return AdmittedMessages(records, None)


GENERIC: Final = GenericProfile()


def invalid_message(kind: str, number: int, complaint: str, *, hint: str) -> InvalidInput:
    """Return the error of one message of an append; the first is number 1."""
    return InvalidInput(
        f"message {number}: violates the profile {kind!r}: {complaint}",
        hint=hint,
        details={"message": number},
    )


def check_depth(kind: str, number: int, record: bytes) -> None:
    """Raise InvalidInput for a message that recursive decoders cannot read."""
    if deeper_than(STREAM_PROFILED_DEPTH_MAX, record):
        raise invalid_message(
            kind,
            number,
            f"it is nested deeper than {STREAM_PROFILED_DEPTH_MAX} levels",
            hint="Send messages with fewer nested objects and arrays.",
        )
