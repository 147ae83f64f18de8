"""`python -m bench.graphs.engines`: questions about a graph, beside Kuzu and DuckDB in one run.

All three have the same edges, of which one parent has a fifth, and answer the same questions, whose
answers are compared. Kuzu and DuckDB use one thread and work in memory; an engine that is not
installed is left out. Kuzu has no past, no owners and no log; DuckDB is not a graph database.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click
import msgspec

from bench import commands, machine
from bench.place import BUILD, RESULTS, ROOT, alone, newest_result
from fourfold.kernel import Queries, load_queries
from fourfold.limits import TRAVERSE_OBJECTS_MAX
from fourfold.models.graphs import Graph, Graphs
from fourfold.store import open_store

SQL: Queries = load_queries("bench.graphs", "engines.sql")
NAME = "graph-engines"
SEED = 21
HUB = 1
DEPTH = 6
PATH_DEPTH = 6
REPEATS, SLOW_REPEATS = 200, 20
BATCH = 10_000
VERSIONS = (10, 1_000, 40_000)
Ask = Callable[..., int]


class Sizes(NamedTuple):
    """A graph: how many parents and edges, and how many of these leave the hub."""

    parents: int = 200_000
    edges: int = 1_000_000
    hub: int = 199_999


QUICK = Sizes(2_000, 10_000, 1_999)


class Answer(msgspec.Struct):
    """The times of one question in one engine."""

    question: str
    engine: str
    p50_ms: float
    p95_ms: float
    count: int


class Curve(msgspec.Struct):
    """A figure of Fourfold by the number of versions of one attribute."""

    name: str
    values: dict[int, float]


class EngineResult(msgspec.Struct):
    """A run."""

    finished_at: str
    machine: Any
    sizes: dict[str, int]
    load_s: dict[str, float]
    answers: list[Answer]
    curves: list[Curve]
    unmeasured: list[str]


class WrongAnswer(click.ClickException):
    """Two engines disagree."""


def edges_of(sizes: Sizes) -> list[tuple[int, int]]:
    """The edges of the hub to others, then edges between others at random."""
    chance = random.Random(SEED)
    edges = [(HUB, node) for node in range(2, sizes.hub + 2)]
    while len(edges) < sizes.edges:
        edges.append((chance.randint(2, sizes.parents), chance.randint(2, sizes.parents)))
    return edges


class Engine(ABC):
    """What all engines answer; the answers are counts."""

    name: str

    @abstractmethod
    def close(self) -> None:
        """Release the engine."""

    @abstractmethod
    def hop(self, node: int) -> int:
        """Count up to 10 neighbours."""

    @abstractmethod
    def exists(self, src: int, dst: int) -> int:
        """Return 1 if there is an edge."""

    @abstractmethod
    def count(self, node: int) -> int:
        """Count the edges from a node."""

    @abstractmethod
    def path(self, src: int, dst: int) -> int:
        """Return the length of a shortest path; 0 if there is none of up to 6 edges."""

    @abstractmethod
    def reach(self, node: int) -> int:
        """Count the nodes within 6 edges."""


class Fourfold(Engine):
    """Fourfold, with every check, in a file."""

    name = "Fourfold"

    def __init__(self, folder: Path, sizes: Sizes, edges: list[tuple[int, int]]) -> None:
        self._store = open_store(folder / "store")
        self.graphs: Graphs = self._store.graphs
        self.app: Graph = self.graphs.create("people")
        person, knows = (self.app.register_type(*of) for of in (("parent", "p"), ("edge", "k")))
        own = {"type_id": person, "owner_identity": 1}
        for first in range(0, sizes.parents, BATCH):
            self.app.insert("parent", [own] * min(BATCH, sizes.parents - first))
        link = {"type_id": knows, "owner_identity": 1}
        self.edges_s = -time.perf_counter()
        for first in range(0, len(edges), BATCH):
            part = edges[first : first + BATCH]
            rows = [{**link, "src_parent_id": src, "dst_parent_id": dst} for src, dst in part]
            self.app.insert("edge", rows)
        self.edges_s += time.perf_counter()

    def close(self) -> None:
        self._store.close()

    def hop(self, node: int) -> int:
        return len(self.app.traverse(node, depth=1, limit=10).objects)

    def exists(self, src: int, dst: int) -> int:
        return int(self.app.exists(src, dst))

    def count(self, node: int) -> int:
        return self.app.count(node)

    def path(self, src: int, dst: int) -> int:
        path = self.app.path(src, dst, depth=PATH_DEPTH)
        return 0 if path is None else len(path.edges)

    def reach(self, node: int) -> int:
        return len(self.app.traverse(node, depth=DEPTH, limit=TRAVERSE_OBJECTS_MAX).objects)

    def attrs(self, parent: int) -> int:
        """Count the attributes of a parent."""
        return len(self.graphs.current_attrs(self.app.app_id, parent_ids=[parent]))

    def curves(self, folder: Path) -> Iterator[Curve]:
        """Read and verify an attribute with more and more versions."""
        text = self.app.register_type("attr", "text")
        reads, checks = {}, {}
        for parent, versions in enumerate(VERSIONS, start=HUB + 1):
            own = {"type_id": text, "owner_identity": 1, "parent_id": parent}
            [attr] = self.app.insert("attr", [{**own, "value_text": "0"}])
            for first in range(1, versions, 1_000):
                with self.graphs.transaction() as txn:
                    for number in range(first, min(first + 1_000, versions)):
                        self.app.update("attr", attr, {"value_text": f"{number}"}, txn=txn)
            reads[versions] = _share(_times(self.attrs, [(parent,)] * REPEATS)[0], 0.5)
        yield Curve("current_attrs, ms", reads)
        for versions in (10_000, 20_000, 40_000):
            checks[versions] = _verify_s(folder / str(versions), versions)
        yield Curve("verify, s", checks)


def _verify_s(folder: Path, versions: int) -> float:
    with open_store(folder) as store:
        app = store.graphs.create("people")
        person, text = (app.register_type(*of) for of in (("parent", "p"), ("attr", "t")))
        [parent] = app.insert("parent", [{"type_id": person, "owner_identity": 1}])
        own = {"type_id": text, "owner_identity": 1, "parent_id": parent}
        [attr] = app.insert("attr", [{**own, "value_text": "0"}])
        for first in range(1, versions, 1_000):
            with store.graphs.transaction() as txn:
                for number in range(first, min(first + 1_000, versions)):
                    app.update("attr", attr, {"value_text": f"{number}"}, txn=txn)
        before = time.process_time()
        if store.graphs.verify():
            raise WrongAnswer("verify found problems")
        return time.process_time() - before


class Kuzu(Engine):
    """Kuzu, in memory, one thread."""

    name = "Kuzu"

    def __init__(self, folder: Path, sizes: Sizes, edges: list[tuple[int, int]]) -> None:
        kuzu: Any = import_module("kuzu")

        nodes, links = folder / "nodes.csv", folder / "links.csv"
        nodes.write_text("".join(f"{node}\n" for node in range(1, sizes.parents + 1)))
        links.write_text("".join(f"{src},{dst}\n" for src, dst in edges))
        self._database = kuzu.Database(":memory:")
        self._connection = kuzu.Connection(self._database, num_threads=1)
        for sql in (SQL.kuzu_nodes, SQL.kuzu_links):
            self._connection.execute(sql)
        self._connection.execute(SQL.kuzu_copy_nodes.replace("{path}", str(nodes)))
        self._connection.execute(SQL.kuzu_copy_links.replace("{path}", str(links)))

    def close(self) -> None:
        self._connection.close()
        self._database.close()

    def _ask(self, sql: str, **params: int) -> int:
        result = self._connection.execute(sql, params)
        return int(result.get_next()[0]) if result.has_next() else 0

    def hop(self, node: int) -> int:
        return self._ask(SQL.kuzu_hop, node=node)

    def exists(self, src: int, dst: int) -> int:
        return int(self._ask(SQL.kuzu_exists, src=src, dst=dst) > 0)

    def count(self, node: int) -> int:
        return self._ask(SQL.kuzu_count, node=node)

    def path(self, src: int, dst: int) -> int:
        return self._ask(SQL.kuzu_path, src=src, dst=dst)

    def reach(self, node: int) -> int:
        return self._ask(SQL.kuzu_reach, node=node)


class DuckDb(Engine):
    """DuckDB, in memory, one thread, with an index on each end."""

    name = "DuckDB"

    def __init__(self, folder: Path, sizes: Sizes, edges: list[tuple[int, int]]) -> None:
        duckdb: Any = import_module("duckdb")

        links = folder / "duck.csv"
        links.write_text("src,dst\n" + "".join(f"{src},{dst}\n" for src, dst in edges))
        self._connection = duckdb.connect(config={"threads": 1})
        self._connection.execute(SQL.duck_links.replace("{path}", str(links)))
        self._connection.execute(SQL.duck_index_src)
        self._connection.execute(SQL.duck_index_dst)
        if sizes.edges != len(edges):
            raise WrongAnswer("the edges are not those of the sizes")

    def close(self) -> None:
        self._connection.close()

    def _ask(self, sql: str, *params: int) -> int:
        row = self._connection.execute(sql, params).fetchone()
        return int(row[0]) if row and row[0] is not None else 0

    def hop(self, node: int) -> int:
        return self._ask(SQL.duck_hop, node)

    def exists(self, src: int, dst: int) -> int:
        return self._ask(SQL.duck_exists, src, dst)

    def count(self, node: int) -> int:
        return self._ask(SQL.duck_count, node)

    def path(self, src: int, dst: int) -> int:
        return self._ask(SQL.duck_path, src, dst)

    def reach(self, node: int) -> int:
        return self._ask(SQL.duck_reach, node)


ENGINES: tuple[type[Fourfold | Kuzu | DuckDb], ...] = (Fourfold, Kuzu, DuckDb)


def questions(
    sizes: Sizes, edges: list[tuple[int, int]]
) -> dict[str, tuple[str, list[tuple[int, ...]]]]:
    """The method and the parameters of each question."""
    chance = random.Random(SEED + 1)

    def node() -> int:
        return chance.randint(2, sizes.parents)

    return {
        "1 hop, 10 of them": ("hop", [(node(),) for _ in range(REPEATS)]),
        "the same from the hub": ("hop", [(HUB,)] * REPEATS),
        "is there an edge": ("exists", [chance.choice(edges) for _ in range(REPEATS)]),
        "the same from the hub to it": ("exists", [(HUB, node()) for _ in range(REPEATS)]),
        "edges of the hub, counted": ("count", [(HUB,)] * SLOW_REPEATS),
        "shortest path of up to 6": ("path", [(node(), node()) for _ in range(SLOW_REPEATS * 2)]),
        "all within 6": ("reach", _starts(edges, node)),
    }


def _starts(edges: list[tuple[int, int]], node: Callable[[], int]) -> list[tuple[int, ...]]:
    """Nodes from which a walk reaches no more than Fourfold returns at once."""
    targets: dict[int, list[int]] = {}
    for src, dst in edges:
        targets.setdefault(src, []).append(dst)
    starts: list[tuple[int, ...]] = []
    while len(starts) < SLOW_REPEATS:
        start = node()
        seen, level = {start}, [start]
        for _ in range(DEPTH):
            level = list({dst for src in level for dst in targets.get(src, ())} - seen)
            seen.update(level)
        if len(seen) <= TRAVERSE_OBJECTS_MAX:
            starts.append((start,))
    return starts


def _times(ask: Ask, parameters: list[Any]) -> tuple[list[float], list[int]]:
    for params in parameters[:3]:
        ask(*params)
    times, counts = [], []
    for params in parameters:
        before = time.perf_counter()
        counts.append(ask(*params))
        times.append((time.perf_counter() - before) * 1_000)
    return sorted(times), counts


def _share(times: list[float], share: float) -> float:
    return times[min(len(times) - 1, int(len(times) * share))]


def run(folder: Path, sizes: Sizes, say: Callable[[str], None]) -> EngineResult:
    """Load the engines one after the other, and ask each of them the same."""
    edges = edges_of(sizes)
    asked = questions(sizes, edges)
    result = EngineResult("", machine.describe(folder), sizes._asdict(), {}, [], [], [])
    known: dict[str, list[int]] = {}
    for engine in ENGINES:
        say(engine.name)
        before = time.perf_counter()
        try:
            opened = engine(folder, sizes, edges)
        except ImportError:
            result.unmeasured.append(f"{engine.name} is not installed")
            continue
        result.load_s[engine.name] = time.perf_counter() - before
        if isinstance(opened, Fourfold):
            result.load_s["Fourfold, the edges"] = opened.edges_s
        for question, (method, parameters) in asked.items():
            times, counts = _times(getattr(opened, method), parameters)
            if known.setdefault(question, counts) != counts:
                raise WrongAnswer(f"{question}: {engine.name} does not agree with Fourfold")
            p50, p95 = _share(times, 0.5), _share(times, 0.95)
            result.answers.append(Answer(question, engine.name, p50, p95, max(counts)))
            say(f"  {question}: {p50:.3g} ms ({p95:.3g})")
        if isinstance(opened, Fourfold):
            result.curves += opened.curves(folder)
        opened.close()
    result.finished_at = datetime.now(UTC).isoformat(timespec="seconds")
    return result


def markdown(result: EngineResult, path: str) -> str:
    """The table of a result."""
    engines = list(dict.fromkeys(answer.engine for answer in result.answers))
    cells = {(answer.question, answer.engine): answer for answer in result.answers}
    sizes = result.sizes
    size = f"{sizes['edges']:,} edges between {sizes['parents']:,} parents"
    lines = [
        f"{size}, {sizes['hub']:,} of them from one; milliseconds, p50 (p95); `{path}`:",
        "",
        f"| | {' | '.join(engines)} |",
        f"|---|{'---:|' * len(engines)}",
    ]
    for question in dict.fromkeys(answer.question for answer in result.answers):
        row = (cells[question, engine] for engine in engines)
        shown = " | ".join(f"{answer.p50_ms:.3g} ({answer.p95_ms:.3g})" for answer in row)
        lines.append(f"| {question} | {shown} |")
    lines += ["", "| Fourfold, by versions of an attribute | |", "|---|---|"]
    for curve in result.curves:
        shown = ", ".join(f"{count:,}: {value:.3g}" for count, value in curve.values.items())
        lines.append(f"| {curve.name} | {shown} |")
    rate = result.sizes["edges"] / result.load_s["Fourfold, the edges"]
    lines += ["", f"Fourfold inserted {rate:,.0f} edges a second."]
    return "\n".join([*lines, *(f"{reason}." for reason in result.unmeasured)])


@click.command()
@click.option("--quick", is_flag=True, help="A small graph; no result is written.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=BUILD,
    help="Folder of the store.",
)
@click.option("--docs", is_flag=True, help="Write the newest results into docs/performance.md.")
def main(*, quick: bool, folder: Path, docs: bool) -> None:
    """Ask Fourfold, Kuzu and DuckDB the same questions about the same graph."""
    console = commands.console()
    if docs:
        path = newest_result(NAME)
        figures = markdown(commands.load(path, EngineResult), str(path.relative_to(ROOT)))
        console.print(commands.document("graph engines", path, figures))
        return
    with alone(), TemporaryDirectory(dir=folder, prefix="work-") as work:
        result = run(Path(work), QUICK if quick else Sizes(), console.print)
    path = BUILD / f"newest-{NAME}.json"
    if not quick:
        path = RESULTS / f"{NAME}-{datetime.now(UTC):%Y-%m-%d}.json"
    commands.save(result, path)
    console.print(markdown(result, str(path.relative_to(ROOT))))


if __name__ == "__main__":
    main()
