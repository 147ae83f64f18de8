"""The requests of commits below the horizon, shortened to what tells them from others.

A commit keeps the whole text of the request that made it, which is as large as the rows that it
wrote. When these may go, a digest of the text is enough: a request that is sent again is known by
it, and gets the commit that it became; another one under the same name is refused. The requests of
merges stay as they are, since later merges find their base in them, and so do births and ends of
branches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold import limits
from fourfold.content import content_id
from fourfold.kernel import Transaction
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.gc.records import Tally
from fourfold.models.documents.gc.seals import Seals
from fourfold.models.documents.history import Row

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space


def shortened(branch: str, local_seq: int, request: str) -> str:
    """What is left of a request: enough to know it again."""
    digest = content_id(request.encode())
    return trusted({"branch": branch, "collected": digest, "local_seq": local_seq})


def same_request(kept: str, branch: str, local_seq: int, request: str) -> bool:
    """Whether a commit was made by this request, of which perhaps only a digest is left."""
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
    """Some of the requests behind a seq, and up to where these are all."""
    rows: list[Row] = []
    size = 0
    most = limits.GC_BATCH_ROWS
    with space.background_view() as view:
        asked = (after, until, limits.GC_REQUEST_BYTES_MIN, most)
        for row in view.rows(view.sql.requests_page, asked):
            rows.append(row)
            size += len(row[3])
            if size >= limits.GC_BATCH_BYTES:
                return rows, row[0]
    return rows, until if len(rows) < most else rows[-1][0]


def _shortens(text: str, branch: str, local_seq: int, request: str) -> bool:
    """Whether the request is an ordinary one that was not shortened before, and long enough."""
    ordinary = f'{{"branch":{trusted(branch)},"local_seq":{local_seq},"operations":'
    return len(text) < len(request) and request.startswith(ordinary)
