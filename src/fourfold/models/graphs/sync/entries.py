"""The entries of a domain as a set: their number, their fingerprint, and entries by their ids.

Sums of the ids are stored for each first byte of an id, so a fingerprint of everything costs the
same however many entries there are. They are derived: `sum_entries` adds what arrived since.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from fourfold.errors import InvalidInput
from fourfold.kernel import ReadTransaction, load_queries
from fourfold.models.graphs.sync import log, ranges
from fourfold.models.graphs.sync.envelope import (
    ID_BYTES,
    PACKAGE_BYTES_MAX,
    SignedEnvelope,
    pack,
    packed_size,
)
from fourfold.models.graphs.sync.export import Export, read_envelope
from fourfold.models.graphs.sync.ranges import PREFIX_BYTES, RangeMessage, Summary
from fourfold.models.graphs.writer import GraphTransaction

if TYPE_CHECKING:
    from fourfold.models.graphs.graphs import Graphs

_SQL = load_queries("fourfold.models.graphs.sync")
BUCKETS: Final = 256
PULL_IDS_MAX: Final = 1_000
"""Ids of a request for entries."""
_STEP_ENTRIES: Final = 1_000
"""Entries that one transaction adds to the sums."""
_MODULUS: Final = 1 << 256
_NO_LIMIT: Final = -1


class SyncHeads(NamedTuple):
    """Progress of a node in a domain. Two nodes with equal fingerprints have the same entries."""

    domain: str
    entries: int
    fingerprint: str


def sum_entries(graphs: Graphs) -> None:
    """Add the entries that arrived since the last call to the sums, in slices."""
    while graphs.database.writable:
        with graphs.database.read_current() as snapshot:
            if not snapshot.value(_SQL.has_unsummed):
                return
        graphs.with_transaction(_sum_slice)


def _sum_slice(handle: GraphTransaction) -> None:
    txn = handle.txn
    start = int(txn.value(_SQL.summed) or 0)
    sums: dict[tuple[str, int], Summary] = {}
    for arrival, domain, entry in txn.all(_SQL.unsummed, (start, _STEP_ENTRIES)):
        place = str(domain), bytes(entry)[0]
        count, total = sums.get(place, (0, 0))
        sums[place] = Summary(count + 1, total + int.from_bytes(entry, "big"))
        start = int(arrival)
    for (domain, bucket), added in sums.items():
        known = _bucket(txn, domain, bucket)
        total = (known.total + added.total) % _MODULUS
        data = total.to_bytes(ID_BYTES, "big")
        txn.execute(_SQL.put_bucket, (domain, bucket, known.size + added.size, data))
    txn.execute(_SQL.put_summed, (start,))


def _bucket(snapshot: ReadTransaction, domain: str, bucket: int) -> Summary:
    row = snapshot.one(_SQL.bucket, (domain, bucket))
    return Summary(0, 0) if row is None else Summary(int(row[0]), int.from_bytes(row[1], "big"))


class DomainEntries:
    """The entries of a domain in one read transaction, for `ranges`."""

    def __init__(self, snapshot: ReadTransaction, domain: str) -> None:
        self._snapshot = snapshot
        self._domain = domain
        self._sums = {
            int(bucket): Summary(int(count), int.from_bytes(total, "big"))
            for bucket, count, total in snapshot.all(_SQL.buckets, (domain,))
        }
        start = int(snapshot.value(_SQL.summed) or 0)
        for entry, _ in snapshot.rows(_SQL.domain_unsummed, (domain, start)):
            bucket = bytes(entry)[0]
            count, total = self._sums.get(bucket, (0, 0))
            total = (total + int.from_bytes(entry, "big")) % _MODULUS
            self._sums[bucket] = Summary(count + 1, total)
        self._loaded: tuple[int, list[bytes]] = (-1, [])

    def heads(self) -> SyncHeads:
        """Return the number and the fingerprint of all entries."""
        summary = self.summary(b"", b"")
        return SyncHeads(self._domain, summary.size, summary.fingerprint().hex())

    def summary(self, lower: bytes, upper: bytes) -> Summary:
        """Return the summary of the ids from `lower` to before `upper`."""
        count = total = 0
        for bucket in _buckets_of(lower, upper):
            if _is_whole(bucket, lower, upper):
                part = self._sums.get(bucket, Summary(0, 0))
            else:
                ids = self._ids(bucket, lower, upper)
                part = Summary(len(ids), sum(int.from_bytes(entry, "big") for entry in ids))
            count, total = count + part.size, (total + part.total) % _MODULUS
        return Summary(count, total)

    def ids(self, lower: bytes, upper: bytes) -> Sequence[bytes]:
        """Return the ids from `lower` to before `upper`, sorted."""
        ids: list[bytes] = []
        for bucket in _buckets_of(lower, upper):
            if bucket in self._sums:
                ids += self._ids(bucket, lower, upper)
        return ids

    def bounds(self, lower: bytes, upper: bytes, parts: int) -> Sequence[bytes]:
        """Return where to divide a range into about equal parts, in order."""
        buckets = _buckets_of(lower, upper)
        if len(buckets) > 1:
            step = max(1, -(-len(buckets) // parts))
            return [bytes([bucket]) for bucket in buckets[step::step] if bytes([bucket]) > lower]
        ids = self._ids(buckets[0], lower, upper)
        step = max(1, -(-len(ids) // parts))
        found = (_shortest(ids[at - 1], ids[at]) for at in range(step, len(ids), step))
        return [bound for bound in found if bound > lower]

    def _ids(self, bucket: int, lower: bytes, upper: bytes) -> list[bytes]:
        if self._loaded[0] != bucket:
            # One bucket at a time: ranges are compared in their order.
            end = bytes([bucket + 1]) if bucket + 1 < BUCKETS else b"\xff" * (ID_BYTES + 1)
            rows = self._snapshot.rows(_SQL.ids_of_domain, (self._domain, bytes([bucket]), end))
            self._loaded = bucket, [bytes(row[0]) for row in rows]
        ids = self._loaded[1]
        end_at = bisect_left(ids, upper) if upper else len(ids)
        return ids[bisect_left(ids, lower) : end_at]


def _buckets_of(lower: bytes, upper: bytes) -> range:
    first = lower[0] if lower else 0
    if not upper:
        return range(first, BUCKETS)
    # A bound of one byte is the beginning of its bucket.
    return range(first, upper[0] + (len(upper.rstrip(b"\0")) > 1 or upper[0] == first))


def _is_whole(bucket: int, lower: bytes, upper: bytes) -> bool:
    starts = lower <= bytes([bucket])
    return starts and (not upper or upper[0] > bucket)


def _shortest(low: bytes, high: bytes) -> bytes:
    """Return the shortest prefix of `high` that is greater than `low`."""
    size = next(at for at in range(ID_BYTES) if low[at] != high[at])
    return high[: size + 1]


def read_heads(graphs: Graphs, domain: str) -> SyncHeads:
    """Return how much this node has of a domain."""
    log.mask_of(graphs, domain)
    sum_entries(graphs)
    with graphs.database.read_current() as snapshot:
        return DomainEntries(snapshot, domain).heads()


def reconcile(graphs: Graphs, domain: str, message: RangeMessage | None) -> RangeMessage:
    """Return the answer to a message of a peer, or the first message."""
    log.mask_of(graphs, domain)
    sum_entries(graphs)
    with graphs.database.read_current() as snapshot:
        entries = DomainEntries(snapshot, domain)
        return ranges.begin(entries) if message is None else ranges.respond(entries, message)


def export_ids(
    graphs: Graphs, domain: str, prefixes: Iterable[bytes], after: int, max_bytes: int
) -> Export:
    """Pack entries by the prefixes of their ids, in the order of their arrival here.

    Entries that are not here are left out.
    """
    names = list(prefixes)
    if len(names) > PULL_IDS_MAX:
        raise InvalidInput(f"ids: must be at most {PULL_IDS_MAX}, got {len(names)}")
    if any(not PREFIX_BYTES <= len(name) <= ID_BYTES for name in names):
        raise InvalidInput(f"ids: must have {PREFIX_BYTES} to {ID_BYTES} bytes")
    log.mask_of(graphs, domain)
    if not graphs.database.in_transaction():
        graphs.database.make_durable()
    envelopes: list[SignedEnvelope] = []
    size = rows = 0
    position = after
    with graphs.database.read_current() as snapshot:
        found = {
            int(row[0]): row
            for name in names
            for row in snapshot.all(_SQL.entry_by_prefix, (domain, name, name + b"\xff" * 32))
            if row[0] > after
        }
        for arrival, row in sorted(found.items()):
            envelope = read_envelope(snapshot, row[1], row[2])
            length = packed_size(envelope)
            if envelopes and size + length > min(max_bytes, PACKAGE_BYTES_MAX):
                return Export(pack(envelopes), len(envelopes), rows, False, position, 0, ())
            envelopes.append(envelope)
            position, size, rows = arrival, size + length, rows + len(envelope.bodies)
    return Export(pack(envelopes), len(envelopes), rows, True, position, 0, ())


def problems(snapshot: ReadTransaction) -> list[str]:
    """Return the sums that differ from the entries."""
    summed = int(snapshot.value(_SQL.summed) or 0)
    sums: dict[tuple[str, int], Summary] = {}
    for arrival, domain, entry in snapshot.rows(_SQL.unsummed, (0, _NO_LIMIT)):
        if int(arrival) <= summed:
            place = str(domain), bytes(entry)[0]
            size, total = sums.get(place, (0, 0))
            total = (total + int.from_bytes(entry, "big")) % _MODULUS
            sums[place] = Summary(size + 1, total)
    stored = {
        (str(domain), int(bucket)): Summary(int(size), int.from_bytes(total, "big"))
        for domain, bucket, size, total in snapshot.all(_SQL.all_buckets)
    }
    return [
        f"sync_bucket: {domain!r} {bucket} differs from its entries"
        for domain, bucket in sorted(sums.keys() | stored.keys())
        if sums.get((domain, bucket)) != stored.get((domain, bucket))
    ]
