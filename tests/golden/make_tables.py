"""Make the golden archive of tables: `python tests/golden/make_tables.py`.

Run it once for each format of archives, commit the new folder, and never change it again. It writes
`<folder>/stores.tar.xz` (an archive, in `objects`, and the stores that published to it) and
`<folder>/states.json` (what was read at every point, and on every node). The archive has compacted
tables, checkpoints of their logs, removed points, values that are objects, history that was
collected and purged before it was published, and a take-over that left points aside.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import golden_tables
from format_one import read_state
from make_format_1 import SPACES, begin, write
from make_golden import pack

import fourfold
from fourfold.archive import table_sweep
from fourfold.models.documents import GcPolicy
from fourfold.store import Store, retention
from fourfold.store.restoration import rebuild


def open_store(folder: Path, node: str) -> Store:
    return fourfold.open(folder / node, settings={"objects.url": str(folder / "objects")})


def publish(store: Store, states: dict[str, Any]) -> str:
    report = store.publish()
    report.raise_if_failed()
    assert report.point is not None
    states[report.point.id] = read_state(store)
    return report.point.id


def collect(store: Store, points: int) -> None:
    """Compact, and remove the oldest points; then delete what is not needed, without a grace."""
    assert not retention.merge(store).failures
    for grace in (1e9, 0.0):
        report = retention.collect(store, keep=retention.Keep(points=points), grace_s=grace)
        assert not report.failures


def make(folder: Path) -> dict[str, Any]:
    """Write the archive and its nodes below `folder`; return what they read."""
    # A few commits make checkpoints.
    table_sweep.CHECKPOINT_COMMITS = 3  # type: ignore[misc]
    points: dict[str, Any] = {}
    nodes: dict[str, Any] = {}
    with open_store(folder, "fenced") as store:
        begin(store)
        for step in range(1, 9):
            write(store, step)
            if step == 4:
                for did in SPACES:
                    store.space(did).gc(GcPolicy(keep_seqs=6))
                store.sessions.delete_session("purged")
                store.sessions.gc(0)
            if step == 7:
                store.space("did:key:late").set("a", {"n": 7})
            publish(store, points)
            if step == 5:
                # Points from before the purge lack what was purged: they are removed.
                collect(store, 2)
        known = [point.id for point in store.points()]
        store.space("did:key:facts").set("unpublished", {"n": 8})
        nodes["fenced"] = read_state(store)
    with open_store(folder, "publisher") as store:
        assert not rebuild(store, at=known[-2], take_over=True).failures
        for step in range(9, 12):
            write(store, step)
            publish(store, points)
        kept = [point.id for point in store.points()]
        for point in store.points():
            if point.restored is not None:
                points[point.id] = points[point.restored]
        store.space("did:key:facts").set("unpublished", {"n": 11})
        nodes["publisher"] = read_state(store)
    return {"points": [[point, points[point]] for point in kept], "nodes": nodes}


def main() -> None:
    target = golden_tables.FOLDER
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        states = make(Path(scratch))
        (target / "stores.tar.xz").write_bytes(pack(Path(scratch)))
    text = json.dumps(states, indent=1)
    (target / "states.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
