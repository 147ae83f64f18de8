"""Sequences: dense counters, claimed in the transaction that uses them.

A claim updates the counter's row, so a rollback gives the number back (no gaps) and a commit makes
it durable together with the rows that carry it (no reuse). At start-up every declared sequence is
checked: its row must exist, hold an integer, and not be behind the greatest number found in the
log. A failed check refuses to start; a counter is never made up again, because that would
hand out numbers that other machines may have seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fourfold.errors import InvalidInput, SequenceCorrupt
from fourfold.kernel.named_queries import load_queries

if TYPE_CHECKING:
    from fourfold.kernel.transaction import ReadTransaction

_SQL = load_queries("fourfold.kernel")


@dataclass(frozen=True, slots=True)
class Sequence:
    """A counter: how to read it, how to claim `?1` numbers, how to lift it to at least `?1`, and
    (optionally) the greatest number its log holds. `seed` brings its row into a new database."""

    name: str
    read: str
    claim: str
    advance: str
    seed: str
    used: str | None = None

    @staticmethod
    def named(name: str, *, used: str | None = None) -> Sequence:
        """A sequence in the kernel's own table. `used` asks for the greatest number in the log."""
        if not name.isidentifier():
            raise InvalidInput(f"sequence name {name!r} is not a plain identifier")
        return Sequence(
            name,
            read=_SQL.sequence_read.format(name=name),
            claim=_SQL.sequence_claim.format(name=name),
            advance=_SQL.sequence_advance.format(name=name),
            seed=_SQL.sequence_seed.format(name=name),
            used=used,
        )


def current(sequence: Sequence, snapshot: ReadTransaction, subject: str) -> int:
    """The newest number of `sequence` that this snapshot sees; SequenceCorrupt when there is no
    such thing.
    """
    rows = snapshot.all(sequence.read)
    if len(rows) != 1:
        state = "is missing" if not rows else f"has {len(rows)} rows"
        raise SequenceCorrupt(f"{subject}: the row of sequence {sequence.name!r} {state}")
    value = rows[0][0]
    if type(value) is not int or value < 0:
        raise SequenceCorrupt(
            f"{subject}: sequence {sequence.name!r} holds {value!r}, which is not a counter"
        )
    return value


def check(sequence: Sequence, snapshot: ReadTransaction, subject: str) -> int:
    """The current number, after proof that no row of the log carries a greater one."""
    value = current(sequence, snapshot, subject)
    if sequence.used is not None:
        greatest = snapshot.value(sequence.used) or 0
        if type(greatest) is not int:
            raise SequenceCorrupt(
                f"{subject}: the log of sequence {sequence.name!r} holds {greatest!r} for a number"
            )
        if greatest > value:
            raise SequenceCorrupt(
                f"{subject}: sequence {sequence.name!r} is at {value}, "
                f"but its log goes up to {greatest}"
            )
    return value
