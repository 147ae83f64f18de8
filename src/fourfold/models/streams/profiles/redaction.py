"""Secrets do not get into the log: what stands under a name that says secret is replaced before
the message is written. Pure.

Names are compared without case, - and _, so `api_key`, `Api-Key` and `APIKEY` are one name, and
however they are escaped. What is replaced is the value, whatever it is, wherever the name stands
in the message, and each of them where a name is there twice; only null stays, which tells that
there was none. A secret inside of a text is not found: nothing here guesses at values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from fourfold.models.streams.profiles.json_bytes import replace_values

REDACTED: Final = "[REDACTED]"
_REDACTED_JSON = b'"' + REDACTED.encode() + b'"'
_TEXT = msgspec.json.Decoder(str)
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
