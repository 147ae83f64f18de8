"""Scores of matches: BM25 over the words of a query. Pure.

The statistics are those of the matches that are ranked, not of an index: how often a word occurs
among them, and how long their texts are on average. So a score does not depend on which segments
the records are in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from fourfold.content.json_pointer import lookup
from fourfold.content.text import TextPart, tokens
from fourfold.models.streams.search.query import SearchExpression, iter_strings

RANKED_MAX: Final = 10_000
"""Matches that are ranked: the newest ones."""
_K1: Final = 1.2
_B: Final = 0.75


class Occurrences(NamedTuple):
    """Number of occurrences of each word of a query in a message, and of words in its texts."""

    counts: tuple[int, ...]
    length: int


class Ranking:
    """Ranks messages by the words of one query."""

    def __init__(self, query: SearchExpression) -> None:
        self._words = query.words()
        self._paths = [tuple(field.split(".")) for field in query.text_fields]

    def measure(self, message: Any) -> Occurrences:
        """Count the words in a message."""
        texts: dict[tuple[str, ...] | None, list[list[str]]] = {}
        for path in {path for path, _ in self._words} | set(self._paths):
            value = lookup(message, path) if path is not None else None
            strings = iter_strings(message) if path is None else [value]
            texts[path] = [tokens(text) for text in strings if isinstance(text, str)]
        counts = [sum(_count(part, text) for text in texts[path]) for path, part in self._words]
        return Occurrences(tuple(counts), sum(len(text) for one in texts.values() for text in one))

    def scores(self, measured: Sequence[Occurrences]) -> list[float]:
        """Return the score of each of the messages that are ranked together."""
        total = len(measured)
        average = sum(entry.length for entry in measured) / max(1, total) or 1.0
        weights = []
        for at in range(len(self._words)):
            having = sum(1 for entry in measured if entry.counts[at])
            weights.append(math.log(1 + (total - having + 0.5) / (having + 0.5)))
        return [
            sum(
                weight * count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * entry.length / average))
                for weight, count in zip(weights, entry.counts, strict=True)
                if count
            )
            for entry in measured
        ]


def _count(part: TextPart, text: list[str]) -> int:
    if len(part.tokens) == 1 and not part.prefix:
        return text.count(part.tokens[0])
    count = 0
    at = part.find(text)
    while at >= 0:
        count += 1
        at = part.find(text, at + 1)
    return count
