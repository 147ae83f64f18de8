"""A: sealing beside plain pyarrow that writes the same Parquet.

    fourfold    claims the stream, reads its records from SQLite, writes the segments, brings them
                to disk, names and commits them
    ready       pyarrow writes the same row groups, which it has in memory as columns, with the
                same settings, and calls fsync
    rows        the same, from rows that a bare SELECT gives it

That it is the same Parquet is proven before: each file has the digest that the segment has.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import fourfold
from bench.archive import messages, plain
from bench.measurement import spread
from bench.parts import Figure, Part, ratio, undisturbed
from bench.place import BUILD
from bench.turns import Taken, in_turns
from fourfold.archive.records import SealedSegment
from fourfold.kernel import load_queries
from fourfold.models.streams.archive import Policy, sealer
from fourfold.models.streams.archive.records import SQL

ROWS = load_queries("bench.archive")
MESSAGES = 500_000
QUICK = 50_000


def measure(rounds: int, *, quick: bool) -> Part:
    count = QUICK if quick else MESSAGES
    root = messages.store("notes", count, published=False)
    with TemporaryDirectory(dir=BUILD, prefix="work-") as temporary:
        copy = Path(temporary) / "store"
        shutil.copytree(root, copy)
        with fourfold.open(copy) as store:
            work = _Work(store, Path(temporary))
            seconds, shares = in_turns(
                {"fourfold": work.ours, "ready": work.ready, "rows": work.rows}, rounds
            )
    megabytes = work.payload_bytes / 1e6
    return Part(
        title=f"A. Sealing {megabytes:,.0f} MB in {count:,} messages",
        rows=count,
        figures=[
            *(
                Figure(
                    f"{name}, MB/s",
                    spread([megabytes / each for each in seconds[name]]),
                    clean=undisturbed(shares[name]),
                )
                for name in seconds
            ),
            ratio("to pyarrow, columns ready", seconds, shares, "fourfold", "ready", 0.8),
            ratio("to pyarrow, rows by SELECT", seconds, shares, "fourfold", "rows", None),
        ],
        seconds=seconds,
        foreign_share=shares,
        facts={"segments": work.segments, "payload_bytes": work.payload_bytes},
    )


class _Work:
    """One stream that is sealed over and over, and what pyarrow is to write."""

    def __init__(self, store: fourfold.Store, folder: Path) -> None:
        self._database = store.streams.database
        # What a crash left is cleared, as in a store that publishes.
        assert store.archive is not None
        self._folder = folder / "segments"
        self._plain = folder / "plain"
        self._plain.mkdir()
        sealed = self._seal()
        files = sorted(self._folder.glob("**/*.parquet"))
        assert [each.stat().st_size for each in files] == [each.size_bytes for each in sealed]
        self._batches = [plain.row_groups(file) for file in files]
        self._ends = [(each.start_offset, each.end_offset + 1) for each in sealed]
        self.segments = len(sealed)
        self.payload_bytes = sum(each.payload_bytes for each in sealed)
        self._undo()
        for run in (self.ready, self.rows):
            run()
            for at, each in enumerate(sealed):
                data = (self._plain / f"{at}.parquet").read_bytes()
                assert hashlib.sha256(data).hexdigest() == each.digest, "not the same Parquet"

    def _seal(self) -> list[SealedSegment]:
        found: list[SealedSegment] = []
        while True:
            sealed = sealer.seal(
                self._database, messages.NAME, policy=Policy(), folder=self._folder, now_ms=0
            )
            if sealed is None:
                return found
            found.append(sealed)

    def _undo(self) -> None:
        sealer.unseal(self._database, messages.NAME)
        shutil.rmtree(self._folder)

    def ours(self) -> Taken:
        began = time.perf_counter()
        self._seal()
        taken = time.perf_counter() - began
        self._undo()
        return Taken(taken)

    def ready(self) -> None:
        for at, batches in enumerate(self._batches):
            plain.write(batches, self._plain / f"{at}.parquet")

    def rows(self) -> None:
        with self._database.read(deadline_s=float("inf")) as snapshot:
            sid = snapshot.value(SQL.sealable, (messages.NAME,))
            for at, (batches, ends) in enumerate(zip(self._batches, self._ends, strict=True)):
                rows = snapshot.all(ROWS.rows, (sid, *ends))
                sizes = [each.num_rows for each in batches]
                plain.write_rows(rows, sizes, self._plain / f"{at}.parquet")
