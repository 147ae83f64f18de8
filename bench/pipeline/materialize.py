"""The job `materialize` beside a plain Python fold, and what one long entity needs.

    plain      one core reads the log of a space in the order of its keys and folds it, no Spark
    chains     the job over entities of ten revisions, of which nothing can be left out
    prunable   the job where nine of ten rows make no difference
    shuffled   `chains`, folded by Spark's shuffle and sort instead of file by file

The clock runs from the start of the job until its tables can be read; the session stands already.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw

from bench.measurement import spread
from bench.parts import Figure, Part, one, ratio, undisturbed
from bench.pipeline import stores
from bench.place import BUILD
from bench.processes import foreign, workers
from bench.turns import in_turns
from fourfold.models.documents import fold
from fourfold.models.documents.encoding import decode, trusted
from fourfold.pipeline import jobs, session
from fourfold.pipeline.documents import spark_fold

GOAL_REVISIONS_PER_S = 400_000
GOAL_RATIO = 1.2
GOAL_PRUNABLE = 5.0
MIB = 2**20


def plain(root: Path) -> int:
    """The limit: one core, no Spark; the log in the order of its keys, through the same fold."""
    sql = (Path(__file__).parent / "log.sql").read_text(encoding="utf-8")
    count = 0
    for path in sorted((root / "spaces").glob("*.sqlite")):
        rows = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        for _, group in groupby(rows.execute(sql), key=lambda row: row[0]):
            log = [(seq, op, data and decode(data)) for _, seq, op, data in group]
            state = fold.fold(None, log)
            assert state is not None
            trusted(state.document)
            count += 1
        rows.close()
    return count


def materialize(spark: Any, root: Path, into: Path) -> int:
    shutil.rmtree(into, ignore_errors=True)
    return jobs.run("materialize", root, {"into": str(into)}, spark=spark).rows_out


def shuffle(spark: Any, root: Path) -> None:
    spark_fold.state(spark, root=str(root)).write.format("noop").mode("overwrite").save()


def prepare(rows: int) -> None:
    for kind in ("chains", "prunable"):
        stores.store(kind, rows)


def measure(rows: int, rounds: int) -> Part:
    chains, prunable = (stores.store(kind, rows) for kind in ("chains", "prunable"))
    spark = session("local[2]", quiet=True, spark__driver__memory="3g")
    with TemporaryDirectory(dir=BUILD, prefix="work-") as temporary:
        folder = Path(temporary)
        tasks: dict[str, Callable[[], object]] = {
            "plain": lambda: plain(chains),
            "chains": lambda: materialize(spark, chains, folder / "chains"),
            "prunable": lambda: materialize(spark, prunable, folder / "prunable"),
        }
        if rows <= stores.SPACE_ROWS:
            tasks["shuffled"] = lambda: shuffle(spark, chains)
        seconds, shares = in_turns(tasks, rounds)
    spark.stop()
    rate = Figure(
        "materialize, revisions/s",
        spread([rows / taken for taken in seconds["chains"]]),
        "/s",
        GOAL_REVISIONS_PER_S,
        clean=undisturbed(shares["chains"]),
    )
    return Part(
        title=f"`materialize` of {rows:,} revisions on two cores",
        rows=rows,
        figures=[
            rate,
            ratio("to the plain fold on one core", seconds, shares, "chains", "plain", GOAL_RATIO),
            ratio(
                "nine of ten rows prunable, to none",
                seconds,
                shares,
                "prunable",
                "chains",
                GOAL_PRUNABLE,
            ),
        ],
        seconds=seconds,
        foreign_share=shares,
    )


def prepare_hot(rows: int) -> None:
    stores.store("hot", min(rows, stores.SPACE_ROWS))
    stores.store("chains", min(rows, stores.SPACE_ROWS))


def measure_hot(rows: int, rounds: int) -> Part:
    """The memory of a worker that folds ordinary entities, and of one that folds a very long one.

    Workers keep what they have had, so each case has a session of its own.
    """
    del rounds
    rows = min(rows, stores.SPACE_ROWS)
    peaks: dict[str, int] = {}
    seconds: dict[str, list[float]] = {}
    shares: dict[str, list[float]] = {}
    for kind in ("chains", "hot"):
        for form in (materialize, _shuffled):
            name = f"{kind}, {'fold in the source' if form is materialize else 'shuffled'}"
            with workers() as seen, foreign() as others:
                seconds[name] = [_once(form, stores.store(kind, rows))]
            peaks[name], shares[name] = seen.worker_bytes, [others.foreign_share]
    return Part(
        title=f"Memory of a worker with an entity of {rows:,} revisions",
        rows=rows,
        figures=[one(name, peak / MIB, "MiB") for name, peak in peaks.items()],
        seconds=seconds,
        foreign_share=shares,
    )


def _shuffled(spark: Any, root: Path, _: Path) -> int:
    shuffle(spark, root)
    return 0


def _once(form: Callable[[Any, Path, Path], int], root: Path) -> float:
    spark = session("local[2]", quiet=True, spark__driver__memory="3g")
    with TemporaryDirectory(dir=BUILD, prefix="work-") as temporary:
        began = time.perf_counter()
        form(spark, root, Path(temporary) / "out")
        taken = time.perf_counter() - began
    spark.stop()
    return taken
