"""Envelopes that this node refused: the newest of each peer, for its operator and the peer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fourfold.kernel import ReadTransaction, load_queries
from fourfold.models.graphs.sync import keys
from fourfold.models.graphs.writer import GraphTransaction

if TYPE_CHECKING:
    from fourfold.models.graphs.graphs import Graphs

_SQL = load_queries("fourfold.models.graphs.sync")
REFUSALS_STORED: Final = 200
"""Refusals of each peer that are stored, the newest."""
_MESSAGE_CHARS: Final = 500


class EnvelopeRefusal(NamedTuple):
    """An envelope that was refused: the kind of refusal, and who signed it."""

    envelope: int
    """Place of the envelope in the package, from 0."""
    kind: str
    message: str
    retryable: bool
    author: str | None
    """None, as the two fields after it, if the signature is not that of the author."""
    seq: int | None
    domain: str | None
    entry: str
    """Id of the envelope in hex."""


class StoredRefusal(NamedTuple):
    """A refusal of an envelope that a peer handed over, with the last reason."""

    peer_id: int
    entry: str
    """Id of the envelope in hex."""
    kind: str
    message: str
    retryable: bool
    domain: str | None
    author: str | None
    seq: int | None
    times: int
    """How often the peer handed it over."""
    first_at: str
    refused_at: str


def read_entries(snapshot: ReadTransaction, peer_id: int) -> set[bytes]:
    """Return the ids of the refused envelopes of a peer."""
    return {bytes(row[0]) for row in snapshot.all(_SQL.refused_entries, (peer_id,))}


def record(
    graphs: Graphs, peer_id: int, refused: list[EnvelopeRefusal], accepted: Iterable[bytes]
) -> None:
    """Store refusals, and drop those of envelopes that were accepted after all."""

    def work(handle: GraphTransaction) -> None:
        txn = handle.txn
        for entry in accepted:
            txn.execute(_SQL.drop_refusal, (peer_id, entry))
        for refusal in refused[-REFUSALS_STORED:]:
            author = None if refusal.author is None else keys.to_bytes(refusal.author)
            reason = (refusal.kind, refusal.message[:_MESSAGE_CHARS], int(refusal.retryable))
            place = (refusal.domain, author, refusal.seq, handle.now)
            txn.execute(_SQL.put_refusal, (peer_id, bytes.fromhex(refusal.entry), *reason, *place))
        txn.execute(_SQL.trim_refusals, (peer_id, REFUSALS_STORED))

    graphs.with_transaction(work)


def read(snapshot: ReadTransaction, peer_id: int | None, limit: int) -> tuple[StoredRefusal, ...]:
    """Return the stored refusals of a peer, or of all peers, newest first."""
    return tuple(map(_stored, snapshot.all(_SQL.refusals, (peer_id, limit))))


def _stored(row: tuple[Any, ...]) -> StoredRefusal:
    peer_id, entry, kind, message, retryable, domain, author, *rest = row
    text = None if author is None else keys.to_text(bytes(author))
    reason = (str(kind), str(message), bool(retryable))
    return StoredRefusal(int(peer_id), bytes(entry).hex(), *reason, domain, text, *rest)
