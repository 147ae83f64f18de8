"""Whether a JSON message is valid under a schema, and why not. Pure.

Schemas are of draft 2020-12 unless their `$schema` says otherwise. Formats are checked. Nothing is
fetched: a reference to elsewhere is refused with its schema. Regular expressions take linear time,
whatever the message is, so those that cannot (lookaround, backreferences) are refused too. Reasons
never quote the message: what is refused may be a secret, and reasons end up in logs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput, MissingDependency
from fourfold.models.streams.schemas import unfolded_size
from fourfold.models.streams.schemas.shape import Schema

_MASK = "the value"


def schema_library() -> Any:
    """The package jsonschema_rs, or an error that says how to get it."""
    try:
        import jsonschema_rs  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise MissingDependency(
            "schemas of streams need jsonschema-rs, which is not installed",
            hint="Install it: `pip install 'fourfold[schemas]'`.",
        ) from None
    return jsonschema_rs


def strictness() -> dict[str, Any]:
    """How schemas are read, for validation and for proofs alike: a proof under other rules than
    those that messages are held against would be worth nothing.
    """
    patterns = schema_library().RegexOptions(
        size_limit=limits.SCHEMA_PATTERN_BYTES,
        dfa_size_limit=limits.SCHEMA_PATTERN_STATES_BYTES,
    )
    return {"validate_formats": True, "pattern_options": patterns, "offline": True}


class Validator:
    """A schema that messages are held against."""

    __slots__ = ("_compiled", "_size")

    def __init__(self, library_validator: Any, size: unfolded_size.Size) -> None:
        self._compiled = library_validator
        self._size = size

    @property
    def draft(self) -> str:
        """Which draft the schema is of."""
        return type(self._compiled).__name__.removesuffix("Validator")

    def problem(self, message: bytes) -> str | None:
        """Why a message is not valid: where, as a JSON pointer, and what is wrong there. None when
        it is valid.
        """
        try:
            value = msgspec.json.decode(message)
        except RecursionError:
            return _TOO_DEEP
        except (msgspec.MsgspecError, ValueError) as error:
            return f"it cannot be read as JSON: {error}"
        if _is_deeper(message, value, limits.SCHEMA_MESSAGE_DEPTH_MAX):
            return _TOO_DEEP
        if self._is_too_much(message):
            return _TOO_MUCH
        return None if self._compiled.is_valid(value) else self._reason(message, value)

    def _reason(self, message: bytes, value: Any) -> str:
        # The library looks for the reason on every way through a schema that refers to itself.
        ways = self._size.ways_round
        if ways and _is_deeper(message, value, limits.SCHEMA_REASON_WAYS // ways):
            return _NO_REASON
        try:
            self._compiled.validate(value)
        except schema_library().ValidationError as error:
            return _shortened(f"{_place(error.instance_path)}: {error.message}")
        return _NO_REASON

    def _is_too_much(self, message: bytes) -> bool:
        """Return whether to hold a message against the schema may take too long."""
        most = limits.SCHEMA_CHECKS_MAX // self._size.in_place
        if len(message) <= most:
            return False
        return sum(map(message.count, (b",", b"[", b"{"))) >= most


def compiled(schema: Schema) -> Validator:
    """A schema made ready; InvalidInput when it is none, or one that is not taken here. The same
    schema is made ready once.
    """
    try:
        written = msgspec.json.encode(schema)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"the schema is not JSON: {error}") from None
    return _compiled(written)


@lru_cache(maxsize=limits.SCHEMAS_COMPILED_MAX)
def _compiled(written: bytes) -> Validator:
    try:
        schema = msgspec.json.decode(written)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the schema is not JSON: {error}") from None
    if not isinstance(schema, dict | bool):
        raise InvalidInput("a schema is a JSON object, or true or false")
    size = unfolded_size.measure(schema)
    unfolded_size.check(size)
    library = schema_library()
    try:
        return Validator(library.validator_for(schema, mask=_MASK, **strictness()), size)
    except library.ValidationError as error:
        raise _refusal(error) from None
    except ValueError as error:  # nested too deeply
        raise InvalidInput(f"the schema cannot be read: {error}") from None


def _refusal(error: Any) -> InvalidInput:
    message = error.message
    if error.kind.name == "pattern" or '"regex"' in message:
        return InvalidInput(
            _shortened(f"the schema has a regular expression that is not taken: {message}"),
            hint="Write it without lookaround and backreferences, and with small repetitions.",
        )
    if "Retrieval is disabled" in message:
        return InvalidInput(
            _shortened(f"the schema refers to another one: {message.partition(' is not')[0]}"),
            hint="Put that schema into $defs; nothing is fetched.",
        )
    place = _pointer(error.instance_path)
    return InvalidInput(
        _shortened("the schema is not valid" + (f" at {place!r}" if place else "") + f": {message}")
    )


_TOO_MUCH = "it has too many values for a schema with so many parts for each of them"
_NO_REASON = "it is not valid; where is not searched for in a schema that refers to itself so often"
_TOO_DEEP = f"it is nested more than {limits.SCHEMA_MESSAGE_DEPTH_MAX} deep"


def _is_deeper(message: bytes, value: Any, most: int) -> bool:
    """Return whether arrays and objects of a message lie more than `most` deep in each other."""
    if message.count(b"[") + message.count(b"{") <= most:
        return False  # as nearly always, and quickly seen
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(most):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _pointer(path: list[str | int]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def _place(path: list[str | int]) -> str:
    return f"at {_pointer(path)!r}" if path else "at its top"


def _shortened(text: str) -> str:
    most = limits.SCHEMA_REASON_CHARS
    return text if len(text) <= most else text[: most - 3] + "..."
