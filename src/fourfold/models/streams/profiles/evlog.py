"""The profile `evlog`: events of an application, with secrets redacted. Pure.

    {"kind": "evlog", "redact": ["iban"], "routingKey": ["requestId", "traceId"]}

An event is an object. It has a `timestamp`, which is added if missing, and an optional `level`; all
other fields belong to the application. Its routing key is the first of the fields in `routingKey`
that is text. Everything that is not secret is stored as received.

Secrets never reach the log: the values of secret names are replaced before the message is written.

Names are compared after unescaping, without case, - and _, so `api_key`, `Api-Key` and `APIKEY` are
equal. Values of any type are replaced, at any depth, and for duplicate names each of them; only
null stays, which means that there was none. A secret within a text is not detected: values are not
inspected.
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
    GenericProfile,
    check_depth,
    invalid_message,
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
"""Names that are secret in every event log, in the form of `plain_name`."""


def plain_name(name: str) -> str:
    """Return a name for comparison: lower case, without - and _."""
    return name.casefold().replace("-", "").replace("_", "")


class Secrets:
    """Names whose values are redacted: those above, and more."""

    def __init__(self, more: Iterable[str] = ()) -> None:
        self._names = ALWAYS_SECRET | {plain_name(name) for name in more}
        self._quoted = re.compile('"(?:' + "|".join(map(re.escape, sorted(self._names))) + ')"')
        # Start of an escape that can occur in one of the names: letters have only \u.
        by_sign = any(_ESCAPED_BY_SIGN & set(name) for name in self._names)
        self._escape = "\\" if by_sign else "\\u"

    def __contains__(self, name: str) -> bool:
        return plain_name(name) in self._names

    def redact(self, record: bytes) -> bytes:
        """Return the message with every secret replaced; the same bytes if there is none."""
        return (
            replace_values(record, self._is_secret, _REDACTED_JSON)
            if self._may_contain(record)
            else record
        )

    def _may_contain(self, record: bytes) -> bool:
        """Return True if the message may contain a secret; a fast test without false negatives."""
        text = record.decode()
        return self._escape in text or self._quoted.search(plain_name(text)) is not None

    def _is_secret(self, quoted: bytes) -> bool:
        return (_TEXT.decode(quoted) if b"\\" in quoted else quoted[1:-1].decode()) in self


TIMESTAMP: Final = "timestamp"
LEVEL: Final = "level"
LEVELS: Final = ("trace", "debug", "info", "warn", "error", "fatal")
ROUTING_KEY: Final = ("requestId", "traceId")
"""Default fields of the routing key."""

_Fields = dict[str, msgspec.Raw]
_FIELDS = msgspec.json.Decoder(_Fields)
_TEXT = msgspec.json.Decoder(str)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]"
    r"(?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9]):(?P<second>[0-5][0-9]|60)(?:\.[0-9]+)?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<hours>[01][0-9]|2[0-3]):(?P<minutes>[0-5][0-9]))"
)
_LAST_MINUTE_OF_A_DAY = 24 * 60 - 1


@dataclass(frozen=True)
class EventLog(GenericProfile):
    """The profile `evlog`; see the module."""

    kind: ClassVar[str] = "evlog"
    needs_empty_stream: ClassVar[bool] = True  # so that no secret was written before
    needs_json: ClassVar[bool] = True

    redact: tuple[str, ...] = ()
    routing_key: tuple[str, ...] = ROUTING_KEY

    @cached_property
    def secrets(self) -> Secrets:
        """The names whose values are redacted."""
        return Secrets(self.redact)

    def to_json(self) -> dict[str, Any]:
        """Return the profile as JSON, including defaults."""
        return {
            "kind": self.kind,
            "redact": list(self.redact),
            "routingKey": list(self.routing_key),
        }

    def admit(self, records: Sequence[bytes], now_ms: int) -> AdmittedMessages:
        """Return events with timestamps, secrets redacted, and routing keys."""
        timestamp = _format_timestamp(now_ms)
        written: list[bytes] = []
        keys: list[bytes | None] = []
        for number, record in enumerate(records, start=1):
            fields = self._fields(number, record)
            self._check_level(number, fields)
            event = self.secrets.redact(record)
            if not self._has_timestamp(number, fields):
                event = _with_first(TIMESTAMP, timestamp, event, alone=not fields)
            written.append(event)
            keys.append(self._key(fields))
        return AdmittedMessages(written, keys if self.routing_key else None)

    def _fields(self, number: int, record: bytes) -> _Fields:
        check_depth(self.kind, number, record)
        try:
            record.decode()
            return _FIELDS.decode(record)
        except msgspec.ValidationError:
            complaint = "it is not an object"
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            complaint = f"it is not JSON: {error}"
        raise invalid_message(
            self.kind, number, complaint, hint='Send an object: {"message": ...}.'
        )

    def _has_timestamp(self, number: int, fields: _Fields) -> bool:
        if TIMESTAMP not in fields:
            return False
        if not _is_timestamp(_text(fields, TIMESTAMP)):
            raise invalid_message(
                self.kind,
                number,
                f"its {TIMESTAMP} is not an RFC 3339 timestamp",
                hint="Write 2026-01-31T12:00:00.000Z, or omit it: then it is added.",
            )
        return True

    def _check_level(self, number: int, fields: _Fields) -> None:
        if LEVEL in fields and (_text(fields, LEVEL) or "").lower() not in LEVELS:
            raise invalid_message(
                self.kind,
                number,
                f"its {LEVEL} is unknown",
                hint=f"Use one of {', '.join(LEVELS)}, or omit it.",
            )

    def _key(self, fields: _Fields) -> bytes | None:
        for name in self.routing_key:
            key = (_text(fields, name) or "").encode()
            if 0 < len(key) <= limits.ROUTING_KEY_MAX:
                return key
        return None


def _text(fields: _Fields, name: str) -> str | None:
    """Return the text of a field, or None if it is missing or not text."""
    value = bytes(fields.get(name, b""))
    return _TEXT.decode(value) if value[:1] == b'"' else None


def _with_first(name: str, value: str, record: bytes, *, alone: bool) -> bytes:
    """Return an object with one more field before the others."""
    brace = record.index(b"{") + 1
    field = f'"{name}":"{value}"' + ("" if alone else ",")
    return record[:brace] + field.encode() + record[brace:]


def _format_timestamp(now_ms: int) -> str:
    timestamp = _EPOCH + timedelta(milliseconds=now_ms)
    return timestamp.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _is_timestamp(text: str | None) -> bool:
    match = _TIMESTAMP.fullmatch(text or "")
    if match is None:
        return False
    try:
        date.fromisoformat(match["date"])
    except ValueError:
        return False
    if match["second"] != "60":
        return True
    # A leap second is the last second of a day in UTC.
    minute = int(match["hour"]) * 60 + int(match["minute"])
    offset = int(match["hours"] or 0) * 60 + int(match["minutes"] or 0)
    utc_offset = -offset if match["sign"] == "-" else offset
    return (minute - utc_offset) % (24 * 60) == _LAST_MINUTE_OF_A_DAY
