"""What verification finds, and the parts into which its work can be cut.

A rule looks at one stretch of a table's keys and knows nothing of the others, so that many workers
can share the check of a large space. A fault is a sentence for people; for programs it also says
which table and row it is about, and what was expected there and found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self

if TYPE_CHECKING:
    from fourfold.models.documents.history import HistoryReader

HIGHEST: Final = b"\xff" * 9
"""Greater than every number and every text that SQLite compares it with."""
_LEAST_SEQ: Final = -(2**63)
_SHOWN_CHARS: Final = 200

Kind = Literal["seq", "entity", "hash", ""]
"""The keys by which the work of a rule is cut: seqs, pairs of branch and entity, hashes, or not."""


class KeyRange(NamedTuple):
    """The keys from `low` on and below `high`."""

    low: tuple[Any, ...] = ()
    high: tuple[Any, ...] = ()

    @property
    def bounds(self) -> tuple[Any, ...]:
        """The parameters of a query over this part."""
        return (*self.low, *self.high)


WHOLE: Final[Mapping[Kind, KeyRange]] = {
    "seq": KeyRange((_LEAST_SEQ,), (HIGHEST,)),
    "entity": KeyRange(("", ""), (HIGHEST, HIGHEST)),
    "hash": KeyRange(("",), (HIGHEST,)),
    "": KeyRange(),
}


class Problem(str):
    """What is wrong, in a sentence."""

    __slots__ = ("expected", "found", "key", "table")

    def __new__(
        cls,
        sentence: str,
        table: str = "",
        key: Mapping[str, Any] | None = None,
        *,
        expected: object = None,
        found: object = None,
    ) -> Self:
        self = super().__new__(cls, sentence)
        self.table = table
        self.key = {name: text(value) for name, value in (key or {}).items()}
        self.expected = None if expected is None else _shown(expected)
        self.found = None if found is None else _shown(found)
        return self

    table: str
    key: dict[str, Any]
    expected: str | None
    found: str | None

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        named = {"expected": self.expected, "found": self.found}
        return (str(self), self.table, self.key), named


@dataclass(frozen=True, slots=True)
class Rule:
    """Something that must hold in a space."""

    name: str
    by: Kind
    check: Callable[[HistoryReader, KeyRange], Iterator[str]]


def seal_broken(seq: int) -> Problem:
    """Of a commit from which something was taken: which of the two is damaged is unknown."""
    return Problem(
        f"seal of commit {seq}: it, or what is left of the commit, is not as a collection left it",
        "gc_seal",
        {"seq": seq},
    )


def text(value: Any) -> Any:
    """A column as text. Damage that makes it none is shown, and then equals nothing."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def _shown(value: object) -> str:
    """A value as a report gives it, not longer than is good for the reader."""
    spelled = str(text(value))
    if len(spelled) <= _SHOWN_CHARS:
        return spelled
    return f"{spelled[:_SHOWN_CHARS]}... ({len(spelled)} characters)"
