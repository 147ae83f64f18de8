"""Validation of JSON messages by a schema. Pure.

Schemas are of draft 2020-12 unless `$schema` states another. Formats are checked. Nothing is
fetched: a schema with external references is rejected. Regular expressions must run in linear time,
so lookaround and backreferences are rejected too. Reasons never quote the message: it may contain a
secret, and reasons are logged.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput, MissingDependency
from fourfold.models.streams.schemas import unfolded_size
from fourfold.models.streams.schemas.shape import Schema

SCHEMA_MESSAGE_DEPTH_MAX: Final = 200
"""Nesting of a message that every JSON library can read, with room on the stack."""
SCHEMA_PATTERN_BYTES: Final = 1 * limits.MIB
SCHEMA_PATTERN_STATES_BYTES: Final = 2 * limits.MIB
"""Memory of a compiled regular expression of a schema, and of its states while it runs."""
SCHEMA_CHECKS_MAX: Final = 10_000_000
"""Values of an append times schemas that apply to each of them: 0.2 to 2 s."""
SCHEMA_INLINE_PARTS: Final = 200
"""Subschemas of a schema that may be compiled in a transaction, which takes milliseconds."""
SCHEMA_REASON_WAYS: Final = 8
"""Depth of a message times recursions of its schema, up to which the reason for a failure
is searched: the search doubles with each of them.
"""
SCHEMAS_COMPILED_MAX: Final = 256
"""Compiled schemas that are cached."""

_MASK = "the value"


def schema_library() -> Any:
    """Return the package jsonschema_rs, or raise MissingDependency."""
    try:
        import jsonschema_rs  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise MissingDependency(
            "schemas of streams require jsonschema-rs, which is not installed",
            hint="Install it: `pip install 'fourfold[schemas]'`.",
        ) from None
    return jsonschema_rs


def strictness() -> dict[str, Any]:
    """Return the options for reading schemas, shared by validation and proofs.

    A proof with other options than those of validation would be worthless.
    """
    patterns = schema_library().RegexOptions(
        size_limit=SCHEMA_PATTERN_BYTES,
        dfa_size_limit=SCHEMA_PATTERN_STATES_BYTES,
    )
    return {"validate_formats": True, "pattern_options": patterns, "offline": True}


class Validator:
    """A compiled schema that validates messages."""

    __slots__ = ("_compiled", "_size")

    def __init__(self, library_validator: Any, size: unfolded_size.Size) -> None:
        self._compiled = library_validator
        self._size = size

    @property
    def draft(self) -> str:
        """The draft of the schema."""
        return type(self._compiled).__name__.removesuffix("Validator")

    @property
    def cost(self) -> int:
        """Checks per byte of a message, at most.

        A schema that takes long to compile counts as expensive for any message.
        """
        if self._size.parts > SCHEMA_INLINE_PARTS:
            return limits.SCHEMA_INLINE_CHECKS + 1
        return self._size.in_place

    def is_too_much(self, messages: Sequence[bytes]) -> bool:
        """Return True if validating the messages of one append may take too long."""
        values_max = SCHEMA_CHECKS_MAX // self._size.in_place
        if sum(map(len, messages)) <= values_max:
            return False
        marks = (b",", b"[", b"{")
        values = sum(message.count(mark) for message in messages for mark in marks)
        return values + len(messages) > values_max

    def problem(self, message: bytes) -> str | None:
        """Return why a message is invalid, with a JSON pointer, or None if it is valid."""
        try:
            value = msgspec.json.decode(message)
        except RecursionError:
            return _TOO_DEEP
        except (msgspec.MsgspecError, ValueError) as error:
            return f"it cannot be read as JSON: {error}"
        if _is_deeper(message, value, SCHEMA_MESSAGE_DEPTH_MAX):
            return _TOO_DEEP
        return None if self._compiled.is_valid(value) else self._reason(message, value)

    def _reason(self, message: bytes, value: Any) -> str:
        # The library searches for the reason on every path through a recursive schema.
        cycles = self._size.cycles
        if cycles and _is_deeper(message, value, SCHEMA_REASON_WAYS // cycles):
            return _NO_REASON
        try:
            self._compiled.validate(value)
        except schema_library().ValidationError as error:
            return _shortened(f"{_place(error.instance_path)}: {error.message}")
        return _NO_REASON


def compiled(schema: Schema) -> Validator:
    """Compile a schema, or raise InvalidInput; compiled schemas are cached."""
    try:
        written = msgspec.json.encode(schema)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"the schema is not JSON: {error}") from None
    return _compiled(written)


@lru_cache(maxsize=SCHEMAS_COMPILED_MAX)
def _compiled(written: bytes) -> Validator:
    try:
        schema = msgspec.json.decode(written)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the schema is not JSON: {error}") from None
    if not isinstance(schema, dict | bool):
        raise InvalidInput("a schema must be a JSON object, true or false")
    size = unfolded_size.measure(schema)
    unfolded_size.check(size)
    library = schema_library()
    try:
        return Validator(library.validator_for(schema, mask=_MASK, **strictness()), size)
    except library.ValidationError as error:
        raise _invalid_schema(error) from None
    except ValueError as error:  # nested too deeply
        raise InvalidInput(f"the schema cannot be read: {error}") from None


def _invalid_schema(error: Any) -> InvalidInput:
    message = error.message
    if error.kind.name == "pattern" or '"regex"' in message:
        return InvalidInput(
            _shortened(f"the schema has an unsupported regular expression: {message}"),
            hint="Write it without lookaround and backreferences, and with small repetitions.",
        )
    if "Retrieval is disabled" in message:
        return InvalidInput(
            _shortened(f"the schema refers to another one: {message.partition(' is not')[0]}"),
            hint="Move that schema to $defs; nothing is fetched.",
        )
    place = _pointer(error.instance_path)
    return InvalidInput(
        _shortened("the schema is not valid" + (f" at {place!r}" if place else "") + f": {message}")
    )


_NO_REASON = "it is not valid; the place is not searched in a schema with so many recursions"
_TOO_DEEP = f"it is nested more than {SCHEMA_MESSAGE_DEPTH_MAX} deep"


def _is_deeper(message: bytes, value: Any, depth_max: int) -> bool:
    """Return True if a message is nested more than `depth_max` deep."""
    if message.count(b"[") + message.count(b"{") <= depth_max:
        return False  # the common case
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(depth_max):
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
    chars_max = limits.SCHEMA_REASON_CHARS
    return text if len(text) <= chars_max else text[: chars_max - 3] + "..."
