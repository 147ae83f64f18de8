"""Rules of verification, their problems, and the key ranges into which the work is split.

A rule checks one range of the keys of a table, independently of the others, so that many workers
can share the verification of a large space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from fourfold.models.problem import Problem

if TYPE_CHECKING:
    from fourfold.models.documents.history import HistoryReader

HIGHEST: Final = b"\xff" * 9
"""Greater than every number and every text that SQLite compares it with."""
_LEAST_SEQ: Final = -(2**63)
_SHOWN_CHARS: Final = 200

Kind = Literal["seq", "entity", "hash", ""]
"""Keys by which the work of a rule is split: seqs, branch and entity, hashes, or none."""


class KeyRange(NamedTuple):
    """The keys from `low`, inclusive, to `high`, exclusive."""

    low: tuple[Any, ...] = ()
    high: tuple[Any, ...] = ()

    @property
    def bounds(self) -> tuple[Any, ...]:
        """Parameters of a query over this range."""
        return (*self.low, *self.high)


WHOLE: Final[Mapping[Kind, KeyRange]] = {
    "seq": KeyRange((_LEAST_SEQ,), (HIGHEST,)),
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


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that every space obeys."""

    name: str
    by: Kind
    check: Callable[[HistoryReader, KeyRange], Iterator[Problem]]


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
