"""Seals: what is left of a commit from which something was taken, in one number.

The digest that a commit was made with covers all of it, so it says nothing any more once a part is
gone. A seal takes its place: the sum of the digests of the parts that are left, its own row and
each row of the log. Taking a part away subtracts its digest, which costs the same however large the
commit is. Before the first part goes, the commit is checked against its own digest: what was
damaged before is reported, and never sealed as if it were sound.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from fourfold.errors import CorruptData
from fourfold.kernel import Transaction
from fourfold.models.documents.history import History, Row, View

_ENCODER = msgspec.json.Encoder()
_MODULUS = 1 << 256


def seal_of(parts: Iterable[Row]) -> int:
    """The seal of these parts, in any order. Texts come as bytes, as verification reads them."""
    return sum(_part(each) for each in parts) % _MODULUS


def _part(row: Row) -> int:
    return int.from_bytes(hashlib.sha256(_ENCODER.encode(row)).digest(), "big")


def spelled(seal: int) -> str:
    return f"{seal:064x}"


def left_of(view: View, seq: int) -> list[Row]:
    """What is left of a commit, as a seal covers it."""
    return [*view.all(view.sql.sealed_commit, (seq,)), *view.all(view.sql.sealed_rows, (seq,))]


def broken(view: View, seq: int) -> bool | None:
    """Whether a commit is not what its seal says; None when it has no seal."""
    try:
        seal = view.value(view.sql.seal, (seq,))
    except CorruptData:
        # It is no text any more.
        return True
    return None if seal is None else seal != spelled(seal_of(left_of(view, seq)))


class Seals:
    """The seals of the commits that one transaction takes something from."""

    def __init__(self, txn: Transaction, history: History) -> None:
        self._txn = txn
        self._history = history
        self._seals: dict[int, int] = {}
        self.rows_read = 0

    def take(self, seq: int, part: Row) -> None:
        """A part of a commit goes."""
        self._seals[seq] = (self._seal(seq) - seal_of([part])) % _MODULUS

    def shorten(self, seq: int, request: str) -> None:
        """The request of a commit becomes another, shorter text."""
        seal, sql = self._seal(seq), self._history.sql
        seal -= seal_of(self._txn.all(sql.sealed_commit, (seq,)))
        self._txn.execute(sql.shorten_request, (seq, request))
        self._seals[seq] = (seal + seal_of(self._txn.all(sql.sealed_commit, (seq,)))) % _MODULUS

    def write(self) -> None:
        rows = [(seq, spelled(seal)) for seq, seal in self._seals.items()]
        self._txn.execute_many(self._history.sql.write_seal, rows)

    def _seal(self, seq: int) -> int:
        known = self._seals.get(seq)
        if known is not None:
            return known
        view = self._history.view(self._txn)
        text = view.value(view.sql.seal, (seq,))
        if text is not None:
            try:
                return int(text, 16)
            except ValueError as error:
                raise CorruptData(f"the seal of commit {seq} is damaged: {text!r}") from error
        if not self._history.collecting.sound(view, seq):
            raise CorruptData(
                f"commit {seq} is not what was committed, so nothing is taken from it",
                hint="Run `fourfold space verify`, then restore the newest good backup.",
            )
        parts = left_of(view, seq)
        self.rows_read += len(parts)
        return seal_of(parts)
