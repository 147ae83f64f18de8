"""The profile `evlog`: a stream of the events of an application, from which secrets stay out. Pure.

    {"kind": "evlog", "redact": ["iban"], "routingKey": ["requestId", "traceId"]}

An event is an object. It has a `timestamp`, which it gets when it comes without one, and perhaps a
`level`; everything else is the application's. Its routing key is the first of the fields named in
`routingKey` that it has as text. What is neither secret nor missing is written as it came.

Secrets do not get into the log: what stands under a name that says secret is replaced before
the message is written. Pure.

Names are compared without case, - and _, so `api_key`, `Api-Key` and `APIKEY` are one name, and
however they are escaped. What is replaced is the value, whatever it is, wherever the name stands
in the message, and each of them where a name is there twice; only null stays, which tells that
there was none. A secret inside of a text is not found: nothing here guesses at values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar, Final

import msgspec

from fourfold import limits
from fourfold.models.streams.json_messages import replace_values
from fourfold.models.streams.profiles.profile import (
    AdmittedMessages,
    Profile,
    refuse_too_deep,
    refused,
)

REDACTED: Final = "[REDACTED]"
_REDACTED_JSON = b'"' + REDACTED.encode() + b'"'
_ESCAPED_BY_SIGN = frozenset('"\\/')

ALWAYS_SECRET: Final = frozenset(
    {
        "accesskey",
        "accesstoken",
        "apikey",
        "apisecret",
        "apitoken",
        "authorization",
        "authtoken",
        "awssecretaccesskey",
        "bearertoken",
        "clientsecret",
        "cookie",
        "credential",
        "credentials",
        "csrftoken",
        "encryptionkey",
        "idtoken",
        "jwt",
        "passphrase",
        "passwd",
        "password",
        "privatekey",
        "proxyauthorization",
        "pwd",
        "refreshtoken",
        "secret",
        "secretaccesskey",
        "secretkey",
        "sessiontoken",
        "setcookie",
        "signingkey",
        "token",
        "xapikey",
        "xauthtoken",
        "xcsrftoken",
        "xsrftoken",
        "xxsrftoken",
    }
)
"""The names that are secret in every event log, as `plain_name` has them."""


def plain_name(name: str) -> str:
    """What two names are compared by."""
    return name.casefold().replace("-", "").replace("_", "")


class Secrets:
    """The names under which no value is written: those above, and some more."""

    def __init__(self, more: Iterable[str] = ()) -> None:
        self._names = ALWAYS_SECRET | {plain_name(name) for name in more}
        self._quoted = re.compile('"(?:' + "|".join(map(re.escape, sorted(self._names))) + ')"')
        # How an escape begins that can stand in one of the names: letters have none but \u.
        by_sign = any(_ESCAPED_BY_SIGN & set(name) for name in self._names)
        self._escape = "\\" if by_sign else "\\u"

    def __contains__(self, name: str) -> bool:
        return plain_name(name) in self._names

    def redacted(self, record: bytes) -> bytes:
        """The message with every secret replaced; the same bytes where there is none."""
        return replace_values(record, self._says, _REDACTED_JSON) if self._may(record) else record

    def _may(self, record: bytes) -> bool:
        """A quick look, which finds too much rather than too little."""
        text = record.decode()
        return self._escape in text or self._quoted.search(plain_name(text)) is not None

    def _says(self, quoted: bytes) -> bool:
        return (_TEXT.decode(quoted) if b"\\" in quoted else quoted[1:-1].decode()) in self


TIMESTAMP: Final = "timestamp"
LEVEL: Final = "level"
LEVELS: Final = ("trace", "debug", "info", "warn", "error", "fatal")
ROUTING_KEY: Final = ("requestId", "traceId")
"""The fields that an event is found by, if nothing else is said."""

_Fields = dict[str, msgspec.Raw]
_FIELDS = msgspec.json.Decoder(_Fields)
_TEXT = msgspec.json.Decoder(str)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]"
    r"(?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9]):(?P<second>[0-5][0-9]|60)(?:\.[0-9]+)?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<hours>[01][0-9]|2[0-3]):(?P<minutes>[0-5][0-9]))"
)
_LAST_MINUTE_OF_A_DAY = 24 * 60 - 1


@dataclass(frozen=True)
class EventLog(Profile):
    """See the module."""

    kind: ClassVar[str] = "evlog"
    needs_empty_stream: ClassVar[bool] = True  # so that no secret was written before
    needs_json: ClassVar[bool] = True

    redact: tuple[str, ...] = ()
    routing_key: tuple[str, ...] = ROUTING_KEY

    @cached_property
    def secrets(self) -> Secrets:
        return Secrets(self.redact)

    def plain(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "redact": list(self.redact),
            "routingKey": list(self.routing_key),
        }

    def take(self, records: Sequence[bytes], now_ms: int) -> AdmittedMessages:
        moment = _shown(now_ms)
        written: list[bytes] = []
        keys: list[bytes | None] = []
        for number, record in enumerate(records, start=1):
            fields = self._fields(number, record)
            self._check_level(number, fields)
            event = self.secrets.redacted(record)
            if not self._has_timestamp(number, fields):
                event = _with_first(TIMESTAMP, moment, event, alone=not fields)
            written.append(event)
            keys.append(self._key(fields))
        return AdmittedMessages(written, keys if self.routing_key else None)

    def _fields(self, number: int, record: bytes) -> _Fields:
        refuse_too_deep(self.kind, number, record)
        try:
            record.decode()
            return _FIELDS.decode(record)
        except msgspec.ValidationError:
            complaint = "it is not an object"
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            complaint = f"it is not JSON: {error}"
        raise refused(self.kind, number, complaint, hint='An event is an object: {"message": ...}.')

    def _has_timestamp(self, number: int, fields: _Fields) -> bool:
        if TIMESTAMP not in fields:
            return False
        if not _is_moment(_text(fields, TIMESTAMP)):
            raise refused(
                self.kind,
                number,
                f"its {TIMESTAMP} is not a moment of RFC 3339",
                hint="Write 2026-01-31T12:00:00.000Z, or leave it out: then it is added.",
            )
        return True

    def _check_level(self, number: int, fields: _Fields) -> None:
        if LEVEL in fields and (_text(fields, LEVEL) or "").lower() not in LEVELS:
            raise refused(
                self.kind,
                number,
                f"its {LEVEL} is none that there is",
                hint=f"Use one of {', '.join(LEVELS)}, or leave it out.",
            )

    def _key(self, fields: _Fields) -> bytes | None:
        for name in self.routing_key:
            key = (_text(fields, name) or "").encode()
            if 0 < len(key) <= limits.ROUTING_KEY_MAX:
                return key
        return None


def _text(fields: _Fields, name: str) -> str | None:
    """A field that is text; None when it is something else, or not there."""
    value = bytes(fields.get(name, b""))
    return _TEXT.decode(value) if value[:1] == b'"' else None


def _with_first(name: str, value: str, record: bytes, *, alone: bool) -> bytes:
    """An object with one more field in front of those that it has."""
    brace = record.index(b"{") + 1
    field = f'"{name}":"{value}"' + ("" if alone else ",")
    return record[:brace] + field.encode() + record[brace:]


def _shown(now_ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=now_ms)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _is_moment(text: str | None) -> bool:
    found = _MOMENT.fullmatch(text or "")
    if found is None:
        return False
    try:
        date.fromisoformat(found["date"])
    except ValueError:
        return False
    if found["second"] != "60":
        return True
    # A leap second is the last of a day, and a day ends where the offset from UTC is nothing.
    minute = int(found["hour"]) * 60 + int(found["minute"])
    offset = int(found["hours"] or 0) * 60 + int(found["minutes"] or 0)
    behind = -offset if found["sign"] == "-" else offset
    return (minute - behind) % (24 * 60) == _LAST_MINUTE_OF_A_DAY
