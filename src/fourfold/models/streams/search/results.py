"""Results of searches and aggregates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fourfold import html
from fourfold.content.text import Snippet
from fourfold.models.streams.records import Record
from fourfold.models.streams.validation import Offset
from fourfold.tabular import ColumnType, RecordColumn, Rows, show_record

_INTEGERS: Final[dict[str, ColumnType]] = {"time_ms": "int", "count": "int"}


class Hit(NamedTuple):
    """A record that matches a search."""

    offset: Offset
    """Offset of a read that begins with this record."""
    record: Record
    time_ms: int
    """The time of the message by the declared field, or when it was appended."""
    score: float | None
    """Rank among the matches; None unless the search is ordered by score."""
    snippets: dict[str, Snippet]
    """Parts of the texts that match, by field."""

    @property
    def value(self) -> Any:
        """The JSON value of the message."""
        return self.record.value


class Coverage(NamedTuple):
    """Part of the records that a search or an aggregate has read."""

    complete: bool
    """False if the budget of bytes or time ran out: older records were not examined."""
    start: Offset
    """The oldest record that was examined."""
    end: Offset
    """The end of the stream when the search began; records before it are covered."""
    segments: int = 0
    """Segments that the search reached: those skipped, indexed and scanned."""
    segments_skipped: int = 0
    """Segments whose times are all outside of `since` and `until`; nothing of them was read."""
    segments_indexed: int = 0
    """Segments that were searched in their companions."""
    segments_scanned: int = 0
    """Segments whose records were read one by one."""
    scanned_records: int = 0
    scanned_bytes: int = 0
    """Records that were read one by one, also those of the log."""


class Total(NamedTuple):
    """The number of matches."""

    value: int
    exact: bool
    """False if not everything was examined: there may be more."""


@dataclass(frozen=True)
class SearchPage:
    """A page of matches; iterate over it, or use `items`."""

    items: list[Hit]
    next: str | None
    """Pass it as `after` for the next page; None after the last one."""
    coverage: Coverage
    total: Total | None = None
    """The number of all matches, if it was requested."""

    def _repr_html_(self) -> str:
        facts = {"matches": len(self.items), "next": self.next, "complete": self.coverage.complete}
        rows = ((hit.offset, hit.time_ms, hit.score, html.block(hit.value)) for hit in self.items)
        table = html.table(("offset", "time_ms", "score", "value"), rows)
        return html.fragment(html.facts(facts), table, caption="SearchPage")

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True)
class Aggregates:
    """Groups of messages with their measures; iterate over it, or use `rows`."""

    rows: Rows[dict[str, Any]]
    """One dictionary per group: `time_ms` with `every`, the fields of `by`, and the measures."""
    coverage: Coverage
    columns: tuple[str, ...] = field(default=())

    @classmethod
    def of(
        cls, rows: list[dict[str, Any]], coverage: Coverage, columns: tuple[str, ...]
    ) -> Aggregates:
        """Return groups as a table, which has the columns also without rows."""
        types = {} if rows else _INTEGERS
        shape = [RecordColumn(name, types.get(name)) for name in columns]
        return cls(Rows(rows, shape), coverage, columns)

    def _repr_html_(self) -> str:
        return show_record(self)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)
