"""Payload references: they replace large payloads, which are stored by their content.

The type is its own, so a user's dict never passes for a reference, nor a reference for a dict. In
canonical bytes it is the tag `~ref`, which no key of a user's dict can spell (see `canonical`).
Elsewhere (command line, HTTP) it is printed as a plain dict, which becomes a reference again only
by calls of `from_dict`.

    session specification    PayloadRef    plain dict                    canonical bytes
    :fractal/ref :payload    the type      "ref": "payload"              ~ref
    :payload/id              id            "payload_id": "sha256:..."    id
    :payload/kind            kind          "payload_kind": "vars"        kind
    :payload/size            size          "payload_size": 1234          size
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from fourfold import limits
from fourfold.content.hashes import parse_content_id
from fourfold.errors import ContentError

PAYLOAD_KINDS: Final = frozenset({"message", "eval-result", "final", "vars", "code", "request"})
"""The kinds that the session specification names; others may be used if they are spelt alike."""

_KIND = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_DICT_KEYS = {"ref", "payload_id", "payload_kind", "payload_size"}


@dataclass(frozen=True, slots=True, order=True)
class PayloadRef:
    """The id of a payload's canonical bytes, what the payload is for, and how many bytes it has."""

    id: str
    kind: str
    size: int

    def __post_init__(self) -> None:
        parse_content_id(self.id)
        if type(self.id) is not str:
            raise ContentError("the id of a payload reference must be exactly a str")
        check_kind(self.kind)
        if type(self.size) is not int or not 0 <= self.size < 2**63:
            raise ContentError(
                "the size of a payload reference must be an int from 0 to 2**63 - 1",
                hint="Give the length of the payload's canonical bytes.",
            )

    def as_dict(self) -> dict[str, object]:
        """Return the reference as the command line and the HTTP server print it."""
        return {
            "ref": "payload",
            "payload_id": self.id,
            "payload_kind": self.kind,
            "payload_size": self.size,
        }

    @classmethod
    def from_dict(cls, value: object) -> PayloadRef:
        """Return the reference that `as_dict` printed; raise ContentError for others."""
        if not isinstance(value, dict) or value.keys() != _DICT_KEYS or value["ref"] != "payload":
            raise ContentError(
                f"not a printed payload reference: {type(value).__name__}",
                hint='It has the keys "ref" (which is "payload"), "payload_id", "payload_kind" and '
                '"payload_size", and no others.',
            )
        fields: dict[str, Any] = value
        return cls(fields["payload_id"], fields["payload_kind"], fields["payload_size"])


def check_kind(kind: object) -> None:
    """Refuse a kind that is not a lowercase name such as `eval-result`."""
    if (
        type(kind) is not str
        or len(kind) > limits.PAYLOAD_KIND_CHARS_MAX
        or not _KIND.fullmatch(kind)
    ):
        raise ContentError(
            f"not a payload kind: {repr(kind)[:100]}",
            hint="A kind is a lowercase name with single hyphens, such as `eval-result`, "
            f"of at most {limits.PAYLOAD_KIND_CHARS_MAX} characters.",
        )
