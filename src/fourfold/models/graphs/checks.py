"""What is asked of every value before it is written. An error names the field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.graphs.records import KINDS, Kind

_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def integer(value: Any, name: str, *, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= limits.INTEGER_MAX:
        raise InvalidInput(f"{name} must be an integer from {least} to 2**63 - 1, not {value!r}")
    return value


def text(value: Any, name: str, *, most: int = limits.GRAPH_NAME_MAX) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise InvalidInput(f"{name} must be text of 1 to {most} characters, not {shown(value)}")
    return value if value.isascii() else stored_text(value, name)


def stored_text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{name} must be text, not {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{name} holds half a surrogate pair, which is no text") from None
    return value


def moment(value: Any, name: str) -> str:
    """An ISO 8601 time with its zone."""
    try:
        parsed = datetime.fromisoformat(stored_text(value, name))
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None:
        raise InvalidInput(
            f"{name} must be an ISO 8601 time with a zone, not {shown(value)}",
            hint="For example 2026-01-31T12:00:00+00:00.",
        )
    return str(value)


def json_text(value: Any, name: str) -> str:
    """Text that is JSON, as it stands."""
    try:
        json.loads(stored_text(value, name), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} is not JSON: {error}") from None
    return str(value)


def number(value: Any, name: str) -> float:
    if type(value) not in {int, float} or value != value or abs(value) == float("inf"):  # noqa: PLR0124
        raise InvalidInput(f"{name} must be a finite number, not {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise InvalidInput(f"{name} is too large for a number") from None


def blob(value: Any, name: str) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidInput(f"{name} must be bytes, not {shown(value)}")
    return bytes(value)


def kind(value: Any) -> Kind:
    for known in KINDS:
        if value == known:
            return known
    raise InvalidInput(
        f"{shown(value)} is not a kind of object", hint=f"One of: {', '.join(KINDS)}."
    )


def slug(value: Any) -> str:
    if not isinstance(value, str) or not _SLUG.fullmatch(value):
        raise InvalidInput(
            f"{shown(value)} cannot be the slug of an app",
            hint="Use 1 to 64 lower-case letters, digits, '_' and '-'; begin with no sign.",
        )
    return value


def fields(row: Any, name: str, known: frozenset[str]) -> Mapping[str, Any]:
    """A mapping with no field that is unknown, so that a slip of the pen is not lost."""
    if type(row) is dict and known.issuperset(row):
        return row
    if not isinstance(row, Mapping):
        raise InvalidInput(f"a row of {name} must be a mapping, not {shown(row)}")
    unknown = [str(field) for field in row if field not in known]
    if unknown:
        raise InvalidInput(
            f"a row of {name} has no {', '.join(sorted(unknown))}",
            hint=f"It may have: {', '.join(sorted(known))}.",
        )
    return row


def shown(value: Any) -> str:
    """A value in an error: enough to recognise it."""
    return repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:77]}..."


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def as_json(value: Any, name: str) -> str:
    """A value as JSON text, which must give the same value back."""
    try:
        written = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} cannot be written as JSON: {error}") from None
    return stored_text(written, name)


def ids(given: Any, name: str) -> str:
    """Several ids, as the JSON list that a statement takes."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidInput(f"{name} must be several ids, not {shown(given)}")
    return json.dumps([integer(each, name, least=1) for each in given])
