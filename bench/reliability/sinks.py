"""Sinks of the pipeline under kills: each row is written once, whatever is killed and when.

A process commits batch after batch into a store, as Spark does with a streaming query: tasks stage
the rows, and the driver commits the batch by its number. It is killed by SIGKILL at random moments
with all its children. The next process begins with the batch after the last one that was reported,
as Spark continues from its checkpoint; so a batch whose commit was not reported is written again.
No JVM takes part, so that there are many kills in a minute; tests kill whole queries.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import msgspec

import fourfold
from bench import machine, tables
from bench.machine import Machine
from fourfold.store import Store

TARGETS: Final = ("a", "b", "c")
ROWS: Final = 12
"""Rows of a batch and of each target."""
PAGE: Final = 5
"""Rows that a sink of events or envelopes writes at once, so that kills come between them."""
DELAY_MAX_S: Final = 0.4
"""Maximum time from a reported batch to the kill."""
START_MAX_S: Final = 120.0

Rows = list[dict[str, Any]]


class SinkModel(NamedTuple):
    """What is written into a model, and how it is read again."""

    options: Mapping[str, str]
    create: Callable[[Store], None]
    row: Callable[[str, int], dict[str, Any]]
    """Returns the columns of a row of a target, by its number."""
    numbers: Callable[[Store, str], list[int]]
    """Returns the numbers of all rows of a target that were written, in order."""


class Figures(msgspec.Struct):
    """Kills of one sink, and what they broke."""

    kills: int = 0
    batches: int = 0
    again: int = 0
    """Batches that had rows already when they were written again."""
    rows: int = 0
    missing: int = 0
    twice: int = 0
    disordered: int = 0


class Result(msgspec.Struct, frozen=True):
    """Kills of all sinks, added up."""

    finished_at: str
    machine: Machine
    first_seed: int
    rounds: int
    seconds: float
    models: dict[str, Figures]

    @property
    def kills(self) -> int:
        """Kills of all sinks."""
        return sum(figures.kills for figures in self.models.values())

    @property
    def broken(self) -> int:
        """Rows that are missing, were written twice or in another order."""
        return sum(each.missing + each.twice + each.disordered for each in self.models.values())


def _did(target: str) -> str:
    return f"did:web:{target}.example"


def _create_spaces(store: Store) -> None:
    for target in TARGETS:
        store.space(_did(target)).set("log", {"numbers": []})


def _document(target: str, number: int) -> dict[str, Any]:
    patch = [{"op": "append", "path": "/numbers", "values": [number]}]
    return {"space": _did(target), "id": "log", "op": "patch", "data": json.dumps(patch)}


def _numbers_of_space(store: Store, target: str) -> list[int]:
    state = store.space(_did(target)).read("log")
    assert state is not None
    assert state.document is not None
    return [int(number) for number in state.document["numbers"]]


def _create_streams(store: Store) -> None:
    for target in TARGETS:
        store.streams.create(target, "application/json")


def _record(target: str, number: int) -> dict[str, Any]:
    return {"stream": target, "payload": str(number).encode()}


def _numbers_of_stream(store: Store, target: str) -> list[int]:
    query = "select text from streams_records where stream = ? order by offset"
    return [int(row[0]) for row in store.sql(query, [target], max_rows=1 << 30).rows]


def _create_sessions(store: Store) -> None:
    for target in TARGETS:
        store.sessions.create_session({"id": target})


def _event(target: str, number: int) -> dict[str, Any]:
    event = {"type": "message/appended", "message": {"role": "user", "content": str(number)}}
    return {"session": target, "event": json.dumps(event)}


def _numbers_of_session(store: Store, target: str) -> list[int]:
    query = "select content from sessions_messages where session = ? order by message_id"
    rows = store.sql(query, [target], max_rows=1 << 30).rows
    return [int(json.loads(row[0])) for row in rows]


def _create_apps(store: Store) -> None:
    for target in TARGETS:
        store.graphs.create(target).register_type("parent", "note")


def _envelope(target: str, number: int) -> dict[str, Any]:
    operation = {
        "op": "parent_create",
        "app_id": TARGETS.index(target) + 1,
        "type_key": "note",
        "owner_identity": number + 1,
        "payload": {},
    }
    return {"envelope": json.dumps({"trace_id": f"{target} {number}", "ops": [operation]})}


def _numbers_of_app(store: Store, target: str) -> list[int]:
    query = "select owner_identity from graphs_parents where app = ? order by global_seq, id"
    return [row[0] - 1 for row in store.sql(query, [target], max_rows=1 << 30).rows]


MODELS: Final = {
    "documents": SinkModel({}, _create_spaces, _document, _numbers_of_space),
    "streams": SinkModel({}, _create_streams, _record, _numbers_of_stream),
    "sessions": SinkModel({}, _create_sessions, _event, _numbers_of_session),
    "graphs": SinkModel({}, _create_apps, _envelope, _numbers_of_app),
}


def run(
    folder: Path, seed: int, kills: int, per_round: int, previous: Result | None = None
) -> Iterator[Result]:
    """Run rounds until there were `kills`, with those of `previous`; yield the sum after each.

    A round kills the sink of each model `per_round` times, into a new store.
    """
    facts = machine.describe(folder)
    models = {name: Figures() for name in MODELS}
    rounds, seconds = 0, 0.0
    if previous is not None:
        seed, rounds, seconds = previous.first_seed, previous.rounds, previous.seconds
        models |= previous.models
    while sum(figures.kills for figures in models.values()) < kills:
        started = time.monotonic()
        for name in MODELS:
            with TemporaryDirectory(dir=folder, prefix="sink-") as place:
                run_round(Path(place) / "store", name, seed + rounds, per_round, models[name])
        rounds += 1
        seconds += time.monotonic() - started
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        yield Result(finished, facts, seed, rounds, round(seconds, 1), models)


def run_round(root: Path, name: str, seed: int, kills: int, figures: Figures) -> None:
    """Kill the sink of a model repeatedly, and count its rows in a store."""
    draw, model = random.Random(seed), MODELS[name]
    with fourfold.open(root) as store:
        model.create(store)
    done = -1
    for _ in range(kills):
        done = _killed(root, name, done + 1, draw.uniform(0, DELAY_MAX_S))
        figures.kills += 1
        figures.again += _has_rows_after(root, model, done)
    # What the last kill interrupted is written again, and completes the store.
    _write(root, name, done + 1)
    done += 1
    with fourfold.open(root, mode="r") as store:
        for target in TARGETS:
            _count(figures, model.numbers(store, target), (done + 1) * ROWS)
    figures.batches += done + 1


def _has_rows_after(root: Path, model: SinkModel, batch: int) -> bool:
    """Return True if rows were written of a batch after the last one that was reported."""
    with fourfold.open(root, mode="r") as store:
        return any(model.numbers(store, target)[-1] >= (batch + 1) * ROWS for target in TARGETS)


def _count(figures: Figures, numbers: list[int], expected: int) -> None:
    counts = Counter(numbers)
    figures.rows += expected
    figures.missing += sum(number not in counts for number in range(expected))
    figures.twice += sum(count - 1 for count in counts.values())
    figures.disordered += numbers != sorted(numbers)


def _killed(root: Path, name: str, batch: int, delay_s: float) -> int:
    """Write batches from one on in a process that is killed; return the last reported one."""
    command = [sys.executable, "-m", "bench.reliability.sinks", str(root), name, str(batch)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    with process:
        try:
            reported = process.stdout.readline()
            assert reported, "the process ended before its first batch"
            time.sleep(delay_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        # Lines that were written before the kill are reported, as far as they are complete.
        lines = (reported + process.stdout.read()).splitlines(keepends=True)
    return max(int(line) for line in lines if line.endswith(b"\n"))


def _write(root: Path, name: str, batch: int) -> None:
    """Write a batch, as Spark runs it with two tasks."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    from fourfold.pipeline import json_sink
    from fourfold.pipeline.source import FourfoldSource

    model = MODELS[name]
    rows = [
        {**model.row(target, number), "n": number}
        for number in range(batch * ROWS, (batch + 1) * ROWS)
        for target in TARGETS
    ]
    half = len(rows) // 2
    batches = [pa.RecordBatch.from_pylist(part) for part in (rows[:half], rows[half:])]
    options = {"root": str(root), "model": name, "query": "kills", "order": "n", "wait_s": "60"}
    source = FourfoldSource({**options, **model.options})
    writer = source.streamWriter(from_arrow_schema(batches[0].schema), False)
    with patch.object(json_sink, "JSON_SINK_PAGE", PAGE):
        writer.commit([writer.write(iter([part])) for part in batches], batch)


def main(root: str, name: str, batch: str) -> None:
    """Write batches until the process is killed, and report each."""
    number = int(batch)
    while True:
        _write(Path(root), name, number)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        number += 1


def table(result: Result, path: Path) -> str:
    """Return the figures of a result as Markdown."""
    names = ("sink", "kills", "batches", "written again", "rows", "missing", "twice", "disordered")
    rows = [
        (name, *(f"{value:,}" for value in msgspec.structs.astuple(figures)))
        for name, figures in result.models.items()
    ]
    return "\n\n".join(
        [
            tables.markdown(names, rows),
            (
                f"{result.kills} kills by SIGKILL in {result.seconds / 60:.0f} minutes. From "
                f"`bench/results/{path.name}`; the seed of the first round is {result.first_seed}."
            ),
        ]
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
