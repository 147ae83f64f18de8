"""Routes of documents, sessions, graphs and jobs, each over a model with `RECORDS` records."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fourfold
from bench.isolation.http_cases import JSON, READ_S, Case, Target
from bench.isolation.store_cases import DID

JOB_S = 20.0
"""A job is cancelled after this time."""
SPACE = f"/v1/spaces/{DID}"
_PAGES = 20
_BUNDLE_EVENTS = 5_000
_numbers = count()


def pages(target: Target, path: str) -> Iterator[list[Any]]:
    """Yield the pages of a list, no longer than `READ_S`."""
    cursor = ""
    until = time.monotonic() + READ_S
    while time.monotonic() < until:
        page = target.json("GET", f"{path}&cursor={cursor}" if cursor else path)
        yield page["items"]
        cursor = page["next_cursor"]
        if not cursor:
            return


def read_space(target: Target) -> None:
    """List ids, and read documents, history and the log."""
    for ids in pages(target, f"{SPACE}/ids?limit=1000"):
        target.json("POST", f"{SPACE}/read", {"ids": ids[:100]})
        target.json("GET", f"{SPACE}/documents/{ids[0]}")
        target.json("GET", f"{SPACE}/history/hot?limit=100")
        target.json("GET", f"{SPACE}/diff?a=10&b=20&limit=100")


def write_space(target: Target) -> None:
    """Commit 1,000 operations at once, and change one document."""
    operations = [
        {"op": "set", "id": f"new-{number}", "value": {"n": number}} for number in range(1_000)
    ]
    target.json("POST", f"{SPACE}/transact", {"operations": operations})
    target.json("PUT", f"{SPACE}/documents/new", {"n": next(_numbers)})


def find_documents(target: Target) -> None:
    """Search all documents, without an index."""
    target.json("POST", f"{SPACE}/find", {"where": {"n": -1}})
    target.json("POST", f"{SPACE}/count", {"where": {"n": {"$gt": 5}}})


def index_documents(target: Target) -> None:
    """Declare an index, wait until it is built, search by it, and drop it."""
    name = f"by_n_{next(_numbers)}"
    target.json("POST", f"{SPACE}/indexes", {"name": name, "paths": ["/n"]})
    until = time.monotonic() + JOB_S
    while target.json("GET", f"{SPACE}/indexes/{name}")["state"] == "building":
        if time.monotonic() > until:
            break
        time.sleep(0.1)
    target.json("POST", f"{SPACE}/find", {"where": {"n": 5}})
    target.json("DELETE", f"{SPACE}/indexes/{name}")


def branch_and_merge(target: Target) -> None:
    name = f"branch-{next(_numbers)}"
    target.json("POST", f"{SPACE}/branches", {"name": name})
    operations = [
        {"op": "set", "id": f"{name}-{number}", "value": {"n": number}} for number in range(100)
    ]
    target.json("POST", f"{SPACE}/transact", {"operations": operations, "branch": name})
    target.json("POST", f"{SPACE}/merges", {"source": name})


def read_sessions(target: Target) -> None:
    """Read events by pages, and views and transcripts of a session."""
    for number, _ in enumerate(pages(target, "/v1/sessions/events/long?limit=1000")):
        if number % _PAGES == 0:
            target.json("GET", "/v1/sessions/view/long")
            target.json("GET", "/v1/sessions/lineage/long")
            target.json("GET", "/v1/sessions?limit=1000")


def append_events(target: Target) -> None:
    events = [{"type": "app/note", "number": number} for number in range(1_000)]
    target.json("POST", "/v1/sessions/events/other", {"events": events})


def copy_bundles(target: Target) -> None:
    """Import a session of 5,000 events, and export it."""
    sid = f"copy-{next(_numbers)}"
    with TemporaryDirectory() as place, fourfold.open(Path(place)) as store:
        store.sessions.create_session({"id": sid})
        events = [{"type": "app/note", "number": number} for number in range(_BUNDLE_EVENTS)]
        store.sessions.append_events(sid, events)
        body = b"".join(store.sessions.export_bundle(sid))
    for _ in range(2):
        status, _, answer = target.request("POST", "/v1/sessions/bundles", body, content_type=JSON)
        assert status == 200, answer
    assert target.request("GET", f"/v1/sessions/bundles/{sid}")[0] == 200


def read_graph(target: Target) -> None:
    app = "/v1/apps/isolation"
    for objects in pages(target, f"{app}/objects?limit=1000"):
        first = objects[0]["id"]
        target.json("GET", f"{app}/history/{first}")
        target.json("GET", f"{app}/neighbours/{first}")
        target.json("GET", f"{app}/traverse/{first}")


def write_graph(target: Target) -> None:
    create = {"op": "parent_create", "type_key": "thing"}
    envelope = {"owner": 1, "operations": [create] * 1_000}
    target.json("POST", "/v1/apps/isolation/envelopes", envelope)


def publish(target: Target) -> bool:
    """Publish the store to its objects, for `JOB_S` at most."""
    job = target.json("POST", "/v1/jobs", {"kind": "publish"})["id"]
    until = time.monotonic() + JOB_S
    while (status := target.json("GET", f"/v1/jobs/{job}")["status"]) in {"queued", "running"}:
        if time.monotonic() > until:
            target.json("DELETE", f"/v1/jobs/{job}")
            return True
        time.sleep(0.5)
    assert status == "succeeded", status
    return False


_DOCUMENTS, _SESSIONS, _GRAPHS = ("documents",), ("sessions",), ("graphs",)
CASES: dict[str, Case] = {
    "spaces: GET ids, documents, history, diff": Case(read_space, models=_DOCUMENTS),
    "spaces: POST 1,000 operations": Case(write_space, models=_DOCUMENTS),
    "spaces: POST find, count": Case(find_documents, models=_DOCUMENTS),
    "spaces: POST indexes, find": Case(index_documents, models=_DOCUMENTS),
    "spaces: POST branches, merges": Case(branch_and_merge, models=_DOCUMENTS),
    "sessions: GET events, view, lineage": Case(read_sessions, models=_SESSIONS),
    "sessions: POST 1,000 events": Case(append_events, models=_SESSIONS),
    "sessions: POST and GET bundles of 5,000 events": Case(copy_bundles, models=_SESSIONS),
    "apps: GET objects, history, traverse": Case(read_graph, models=_GRAPHS),
    "apps: POST envelopes of 1,000 objects": Case(write_graph, models=_GRAPHS),
    "jobs: POST publish": Case(publish, models=(*_DOCUMENTS, *_SESSIONS, *_GRAPHS)),
}
