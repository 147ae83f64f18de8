"""Export of packages: the entries of a domain that a peer lacks, byte for byte as they were signed.

A peer states what it has by its tips, the last entries of each log. Tips are only a hint: a peer
that lost entries, or has another branch of a forked log, is sent entries that it may have already,
and answers that it knows them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from fourfold.errors import InvalidInput, Refused
from fourfold.kernel import ReadTransaction, Transaction, load_queries
from fourfold.models.graphs import validation
from fourfold.models.graphs.sync import incarnation, keys, log
from fourfold.models.graphs.sync.envelope import (
    FORMAT,
    PACKAGE_BYTES_MAX,
    PACKAGE_BYTES_TARGET,
    LogTips,
    SignedEnvelope,
    Tips,
    decode_head,
    decode_tips,
    encode_tips,
    pack,
    packed_size,
)
from fourfold.models.graphs.sync.ingest import check_format, check_peer
from fourfold.models.graphs.sync.log import NotShareable, SignReport
from fourfold.models.graphs.writer import GraphTransaction

if TYPE_CHECKING:
    from fourfold.models.graphs.graphs import Graphs
    from fourfold.models.graphs.sync.keys import Signer

_SQL = load_queries("fourfold.models.graphs.sync")


class Export(NamedTuple):
    """A package, what is in it, and what could not be shared."""

    data: bytes
    envelopes: int
    rows: int
    complete: bool
    """False if more entries remain: export again with `after=position`."""
    position: int
    """Place of the last entry of the package in the order of arrival here."""
    signed: int
    """Envelopes that were signed for this export."""
    not_shareable: tuple[NotShareable, ...]


def export(
    graphs: Graphs,
    domain: str,
    signer: Signer | None = None,
    *,
    peer_id: int | None = None,
    tips: bytes | str | None = None,
    after: int = 0,
    max_bytes: int = PACKAGE_BYTES_TARGET,
    trust_seqs: bool = False,
) -> Export:
    """Sign what is new of the signer, and pack the entries that the peer does not have."""
    limit = validation.check_integer(max_bytes, "max_bytes", least=1)
    if limit > PACKAGE_BYTES_MAX:
        raise InvalidInput(f"max_bytes must be at most {PACKAGE_BYTES_MAX}, got {limit}")
    position = validation.check_integer(after, "after")
    log.mask_of(graphs, domain)
    with graphs.database.read_current() as snapshot:
        check_format(snapshot)
        if peer_id is not None:
            check_peer(snapshot, peer_id)
            right = snapshot.one(_SQL.right, (peer_id, domain))
            if right is None or not right[0]:
                raise Refused(
                    f"peer {peer_id} may not read domain {domain!r}",
                    hint="Allow it with `fourfold app sync allow`.",
                )
            if tips is None:
                tips = snapshot.value(_SQL.peer_tips, (peer_id, domain))
    peer_tips = Tips(FORMAT, domain, ()) if tips is None else decode_tips(tips)
    if peer_tips.domain != domain:
        raise InvalidInput(f"the tips are of domain {peer_tips.domain!r}, not {domain!r}")
    report = SignReport(0, 0, ()) if signer is None else log.sign_rows(graphs, domain, signer)
    if not graphs.database.in_transaction():
        # A power cut must not take back what a peer has.
        graphs.database.make_durable()
    envelopes: list[SignedEnvelope] = []
    rows, size, complete = 0, 0, True
    with graphs.database.read_current() as snapshot:
        for arrival, envelope in _iter_missing(
            snapshot, peer_tips, position, trust_seqs=trust_seqs
        ):
            length = packed_size(envelope)
            if envelopes and size + length > limit:
                complete = False
                break
            envelopes.append(envelope)
            position = arrival
            rows += len(envelope.bodies)
            size += length
    data = pack(envelopes)
    counts = (len(envelopes), rows, complete, position, report.envelopes)
    return Export(data, *counts, report.not_shareable)


def read_tips(graphs: Graphs, domain: str) -> bytes:
    """Return the tips of the logs of a domain, for a peer."""
    log.mask_of(graphs, domain)
    logs = []
    with graphs.database.read_current() as snapshot:
        for log_id, author, node in snapshot.all(_SQL.logs, (domain,)):
            tips = snapshot.all(_SQL.tips, (log_id,))
            ends = tuple((int(seq), bytes(entry).hex()) for seq, entry in tips)
            logs.append(LogTips(keys.to_text(bytes(author)), bytes(node).hex(), ends))
    return encode_tips(Tips(FORMAT, domain, tuple(logs)))


def confirm(graphs: Graphs, peer_id: int, data: bytes | str) -> int:
    """Record the tips of a peer, and return the number of entries that it has of this node.

    A tip of this node's own incarnation that this node does not have shows that it was restored:
    it continues in a new one.
    """
    tips = decode_tips(data)
    log.mask_of(graphs, tips.domain)
    text = encode_tips(tips).decode()
    with graphs.database.read_current() as snapshot:
        if snapshot.value(_SQL.peer_tips, (peer_id, tips.domain)) == text:
            return int(snapshot.value(_SQL.sent, (peer_id, tips.domain)) or 0)

    def work(handle: GraphTransaction) -> int:
        txn = handle.txn
        check_peer(txn, peer_id)
        known = incarnation.known(txn)
        confirmed = 0
        starts = _starts(txn, tips)
        for log_id, _, _ in txn.all(_SQL.logs, (tips.domain,)):
            confirmed += int(txn.value(_SQL.count_until, (log_id, starts.get(int(log_id), 0))))
        for log_tips in tips.logs:
            lost = [e for _, e in log_tips.tips if txn.one(_SQL.entry, (bytes.fromhex(e),)) is None]
            is_own = known is not None and log_tips.incarnation == known.hex()
            if (
                lost
                and is_own
                and txn.value(_SQL.is_signer, (keys.to_bytes(log_tips.author),))
                and _believes(txn, peer_id, bytes.fromhex(lost[0]))
            ):
                known = incarnation.renew(txn, graphs.database.path)
        txn.execute(_SQL.put_peer_tips, (peer_id, tips.domain, text))
        txn.execute(_SQL.put_sent, (peer_id, tips.domain, confirmed))
        return confirmed

    return graphs.with_transaction(work)


def _believes(txn: Transaction, peer_id: int, entry: bytes) -> bool:
    """Return True for a claim of a peer, which signed nothing, if its claim before came true.

    So a peer that invents entries makes this node begin one log, and no more.
    """
    before = txn.value(_SQL.claim, (peer_id,))
    if before is not None and txn.one(_SQL.entry, (bytes(before),)) is None:
        return False
    txn.execute(_SQL.put_claim, (peer_id, entry))
    return True


def _starts(snapshot: ReadTransaction, tips: Tips, *, trust_seqs: bool = False) -> dict[int, int]:
    """Return the seq up to which a peer has each log of a domain, by the id of the log."""
    peer = {(keys.to_bytes(each.author), each.incarnation): each.tips for each in tips.logs}
    starts = {}
    for log_id, author, node in snapshot.all(_SQL.logs, (tips.domain,)):
        known = peer.get((bytes(author), bytes(node).hex()), ())
        theirs = [bytes.fromhex(entry) for _, entry in known]
        ours = {bytes(entry): int(seq) for seq, entry in snapshot.all(_SQL.tips, (log_id,))}
        rows = [row for tip in theirs if (row := snapshot.one(_SQL.entry, (tip,))) is not None]
        start = max((int(row[1]) for row in rows if row[0] == log_id), default=0)
        newest = max((seq for seq, _ in known), default=0)
        if trust_seqs and not rows and newest >= max(ours.values(), default=0):
            starts[int(log_id)] = newest
            continue
        fork = snapshot.value(_SQL.first_fork, (log_id,))
        if fork is not None and not set(ours) <= set(theirs):
            # They may have one branch only, so both are sent.
            start = min(start, int(fork) - 1)
        starts[int(log_id)] = start
    return starts


def _iter_missing(
    snapshot: ReadTransaction, tips: Tips, after: int, *, trust_seqs: bool
) -> Iterator[tuple[int, SignedEnvelope]]:
    """Yield the envelopes that a peer lacks after a place, in the order of their arrival here."""
    logs = [
        snapshot.rows(_SQL.entries, (log_id, start, after))
        for log_id, start in _starts(snapshot, tips, trust_seqs=trust_seqs).items()
    ]
    for arrival, head, signature in heapq.merge(*logs, key=lambda row: row[0]):
        yield int(arrival), read_envelope(snapshot, head, signature)


def read_envelope(snapshot: ReadTransaction, head: bytes, signature: bytes) -> SignedEnvelope:
    """Return a stored envelope with the bodies of its rows."""
    ids = decode_head(bytes(head)).rows
    bodies = tuple(bytes(snapshot.value(_SQL.body, (row_id,))) for row_id in ids)
    return SignedEnvelope(bytes(head), bytes(signature), bodies)
