"""`python -m bench.streams.rules`: what the rules of a stream cost, beside a stream without any.

    append    messages of about 200 bytes, 100 at a time and one at a time, to streams with a
              schema, with each profile, and with none
    read      messages that are stored in an older version, through one lens and through eight,
              beside the same messages as they are stored
    wait      one append while a thousand others wait, each for another row: until the one whom it
              concerns is told; beside one who waits alone

All of it in one process, on a store that syncs every commit; the kinds take turns.
"""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import click
import msgspec

import fourfold
from bench import machine
from bench.measurement import FOREIGN_SHARE_MAX, quantile, spread
from bench.place import BUILD, DOCUMENT, RESULTS, alone, newest_result
from bench.tables import markdown, put_between_marks
from fourfold.models.streams import Append, Streams
from fourfold.models.streams.touch import RowKey

JSON = "application/json"
ROUNDS = 5
BATCHES, BATCH, SINGLES = 200, 100, 500
STORED = 100_000
WAITERS, TOUCHES = 1_000, 20
CROWDS = ("1", str(WAITERS))
KINDS = ("none", "schema", "state-protocol", "evlog")
READS = ("as stored", "one lens", "eight lenses")
MESSAGE = {
    "type": "order",
    "key": "4711",
    "value": {"customer": "c-17", "total": 12.5, "text": "x" * 70},
    "headers": {"operation": "upsert"},
    "timestamp": "2026-03-01T12:00:00Z",
}


def schema(name: str) -> dict[str, Any]:
    """One that looks at every field; a property is called differently in each version."""
    value = {
        "type": "object",
        "properties": {
            "customer": {"type": "string", "minLength": 1},
            "total": {"type": "number", "minimum": 0},
            "text": {"type": "string", "maxLength": 1000},
        },
        "required": ["customer", "total"],
        "additionalProperties": False,
    }
    properties = {
        "type": {"enum": ["order", "customer"]},
        name: {"type": "string"},
        "value": value,
        "headers": {"type": "object"},
        "timestamp": {"type": "string", "format": "date-time"},
    }
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }


def upgrade(streams: Streams, name: str, count: int) -> None:
    old = "key"
    for number in range(count):
        new = f"key{number}"
        lens = [{"op": "rename", "from": old, "to": new}]
        streams.schemas.put(name, {"schema": schema(new), "lens": lens})
        old = new


def prepare(streams: Streams) -> None:
    for kind in KINDS:
        streams.create(f"append/{kind}", JSON)
    streams.schemas.put("append/schema", {"schema": schema("key")})
    streams.profiles.put("append/state-protocol", {"kind": "state-protocol"})
    streams.profiles.put("append/evlog", {"kind": "evlog"})
    message = json.dumps(MESSAGE).encode()
    for number, read in enumerate(READS):
        name = f"read/{read}"
        streams.create(name, JSON)
        streams.schemas.put(name, {"schema": schema("key")})
        for _ in range(STORED // 10_000):
            streams.append(name, Append([message] * 10_000, JSON))
        upgrade(streams, name, (0, 1, 8)[number])
    streams.create("wait", JSON)
    streams.profiles.put("wait", {"kind": "state-protocol", "touch": {"enabled": True}})


def appended(streams: Streams, kind: str) -> dict[str, float]:
    name, message = f"append/{kind}", json.dumps(MESSAGE).encode()
    many = Append([message] * BATCH, JSON)
    began = time.perf_counter()
    for _ in range(BATCHES):
        streams.append(name, many)
    batched = time.perf_counter() - began
    taken = []
    for _ in range(SINGLES):
        began = time.perf_counter()
        streams.append(name, Append([message], JSON))
        taken.append(1e6 * (time.perf_counter() - began))
    taken.sort()
    return {"messages_per_s": BATCHES * BATCH / batched, "alone_p50_us": quantile(taken, 0.5)}


def read(streams: Streams, kind: str) -> dict[str, float]:
    began = time.perf_counter()
    info, page = streams.page(f"read/{kind}", records_max=STORED)
    at, size = 0, 0
    while at < page.next_offset:
        piece, at = streams.read_joined(info, at, page.next_offset)
        size += len(piece)
    seconds = time.perf_counter() - began
    return {"messages_per_s": at / seconds, "mib_per_s": size / 2**20 / seconds}


def change(key: str) -> bytes:
    return json.dumps({**MESSAGE, "key": key}).encode()


async def waited(streams: Streams, waiters: int) -> dict[str, float]:
    """How long after an append was asked for the one whom it concerns knows of it."""
    told = asyncio.Event()

    async def wait(number: int) -> None:
        cursor = streams.touches.meta("wait").cursor
        while True:
            key = [RowKey("order", str(number))]
            done = await streams.touches.wait_async("wait", cursor, key, 3600)
            cursor = done.cursor
            if done.touched:
                told.set()

    waiting = [asyncio.create_task(wait(number)) for number in range(waiters)]
    await asyncio.sleep(0.5)
    taken = []
    for number in range(TOUCHES):
        told.clear()
        message = change(str(number % waiters))
        began = time.perf_counter()
        await streams.append_async("wait", Append([message], JSON))
        await told.wait()
        taken.append(1e3 * (time.perf_counter() - began))
        await asyncio.sleep(0.02)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    taken.sort()
    return {"p50_ms": quantile(taken, 0.5), "p99_ms": quantile(taken, 0.99)}


def measure(folder: Path) -> dict[str, Any]:
    rounds = []
    with fourfold.open(folder / "store") as store:
        streams = store.streams
        prepare(streams)
        for number in range(ROUNDS):
            turn = slice(None, None, 1 if number % 2 == 0 else -1)
            rounds.append(
                {
                    "append": {kind: appended(streams, kind) for kind in KINDS[turn]},
                    "read": {kind: read(streams, kind) for kind in READS[turn]},
                    "wait": {
                        count: asyncio.run(waited(streams, int(count))) for count in CROWDS[turn]
                    },
                }
            )
    return {
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": msgspec.to_builtins(machine.describe(folder)),
        "message_bytes": len(json.dumps(MESSAGE)),
        "rounds": rounds,
    }


def show(result: dict[str, Any]) -> str:
    """The figures as tables: medians, with the spread of the rounds."""
    rounds = result["rounds"]

    def cells(part: str, kind: str, *asked: str, form: str) -> list[str]:
        found = [spread([each[part][kind][which] for each in rounds]) for which in asked]
        return [
            f"{form.format(each.median)} ({form.format(each.min)}-{form.format(each.max)})"
            for each in found
        ]

    def ratio(part: str, kind: str, base: str, which: str) -> str:
        return f"{median(each[part][kind][which] / each[part][base][which] for each in rounds):.2f}"

    appends = [
        [
            kind,
            *cells("append", kind, "messages_per_s", "alone_p50_us", form="{:,.0f}"),
            ratio("append", kind, KINDS[0], "messages_per_s"),
        ]
        for kind in KINDS
    ]
    reads = [
        [
            kind,
            *cells("read", kind, "messages_per_s", "mib_per_s", form="{:,.0f}"),
            ratio("read", kind, READS[0], "messages_per_s"),
        ]
        for kind in READS
    ]
    waits = [
        [f"{int(kind):,}", *cells("wait", kind, "p50_ms", "p99_ms", form="{:.2f}")]
        for kind in CROWDS
    ]
    of_appends = ["rules", "messages/s, 100 at a time", "append alone, p50 µs", "ratio"]
    return f"""Messages of {result["message_bytes"]} bytes; rules of their stream:

{markdown(of_appends, appends)}

Catching up with {STORED:,} of them, in pieces as HTTP sends them:

{markdown(["", "messages/s", "MiB/s", "ratio"], reads)}

From an append until the one who waits for its row is told:

{markdown(["waiting", "p50 ms", "p99 ms"], waits)}

Others used {result["foreign_share"] or 0:.0%} of the machine meanwhile{_warning(result)}.
"""


def _warning(result: dict[str, Any]) -> str:
    busy = (result["foreign_share"] or 0) > FOREIGN_SHARE_MAX
    return ": the figures are disturbed" if busy else ""


@click.command()
@click.option("--keep", is_flag=True, help="Keep the result in bench/results.")
@click.option("--docs", is_flag=True, help="Only put the newest kept result into the page.")
def main(keep: bool, docs: bool) -> None:
    """Measure what the rules of streams cost."""
    if docs:
        kept = newest_result("streams-rules")
        figures = show(json.loads(kept.read_text(encoding="utf-8"))).rstrip()
        put_between_marks(DOCUMENT, "streams-rules", figures)
        return
    with alone(), TemporaryDirectory(dir=BUILD, prefix="work-") as folder:
        with machine.ForeignLoad() as others:
            result = measure(Path(folder))
        result["foreign_share"] = others.share
    click.echo(show(result))
    name = f"streams-rules-{datetime.now(UTC):%Y-%m-%d}.json"
    path = RESULTS / name if keep else BUILD / "newest-streams-rules.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
