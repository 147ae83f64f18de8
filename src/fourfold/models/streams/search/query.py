"""The query language of `search`, compiled to the conditions of `fourfold.content.filters`. Pure.

service:auth status:>=500 "slow plan" retry* -debug (region:eu OR region:us)

word  "a phrase"  pre*     words in the text fields of the stream, or, if it declares none, in
                           any string
field:value                words of a text field; the equal value of any other field
field:="a value"           the equal string
field:>=5  >  <  <=        in that order, of numbers or of strings
field:5..9                 from 5 to 9, both included
field:pre*  field:*in*     the beginning, or a part
has:field                  there is a value, even null
-x  NOT x                  what does not match
a b  a OR b  ( )           both, one of them, groups
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import msgspec

from fourfold.content.filters import (
    And,
    Comparison,
    Condition,
    Exists,
    Filter,
    Not,
    Or,
    TextMatch,
    compile_condition,
)
from fourfold.content.text import QUERY_CHARS_MAX, QUERY_PARTS_MAX, TextPart, TextQuery, tokens
from fourfold.errors import InvalidInput

QUERY_DEPTH_MAX: Final = 8
"""Nesting of parentheses and negations."""
_TOKEN: Final = re.compile(
    r"""\s*(?:
    (?P<open>\() | (?P<close>\)) | (?P<minus>-(?=\S))
  | (?P<field>[A-Za-z_@][\w@.\-]*):(?P<operator>>=|<=|>|<|=)?
        (?:"(?P<quoted>[^"]*)"|(?P<value>[^\s()"]+))
  | "(?P<phrase>[^"]*)"(?P<star>\*?)
  | (?P<word>[^\s()"]+)
    )""",
    re.VERBOSE,
)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?")
_OPERATORS: Final = {">=": "$gte", "<=": "$lte", ">": "$gt", "<": "$lt"}
_HINT: Final = 'Write words, "phrases", pre*, field:value, field:>=5, has:field, -not, a OR b.'


@dataclass(frozen=True, slots=True)
class AnyText:
    """Words that occur in some string of the message, at any depth."""

    query: TextQuery


SearchCondition: TypeAlias = Condition | AnyText
Predicate: TypeAlias = Callable[[Any], bool]


class SearchExpression:
    """A parsed search: its condition, and the words to rank and highlight matches by."""

    def __init__(self, text: str, text_fields: Sequence[str], filter_: Filter) -> None:
        self.text = text
        self.text_fields = tuple(text_fields)
        self.filter = filter_
        parts = _QueryParser(text, text_fields).parse() if text.strip() else None
        roots = (parts, filter_.root if filter_ else None)
        conditions: list[Any] = [root for root in roots if root is not None]
        self.root: Any = conditions[0] if len(conditions) == 1 else And(tuple(conditions))
        self.matches: Predicate = compile_query(self.root)

    @cached_property
    def required_word(self) -> str | None:
        """The longest word in ASCII that every match contains, if there is one."""
        return max(_required(self.root), key=len, default=None)

    @cached_property
    def may_match(self) -> Callable[[bytes], bool] | None:
        """Test a message before it is decoded; None if that can exclude none.

        A word must be in the bytes of a message, unless they have escapes or other letters.
        """
        words = [word.encode() for word in sorted(_required(self.root), key=len, reverse=True)]
        if not words:
            return None

        def may_match(payload: bytes) -> bool:
            if not payload.isascii() or b"\\" in payload:
                return True
            lower = payload.lower()
            for word in words:  # noqa: SIM110 - a generator takes twice as long
                if word not in lower:
                    return False
            return True

        return may_match

    def words(self) -> tuple[tuple[tuple[str, ...] | None, TextPart], ...]:
        """Return the words that a match may contain: the path of their text, or None, and each."""
        return tuple(dict.fromkeys(_words(self.root)))


def _required(condition: Any) -> set[str]:
    """Return words in ASCII that every match contains."""
    if isinstance(condition, And):
        return {word for part in condition.parts for word in _required(part)}
    if isinstance(condition, Or) and condition.parts:
        return set.intersection(*map(_required, condition.parts))
    if isinstance(condition, TextMatch | AnyText):
        parts = [part for part in condition.query.parts if not part.excluded]
        return {word for part in parts for word in part.tokens if word.isascii()}
    return set()


def _words(condition: Any) -> Iterator[tuple[tuple[str, ...] | None, TextPart]]:
    if isinstance(condition, And | Or):
        for part in condition.parts:
            yield from _words(part)
    elif isinstance(condition, TextMatch | AnyText):
        path = condition.path if isinstance(condition, TextMatch) else None
        yield from ((path, part) for part in condition.query.parts if not part.excluded)


def compile_query(condition: Any) -> Predicate:
    """Return a function that evaluates a condition of a search on a message."""
    if isinstance(condition, AnyText):
        query = condition.query
        return lambda message: query.matches(iter_strings(message))
    if isinstance(condition, And | Or) and any(map(_has_any_text, condition.parts)):
        predicates = [compile_query(part) for part in condition.parts]
        combine: Callable[[Iterable[bool]], bool] = all if isinstance(condition, And) else any
        return lambda message: combine(predicate(message) for predicate in predicates)
    if isinstance(condition, Not) and _has_any_text(condition.part):
        inverted = compile_query(condition.part)
        return lambda message: not inverted(message)
    return compile_condition(condition)


def _has_any_text(condition: Any) -> bool:
    if isinstance(condition, And | Or):
        return any(map(_has_any_text, condition.parts))
    if isinstance(condition, Not):
        return _has_any_text(condition.part)
    return isinstance(condition, AnyText)


def iter_strings(message: Any) -> Iterator[str]:
    """Yield the strings of a message, at any depth."""
    waiting = [message]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))


def iter_texts(message: Any) -> Iterator[tuple[str, str]]:
    """Yield the strings of a message, at any depth, with their fields."""
    waiting: list[tuple[str, Any]] = [("", message)]
    while waiting:
        field, value = waiting.pop()
        if isinstance(value, str):
            yield field, value
            continue
        entries: list[tuple[Any, Any]] = []
        if isinstance(value, dict):
            entries = list(value.items())
        elif isinstance(value, list):
            entries = list(enumerate(value))
        waiting.extend(
            (f"{field}.{name}" if field else str(name), item) for name, item in reversed(entries)
        )


def decode_message(payload: bytes) -> Any:
    """Return the value of a message; UNSET, which nothing matches, if it cannot be decoded."""
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        return msgspec.UNSET


class _QueryParser:
    """A parser of one query."""

    def __init__(self, text: str, text_fields: Sequence[str]) -> None:
        if len(text) > QUERY_CHARS_MAX:
            raise InvalidInput(
                f"query: must have at most {QUERY_CHARS_MAX} characters, got {len(text)}"
            )
        self._text = text
        self._text_paths = tuple(tuple(field.split(".")) for field in text_fields)
        self._tokens = list(_split(text))
        self._at = 0
        self._parts = 0

    def parse(self) -> SearchCondition:
        condition = self._either(1)
        if self._at < len(self._tokens):
            raise self._error("unexpected )")
        return condition

    def _next(self) -> re.Match[str] | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _either(self, depth: int) -> SearchCondition:
        if depth > QUERY_DEPTH_MAX:
            raise self._error(f"more than {QUERY_DEPTH_MAX} levels")
        parts = [self._all(depth)]
        while (token := self._next()) is not None and token["word"] == "OR":
            self._at += 1
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))  # type: ignore[arg-type]

    def _all(self, depth: int) -> SearchCondition:
        parts: list[Any] = []
        while (token := self._next()) is not None and not token["close"] and token["word"] != "OR":
            if token["word"] == "AND" and parts:
                self._at += 1
                continue
            parts.append(self._one(depth))
        if not parts:
            raise self._error("a condition is missing")
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _one(self, depth: int) -> Any:
        token = self._next()
        if token is None or token["close"]:
            raise self._error("a condition is missing")
        self._at += 1
        if token["minus"] or token["word"] == "NOT":
            if depth >= QUERY_DEPTH_MAX:
                raise self._error(f"more than {QUERY_DEPTH_MAX} levels")
            return Not(self._one(depth + 1))
        if token["open"]:
            inner = self._either(depth + 1)
            closing = self._next()
            if closing is None:
                raise self._error("a ) is missing")
            self._at += 1
            return inner
        self._parts += 1
        if self._parts > QUERY_PARTS_MAX:
            raise self._error(f"more than {QUERY_PARTS_MAX} conditions")
        return self._on_field(token) if token["field"] else self._bare(token)

    def _bare(self, token: re.Match[str]) -> Any:
        phrase, word = token["phrase"], token["word"]
        prefix = bool(token["star"]) if phrase is not None else word.endswith("*")
        query = self._text_query(word if phrase is None else phrase, prefix=prefix)
        if not self._text_paths:
            return AnyText(query)
        matches = tuple(TextMatch(path, query) for path in self._text_paths)
        return matches[0] if len(matches) == 1 else Or(matches)

    def _text_query(self, text: str, *, prefix: bool) -> TextQuery:
        words = tuple(tokens(text))
        if not words:
            raise self._error(f"no word in {text!r:.40}")
        return TextQuery((TextPart(words, prefix),))

    def _on_field(self, token: re.Match[str]) -> Any:
        field, sign, quoted = token["field"], token["operator"], token["quoted"]
        value = token["value"] if quoted is None else quoted
        if field == "has" and sign is None and quoted is None:
            return Exists(tuple(value.split(".")), expected=True)
        path = tuple(field.split("."))
        if not all(path):
            raise self._error(f"invalid field {field!r}")
        if sign == "=":
            return Comparison(path, "$eq", value)
        if sign is not None:
            literal = value if quoted is not None else _literal(value)
            if literal is None:
                raise self._error(f"{field}: cannot order null")
            return Comparison(path, _OPERATORS[sign], literal)
        if quoted is None:
            return self._unquoted(path, value)
        if path in self._text_paths:
            return TextMatch(path, self._text_query(value, prefix=False))
        return Comparison(path, "$eq", value)

    def _unquoted(self, path: tuple[str, ...], value: str) -> Any:
        if len(value) > 2 and value.startswith("*") and value.endswith("*"):
            return Comparison(path, "$contains", value[1:-1])
        low, dots, high = value.partition("..")
        if dots and low and high:
            first, last = _literal(low), _literal(high)
            if type(first) is not type(last) and not (_is_number(first) and _is_number(last)):
                first, last = low, high
            if first is None:
                raise self._error("cannot order null")
            return And((Comparison(path, "$gte", first), Comparison(path, "$lte", last)))
        prefix = len(value) > 1 and value.endswith("*")
        if path in self._text_paths:
            return TextMatch(path, self._text_query(value, prefix=prefix))
        if prefix:
            return Comparison(path, "$prefix", value[:-1])
        literal = _literal(value)
        if isinstance(literal, str):
            return Comparison(path, "$eq", literal)
        # Not quoted, it may be either: an id such as 17 is often a string.
        return Or((Comparison(path, "$eq", literal), Comparison(path, "$eq", value)))

    def _error(self, problem: str) -> InvalidInput:
        return InvalidInput(f"query {self._text!r:.80}: {problem}", hint=_HINT)


def _split(text: str) -> Iterator[re.Match[str]]:
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidInput(
                f"query {text!r:.80}: a closing quotation mark is missing", hint=_HINT
            )
        yield match
        at = match.end()


def _literal(text: str) -> Any:
    """Return the JSON value that unquoted text is: a number, true, false, null, or a string."""
    if text in {"true", "false", "null"} or _NUMBER.fullmatch(text):
        value = json.loads(text)
        return text if value in {float("inf"), float("-inf")} else value
    return text


def _is_number(value: Any) -> bool:
    return type(value) in {int, float}
