"""Requests and tasks of a server, each over a stream of `RECORDS` records."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import fourfold
from fourfold.models.streams import Append

JSON = "application/json"
SSE_READERS = 5_000
SSE_WAIT_S = 60.0
FAN_OUT_RECORDS = 100
"""Enough for 20 seconds: a single stall of the host then does not decide the p99."""
READ_S = 5.0
"""A client that reads page by page, or repeats a query, stops after this time."""
COMMAND_S = 40.0
"""A command is ended after this time."""
Task = Callable[["Target"], bool | None]
"""Returns True if it was stopped before its end."""
Surroundings = Callable[["Target"], AbstractContextManager[None]]
_BATCH = 5_000
_fork_numbers = count()


class Case(NamedTuple):
    """A task of clients, and what it needs.

    Args:
        streams: Streams of `RECORDS` records that it works on.
        models: Models with `RECORDS` records that it works on.
        once: The task cannot be repeated on the same store.
        surroundings: What is there before the case begins, and is not measured itself.
    """

    task: Task
    streams: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    once: bool = False
    surroundings: Surroundings = lambda _: nullcontext()


class Target:
    """A server to send requests to, and the folder that it serves."""

    def __init__(self, port: int, root: Path) -> None:
        self.port = port
        self.root = root
        self.readers: list[socket.socket] = []
        """Connections of `sse_readers`."""

    def request(
        self, method: str, path: str, body: bytes = b"", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, given)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return response.status, found, response.read()
        finally:
            connection.close()

    def json(self, method: str, path: str, body: object = None) -> Any:
        """Send a request, and return the decoded response, which must be a success."""
        data = b"" if body is None else json.dumps(body).encode()
        status, _, answer = self.request(method, path, data, content_type=JSON)
        assert status < 300, (method, path, status, answer[:500])
        return json.loads(answer) if answer else None

    def stream(self, method: str, rest: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        return self.request(method, f"/v1/stream/{rest}", b"", **headers)


def prepare(root: Path, records: int, names: Collection[str]) -> None:
    """Write the streams that the cases work on."""
    with fourfold.open(root) as store:
        streams = store.streams
        for name in sorted(names):
            streams.create(name, JSON)
            for first in range(0, records, _BATCH):
                batch = [
                    b'{"id":%d,"group":%d}' % (number, number % 100)
                    for number in range(first, min(first + _BATCH, records))
                ]
                streams.append(name, Append(batch, JSON))
        streams.create("probe", JSON)
        streams.create("crowd", JSON)
        for number in range(2_000):
            streams.create(f"many/{number:05}", JSON)


def catch_up(target: Target, query: str) -> None:
    """Read `big` to its end, page by page, but no longer than `READ_S`."""
    offset = "-1"
    until = time.monotonic() + READ_S
    while time.monotonic() < until:
        status, headers, _ = target.stream("GET", f"big?offset={offset}{query}")
        assert status == 200, status
        offset = headers["stream-next-offset"]
        if headers.get("stream-up-to-date") == "true":
            return


def delete(target: Target) -> None:
    assert target.stream("DELETE", "deleted")[0] == 204
    _wait_for_cpu(target, 5.0)


def expire(target: Target) -> None:
    """Let the stream expire a second from now, and wait while the sweeper removes it."""
    assert target.stream("PATCH", "expiring", Stream_TTL="1")[0] < 300
    while target.stream("HEAD", "expiring")[0] == 200:
        time.sleep(2)
    _wait_for_cpu(target, 5.0)


def trim(target: Target) -> None:
    """Let retention remove all but a little of a stream."""
    assert target.stream("PATCH", "trimmed", Stream_Retention_Bytes="1000")[0] < 300
    _wait_for_cpu(target, 6.0)


def _wait_for_cpu(_: Target, seconds: float) -> None:
    """Give background work time to run."""
    time.sleep(seconds)


def fork(target: Target) -> None:
    for _ in range(20):
        name = f"fork-{next(_fork_numbers)}"
        made = target.stream("PUT", name, Stream_Forked_From="/v1/stream/forked")
        assert made[0] in {200, 201}, made


def search(target: Target) -> None:
    catch_up(target, f"&field={quote('/id')}&value=-5")


def run_sql(target: Target) -> None:
    """Group the records of `big`, again and again."""
    query = "SELECT size, count(*), max(text) FROM streams_records WHERE stream = 'big' GROUP BY 1"
    body = json.dumps({"query": query, "timeout_s": 60}).encode()
    until = time.monotonic() + READ_S
    while time.monotonic() < until:
        status, _, result = target.request("POST", "/v1/sql", body, content_type=JSON)
        assert status == 200, result


def search_words(target: Target) -> None:
    """Search for a word that no message has, and group the messages, again and again."""
    until = time.monotonic() + READ_S
    while time.monotonic() < until:
        target.json("GET", "/v1/stream/big/_search?q=nowhere")
        target.json("POST", "/v1/stream/big/_aggregate", {"by": ["group"], "timeout_ms": 5_000})


def list_streams(target: Target) -> None:
    for _ in range(20):
        assert target.request("GET", "/v1/streams?limit=1000")[0] == 200
        assert target.request("GET", "/v1/streams/totals")[0] == 200
        assert target.request("GET", "/health")[0] == 200
        assert target.request("GET", "/metrics")[0] == 200


@contextmanager
def sse_readers(target: Target) -> Iterator[None]:
    """Follow a stream by server-sent events over many connections.

    The block begins when every reader has received its first event: the server handles thousands
    of new connections for seconds, which is another case.
    """
    request = b"GET /v1/stream/crowd?offset=now&live=sse HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(SSE_READERS):
            reader = socket.create_connection(("127.0.0.1", target.port), timeout=SSE_WAIT_S)
            target.readers.append(stack.enter_context(reader))
            reader.sendall(request)
        for reader in target.readers:
            read_until(reader, b"upToDate")
        yield
    target.readers.clear()


def read_until(reader: socket.socket, text: bytes) -> None:
    """Read a response until it contains `text`."""
    received = b""
    while text not in received:
        part = reader.recv(65_536)
        assert part, received
        received += part


def fan_out(target: Target) -> None:
    """Append to the stream that many follow, until every reader has received every record."""
    for number in range(FAN_OUT_RECORDS):
        body = b'{"n":%d}' % number
        assert target.request("POST", "/v1/stream/crowd", body, content_type=JSON)[0] < 300
        time.sleep(0.2)
    for reader in target.readers:
        read_until(reader, body)


def command(*arguments: str) -> Task:
    """Run `fourfold` on the folder while the server has it open, for `COMMAND_S` at most."""

    def run(target: Target) -> bool:
        given = [part.replace("ROOT", str(target.root)) for part in arguments]
        program = [sys.executable, "-m", "fourfold", *given]
        try:
            subprocess.run(program, check=True, capture_output=True, timeout=COMMAND_S)
        except subprocess.TimeoutExpired:
            return True
        return False

    return run


def many_appends(target: Target) -> None:
    """Append large batches to another stream from several connections."""
    body = b"[" + b",".join([b'{"id":1,"text":"' + b"y" * 200 + b'"}'] * 1_000) + b"]"

    def one(number: int) -> None:
        for _ in range(20):
            path = f"/v1/stream/many/{number:05}"
            assert target.request("POST", path, body, content_type=JSON)[0] in {200, 204}

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(4)))


CASES: dict[str, Case] = {
    "nothing else": Case(lambda _: time.sleep(4)),
    "GET the whole stream": Case(lambda target: catch_up(target, ""), ("big",)),
    "GET format=records, whole": Case(lambda target: catch_up(target, "&format=records"), ("big",)),
    "GET ?field=&value= without a match": Case(search, ("big",)),
    "GET _search, POST _aggregate": Case(search_words, ("big",)),
    "POST batches of 1,000 messages": Case(many_appends),
    "PUT 20 forks": Case(fork, ("forked",)),
    "GET lists, totals, health, metrics": Case(list_streams, ("big",)),
    "POST /v1/sql over all records": Case(run_sql, ("big",)),
    f"POST to a stream with {SSE_READERS:,} SSE readers": Case(
        fan_out, once=True, surroundings=sse_readers
    ),
    "fourfold backup": Case(command("backup", "ROOT", "ROOT-backup"), ("big",), once=True),
    "fourfold verify": Case(command("verify", "ROOT"), ("big",)),
    "retention of all but 1 kB": Case(trim, ("trimmed",), once=True),
    "expiry of the stream": Case(expire, ("expiring",), once=True),
    "DELETE the stream": Case(delete, ("deleted",), once=True),
}
