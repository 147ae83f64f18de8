"""What a visit asks for: pages, lists and calls of the client, and steps of a time bar."""

from __future__ import annotations

import http.client
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

import click
import msgspec

from bench.large import building
from bench.large.building import Size
from bench.measurement import quantile
from fourfold.client import RemoteStore

PATTERN = (
    f'{{"nodes": {{"a": {{"id": {building.NEAR_OBJECT}}}}}, "steps": [{{"from": "b", "to": "a"}}]}}'
)
VISITS = 7
STEPS = 40
"""Steps of the time bar in a browser."""
STEP = """
async (slider) => {
  performance.clearMarks("fourfold-step");
  const started = performance.now();
  slider.value = Number(slider.value) - 1;
  slider.dispatchEvent(new Event("input"));
  while (!performance.getEntriesByName("fourfold-step").length) {
    await new Promise((resolve) => requestAnimationFrame(resolve));
  }
  return performance.getEntriesByName("fourfold-step")[0].startTime - started;
}
"""


class Line(msgspec.Struct, frozen=True):
    """A page, list or call, and how long its requests took."""

    what: str
    path: str
    first_ms: float
    p50_ms: float
    max_ms: float
    size: int


def requests(size: Size, at: str) -> dict[str, str]:
    """Return the requests by what they show: pages of the explorer, then lists of the API.

    `at` is a time at which the store had everything.
    """
    space = {"did": building.LONG_SPACE}
    document = {**space, "id": building.LONG_DOCUMENT}
    session, stream = building.LONG_SESSION, building.STREAM.format(size.streams // 2)
    seqs = {"a third": size.revisions // 3, "two thirds": 2 * size.revisions // 3}
    steps = {
        f"step of a document's time bar, {where}": _url("/document.part", **document, at=seq)
        for where, seq in seqs.items()
    }
    return {
        "home": "/",
        "spaces": "/documents",
        "spaces with a prefix": _url("/documents", prefix="did:web:s09"),
        "space": _url("/space", did=building.SPACE.format(size.spaces // 2)),
        "document": _url("/document", **document),
        **steps,
        "branches": _url("/branches", **space),
        "merge": _url("/merge", **space, source=building.BRANCH),
        "streams": "/streams",
        "streams after a name": _url("/streams", after=stream),
        "stream": _url("/stream", name=stream),
        "stream from a time": _url("/stream", name=stream, start="2000-01-01"),
        "app": _url("/app", app=building.APP),
        "object": _url("/object", app=building.APP, id=1),
        "pattern": _url("/match", app=building.APP, pattern=PATTERN),
        "path": _url("/path", app=building.APP, start=1, end=building.NEAR_OBJECT),
        "sessions": "/sessions",
        "session": _url("/session", sid=session),
        "session in the past": _url("/session", sid=session, at=size.events // 2),
        "compare two heads": _url("/compare", sid=session),
        "fork": _url("/fork", sid=session, event=size.events // 2),
        "SQL": "/sql",
        "SQL, 20 streams": _url("/sql", query="select stream from streams_streams limit 20"),
        "pipeline": "/pipeline",
        "archive": "/archive",
        "audit": "/audit",
        "sync": "/sync",
        "jobs": "/jobs",
        "search": _url("/search", prefix="did:web:s0999"),
        "health": "/status",
        **{
            f"{what} in the past": _url(path, at=at)
            for what, path in (("home", "/"), ("spaces", "/documents"), ("streams", "/streams"))
        },
        "GET /v1/store": "/v1/store",
        "GET /v1/spaces": "/v1/spaces?limit=100",
        "GET /v1/streams": "/v1/streams?limit=100",
        "GET events of a session": _url(f"/v1/sessions/events/{session}", limit=100),
        "GET /metrics": "/metrics",
    }


def _url(path: str, **query: object) -> str:
    return f"{path}?{urlencode(query)}"


def visit(port: int, what: str, path: str) -> Line:
    """Time requests for one path."""
    text = b""

    def get() -> None:
        nonlocal text
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", path)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        if response.status != 200:
            raise click.ClickException(f"{path}: {response.status} {text!r:.300}")

    taken = [_timed(get) for _ in range(VISITS)]
    return line(what, path, taken, len(text))


def calls(size: Size) -> dict[str, Callable[[RemoteStore], Any]]:
    """Return calls of the client, by what they read."""
    stream = building.STREAM.format(size.streams // 2)
    return {
        "read a document": lambda store: store.space(building.LONG_SPACE).read(
            building.LONG_DOCUMENT
        ),
        "read a document in the past": lambda store: store.space(building.LONG_SPACE).read(
            building.LONG_DOCUMENT, at=size.revisions // 3
        ),
        "list 100 streams": lambda store: store.streams.list(limit=100),
        "read a stream": lambda store: store.streams.open(stream).read(),
        "read an object": lambda store: store.graphs.open(building.APP).read("parent", 1),
        "read 100 events of a session": lambda store: store.sessions.events_since(
            building.LONG_SESSION, size.events // 2, limit=100
        ),
        "read the view of a session": lambda store: store.sessions.current_view(
            building.LONG_SESSION
        ),
    }


def call(store: RemoteStore, what: str, ask: Callable[[Any], Any]) -> Line:
    """Time one call of the client."""
    taken = [_timed(lambda: ask(store)) for _ in range(VISITS)]
    return line(f"client: {what}", "", taken, 0)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - began)


def steps_in_browser(port: int) -> Line | None:
    """Time steps of the time bar of the long document in Chromium; None without a browser.

    A step is over when the page shows the state; the browser draws it right after.
    """
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    path = _url("/document", did=building.LONG_SPACE, id=building.LONG_DOCUMENT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"http://127.0.0.1:{port}{path}")
        slider = page.locator("#show")
        taken = [float(slider.evaluate(STEP)) for _ in range(STEPS)]
        browser.close()
    return line("step of a document's time bar, in Chromium", path, taken, 0)


def line(what: str, path: str, taken: Sequence[float], size: int) -> Line:
    """Return the figures of some requests."""
    ordered = sorted(taken)
    first, p50, longest = (
        round(figure, 1) for figure in (taken[0], quantile(ordered, 0.5), ordered[-1])
    )
    return Line(what, path, first, p50, longest, size)
