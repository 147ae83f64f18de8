"""The stores that the benchmark reads: made once, kept in bench/.build for later runs.

    log        documents of some 190 bytes, ten versions of each: what scans read
    chains     every entity is a set and nine patches: a fold can leave nothing out
    prunable   the tenth revision of every entity is a set: nine of ten rows make no difference
    hot        one entity with all the revisions, and no snapshot

A space has a million rows. Ten million are ten such spaces, copies of the first.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

import fourfold
from bench.place import BUILD

DID = "did:key:zBench"
REVISIONS_EACH = 10
COMMIT = 5_000
SPACE_ROWS = 1_000_000
PROSE = (
    "a log is only ever added to and what you read is a fold of it so every past state stays "
    "readable snapshots caches and tables are derived from it and can be thrown away at any time"
)


def log(rows: int) -> Iterator[dict[str, Any]]:
    """Words, numbers and a part that no codec can shorten."""
    rng = random.Random(1)
    words = PROSE.split()
    for number in range(rows):
        text = " ".join(rng.choices(words, k=12))
        value = {
            "title": f"{rng.choice(words)} {number}",
            "text": text,
            "price": rng.randrange(10**6) / 100,
            "tag": rng.randbytes(8).hex(),
        }
        yield {"op": "set", "id": f"urn:entity:{number % (rows // 10):08}", "value": value}


def document(number: int) -> dict[str, Any]:
    author = {"name": "somebody", "mail": "somebody@example.com"}
    return {"value": {"title": f"entity {number}", "count": 0, "tags": ["a"], "author": author}}


def change(rng: random.Random) -> list[dict[str, Any]]:
    kind = rng.randrange(3)
    if kind == 0:
        return [{"op": "increment", "path": "/value/count", "by": 1}]
    if kind == 1:
        title = f"title {rng.randrange(10**6)}"
        return [{"op": "replace", "path": "/value/title", "value": title}]
    return [{"op": "append", "path": "/value/tags", "values": [f"t{rng.randrange(100)}"]}]


def chains(revisions: int, *, prunable: bool = False) -> Iterator[dict[str, Any]]:
    rng = random.Random(1)
    entities = revisions // REVISIONS_EACH
    for round_ in range(REVISIONS_EACH):
        whole = round_ == 0 or (prunable and round_ == REVISIONS_EACH - 1)
        for number in range(entities):
            entity = f"urn:entity:{number:08}"
            if whole:
                yield {"op": "set", "id": entity, "value": document(number)}
            else:
                yield {"op": "patch", "id": entity, "patches": change(rng)}


def hot(revisions: int) -> Iterator[dict[str, Any]]:
    """One entity that was patched and patched."""
    yield {"op": "set", "id": "hot", "value": {"value": {"count": 0, "text": "x" * 10**5}}}
    patch = {"op": "increment", "path": "/value/count", "by": 1}
    for _ in range(revisions - 1):
        yield {"op": "patch", "id": "hot", "patches": [patch]}


def store(kind: str, rows: int) -> Path:
    """The store of this kind with so many rows; one that is there already is taken as it is."""
    root = BUILD / "pipeline" / f"{kind}-{rows}"
    if (root / "complete").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    if rows > SPACE_ROWS:
        _copies(store(kind, SPACE_ROWS), root, rows // SPACE_ROWS)
    else:
        sources = {
            "log": lambda: log(rows),
            "chains": lambda: chains(rows),
            "prunable": lambda: chains(rows, prunable=True),
            "hot": lambda: hot(rows),
        }
        make(root, sources[kind]())
        if kind == "hot":
            _forget_snapshots(root)
    (root / "complete").touch()
    return root


def make(root: Path, source: Iterator[dict[str, Any]]) -> None:
    with fourfold.open(root) as opened:
        space = opened.space(DID)
        batch: list[dict[str, Any]] = []
        for operation in source:
            batch.append(operation)
            if len(batch) == COMMIT:
                space.transact(batch)
                batch = []
        if batch:
            space.transact(batch)


def file_of(root: Path) -> Path:
    return root / "spaces" / f"{DID}.sqlite"


def _copies(one: Path, root: Path, count: int) -> None:
    (root / "spaces").mkdir(parents=True)
    shutil.copy(one / "fourfold.toml", root)
    for number in range(count):
        shutil.copyfile(file_of(one), root / "spaces" / f"{DID}{number}.sqlite")


def small_space(root: Path) -> Path:
    """The file of a space with a few orders, as an application would have thousands of."""
    with fourfold.open(root, settings={"documents.page_size": 4096}) as opened:
        space = opened.space("did:web:shop.example")
        for order in range(3):
            space.set(f"urn:order:{order}", {"state": "placed", "total": order})
            for state in ("paid", "sent"):
                patch = {"op": "replace", "path": "/state", "value": state}
                space.patch(f"urn:order:{order}", [patch])
    [path] = (root / "spaces").glob("*.sqlite")
    return path


def many(path: Path, root: Path, count: int) -> None:
    """As many copies of a small space."""
    (root / "spaces").mkdir(parents=True)
    shutil.copy(path.parents[1] / "fourfold.toml", root)
    for number in range(count):
        shutil.copyfile(path, root / "spaces" / f"did:web:shop{number:05}.example.sqlite")


def _forget_snapshots(root: Path) -> None:
    """They are derived; without them the whole chain has to be folded."""
    connection = apsw.Connection(str(file_of(root)))
    connection.execute((Path(__file__).parent / "forget.sql").read_text(encoding="utf-8"))
    connection.close()
