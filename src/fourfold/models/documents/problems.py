"""Rules of verification, their problems, and the key ranges into which the work is split.

A rule checks one range of the keys of a table, independently of the others, so that many workers
can share the verification of a large space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from fourfold.models.problem import Problem

if TYPE_CHECKING:
    from fourfold.models.documents.history import HistoryReader, Row

HIGHEST: Final = b"\xff" * 9
"""Greater than every number and every text that SQLite compares it with."""
BEFORE_ALL: Final = -(2**63)
"""Less than every seq and every place."""
_SHOWN_CHARS: Final = 200

Kind = Literal["seq", "entity", "hash", ""]
"""Keys by which the work of a rule is split: seqs, branch and entity, hashes, or none."""


OpenView = Callable[[], "AbstractContextManager[HistoryReader]"]
"""Opens a read transaction for one step of a verification."""


class KeyRange(NamedTuple):
    """The keys from `low`, inclusive, to `high`, exclusive."""

    low: tuple[Any, ...] = ()
    high: tuple[Any, ...] = ()

    @property
    def bounds(self) -> tuple[Any, ...]:
        """Parameters of a query over this range."""
        return (*self.low, *self.high)


WHOLE: Final[Mapping[Kind, KeyRange]] = {
    "seq": KeyRange((BEFORE_ALL,), (HIGHEST,)),
    "entity": KeyRange(("", ""), (HIGHEST, HIGHEST)),
    "hash": KeyRange(("",), (HIGHEST,)),
    "": KeyRange(),
}


def make_problem(
    message: str,
    table: str = "",
    key: Mapping[str, Any] | None = None,
    *,
    expected: object = None,
    found: object = None,
) -> Problem:
    """Return a problem of a row; long values are shortened."""
    return Problem(
        message,
        table,
        {name: text(value) for name, value in (key or {}).items()},
        None if expected is None else _shorten(expected),
        None if found is None else _shorten(found),
    )


class LogRange(NamedTuple):
    """Rows of the log, in the order of branch, entity, seq and operation."""

    after: tuple[Any, ...]
    """The four columns of the row before the first one."""
    high: tuple[Any, ...]
    """Branch and entity after the last one."""
    later: tuple[int, int] = (1, 0)
    """First and last seq of the commits to omit; none if the first is greater."""

    @property
    def bounds(self) -> tuple[Any, ...]:
        """Parameters of a query over this range."""
        return (*self.after, *self.high, *self.later)


class LogCheck(Protocol):
    """A check of the log row by row, over one or several read transactions."""

    def rows(self, view: HistoryReader, part: LogRange) -> Iterator[Row]:
        """Yield the rows of a range: their place in the log first, and their data last."""

    def add(self, view: HistoryReader, row: Row) -> Iterator[Problem]:
        """Check the next row; the rows of an entity follow each other."""

    def finish(self, view: HistoryReader) -> Iterator[Problem]:
        """Check what is left after the last row."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that every space obeys."""

    name: str
    by: Kind
    check: Callable[[HistoryReader, KeyRange], Iterator[Problem]]
    in_order: Callable[[], LogCheck] | None = None
    """Starts a check that can be interrupted after any row, if the rule has one."""


def rule_in_order(name: str, check: Callable[[], LogCheck]) -> Rule:
    """Return a rule that checks the log row by row."""

    def check_range(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
        started = check()
        for row in started.rows(view, LogRange((*part.low, BEFORE_ALL, BEFORE_ALL), part.high)):
            yield from started.add(view, row)
        yield from started.finish(view)

    return Rule(name, "entity", check_range, check)


def seal_broken(seq: int) -> Problem:
    """Return the problem of a commit that differs from its digest; either may be damaged."""
    return make_problem(
        f"seal of commit {seq}: it, or what is left of the commit, is not as a collection left it",
        "gc_seal",
        {"seq": seq},
    )


def text(value: Any) -> Any:
    """Return a column as text; bytes that are not UTF-8 are escaped."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def _shorten(value: object) -> str:
    """Return a value as text, shortened for a report."""
    shown = str(text(value))
    if len(shown) <= _SHOWN_CHARS:
        return shown
    return f"{shown[:_SHOWN_CHARS]}... ({len(shown)} characters)"
