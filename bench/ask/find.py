"""Figures of finding documents: pages by an index, and what indexes cost a commit."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import fourfold
from bench.ask.peers import SQL, Plain
from fourfold import Space

SPACE = "did:web:find.example"
VERSIONS = 10
VALUES = 40
PAGE = 50
COMMITS = 1_000
BATCH = 1_000


def fill(root: Path, entries: int) -> None:
    """Create a space in which one index has so many entries, most of them in the past."""
    source = random.Random(entries)
    with fourfold.open(root) as store:
        space = store.space(SPACE)
        space.indexes.create("by_status", "/status")
        entities = entries // VERSIONS
        for _ in range(VERSIONS):
            for begin in range(0, entities, BATCH):
                space.transact(
                    [
                        {"op": "set", "id": f"e{number:07}", "value": document(source, number)}
                        for number in range(begin, min(begin + BATCH, entities))
                    ]
                )


def document(source: random.Random, number: int) -> dict[str, object]:
    """Return a document of about 80 bytes."""
    return {
        "status": f"s{source.randrange(VALUES)}",
        "owner": source.randrange(1_000),
        "n": number,
        "text": "x" * 40,
    }


def page_ms(root: Path, rounds: int) -> dict[str, float]:
    """Return the median processor time of a page: now, halfway back, and near the beginning."""
    with fourfold.open(root) as store:
        space = store.space(SPACE)
        newest = space.seq()
        points = {"now": None, "halfway": newest // 2, "early": newest // VERSIONS + 1}
        return {
            name: 1_000 * _median(partial(_page, space, at=at), 20 * rounds)
            for name, at in points.items()
        }


def plain_page_ms(root: Path, path: Path, rounds: int) -> float:
    """Return the median processor time of a page of the newest state in a plain table of SQLite."""
    with fourfold.open(root, mode="r") as store:
        rows = store.space(SPACE).sql(SQL.documents, max_rows=10**9, max_bytes=10**12).rows
    plain = Plain(path, rows, "status")

    def page(number: int) -> None:
        assert len(plain.page(f"s{number % VALUES}", PAGE)) == PAGE

    try:
        return 1_000 * _median(page, 20 * rounds)
    finally:
        plain.close()


def _page(space: Space, number: int, *, at: int | None) -> None:
    page = space.find({"status": f"s{number % VALUES}"}, limit=PAGE, at=at)
    assert page.plan.index == "by_status"


def _median(call: Callable[[int], None], count: int) -> float:
    times = []
    for number in range(count):
        begin = time.process_time()
        call(number)
        times.append(time.process_time() - begin)
    return sorted(times)[count // 2]


def commit_ratios(folder: Path, rounds: int) -> dict[str, float]:
    """Return the rates of commits with 1 and 3 indexes, relative to none, in turns.

    Half of the commits create an entity, the others change all fields of one.
    """
    paths = {0: (), 1: ("/status",), 3: ("/status", "/owner", "/n")}
    best: dict[tuple[int, int], float] = {}
    with fourfold.open(folder / "commits") as store:
        for indexes, chosen in paths.items():
            for size in (1, 100):
                space = store.space(f"did:web:c{indexes}-{size}.example")
                for path in chosen:
                    space.indexes.create(path[1:], path)
        for number in range(rounds):
            for indexes in paths:
                for size in (1, 100):
                    space = store.space(f"did:web:c{indexes}-{size}.example")
                    took = _commit(space, number, size)
                    best[indexes, size] = min(took, best.get((indexes, size), took))
    return {
        f"{indexes}x{size}": best[0, size] / best[indexes, size]
        for indexes in (1, 3)
        for size in (1, 100)
    }


def _commit(space: Space, round_number: int, size: int) -> float:
    source = random.Random(round_number)
    requests = [
        [
            {
                "op": "set",
                "id": f"e{round_number}-{(number * size + place) // 2}",
                "value": document(source, number + place),
            }
            for place in range(size)
        ]
        for number in range(COMMITS if size == 1 else COMMITS // 20)
    ]
    begin = time.process_time()
    for operations in requests:
        space.transact(operations)
    return time.process_time() - begin
