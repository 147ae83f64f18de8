"""What agents need beside a log, next to the peers: memory, lists, remote turns and traces.

python -m bench.sessions.agents                       # all parts; prints the result as JSON
python -m bench.sessions.agents memory lists          # some parts
python -m bench.sessions.agents --items 1000000 memory
python -m bench.sessions.agents --peers PYTHON vectors   # beside the peers that PYTHON can import

Times are CPU times of this process, medians; those of `turns` are wall times. Sessions and peers
write with `synchronous=FULL`; spaces, and so memories, always with NORMAL. `--folder` is where.
"""

from __future__ import annotations

import array
import json
import random
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click

import fourfold
from fourfold.models.documents.memory_items import MemoryPut

FULL = {"sessions.synchronous": "FULL"}
WORDS, VOCABULARY, BATCH = 30, 20_000, 500
DIMENSIONS = 384
QUERIES = {
    "a rare word": "w5000",
    "a word": "w500",
    "two words": "w300 w900",
    "a phrase": '"w10 w20"',
    "a frequent word": "w50",
}
THREADS = 20_000
_source = random.Random(7)
_words = [f"w{number}" for number in range(VOCABULARY)]
_weights = [1 / (number + 1) for number in range(VOCABULARY)]


def cpu_us(work: Callable[[], object], count: int = 1, rounds: int = 5) -> float:
    """Return the median CPU time of `count` operations, for one of them."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        times.append((time.process_time() - began) / count * 1e6)
    return round(statistics.median(times), 2)


def texts(count: int) -> list[str]:
    """Return texts of words whose frequencies are those of a language."""
    chosen = _source.choices(_words, _weights, k=count * WORDS)
    return [" ".join(chosen[at : at + WORDS]) for at in range(0, len(chosen), WORDS)]


def _place(number: int) -> tuple[tuple[str, str], str]:
    return ("users", f"u{number % 100}"), f"k{number}"


def memory(folder: Path, items: int, _peers: str | None) -> dict[str, Any]:
    """Put, get and search items of 30 words, beside SqliteStore."""
    some = [_place(_source.randrange(items)) for _ in range(1_000)]
    result: dict[str, Any] = {"items": items}
    with fourfold.open(folder / "memory", settings=FULL) as store:
        notes = store.memory("bench")
        began = time.process_time()
        for at in range(0, items, BATCH):
            values = enumerate(texts(min(BATCH, items - at)), at)
            notes.put_many([MemoryPut(*_place(number), {"text": text}) for number, text in values])
        put_us = (time.process_time() - began) / items * 1e6
        ours: dict[str, Any] = {"put_many_us": round(put_us, 1)}
        ours["get_us"] = cpu_us(lambda: [notes.get(*place) for place in some], len(some))
        ours["search_ms"] = {
            name: {
                "hits": len(notes.search(query)),
                "cpu_ms": round(cpu_us(partial(notes.search, query), rounds=9) / 1e3, 2),
            }
            for name, query in QUERIES.items()
        }
        in_one = cpu_us(lambda: notes.search("w50", namespace=("users", "u7")), rounds=9)
        ours["search_ms"]["a frequent word in one of 100 namespaces"] = round(in_one / 1e3, 2)
        one = {"text": texts(1)[0]}
        ours["put_us"] = cpu_us(lambda: [notes.put("one", str(n), one) for n in range(100)], 100)
        result["fourfold"] = ours
    if items <= 10_000:
        result["SqliteStore"] = _sqlite_store(folder, items, some)
    return result


def _sqlite_store(folder: Path, items: int, some: list[Any]) -> dict[str, Any]:
    from langgraph.store.base import PutOp
    from langgraph.store.sqlite import SqliteStore

    connection = sqlite3.connect(
        folder / "store.sqlite", check_same_thread=False, isolation_level=None
    )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    store = SqliteStore(connection)
    store.setup()
    began = time.process_time()
    for at in range(0, items, BATCH):
        values = enumerate(texts(min(BATCH, items - at)), at)
        store.batch([PutOp(*_place(number), {"text": text}) for number, text in values])
    put_us = (time.process_time() - began) / items * 1e6
    one = {"text": texts(1)[0]}

    def put_each() -> None:
        for number in range(100):
            store.put(("one",), str(number), one)

    searched = cpu_us(lambda: store.search(("users",), query="w500"), rounds=9)
    return {
        "put_many_us": round(put_us, 1),
        "get_us": cpu_us(lambda: [store.get(*place) for place in some], len(some)),
        "search_unranked_ms": round(searched / 1e3, 2),
        "put_us": cpu_us(put_each, 100),
    }


def _vectors(count: int) -> list[list[float]]:
    return [
        array.array("f", [_source.gauss(0, 1) for _ in range(DIMENSIONS)]).tolist()
        for _ in range(count)
    ]


_PEERS = """
import json, random, sys, time, statistics
count, dimensions, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
import numpy
source = numpy.random.default_rng(7)
data = source.standard_normal((count, dimensions), dtype="float32")
queries = source.standard_normal((15, dimensions), dtype="float32")
result = {}
def measured(build, search):
    began = time.process_time(); wall = time.perf_counter()
    thing = build()
    built, waited = time.process_time() - began, time.perf_counter() - wall
    cpu, walls = [], []
    for query in queries:
        began, wall = time.process_time(), time.perf_counter()
        assert len(search(thing, query)) == 10
        cpu.append((time.process_time() - began) * 1e3)
        walls.append((time.perf_counter() - wall) * 1e3)
    return {"build_cpu_s": round(built, 1), "build_s": round(waited, 1),
            "search_cpu_ms": round(statistics.median(cpu), 2),
            "search_ms": round(statistics.median(walls), 2)}
try:
    import chromadb
    def build():
        client = chromadb.PersistentClient(folder + "/chroma")
        items = client.create_collection("bench", metadata={"hnsw:space": "cosine"})
        for at in range(0, count, 5000):
            part = data[at:at + 5000]
            items.add(ids=[str(at + n) for n in range(len(part))], embeddings=part)
        return items
    result[f"Chroma {chromadb.__version__} (HNSW, approximate)"] = measured(
        build, lambda items, query: items.query(query_embeddings=[query], n_results=10)["ids"][0])
except ImportError:
    pass
try:
    import lancedb
    def table():
        base = lancedb.connect(folder + "/lance")
        rows = [{"id": str(n), "vector": vector} for n, vector in enumerate(data)]
        return base.create_table("bench", rows)
    result[f"LanceDB {lancedb.__version__} (no index, exact)"] = measured(
        table, lambda t, q: t.search(q).distance_type("cosine").limit(10).to_list())
except ImportError:
    pass
print(json.dumps(result))
"""


def vectors(folder: Path, items: int, peers: str | None) -> dict[str, Any]:
    """Search embeddings exactly, beside Chroma and LanceDB if a Python has them."""
    with fourfold.open(folder / "vectors", settings=FULL) as store:
        notes = store.memory("bench")
        began, wall = time.process_time(), time.perf_counter()
        for at in range(0, items, BATCH):
            made = enumerate(_vectors(min(BATCH, items - at)), at)
            notes.put_many(
                [MemoryPut(*_place(n), {"n": n}, text=False, vector=vector) for n, vector in made]
            )
        built, waited = time.process_time() - began, time.perf_counter() - wall
        queries = iter(_vectors(40))
        search_us = cpu_us(lambda: notes.search(vector=next(queries)), rounds=15)
        wall = time.perf_counter()
        notes.search(vector=next(queries))
        one_ms = (time.perf_counter() - wall) * 1e3
        in_one = cpu_us(lambda: notes.search(vector=next(queries), namespace=("users", "u7")))
    result: dict[str, Any] = {
        "items": items,
        "dimensions": DIMENSIONS,
        "fourfold": {
            "build_cpu_s": round(built, 1),
            "build_s": round(waited, 1),
            "search_cpu_ms": round(search_us / 1e3, 2),
            "search_ms": round(one_ms, 2),
            "search_of_one_of_100_namespaces_cpu_ms": round(in_one / 1e3, 2),
        },
    }
    if peers is not None:
        command = [peers, "-c", _PEERS, str(items), str(DIMENSIONS), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        result.update(json.loads(done.stdout.splitlines()[-1]))
    return result


def lists(folder: Path, _items: int, _peers: str | None) -> dict[str, Any]:
    """List the newest of 20,000 LangGraph threads."""
    from langgraph.checkpoint.base import empty_checkpoint

    from fourfold.adapters.langgraph import FourfoldSaver

    settings = {**FULL, "sessions.synchronous": "NORMAL"}
    with fourfold.open(folder / "lists", settings=settings) as store:
        saver = FourfoldSaver(store.sessions)
        for number in range(THREADS):
            config = {"configurable": {"thread_id": f"t-{number}", "checkpoint_ns": ""}}
            saver.put(config, empty_checkpoint(), {"source": "input", "step": -1}, {})
        last = {"configurable": {"thread_id": f"t-{THREADS - 1}"}}
        newest: Any = {"order": "updated", "newest_first": True, "limit": 1}
        by_kind = {**newest, "kind": "langgraph"}
        assert saver.get_tuple(last) is not None
        return {
            "threads": THREADS,
            "saver_list_limit_1_ms": cpu_us(lambda: list(saver.list(None, limit=1))) / 1e3,
            "sessions_list_limit_1_ms": cpu_us(lambda: store.sessions.list(limit=1)) / 1e3,
            "newest_first_ms": cpu_us(lambda: store.sessions.list(**newest)) / 1e3,
            "newest_of_a_kind_ms": cpu_us(lambda: store.sessions.list(**by_kind)) / 1e3,
        }


def turns(folder: Path, _items: int, _peers: str | None) -> dict[str, Any]:
    """Run LangGraph turns of two nodes in process, and on a server over loopback."""
    from fourfold.adapters.langgraph import FourfoldSaver

    def measure(sessions: Any, name: str) -> float:
        from bench.sessions.state import _graph

        graph = _graph(FourfoldSaver(sessions), "plan", 200)
        config = {"configurable": {"thread_id": name}}
        times = []
        for turn in range(120):
            began = time.perf_counter()
            graph.invoke({"turn": turn}, config)
            times.append((time.perf_counter() - began) * 1e3)
        return round(statistics.median(times[20:]), 2)

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    served = folder / "served"
    command = [sys.executable, "-m", "fourfold", "serve", str(served), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    local, remote = [], []
    try:
        with (
            fourfold.open(folder / "local", settings=FULL) as here,
            fourfold.connect(f"http://127.0.0.1:{port}") as there,
        ):
            for _ in range(300):
                with suppress(fourfold.errors.FourfoldError):
                    there.sessions.list(limit=1)
                    break
                time.sleep(0.1)
            for number in range(3):
                local.append(measure(here.sessions, str(number)))
                remote.append(measure(there.sessions, str(number)))
    finally:
        server.terminate()
        server.wait()
    result = {"local_ms": statistics.median(local), "remote_ms": statistics.median(remote)}
    return {**result, "difference_ms": round(result["remote_ms"] - result["local_ms"], 2)}


class _TraceReceiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def traces(folder: Path, _items: int, _peers: str | None) -> dict[str, Any]:
    """Export turns of six calls in the background thread of a server, per span."""
    from fourfold.adapters.otlp_exporter import TraceExporter
    from fourfold.models.sessions.runtime import Final, Runtime

    def step(turn: Any) -> Final:
        for _ in range(3):
            turn.call("model", lambda: "An answer of a model has about so many words. " * 4)
            turn.call("lookup", lambda: {"order": 4711, "rows": [{"id": 1, "text": "a row"}] * 3})
        return Final("It is done.")

    receiver = ThreadingHTTPServer(("127.0.0.1", 0), _TraceReceiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{receiver.server_port}"
    result = {}
    with fourfold.open(folder / "traces") as store:
        runtime = Runtime(store.sessions, step)
        files = {content: folder / f"traces-{content}" for content in (False, True)}
        exporters = {
            content: TraceExporter(store.sessions, url, file, content=content)
            for content, file in files.items()
        }
        for number in range(30):
            runtime.start({"id": f"s-{number}", "model": "any", "agent": "clerk"})
        rounds: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(5):
            for number in range(150):
                runtime.run_turn(f"s-{number % 30}", f"Please do the task {number}.")
            for content, exporter in exporters.items():
                before, began = exporter.state.spans, time.thread_time()
                while exporter.export_page():
                    pass
                spans = exporter.state.spans - before
                rounds[content].append((time.thread_time() - began) / spans * 1e6)
        for content, times in rounds.items():
            name = "with_content_us" if content else "without_content_us"
            result[name] = round(statistics.median(times), 1)
    receiver.shutdown()
    return result


PARTS = {
    "memory": memory,
    "vectors": vectors,
    "lists": lists,
    "turns": turns,
    "traces": traces,
}


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)))
@click.option("--items", type=int, default=0, help="Items of `memory` and `vectors`.")
@click.option("--peers", help="A Python that may import chromadb and lancedb.")
@click.option("--folder", type=Path, help="Where stores are written; by default a new one.")
def main(parts: tuple[str, ...], items: int, peers: str | None, folder: Path | None) -> None:
    """Measure some parts, or all."""
    for name in parts or PARTS:
        place = Path(tempfile.mkdtemp(dir=folder, prefix=f"bench-{name}-"))
        try:
            count = items or (100_000 if name == "vectors" else 5_000)
            result = PARTS[name](place, count, peers)
        finally:
            shutil.rmtree(place)
        sys.stdout.write(f"{json.dumps({name: result})}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
