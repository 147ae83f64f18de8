"""Digests of commits from which gc removed rows.

The digest that a commit was made with covers all of it, so it says nothing any more once a part is
gone. A seal takes its place: the sum of the digests of the parts that are left, its own row and
each row of the log. Taking a part away subtracts its digest, which costs the same however large the
commit is. Before the first part goes, the commit is checked against its own digest: what was
damaged before is reported, and never sealed as if it were sound.

The requests of commits below the horizon, shortened to what tells them from others.

A commit keeps the whole text of the request that made it, which is as large as the rows that it
wrote. When these may go, a digest of the text is enough: a request that is sent again is known by
it, and gets the commit that it became; another one under the same name is refused. The requests of
merges stay as they are, since later merges find their base in them, and so do births and ends of
branches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from fourfold import limits
from fourfold.content import content_id
from fourfold.errors import CorruptData
from fourfold.kernel import Transaction
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.gc.records import Tally
from fourfold.models.documents.history import History, HistoryReader, Row

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space


_ENCODER = msgspec.json.Encoder()
_MODULUS = 1 << 256


def seal_of(parts: Iterable[Row]) -> int:
    """Return the digest of these parts, in any order. Texts are bytes."""
    return sum(_part(part) for part in parts) % _MODULUS


def _part(row: Row) -> int:
    return int.from_bytes(hashlib.sha256(_ENCODER.encode(row)).digest(), "big")


def spelled(seal: int) -> str:
    return f"{seal:064x}"


def left_of(view: HistoryReader, seq: int) -> list[Row]:
    """Return the remaining rows of a commit, as its digest covers them."""
    return [*view.all(view.sql.sealed_commit, (seq,)), *view.all(view.sql.sealed_rows, (seq,))]


def broken(view: HistoryReader, seq: int) -> bool | None:
    """Return True if a commit does not match its digest; None if it has no digest."""
    try:
        seal = view.value(view.sql.seal, (seq,))
    except CorruptData:
        # It is not valid text.
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
        """Remove a part of a commit from its digest."""
        self._seals[seq] = (self._seal(seq) - seal_of([part])) % _MODULUS

    def shorten(self, seq: int, request: str) -> None:
        """Replace the request of a commit by a shorter text."""
        seal, sql = self._seal(seq), self._history.sql
        seal -= seal_of(self._txn.all(sql.sealed_commit, (seq,)))
        self._txn.execute(sql.shorten_request, (seq, request))
        self._seals[seq] = (seal + seal_of(self._txn.all(sql.sealed_commit, (seq,)))) % _MODULUS

    def write(self) -> None:
        rows = [(seq, spelled(seal)) for seq, seal in self._seals.items()]
        self._txn.execute_many(self._history.sql.write_seal, rows)

    def _seal(self, seq: int) -> int:
        seal = self._seals.get(seq)
        if seal is not None:
            return seal
        view = self._history.view(self._txn)
        text = view.value(view.sql.seal, (seq,))
        if text is not None:
            try:
                return int(text, 16)
            except ValueError as error:
                raise CorruptData(f"the seal of commit {seq} is damaged: {text!r}") from error
        if not self._history.collecting.sound(view, seq):
            raise CorruptData(
                f"commit {seq} differs from what was committed, so nothing is removed from it",
                hint="Run `fourfold space verify`, then restore the newest good backup.",
            )
        parts = left_of(view, seq)
        self.rows_read += len(parts)
        return seal_of(parts)


def shortened(branch: str, local_seq: int, request: str) -> str:
    """Return what remains of a request: enough to recognise it."""
    digest = content_id(request.encode())
    return trusted({"branch": branch, "collected": digest, "local_seq": local_seq})


def same_request(kept: str, branch: str, local_seq: int, request: str) -> bool:
    """Return True if this request made the commit, of which only a digest may remain."""
    return kept in (request, shortened(branch, local_seq, request))


def shorten(space: Space, after: int, until: int, tally: Tally) -> None:
    """Shorten the requests beyond a seq and up to another."""
    kind = space.history_kind
    while after < until:
        rows, reached = _page(space, after, until)

        def work(
            txn: Transaction, rows: list[Row] = rows, reached: int = reached
        ) -> tuple[Tally, int]:
            seals, done = Seals(txn, kind), Tally()
            for seq, branch, local_seq, request in rows:
                if seals.rows_read >= limits.GC_SEAL_ROWS:
                    reached = seq - 1
                    break
                text = shortened(branch, local_seq, request)
                if _shortens(text, branch, local_seq, request):
                    seals.shorten(seq, text)
                    done.note("requests", 1, len(request.encode()) - len(text.encode()))
            seals.write()
            txn.execute(kind.sql.requests_done, (reached,))
            return done, reached

        done, after = space.database.transact(work)
        tally.join(done)


def _page(space: Space, after: int, until: int) -> tuple[list[Row], int]:
    """Return requests after a seq, and the seq up to which they are complete."""
    rows: list[Row] = []
    size = 0
    most = limits.GC_BATCH_ROWS
    with space.background_view() as view:
        parameters = (after, until, limits.GC_REQUEST_BYTES_MIN, most)
        for row in view.rows(view.sql.requests_page, parameters):
            rows.append(row)
            size += len(row[3])
            if size >= limits.GC_BATCH_BYTES:
                return rows, row[0]
    return rows, until if len(rows) < most else rows[-1][0]


def _shortens(text: str, branch: str, local_seq: int, request: str) -> bool:
    """Return True for an ordinary request that is long and was not shortened before."""
    ordinary = f'{{"branch":{trusted(branch)},"local_seq":{local_seq},"operations":'
    return len(text) < len(request) and request.startswith(ordinary)
