"""What every profile can be asked, and the one that asks for nothing. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.streams.json_messages import deeper_than


class AdmittedMessages(NamedTuple):
    """What is written for the messages of an append."""

    records: Sequence[bytes]
    keys: list[bytes | None] | None
    """The routing key of each record; None where the profile gives none to any."""


@dataclass(frozen=True)
class Profile:
    """A stream that is no more than that. The others are made from it.

    Two profiles are equal when they do the same for the same reasons, and `read(plain())` is equal
    to what it came from.
    """

    kind: ClassVar[str] = "generic"
    needs_empty_stream: ClassVar[bool] = False
    """Whether what was written before would break what the profile promises."""
    needs_json: ClassVar[bool] = False

    @property
    def touch_enabled(self) -> bool:
        """Whether somebody can wait for a change of one entity."""
        return False

    def plain(self) -> dict[str, Any]:
        """The profile as JSON, with everything that was not said written out."""
        return {"kind": self.kind}

    def take(self, records: Sequence[bytes], now_ms: int) -> AdmittedMessages:
        """What is written for the messages of one append, each of which is JSON. InvalidInput when
        one of them does not fit: then none of them is written.
        """
        del now_ms
        return AdmittedMessages(records, None)


GENERIC: Final = Profile()


def refused(kind: str, number: int, complaint: str, *, hint: str) -> InvalidInput:
    """The error for one message of an append; the first of them is number 1."""
    return InvalidInput(
        f"message {number} of the append does not fit the profile {kind!r}: {complaint}",
        hint=hint,
        details={"message": number},
    )


def refuse_too_deep(kind: str, number: int, record: bytes) -> None:
    """What is written can be read again, also by those who read it recursively."""
    if deeper_than(limits.STREAM_PROFILED_DEPTH_MAX, record):
        raise refused(
            kind,
            number,
            f"it is nested deeper than {limits.STREAM_PROFILED_DEPTH_MAX} levels",
            hint="Send it with fewer objects and arrays inside each other.",
        )
