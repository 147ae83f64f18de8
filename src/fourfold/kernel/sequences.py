"""Sequences: dense counters, claimed in the transaction that uses them.

A claim updates the row of the counter: a rollback returns the number (no gaps), and a commit makes
it durable together with the rows that contain it (no reuse). When a database is opened, every
sequence is checked: its row must exist, contain an integer, and not be lower than the greatest
number in the log. If the check fails, the database does not open; a counter is never recreated,
because it would assign numbers that other machines may have seen.
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
    """A counter, as SQL statements.

    `claim` adds `?1` numbers, `advance` raises the counter to at least `?1`, `seed` inserts its row
    into a new database, and `used` selects the greatest number in the log.
    """

    name: str
    read: str
    claim: str
    advance: str
    seed: str
    used: str | None = None

    @staticmethod
    def named(name: str, *, used: str | None = None) -> Sequence:
        """Return a sequence of the kernel's own table; `used` selects the greatest number used."""
        if not name.isidentifier():
            raise InvalidInput(f"sequence name must be an identifier, got {name!r}")
        return Sequence(
            name,
            read=_SQL.sequence_read.format(name=name),
            claim=_SQL.sequence_claim.format(name=name),
            advance=_SQL.sequence_advance.format(name=name),
            seed=_SQL.sequence_seed.format(name=name),
            used=used,
        )


def current(sequence: Sequence, snapshot: ReadTransaction, subject: str) -> int:
    """Return the newest number of `sequence`; raise SequenceCorrupt if its row is invalid."""
    rows = snapshot.all(sequence.read)
    if len(rows) != 1:
        state = "is missing" if not rows else f"has {len(rows)} rows"
        raise SequenceCorrupt(f"{subject}: the row of sequence {sequence.name!r} {state}")
    value = rows[0][0]
    if type(value) is not int or value < 0:
        raise SequenceCorrupt(
            f"{subject}: sequence {sequence.name!r} must be a non-negative integer, found {value!r}"
        )
    return value


def check(sequence: Sequence, snapshot: ReadTransaction, subject: str) -> int:
    """Return the newest number; raise SequenceCorrupt if the log contains a greater one."""
    value = current(sequence, snapshot, subject)
    if sequence.used is not None:
        greatest = snapshot.value(sequence.used) or 0
        if type(greatest) is not int:
            raise SequenceCorrupt(
                f"{subject}: the log of sequence {sequence.name!r} has {greatest!r} as a number"
            )
        if greatest > value:
            raise SequenceCorrupt(
                f"{subject}: sequence {sequence.name!r} is at {value}, "
                f"but its log contains {greatest}"
            )
    return value
