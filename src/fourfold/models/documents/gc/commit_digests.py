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
import time
from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
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
    """Return a digest in hex."""
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


def digests_of_unsealed(space: Space, seqs: Iterable[int]) -> dict[int, int]:
    """Check those of the commits that have no seal yet, and return their digests.

    A commit may have any number of rows, so this is done without the writer lock. The digests stay
    valid until gc removes a row: nothing else changes a commit.
    """
    digests: dict[int, int] = {}
    left = deque(seqs)
    while left:
        rows = 0
        with space.background_view() as view:
            while left and rows < limits.MAINTENANCE_PAGE_ROWS:
                seq = left.popleft()
                if view.value(view.sql.seal, (seq,)) is not None:
                    continue
                if not space.history_kind.collecting.sound(view, seq):
                    raise CorruptData(
                        f"commit {seq} differs from what was committed, so nothing is removed "
                        "from it",
                        hint="Run `fourfold space verify`, then restore the newest good backup.",
                    )
                parts = left_of(view, seq)
                digests[seq] = seal_of(parts)
                rows += len(parts)
    return digests


class Seals:
    """The seals of the commits that one transaction takes something from.

    Args:
        unsealed: Digests of the commits that may have no seal yet.
    """

    def __init__(self, txn: Transaction, history: History, unsealed: Mapping[int, int]) -> None:
        self._txn = txn
        self._history = history
        self._unsealed = unsealed
        self._seals: dict[int, int] = {}

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
        """Store the changed digests."""
        rows = [(seq, spelled(seal)) for seq, seal in self._seals.items()]
        self._txn.execute_many(self._history.sql.write_seal, rows)

    def _seal(self, seq: int) -> int:
        seal = self._seals.get(seq)
        if seal is not None:
            return seal
        text = self._txn.value(self._history.sql.seal, (seq,))
        if text is None:
            return self._unsealed[seq]
        try:
            return int(text, 16)
        except ValueError as error:
            raise CorruptData(f"the seal of commit {seq} is damaged: {text!r}") from error


def shortened(branch: str, local_seq: int, request: str) -> str:
    """Return what remains of a request: enough to recognise it."""
    digest = content_id(request.encode())
    return trusted({"branch": branch, "collected": digest, "local_seq": local_seq})


def same_request(kept: str, branch: str, local_seq: int, request: str) -> bool:
    """Return True if this request made the commit, of which only a digest may remain."""
    return kept in (request, shortened(branch, local_seq, request))


def shorten(space: Space, after: int, until: int, tally: Tally) -> None:
    """Shorten the requests beyond a seq and up to another."""
    while after < until:
        rows, reached = _page(space, after, until)
        changes = [
            (seq, text, len(request.encode()) - len(text.encode()))
            for seq, branch, local_seq, request in rows
            for text in [shortened(branch, local_seq, request)]
            if _shortens(text, branch, local_seq, request)
        ]
        unsealed = digests_of_unsealed(space, [seq for seq, _, _ in changes])
        while after < reached:
            work = partial(_shorten_some, space.history_kind, changes, unsealed, reached)
            done, after = space.database.transact(work)
            tally.join(done)
            changes = [change for change in changes if change[0] > after]
            space.database.pauses.pause()


def _shorten_some(
    history: History,
    changes: list[tuple[int, str, int]],
    unsealed: Mapping[int, int],
    reached: int,
    txn: Transaction,
) -> tuple[Tally, int]:
    """Shorten requests for a limited time; return the seq up to which all are shortened."""
    seals, done = Seals(txn, history, unsealed), Tally()
    until = time.perf_counter() + limits.GC_TRANSACTION_S
    for seq, text, saved in changes:
        if done and time.perf_counter() >= until:
            reached = seq - 1
            break
        seals.shorten(seq, text)
        done.note("requests", 1, saved)
    seals.write()
    txn.execute(history.sql.requests_done, (reached,))
    return done, reached


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
