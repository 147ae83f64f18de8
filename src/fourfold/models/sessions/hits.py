"""Hits of a search, and the progress of the index that it uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from fourfold.tabular import Rows, show_record


class IndexProgress(msgspec.Struct, frozen=True):
    """Progress of the index: events that were read, and positions that are left."""

    events: int
    left: int


SessionHitKind: TypeAlias = Literal["message", "call", "turn", "summary", "error"]
SessionHitOrder: TypeAlias = Literal["score", "newest"]


class SessionHit(msgspec.Struct, frozen=True):
    """An event whose text matches, with a part of the text around the first match."""

    session: str
    event: int
    at: str
    kind: SessionHitKind
    title: str
    """The role of a message; what happened otherwise."""
    score: float | None
    """Relevance by BM25, higher is better; None for an event that is not in the index yet."""
    text: str
    highlights: tuple[tuple[int, int], ...]
    """Starts and ends of the matches in `text`."""


class SessionHitPage(msgspec.Struct, frozen=True):
    """A page of hits. Pass `next` as `after` for the next one; None if there is none."""

    items: Rows[SessionHit]
    next: str | None

    def _repr_html_(self) -> str:
        return show_record(self)

    def __iter__(self) -> Iterator[SessionHit]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)
