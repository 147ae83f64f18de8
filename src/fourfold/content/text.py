"""Words of a text, and queries over them. Pure: an index and a scan find the same texts.

    tokens("Crème brûlée, 2 pieces")                     # ["creme", "brulee", "2", "pieces"]
    parse_text_query('brulee "2 pieces" pie* -lemon').matches(text)

A token is a run of letters, digits and the marks of scripts that write with them, in lower case and
without diacritics. Everything else separates tokens. A full-text index stores `searchable(text)`
with the tokenizer `ascii` of FTS5, which splits that form into the same tokens: the tables of
Unicode are those of Python, never those of SQLite.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from fourfold.errors import InvalidInput

TOKEN_CHARS_MAX: Final = 8_000
"""Longest token; the rest of a longer one is ignored. FTS5 cuts tokens at 32 KiB."""
QUERY_CHARS_MAX: Final = 2_000
"""Longest query."""
QUERY_PARTS_MAX: Final = 50
"""Terms and phrases of one query."""
SNIPPET_CHARS: Final = 160
"""Length of a snippet, without its ellipses."""

FTS5_TOKENIZER: Final = "ascii"
"""The tokenizer of FTS5 tables that contain `searchable` text."""

_DIACRITICS = ((0x300, 0x36F), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x20D0, 0x20FF))
_WORD = "0-9A-Za-z\x80-\U0010ffff"
_TOKEN = re.compile(f"[{_WORD}]+")
_LONG = re.compile(f"([{_WORD}]{{{TOKEN_CHARS_MAX}}})[{_WORD}]+")
_PART = re.compile(r'(-?)(?:"([^"]*)"(\*?)|(\S+))')


class _SearchForms(dict[int, str]):
    """The searchable form of each character, computed on first use."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
        self[code] = form = "".join(map(_fold, folded))
        return form


def _fold(char: str) -> str:
    if char.isalnum():
        return char
    if any(low <= ord(char) <= high for low, high in _DIACRITICS):
        return ""
    return char if unicodedata.category(char)[0] == "M" else " "


_FOLDING: Final = _SearchForms()


def searchable(text: str) -> str:
    """Return a text as a full-text index stores it; ASCII text stays as it is."""
    if not text.isascii():
        text = text.translate(_FOLDING)
    elif "\0" in text:
        text = text.replace("\0", " ")
    if len(text) > TOKEN_CHARS_MAX:
        text = _LONG.sub(r"\1", text)
    return text


def tokens(text: str) -> list[str]:
    """Return the tokens of a text, in order."""
    form = searchable(text)
    return _TOKEN.findall(form.lower() if form.isascii() else form)


class Token(NamedTuple):
    """A token and its place in the text."""

    token: str
    start: int
    end: int


def iter_tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a text with their places in it."""
    if text.isascii():
        for match in _TOKEN.finditer(text):
            yield Token(match.group().lower()[:TOKEN_CHARS_MAX], match.start(), match.end())
        return
    token, start, end = "", 0, 0
    for index, char in enumerate(text):
        for part in _FOLDING[ord(char)]:
            if part != " ":
                if not token:
                    start = index
                token += part if len(token) < TOKEN_CHARS_MAX else ""
                end = index + 1
            elif token:
                yield Token(token, start, end)
                token = ""
    if token:
        yield Token(token, start, end)


class Snippet(NamedTuple):
    """A part of a text around the first matches of a query."""

    text: str
    highlights: tuple[tuple[int, int], ...]
    """Start and end of each match in `text`."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """A term, a phrase of several tokens, or a prefix: the last token then only begins so."""

    tokens: tuple[str, ...]
    prefix: bool = False
    excluded: bool = False
    required: bool = False
    """True if it must occur even where one of the other parts is enough."""

    def find(self, text_tokens: Sequence[str], start: int = 0) -> int:
        """Return the index of the first occurrence from `start` on, or -1."""
        size = len(self.tokens)
        *first, last = self.tokens
        for index in range(start, len(text_tokens) - size + 1):
            if list(text_tokens[index : index + size - 1]) != first:
                continue
            token = text_tokens[index + size - 1]
            if token == last or (self.prefix and token.startswith(last)):
                return index
        return -1

    def match_expression(self) -> str:
        """Return the part as an expression of FTS5."""
        return f'"{" ".join(self.tokens)}"{" *" if self.prefix else ""}'


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A parsed query: a text matches if it has every part and none of the excluded ones.

    With `any_part`, one of the parts that are neither required nor excluded is enough.
    """

    parts: tuple[TextPart, ...]
    any_part: bool = False

    def matches(self, texts: str | Iterable[str]) -> bool:
        """Return True if the text matches. Of several texts, each part may be in another one."""
        texts = (texts,) if isinstance(texts, str) else texts
        columns = [tokens(text) for text in texts]
        occurs = {part: any(part.find(column) >= 0 for column in columns) for part in self.parts}
        optional = [part for part in self.parts if self._is_optional(part)]
        return all(
            occurs[part] is not part.excluded for part in self.parts if part not in optional
        ) and (not optional or any(occurs[part] for part in optional))

    def _is_optional(self, part: TextPart) -> bool:
        return self.any_part and not part.required and not part.excluded

    def match_expression(self) -> str:
        """Return the query as the argument of MATCH, for a table of `searchable` texts."""
        optional = [part.match_expression() for part in self.parts if self._is_optional(part)]
        included = [
            part.match_expression()
            for part in self.parts
            if not part.excluded and not self._is_optional(part)
        ]
        if optional:
            included.append(f"({' OR '.join(optional)})")
        excluded = [part.match_expression() for part in self.parts if part.excluded]
        return " NOT ".join([f"({' AND '.join(included)})", *excluded])

    def highlights(self, text: str) -> list[tuple[int, int]]:
        """Return the places in a text that match a part, in order and without overlaps."""
        places = list(iter_tokens(text))
        text_tokens = [place.token for place in places]
        spans: list[tuple[int, int]] = []
        for part in self.parts:
            index = -1 if part.excluded else part.find(text_tokens)
            while index >= 0:
                spans.append((places[index].start, places[index + len(part.tokens) - 1].end))
                index = part.find(text_tokens, index + 1)
        merged: list[tuple[int, int]] = []
        for start, end in sorted(spans):
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return merged

    def snippet(self, text: str, chars: int = SNIPPET_CHARS) -> Snippet:
        """Return about `chars` characters around the first match; the beginning without one."""
        spans = self.highlights(text)
        first = spans[0][0] if spans else 0
        start = max(0, min(first - chars // 4, len(text) - chars))
        end = min(len(text), start + chars)
        before, after = "…" if start else "", "…" if end < len(text) else ""
        shift = len(before) - start
        shown = tuple(
            (low + shift, min(high, end) + shift)
            for low, high in spans
            if low >= start and low < end
        )
        return Snippet(f"{before}{text[start:end]}{after}", shown)


def parse_text_query(query: object) -> TextQuery:
    """Return a parsed text query.

    Words must all occur, in any order; `"two words"` is a phrase; `pre*` a prefix; `-word` must not
    occur. Case, diacritics and punctuation do not matter: `b-c` is the phrase `"b c"`.

    Raises:
        InvalidInput: It is not text, is too long, or has no word that must occur.
    """
    if not isinstance(query, str):
        raise InvalidInput(f"a text query must be a str, got {type(query).__name__}")
    if len(query) > QUERY_CHARS_MAX:
        raise InvalidInput(
            f"a text query has at most {QUERY_CHARS_MAX} characters, got {len(query)}"
        )
    parts: list[TextPart] = []
    for minus, phrase, star, word in _PART.findall(query):
        words = tuple(tokens(phrase or word))
        if words:
            prefix = bool(star) or word.endswith("*")
            parts.append(TextPart(words, prefix, bool(minus)))
    if len(parts) > QUERY_PARTS_MAX:
        raise InvalidInput(
            f"a text query has at most {QUERY_PARTS_MAX} terms and phrases, got {len(parts)}"
        )
    if all(part.excluded for part in parts):
        raise InvalidInput(
            f"text query {query!r:.80} has no word that must occur",
            hint='Write words, "phrases" and pre*; -word excludes.',
        )
    return TextQuery(tuple(parts))
