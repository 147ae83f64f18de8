"""Runs one walk of docs/architecture.md and prints the functions it calls; not a test itself.

`python trace_walk.py WALK FOLDER` prints a JSON list of `["models/streams/stream.py",
"Stream.append"]` in the order of the calls. Only calls in the package, and on the threads that run
the walk, are recorded.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import click

import fourfold

PACKAGE = f"{Path(fourfold.__file__).parent}{os.sep}"
SPACE = "did:web:walk.example"


@contextmanager
def recorded(calls):
    """Record the calls of this thread in the block."""

    def record(frame, event, _argument):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            file = frame.f_code.co_filename.removeprefix(PACKAGE)
            calls.append((file, frame.f_code.co_qualname))

    sys.setprofile(record)
    try:
        yield
    finally:
        sys.setprofile(None)


def append(folder, calls):
    """Append over HTTP: the server runs on this thread, its client on another."""
    from fourfold.cli.main import app  # noqa: PLC0415

    with fourfold.open(folder) as store:
        store.streams.create("orders", "application/json")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    threading.Thread(target=_send_append, args=(port,)).start()
    with suppress(click.Abort), recorded(calls):
        app(["serve", str(folder), "--port", str(port)], standalone_mode=False)


def _send_append(port):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for _ in range(300):
            try:
                connection.connect()
                break
            except OSError:
                time.sleep(0.1)
        connection.request(
            "POST", "/v1/stream/orders", b'{"id": 1}', {"content-type": "application/json"}
        )
        status = connection.getresponse().status
        assert status == 204, status
    finally:
        os.kill(os.getpid(), signal.SIGINT)


def commit(folder, calls):
    with fourfold.open(folder) as store:
        space = store.space(SPACE)
        with recorded(calls):
            space.set("note", {"title": "Hello"})


def past_read(folder, calls):
    with fourfold.open(folder) as store:
        space = store.space(SPACE)
        first = space.set("note", {"title": "Hello"})
        space.patch("note", [{"op": "replace", "path": "/title", "value": "Hi"}])
        with recorded(calls):
            state = space.read("note", at=first.seq)
        assert state.document == {"title": "Hello"}


def materialize(folder, calls):
    from fourfold.pipeline import jobs, session  # noqa: PLC0415

    with fourfold.open(folder) as store:
        store.space(SPACE).set("note", {"title": "Hello"})
    spark = session("local[1]", quiet=True)
    with recorded(calls):
        jobs.run("materialize", folder, {"into": f"{folder}-tables"}, spark=spark)
    spark.stop()


def restore(folder, calls):
    objects = {"objects.url": f"{folder}-objects"}
    with fourfold.open(folder, settings=objects) as store:
        store.space(SPACE).set("note", {"title": "Hello"})
        store.publish()
    from fourfold.store import rebuild  # noqa: PLC0415

    with fourfold.open(f"{folder}-restored", settings=objects) as store:
        with recorded(calls):
            rebuild(store)
        assert store.space(SPACE).read("note").document == {"title": "Hello"}


def main() -> None:
    calls = []
    globals()[sys.argv[1]](Path(sys.argv[2]), calls)
    with Path(sys.argv[3]).open("w", encoding="utf-8") as file:
        json.dump(calls, file)


if __name__ == "__main__":
    main()
