"""Figures of sync: import of envelopes, equal nodes, and 1 % of 100,000 entries that differ.

    python -m bench.graphs.sync

Rates are per second of processor time. The nodes are in this process, so bytes are those of
messages and packages without HTTP.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import fourfold
from fourfold.models.graphs import Graphs
from fourfold.models.graphs.sync import ranges
from fourfold.models.graphs.sync.keys import Ed25519Signer

ENVELOPES = 2_000
ROWS = 5
"""Rows of an envelope."""
ENTRIES = 100_000
DIFFERENT = 1_000
_ADD_LOG = "INSERT INTO sync_log (author, incarnation, domain) VALUES (x'00', x'00', 'talk')"
_ADD_ENTRY = (
    "INSERT INTO sync_entry (id, log_id, seq, prev, head, signature, is_tip)"
    " VALUES (?1, 1, ?2, NULL, x'', x'', 0)"
)


class Exchanged(NamedTuple):
    """Cost of a reconciliation."""

    trips: int
    size: int
    lacking: int


@contextmanager
def node() -> Iterator[Graphs]:
    with tempfile.TemporaryDirectory() as folder, fourfold.open(Path(folder) / "store") as store:
        store.graphs.define_domain("talk", 1)
        yield store.graphs


def measure_ingest() -> None:
    """Print the rate at which envelopes of five rows are imported, and their bytes."""
    signer = Ed25519Signer.generate()
    with node() as source, node() as target:
        for graphs in (source, target):
            graphs.create("notes")
            identity = graphs.add_identity(signer.public_key)
        kind = source.open("notes").register_type("parent", "note")
        row = {"type_id": kind, "owner_identity": identity.id, "sync_flags": 1}
        for _ in range(ENVELOPES):
            source.insert(source.app("notes").app_id, "parent", [row] * ROWS)
        source.sign_shared("talk", signer)
        peer = target.add_peer(identity.id, "file:").id
        target.allow_peer(peer, "talk")
        packages, after, complete = [], 0, False
        while not complete:
            sent = source.export_package("talk", after=after)
            packages.append(sent.data)
            after, complete = sent.position, sent.complete
        start = time.process_time()
        reports = [target.ingest_package(peer, data) for data in packages]
        seconds = time.process_time() - start
        assert sum(report.added for report in reports) == ENVELOPES * ROWS
        rate, size = ENVELOPES * ROWS / seconds, sum(map(len, packages)) / ENVELOPES / ROWS
        print(f"ingest: {rate:,.0f} rows/s of CPU, {size:.0f} bytes a row")


def fill(graphs: Graphs, ids: list[bytes]) -> None:
    """Store entries with these ids and nothing else."""
    with graphs.transaction() as handle:
        handle.txn.execute(_ADD_LOG)
        for seq, entry in enumerate(ids, 1):
            handle.txn.execute(_ADD_ENTRY, (entry, seq))


def reconciled(client: Graphs, server: Graphs) -> Exchanged:
    """Reconcile two nodes, and return what it cost without the entries themselves."""
    trips = size = lacking = 0
    data = client.reconcile("talk")
    while ranges.decode_message(data).ranges:
        answer = server.reconcile("talk", data)
        trips, size = trips + 1, size + len(data) + len(answer)
        data = client.reconcile("talk", answer)
        lacking += len(ranges.decode_message(answer).extra)
        lacking += len(ranges.decode_message(data).lacking)
    return Exchanged(trips, size, lacking)


def measure_ranges() -> None:
    """Print what it costs to find the difference of two large sets of entries."""
    ids = [os.urandom(32) for _ in range(ENTRIES)]
    with node() as client, node() as server:
        fill(client, ids[DIFFERENT:])
        fill(server, ids)
        start = time.process_time()
        server.sync_heads("talk")
        print(f"first heads of {ENTRIES:,} entries: {time.process_time() - start:.2f} s of CPU")
        start = time.process_time()
        server.sync_heads("talk")
        print(f"heads: {(time.process_time() - start) * 1e3:.2f} ms of CPU")
        start = time.process_time()
        done = reconciled(client, server)
        seconds = time.process_time() - start
        assert done.lacking == DIFFERENT
        print(
            f"{DIFFERENT:,} of {ENTRIES:,} entries differ: {done.trips} round trips, "
            f"{done.size / 1e3:,.0f} kB, {seconds:.2f} s of CPU on both sides"
        )


if __name__ == "__main__":
    measure_ingest()
    measure_ranges()
