"""The filter grammar: conditions on JSON values, the same in Python, HTTP and the command line.

    where = {"status": "open", "/customer/age": {"$gte": 18}, "/tags": {"$any": "urgent"}}
    parse_filter(where).matches(document)

A filter is a JSON object whose members must all hold. A key that begins with `/` is a JSON Pointer,
any other key the name of a field; its value is compared for equality, or is an object of operators:

    $eq $ne                 equal or not, as JSON: 1 equals 1.0, true does not equal 1
    $gt $gte $lt $lte       order of two numbers, two strings (by code points) or two booleans
    $in                     equal to one of a list
    $prefix $contains       begin or part of a string, case-sensitive
    $text                   words of a string, as in `fourfold.content.text`
    $exists                 true: there is a value, even null; false: there is none
    $type                   null, boolean, number, string, array or object
    $any                    an array with an item that matches: operators, a filter, or a value
    $not                    operators that must not hold

`$and` and `$or` combine a list of filters, `$not` inverts one. Values of different types are never
in order and never equal, and an array never matches by its items without `$any`. A condition on a
missing value does not hold, so `$ne` and `$not` hold there.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

from fourfold.content.json_pointer import (
    ABSENT,
    Path,
    Unfit,
    lookup,
    measure,
    parse_pointer,
    show_pointer,
)
from fourfold.content.text import TextQuery, parse_text_query
from fourfold.errors import InvalidInput

FILTER_DEPTH_MAX: Final = 8
"""Nesting of conditions."""
FILTER_CONDITIONS_MAX: Final = 100
"""Conditions of one filter."""
FILTER_VALUES_MAX: Final = 1_000
"""Values of one `$in`."""
FILTER_CHARS_MAX: Final = 65_536
"""Length of a filter as JSON."""

TYPES: Final = ("null", "boolean", "number", "string", "array", "object")
_TYPE_OF: Final[dict[type, str]] = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_OPERANDS: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "$eq": ("a value", lambda _operand: True),
    "$ne": ("a value", lambda _operand: True),
    **dict.fromkeys(
        _ORDER,
        (
            "a number, a string or a boolean",
            lambda operand: _TYPE_OF[type(operand)] in {"number", "string", "boolean"},
        ),
    ),
    "$in": (
        f"a list of at most {FILTER_VALUES_MAX} values",
        lambda operand: type(operand) is list and len(operand) <= FILTER_VALUES_MAX,
    ),
    "$prefix": ("a string", lambda operand: type(operand) is str),
    "$contains": ("a string", lambda operand: type(operand) is str),
    "$text": ("a string", lambda operand: type(operand) is str),
    "$exists": ("true or false", lambda operand: type(operand) is bool),
    "$type": (
        f"one of {', '.join(TYPES)}",
        lambda operand: type(operand) is str and operand in TYPES,
    ),
}
_HINT = (
    "A filter is a JSON object such as "
    '{"status": "open", "/customer/age": {"$gte": 18}, "/tags": {"$any": "urgent"}}.'
)


@dataclass(frozen=True, slots=True)
class And:
    """Every part holds; without parts, always."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of the parts holds; without parts, never."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: Condition


@dataclass(frozen=True, slots=True)
class Comparison:
    """`$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`, `$prefix` or `$contains` with a value."""

    path: Path
    operator: str
    value: Any


@dataclass(frozen=True, slots=True)
class Membership:
    """`$in`: equal to one of the values."""

    path: Path
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Exists:
    """`$exists`: there is a value, or there is none."""

    path: Path
    expected: bool


@dataclass(frozen=True, slots=True)
class HasType:
    """`$type`: the JSON type of the value."""

    path: Path
    type: str


@dataclass(frozen=True, slots=True)
class AnyItem:
    """`$any`: an item of the array satisfies `part`, whose paths begin at the item."""

    path: Path
    part: Condition


@dataclass(frozen=True, slots=True)
class TextMatch:
    """`$text`: the string contains the words of a query."""

    path: Path
    query: TextQuery


Condition: TypeAlias = (
    And | Or | Not | Comparison | Membership | Exists | HasType | AnyItem | TextMatch
)
Predicate: TypeAlias = Callable[[Any], bool]


class Filter:
    """A parsed filter. `root` is its condition, for a planner; `matches` evaluates it.

    Equal filters are equal objects, and a filter can be pickled.
    """

    def __init__(self, text: str, root: Condition) -> None:
        self._text = text
        self.root = root

    @property
    def where(self) -> dict[str, Any]:
        """The filter as JSON values."""
        where: dict[str, Any] = json.loads(self._text)
        return where

    @cached_property
    def matches(self) -> Predicate:
        """Evaluate the filter: a function that returns True for a value that matches."""
        return compile_condition(self.root)

    def conjuncts(self) -> tuple[Condition, ...]:
        """Return conditions that must all hold: an index may serve one, and `matches` the rest."""
        return self.root.parts if isinstance(self.root, And) else (self.root,)

    def __bool__(self) -> bool:
        return self.root != And(())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[object, ...]:
        return (parse_filter, (self.where,))

    def __repr__(self) -> str:
        return f"<Filter {self._text}>"


def parse_filter(where: object) -> Filter:
    """Return a parsed filter; None and `{}` match everything.

    Raises:
        InvalidInput: It is not a filter, or too large; the message names the key or operator.
    """
    if isinstance(where, Filter):
        return where
    where = {} if where is None else where
    if not isinstance(where, Mapping):
        raise InvalidInput(f"a filter must be an object, got {type(where).__name__}", hint=_HINT)
    try:
        measure(dict(where))
    except Unfit as unfit:
        raise InvalidInput(f"not a filter: {unfit}", hint=_HINT) from None
    text = json.dumps(dict(where), ensure_ascii=False, separators=(",", ":"))
    if len(text) > FILTER_CHARS_MAX:
        raise InvalidInput(
            f"a filter has at most {FILTER_CHARS_MAX} characters as JSON, got {len(text)}"
        )
    # The conditions are those of a copy: the caller may change what it passed.
    return Filter(text, _FilterParser().parse(json.loads(text), 1))


def decode_filter(text: str | bytes) -> Filter:
    """Return the filter in a JSON text, as in a URL or on the command line."""
    try:
        where = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"a filter must be JSON: {error}", hint=_HINT) from None
    if not isinstance(where, dict):
        raise InvalidInput(f"a filter must be an object, got {_TYPE_OF[type(where)]}", hint=_HINT)
    return parse_filter(where)


def equal(left: Any, right: Any) -> bool:
    """Return True if two values are equal as JSON: 1 equals 1.0, and true does not equal 1."""
    kind = _TYPE_OF.get(type(left))
    if kind != _TYPE_OF.get(type(right)) or kind is None:
        return False
    if kind == "array":
        return len(left) == len(right) and all(map(equal, left, right))
    if kind == "object":
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    return bool(left == right)


def iter_conditions(condition: Condition) -> Iterator[Condition]:
    """Yield a condition and all conditions in it."""
    yield condition
    if isinstance(condition, And | Or):
        for part in condition.parts:
            yield from iter_conditions(part)
    elif isinstance(condition, Not | AnyItem):
        yield from iter_conditions(condition.part)


class _FilterParser:
    """Counts the conditions of one filter while it parses them."""

    def __init__(self) -> None:
        self._conditions = 0

    def parse(self, where: Mapping[str, Any], depth: int) -> Condition:
        """Return the condition of a filter object."""
        if depth > FILTER_DEPTH_MAX:
            raise InvalidInput(f"a filter has at most {FILTER_DEPTH_MAX} levels", hint=_HINT)
        parts: list[Condition] = []
        for key, value in where.items():
            if key.startswith("$"):
                parts.append(self._combination(key, value, depth))
            else:
                path = parse_pointer(key) if key.startswith("/") else (key,)
                parts += self._conditions_on(path, value, depth)
        return _all(parts)

    def _combination(self, key: str, value: Any, depth: int) -> Condition:
        self._count()
        if key == "$not":
            return Not(self.parse(_object(key, value), depth + 1))
        if key not in {"$and", "$or"}:
            raise InvalidInput(
                f"unknown combination {key!r:.40}",
                hint="Use $and, $or or $not, or operators inside a field: " + _HINT,
            )
        if type(value) is not list:
            raise InvalidInput(f"{key} must be a list of filters, got {_type(value)}", hint=_HINT)
        parts = [self.parse(_object(key, part), depth + 1) for part in value]
        return _all(parts) if key == "$and" else Or(tuple(parts))

    def _conditions_on(self, path: Path, value: Any, depth: int) -> list[Condition]:
        if not _has_operators(path, value):
            return [self._equality(path, value)]
        return [self._operation(path, name, operand, depth) for name, operand in value.items()]

    def _equality(self, path: Path, value: Any) -> Condition:
        self._count()
        return Comparison(path, "$eq", value)

    def _operation(self, path: Path, name: str, operand: Any, depth: int) -> Condition:
        if depth > FILTER_DEPTH_MAX:
            raise InvalidInput(f"a filter has at most {FILTER_DEPTH_MAX} levels", hint=_HINT)
        self._count()
        if name == "$any":
            return AnyItem(path, self._item(path, operand, depth + 1))
        if name != "$not":
            return _leaf(path, name, operand)
        if not _has_operators(path, operand):
            raise InvalidInput(f"{show_pointer(path)}: $not must be an object of operators")
        return Not(_all(self._conditions_on(path, operand, depth + 1)))

    def _item(self, path: Path, operand: Any, depth: int) -> Condition:
        if not isinstance(operand, Mapping):
            return self._equality((), operand)
        if operand and not any(key in {"$and", "$or"} for key in operand):
            names = [key.startswith("$") for key in operand]
            if all(names):
                return _all(self._conditions_on((), operand, depth))
            if any(names):
                raise _mixed(path)
        return self.parse(operand, depth)

    def _count(self) -> None:
        self._conditions += 1
        if self._conditions > FILTER_CONDITIONS_MAX:
            raise InvalidInput(
                f"a filter has at most {FILTER_CONDITIONS_MAX} conditions", hint=_HINT
            )


def _all(parts: list[Condition]) -> Condition:
    flat: list[Condition] = []
    for part in parts:
        flat += part.parts if isinstance(part, And) else (part,)
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def _object(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{key} must contain filters, got {_type(value)}", hint=_HINT)
    return value


def _has_operators(path: Path, value: Any) -> bool:
    if not isinstance(value, Mapping) or not value:
        return False
    names = [key.startswith("$") for key in value]
    if any(names) and not all(names):
        raise _mixed(path)
    return all(names)


def _mixed(path: Path) -> InvalidInput:
    return InvalidInput(
        f"{show_pointer(path)}: operators and fields are mixed in one object",
        hint='To compare with an object whose keys begin with $, use {"$eq": {...}}.',
    )


def _leaf(path: Path, name: str, operand: Any) -> Condition:
    """Return the condition of an operator that contains no other conditions."""
    if name not in _OPERANDS:
        raise InvalidInput(
            f"{show_pointer(path)}: unknown operator {name!r:.40}",
            hint=f"Operators: {' '.join(_OPERANDS)} $any $not.",
        )
    expected, fits = _OPERANDS[name]
    if not fits(operand):
        raise InvalidInput(
            f"{show_pointer(path)}: {name} must be {expected}, got {operand!r:.80}", hint=_HINT
        )
    if name == "$in":
        return Membership(path, tuple(operand))
    if name == "$exists":
        return Exists(path, operand)
    if name == "$type":
        return HasType(path, operand)
    if name == "$text":
        return TextMatch(path, parse_text_query(operand))
    return Comparison(path, name, operand)


def _type(value: Any) -> str:
    return _TYPE_OF.get(type(value), type(value).__name__)


# Evaluation


def compile_condition(condition: Condition) -> Predicate:  # noqa: PLR0911 - one line for each class
    """Return a function that evaluates a condition on a JSON value."""
    if isinstance(condition, And):
        return _conjunction([compile_condition(part) for part in condition.parts])
    if isinstance(condition, Or):
        return _disjunction([compile_condition(part) for part in condition.parts])
    if isinstance(condition, Not):
        inverted = compile_condition(condition.part)
        return lambda value: not inverted(value)
    if isinstance(condition, Comparison):
        return _at(condition.path, _comparison(condition.operator, condition.value))
    if isinstance(condition, Membership):
        return _at(condition.path, _membership(condition.values))
    if isinstance(condition, Exists):
        expected = condition.expected
        path = condition.path
        return lambda value: (lookup(value, path) is not ABSENT) is expected
    if isinstance(condition, HasType):
        name = condition.type
        return _at(condition.path, lambda value: _TYPE_OF.get(type(value)) == name)
    if isinstance(condition, AnyItem):
        part = compile_condition(condition.part)
        return _at(condition.path, lambda value: type(value) is list and any(map(part, value)))
    query = condition.query
    return _at(condition.path, lambda value: type(value) is str and query.matches(value))


def _conjunction(parts: list[Predicate]) -> Predicate:
    if not parts:
        return lambda _value: True
    if len(parts) == 1:
        return parts[0]

    def every(value: Any) -> bool:
        for part in parts:  # noqa: SIM110 - a generator takes twice as long
            if not part(value):
                return False
        return True

    return every


def _disjunction(parts: list[Predicate]) -> Predicate:
    def some(value: Any) -> bool:
        for part in parts:  # noqa: SIM110 - a generator takes twice as long
            if part(value):
                return True
        return False

    return some


def _at(path: Path, predicate: Predicate) -> Predicate:
    """Return a predicate on the value at a path; predicates are False for ABSENT, except `$ne`."""
    if not path:
        return predicate
    if len(path) == 1:
        (name,) = path

        def on_field(value: Any) -> bool:
            if type(value) is dict:
                return predicate(value.get(name, ABSENT))
            return predicate(lookup(value, path))

        return on_field
    return lambda value: predicate(lookup(value, path))


def _comparison(name: str, operand: Any) -> Predicate:
    if name == "$ne":
        equals = _equality(operand)
        return lambda value: not equals(value)
    if name == "$eq":
        return _equality(operand)
    if name == "$prefix":
        return lambda value: type(value) is str and value.startswith(operand)
    if name == "$contains":
        return lambda value: type(value) is str and operand in value
    compare = _ORDER[name]
    kinds = (int, float) if type(operand) in {int, float} else (type(operand),)
    return lambda value: type(value) in kinds and compare(value, operand)


def _equality(operand: Any) -> Predicate:
    kind = type(operand)
    if kind in {str, bool, type(None)}:
        return lambda value: type(value) is kind and value == operand
    if kind in {int, float}:
        numbers = (int, float)
        return lambda value: type(value) in numbers and value == operand
    return lambda value: equal(value, operand)


def _membership(operands: tuple[Any, ...]) -> Predicate:
    simple: set[tuple[str, Any]] = set()
    other: list[Any] = []
    for operand in operands:
        kind = _TYPE_OF[type(operand)]
        if kind in {"array", "object"}:
            other.append(operand)
        else:
            simple.add((kind, operand))

    def member(value: Any) -> bool:
        kind = _TYPE_OF.get(type(value))
        if kind in {"array", "object"}:
            return any(equal(value, operand) for operand in other)
        return kind is not None and (kind, value) in simple

    return member
