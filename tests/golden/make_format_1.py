"""Make the golden archive of format 1: `python tests/golden/make_format_1.py`.

It was run at commit 1600e29, the last one that can write format 1, and cannot run since. It wrote
`format_1/stores.tar.xz` (an archive, and three nodes that published to it or were restored from it)
and `format_1/states.json` (what was read at every point, and on every node). The archive has pages
of manifests and of points, packs of several levels, removed points, values that are objects, a
take-over that left points aside, and a database that is absent since.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import format_one
from make_golden import pack

import fourfold
from fourfold import limits
from fourfold.models.documents import GcPolicy
from fourfold.models.sessions import Payload
from fourfold.store import Store, retention
from fourfold.store.restoration import rebuild

SPACES = {"did:key:revisions": "revisions", "did:key:facts": "facts"}
LARGE = 70_000
"""A value of so many bytes is an object of its own."""
IN_FILE = 300_000
"""A payload of so many bytes is a file beside the sessions."""


def open_store(folder: Path, node: str) -> Store:
    settings = {"objects.url": str(folder / "objects"), "archive.format": 1}
    return fourfold.open(folder / node, settings=settings)


def begin(store: Store) -> None:
    for did, history in SPACES.items():
        store.space(did, history)
    graphs = store.graphs
    app = graphs.register_app("notes", "Notes").app_id
    for kind in ("parent", "attr", "edge", "rating"):
        graphs.register_type(app, kind, f"note {kind}")
    store.sessions.create_session({"id": "kept"})
    store.sessions.create_session({"id": "purged"})


def write(store: Store, step: int) -> None:
    """Write a little into every model."""
    for did in SPACES:
        space = store.space(did)
        space.set(f"e{step % 3}", {"n": step})
        space.patch("all", [{"op": "add", "path": f"/n{step}", "value": step}])
        if step == 2:
            space.branches.create("draft")
            space.set("only", {"n": 2}, branch="draft")
            space.blobs.put(b"old" * LARGE)
        if step == 3:
            space.delete("e2")
            space.blobs.put(b"new" * LARGE)
    sessions = store.sessions
    size = {1: 10, 2: LARGE, 3: IN_FILE}.get(step, 100)
    content = Payload(f"{step}" * size)
    message = {"type": "message/appended", "message": {"role": "user", "content": content}}
    sessions.append_event("kept", message)
    if step < 4:
        sessions.append_event("purged", message)
    graphs = store.graphs
    app = graphs.app("notes").app_id
    types = {row.kind: row.id for row in graphs.list_types(app)}
    parent = graphs.insert_parent(app, {"type_id": types["parent"], "owner_identity": 1})
    row = {"parent_id": parent, "type_id": types["attr"], "owner_identity": 1}
    graphs.insert_attr(app, {**row, "value_text": f"{step}"})
    graphs.update_sync_flags(app, "parent", [parent], step % 4)
    if step == 6:
        other = graphs.register_app("more", "More").app_id
        graphs.register_type(other, "parent", "thing")
    store.streams.create(f"stream{step % 2}", "text/plain").append([b"%d" % step, b"x"])


def publish(store: Store, states: dict[str, Any]) -> str:
    report = store.publish()
    report.raise_if_failed()
    assert report.point is not None
    states[report.point.id] = format_one.read_state(store)
    return report.point.id


def restore(folder: Path, node: str, point: str, **options: Any) -> None:
    with open_store(folder, node) as store:
        assert not rebuild(store, at=point, **options).failures


def collect(store: Store, points: int) -> None:
    """Compact, and remove the oldest points; then delete what is not needed, without a grace."""
    assert not retention.merge(store).failures
    for grace in (1e9, 0.0):
        report = retention.collect(store, keep=retention.Keep(points=points), grace_s=grace)
        assert not report.failures


def make(folder: Path) -> dict[str, Any]:
    """Write the archive and its nodes below `folder`; return what they read."""
    # Few entries make pages and packs of several levels.
    limits.PUBLISH_ENTRIES = 3  # type: ignore[misc]
    vars(importlib.import_module("fourfold.archive.compaction"))["PUBLISH_FANOUT"] = 2
    points: dict[str, Any] = {}
    nodes: dict[str, Any] = {}
    with open_store(folder, "fenced") as store:
        begin(store)
        known = []
        for step in range(1, 12):
            write(store, step)
            if step == 4:
                for did in SPACES:
                    store.space(did).gc(GcPolicy(keep_seqs=6))
                store.sessions.delete_session("purged")
                store.sessions.gc(0)
            if step == 9:
                store.space("did:key:late").set("a", {"n": 9})
            known.append(publish(store, points))
            if step == 7:
                collect(store, 5)
        store.space("did:key:facts").set("unpublished", {"n": 11})
        nodes["fenced"] = format_one.read_state(store)
    restore(folder, "publisher", known[7], take_over=True)
    with open_store(folder, "publisher") as store:
        taken = store.points()[-1]
        assert taken.restored == known[7]
        points[taken.id] = points[known[7]]
        for step in range(12, 16):
            write(store, step)
            publish(store, points)
        assert not retention.merge(store).failures
        write(store, 16)
        publish(store, points)
        kept = [point.id for point in store.points()]
        store.space("did:key:facts").set("unpublished", {"n": 16})
        nodes["publisher"] = format_one.read_state(store)
    restore(folder, "older", kept[-3])
    nodes["older"] = points[kept[-3]]
    return {"points": [[point, points[point]] for point in kept], "nodes": nodes}


def main() -> None:
    target = Path(__file__).with_name("format_1")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        states = make(Path(scratch))
        (target / "stores.tar.xz").write_bytes(pack(Path(scratch)))
    text = json.dumps(states, indent=1)
    (target / "states.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
