"""Searches by Prisma Streams, over HTTP, of the same messages: a peer that comes from npm.

It answers about messages whose segments are uploaded and indexed, and about the rest when nothing
was appended for a while. It is measured once its answers are complete.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from bench.ask.rounds import batches
from bench.streams import servers
from bench.streams.servers import Server

STREAM: Final = "logs"
BATCH: Final = 2_000
COMPLETE_S: Final = 600.0
KINDS: Final = {
    "service": "keyword",
    "level": "keyword",
    "host": "keyword",
    "region": "keyword",
    "user": "keyword",
    "status": "integer",
    "bytes": "integer",
    "duration": "float",
    "time": "date",
    "message": "text",
}


class Unmeasured(Exception):
    """Why the peer was not measured."""


class Prisma:
    """A client of its server, on one connection."""

    def __init__(self, server: Server) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)

    def search(self, query: str, **options: Any) -> dict[str, Any]:
        """Return the answer to a search."""
        answer: dict[str, Any] = self._post("/_search", {"q": query, **options})
        return answer

    def rollup(self, since_ms: int, until_ms: int) -> dict[str, Any]:
        """Return numbers and averages of each minute and service."""
        request = {
            "rollup": "minutes",
            "from": since_ms,
            "to": until_ms,
            "interval": "1m",
            "group_by": ["service"],
            "measures": ["count", "duration"],
        }
        answer: dict[str, Any] = self._post("/_aggregate", request)
        return answer

    def fill(self, messages: Iterable[Any], count: int) -> None:
        """Append messages, and wait until searches cover all of them."""
        self._post("/_schema", {"schema": {"type": "object"}, "search": _declaration()})
        for batch in batches(messages, BATCH):
            self._post("", batch)
        until = time.monotonic() + COMPLETE_S
        while time.monotonic() < until:
            coverage = self.search("service:auth", size=1)["coverage"]
            if coverage["complete"]:
                return
            time.sleep(1)
        raise Unmeasured(f"its searches do not cover {count:,} messages after {COMPLETE_S:g} s")

    def _post(self, path: str, value: Any) -> Any:
        until = time.monotonic() + COMPLETE_S
        while True:
            self._connection.request(
                "POST",
                f"/v1/stream/{STREAM}{path}",
                msgspec.json.encode(value),
                {"content-type": "application/json"},
            )
            response = self._connection.getresponse()
            body = response.read()
            if response.status < 300:
                return json.loads(body) if body else None
            # It refuses appends while its segments are not uploaded yet.
            if response.status not in {429, 503} or time.monotonic() > until:
                raise Unmeasured(f"POST {path or '/'}: {response.status} {body[:200]!r}")
            time.sleep(0.1)


@contextmanager
def running(folder: Path, peers: Path) -> Iterator[Prisma]:
    """Run its server, installed from npm into `peers`; raise Unmeasured if it cannot be had."""
    try:
        servers.install(peers)
        with servers.prisma("prisma", folder, peers, servers.TUNED) as server:
            server.create(STREAM)
            yield Prisma(server)
    except click.ClickException as error:
        raise Unmeasured(error.message) from None
    except (OSError, subprocess.SubprocessError, http.client.HTTPException) as error:
        raise Unmeasured(f"{type(error).__name__}: {error}"[:200]) from None


def _declaration() -> dict[str, Any]:
    fields = {
        name: {
            "kind": kind,
            "bindings": [{"version": 1, "jsonPointer": f"/{name}"}],
            **({"exact": True} if kind == "keyword" else {}),
            **({"positions": True, "analyzer": "unicode_word_v1"} if kind == "text" else {}),
            **({"column": True} if kind in {"integer", "float", "date"} else {}),
            **({"aggregatable": True} if kind in {"integer", "float"} else {}),
        }
        for name, kind in KINDS.items()
    }
    minutes = {
        "dimensions": ["service", "level"],
        "intervals": ["1m"],
        "measures": {
            "count": {"kind": "count"},
            "duration": {"kind": "summary", "field": "duration"},
        },
    }
    return {
        "primaryTimestampField": "time",
        "defaultFields": [{"field": "message"}],
        "fields": fields,
        "rollups": {"minutes": minutes},
    }
