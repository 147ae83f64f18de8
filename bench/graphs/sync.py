"""`python -m bench.graphs.sync`: measure sync, print, and keep the result.

Ingest of envelopes of five rows, the size of a row in a package, and what it costs to find the
difference of two large sets of entries. Rates are of processor time.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

import fourfold
from bench import commands, machine, tables
from bench.machine import Machine
from bench.measurement import verdict
from bench.place import BUILD, RESULTS, ROOT, alone, newest_result
from fourfold.models.graphs import Graphs
from fourfold.models.graphs.sync import checks, envelope, ranges
from fourfold.models.graphs.sync.keys import Ed25519Signer

ENVELOPES = 2_000
ROWS = 5
"""Rows of an envelope."""
ENTRIES = 100_000
DIFFERENT = 1_000
LOGS = 100
ROUNDS = 5
"""Rounds of ingest that count, after one that warms up."""
_ADD_LOG = "INSERT INTO sync_log (author, incarnation, domain) VALUES (x'00', x'00', 'talk')"
_ADD_ENTRY = (
    "INSERT INTO sync_entry (id, log_id, seq, prev, head, signature, is_tip)"
    " VALUES (?1, 1, ?2, NULL, x'', x'', 0)"
)


class Figure(msgspec.Struct, frozen=True):
    """One figure: the median of its values, and the target that the design set."""

    title: str
    unit: str
    values: list[float]
    target: float | None = None
    at_most: bool = True

    @property
    def median(self) -> float:
        return float(statistics.median(self.values))

    @property
    def verdict(self) -> str:
        return verdict(self.median, self.target, at_most=self.at_most, clean=True)


class Result(msgspec.Struct, frozen=True):
    """Everything that a run found out."""

    finished_at: str
    machine: Machine
    figures: list[Figure]


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


class Packages(NamedTuple):
    """Packages of one author, and what a store needs to import them."""

    signer: Ed25519Signer
    data: list[bytes]


def packages() -> Packages:
    """Sign envelopes of five rows, and pack them."""
    signer = Ed25519Signer.generate()
    with node() as source:
        app = source.create("notes")
        identity = source.add_identity(signer.public_key)
        kind = app.register_type("parent", "note")
        row = {"type_id": kind, "owner_identity": identity.id, "sync_flags": 1}
        for _ in range(ENVELOPES):
            source.insert(app.app_id, "parent", [row] * ROWS)
        source.sign_shared("talk", signer)
        made, after, complete = [], 0, False
        while not complete:
            sent = source.export_package("talk", after=after)
            made.append(sent.data)
            after, complete = sent.position, sent.complete
    return Packages(signer, made)


def ingest_rate(made: Packages) -> float:
    """Return the rows that a new store imports in a second of processor time."""
    with node() as target:
        target.create("notes")
        peer = target.add_peer(target.add_identity(made.signer.public_key).id, "file:").id
        target.allow_peer(peer, "talk")
        start = time.process_time()
        reports = [target.ingest_package(peer, data) for data in made.data]
        seconds = time.process_time() - start
    assert sum(report.added for report in reports) == ENVELOPES * ROWS
    return ENVELOPES * ROWS / seconds


def verify_rate(made: Packages) -> float:
    """Return the rows whose envelopes are parsed and verified in a second, without a store."""
    start = time.process_time()
    for data in made.data:
        for raw in envelope.unpack(data):
            checks.verify(raw)
    return ENVELOPES * ROWS / (time.process_time() - start)


def ingest_figures() -> list[Figure]:
    """Measure ingest, and its part that needs no store, in turn."""
    made = packages()
    ingest_rate(made)
    pairs = [(ingest_rate(made), verify_rate(made)) for _ in range(ROUNDS)]
    size = sum(map(len, made.data)) / ENVELOPES / ROWS
    return [
        Figure("ingest, 5 rows an envelope", "rows/s", [a for a, _ in pairs], 15_000, False),
        Figure("the same, only parsed and verified", "rows/s", [b for _, b in pairs], None, False),
        Figure("a row in a package, 5 rows an envelope", "B", [size], 250),
    ]


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


def tips_figures() -> list[Figure]:
    """Measure what nodes exchange to find that they have the same, or by logs what they lack."""
    with node() as graphs:
        with graphs.transaction() as handle:
            for log_id in range(1, LOGS + 1):
                add = "INSERT INTO sync_log (author, incarnation, domain) VALUES (?1, ?2, 'talk')"
                handle.txn.execute(add, (os.urandom(32), os.urandom(16)))
                handle.txn.execute(
                    "INSERT INTO sync_entry (id, log_id, seq, prev, head, signature, is_tip)"
                    " VALUES (?1, ?2, 1000, NULL, x'', x'', 1)",
                    (os.urandom(32), log_id),
                )
        size = len(graphs.sync_tips("talk")) / LOGS
        fingerprint = len(graphs.sync_heads("talk").fingerprint)
    return [
        Figure("equal nodes: the fingerprint, for all logs", "B", [fingerprint], 70),
        Figure("other nodes: tips of a log, as JSON", "B", [size]),
    ]


def range_figures() -> list[Figure]:
    """Measure the difference of two large sets of entries."""
    ids = [os.urandom(32) for _ in range(ENTRIES)]
    with node() as client, node() as server:
        fill(client, ids[DIFFERENT:])
        fill(server, ids)
        server.sync_heads("talk")
        client.sync_heads("talk")
        start = time.process_time()
        server.sync_heads("talk")
        heads_s = time.process_time() - start
        start = time.process_time()
        done = reconciled(client, server)
        seconds = time.process_time() - start
    assert done.lacking == DIFFERENT
    what = f"{DIFFERENT:,} of {ENTRIES:,} entries differ"
    return [
        Figure(f"heads of {ENTRIES:,} entries", "ms of CPU", [heads_s * 1e3]),
        Figure(f"{what}: round trips", "", [done.trips], 4),
        Figure(f"{what}: both ways", "kB", [done.size / 1e3], 350),
        Figure(f"{what}: both nodes", "s of CPU", [seconds]),
    ]


def cells(figure: Figure) -> list[str]:
    decimals = 0 if figure.median >= 10 or figure.median.is_integer() else 2
    sign = "<=" if figure.at_most else ">="
    target = "-" if figure.target is None else f"{sign} {figure.target:,.0f}"
    amount = f"{figure.median:,.{decimals}f} {figure.unit}".strip()
    return [figure.title, amount, target, figure.verdict]


def markdown(result: Result, source: str) -> str:
    facts = "\n".join(f"- {line}" for line in tables.machine_facts(result.machine))
    rows = [cells(figure) for figure in result.figures]
    table = tables.markdown(["", "median", "target", ""], rows)
    return f"{facts}\n\n{table}\n\nMeasured {result.finished_at}; every round: `{source}`."


@click.command()
@click.option("--docs", is_flag=True, help="Write the newest results into docs/performance.md.")
def main(*, docs: bool) -> None:
    """Measure sync of graphs."""
    console = commands.console()
    if docs:
        path = newest_result("sync")
        text = markdown(commands.load(path, Result), str(path.relative_to(ROOT)))
        console.print(commands.document("sync", path, text))
        return
    with alone(), tempfile.TemporaryDirectory(dir=BUILD, prefix="work-") as folder:
        facts = machine.describe(Path(folder))
        figures = [*ingest_figures(), *tips_figures(), *range_figures()]
    result = Result(datetime.now(UTC).isoformat(timespec="seconds"), facts, figures)
    for figure in figures:
        console.print("  ".join(cells(figure)), highlight=False, markup=False)
    path = RESULTS / f"sync-{datetime.now(UTC):%Y-%m-%d}.json"
    commands.save(result, path)
    console.print(f"Every round: {path.relative_to(ROOT)}")
    sys.exit(1 if any(figure.verdict == "FAIL" for figure in figures) else 0)


if __name__ == "__main__":
    main()
