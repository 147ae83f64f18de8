"""Headers of records: short texts by name, stored as JSON beside the payload. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from fourfold import limits
from fourfold.errors import InvalidInput

RECORD_HEADERS_MAX: Final = 64
"""Headers of one record."""
RECORD_HEADER_NAME_MAX: Final = 128
"""Characters of the name of a header."""
RECORD_HEADERS_BYTES_MAX: Final = 8 * limits.KIB
"""Bytes of the headers of one record, as JSON."""

_HINT = 'Pass texts by name, such as {"trace": "4bf92f35"}.'


def encode_headers(headers: Mapping[str, str] | None) -> bytes | None:
    """Return headers as they are stored: JSON, or None without headers.

    Raises:
        InvalidInput: A name or a value is not text, or there are too many.
    """
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        raise InvalidInput(
            f"headers must be texts by name, got {type(headers).__name__}", hint=_HINT
        )
    for name, value in headers.items():
        _check(name, value)
    if not headers:
        return None
    if len(headers) > RECORD_HEADERS_MAX:
        raise InvalidInput(f"a record has at most {RECORD_HEADERS_MAX} headers, got {len(headers)}")
    return check_encoded(
        json.dumps(dict(headers), ensure_ascii=False, separators=(",", ":")).encode()
    )


def check_encoded(headers: bytes) -> bytes:
    """Return encoded headers if they are not too large."""
    if type(headers) is not bytes or not 0 < len(headers) <= RECORD_HEADERS_BYTES_MAX:
        raise InvalidInput(
            f"the headers of a record have at most {RECORD_HEADERS_BYTES_MAX} bytes as JSON, got "
            f"{len(headers)}",
            hint="Put larger values into the record.",
        )
    return headers


def parse_headers(text: str | bytes) -> bytes | None:
    """Return the headers in a JSON text, as in a request or on the command line, as stored."""
    try:
        headers = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"headers must be JSON: {error}", hint=_HINT) from None
    if not isinstance(headers, dict):
        raise InvalidInput("headers must be a JSON object", hint=_HINT)
    return encode_headers(headers)


def decode_headers(headers: bytes | None) -> dict[str, str]:
    """Return stored headers by name."""
    decoded: dict[str, str] = {} if headers is None else json.loads(headers)
    return decoded


def _check(name: object, value: object) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= RECORD_HEADER_NAME_MAX:
        raise InvalidInput(
            f"the name of a header must be text of 1 to {RECORD_HEADER_NAME_MAX} characters, got "
            f"{name!r:.80}",
            hint=_HINT,
        )
    if not isinstance(value, str):
        raise InvalidInput(f"header {name!r}: value must be text, got {value!r:.80}", hint=_HINT)
    try:
        f"{name}{value}".encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"header {name!r:.80}: must not contain a lone surrogate") from None
