"""The load: appends by wrk, a reader that catches up, live readers. Each gives plain figures."""

from __future__ import annotations

import csv
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import click

from bench.measurement import quantile
from bench.streams.servers import Server

SCRIPT = Path(__file__).with_name("append.lua")
MESSAGE_BYTES = 200
LATENCY_RATE = 50
_UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}
Figures = dict[str, float]


def appends(server: Server, streams: int, connections: int, batch: int, seconds: float) -> Figures:
    """Appends from `connections` clients that each wait for the answer."""
    if server.name.startswith("redis"):
        return _redis(server, streams, connections, batch, seconds)
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--latency", "-s", str(SCRIPT)]
    environment = {**os.environ, "STREAMS": str(streams), "BATCH": str(batch)}
    before = server.cpu_seconds()
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{server.port}"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    cpu = server.cpu_seconds() - before
    if wrong := re.search(r"Non-2xx.*|Socket errors.*", done):
        raise click.ClickException(f"{server.name}: {wrong[0]}")
    count = int(_found(r"(\d+) requests in", done))
    return {
        "per_s": float(_found(r"Requests/sec:\s+([\d.]+)", done)) * batch,
        "p50_ms": _milliseconds(_found(r"\n\s+50%\s+(\S+)", done)),
        "p99_ms": _milliseconds(_found(r"\n\s+99%\s+(\S+)", done)),
        "cpu_us": cpu / max(count, 1) * 1e6,
    }


def _redis(server: Server, streams: int, connections: int, batch: int, seconds: float) -> Figures:
    """The same number of seconds of XADD, about: the tool counts requests, not time."""
    message = "x" * MESSAGE_BYTES
    key = "log" if streams == 1 else "log:__rand_int__"

    def run(requests: int) -> tuple[float, Figures]:
        command = ["redis-benchmark", "-p", str(server.port), "-c", str(connections), "--csv"]
        command += ["-r", str(streams), "-n", str(requests), "-P", str(batch)]
        command += ["XADD", key, "*", "d", message]
        started = time.perf_counter()
        done = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        taken = time.perf_counter() - started
        names, values = list(csv.reader(done.splitlines()))[:2]
        row = dict(zip(names, values, strict=True))
        rate = float(row["rps"])
        p50, p99 = float(row["p50_latency_ms"]), float(row["p99_latency_ms"])
        return taken, {"per_s": rate, "p50_ms": p50, "p99_ms": p99}

    _, found = run(2_000 * batch)
    return run(max(2_000, int(found["per_s"] * seconds)))[1]


def preload(server: Server, name: str, total_bytes: int) -> None:
    """Fill a stream with messages of 200 bytes, 1,000 in a request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    sent = number = 0
    while sent < total_bytes:
        messages = []
        for _ in range(1_000):
            number += 1
            text = json.dumps({"id": number, "note": os.urandom(80).hex()})
            messages.append(text[:-1] + " " * (MESSAGE_BYTES - len(text)) + "}")
        body = "[" + ",".join(messages) + "]"
        headers = {"content-type": "application/json"}
        connection.request("POST", f"/v1/stream/{name}", body, headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status == 429:
            time.sleep(0.2)
            continue
        if answer.status not in {200, 204}:
            raise click.ClickException(f"{server.name} took no messages: {answer.status}")
        sent += len(body)
    connection.close()


def catch_up(server: Server, name: str) -> Figures:
    """One reader from the beginning to the end of a stream, as fast as it goes."""
    server.forget_peak()
    buffer = bytearray(1 << 20)
    offset, total, requests = "-1", 0, 0
    started = time.perf_counter()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        while True:
            asked = f"GET /v1/stream/{name}?offset={offset} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            link.sendall(asked.encode())
            requests += 1
            head, got = _body(link, buffer)
            total += got
            offset = _found(r"(?i)stream-next-offset: (\S+)", head)
            if re.search(r"(?i)stream-up-to-date: true", head):
                break
    taken = time.perf_counter() - started
    return {
        "per_s": total / taken / 1e6,
        "requests": requests,
        "peak_mib": server.memory_mib("VmHWM"),
    }


def _body(link: socket.socket, buffer: bytearray) -> tuple[str, int]:
    """The head of an answer, and how many bytes its body had, as sent."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += link.recv(65536)
    start, _, rest = data.partition(b"\r\n\r\n")
    head, got = start.decode("latin-1"), len(rest)
    length = re.search(r"(?i)content-length: (\d+)", head)
    if length is not None:
        while got < int(length[1]):
            got += link.recv_into(buffer)
        return head, got
    tail = rest[-7:]
    while not tail.endswith(b"\r\n0\r\n\r\n"):
        count = link.recv_into(buffer)
        got += count
        tail = (tail + bytes(buffer[max(0, count - 7) : count]))[-7:]
    return head, got


def live(server: Server, name: str, mode: str, count: int) -> Figures:
    """From before an append is sent to when a live reader has it, with 50 appends a second."""
    arrived: dict[int, float] = {}
    follow = _follow_sse if mode == "sse" else _follow_long_poll
    ready, done = threading.Event(), threading.Event()
    arguments = (server, name, arrived, count, ready, done)
    reader = threading.Thread(target=follow, args=arguments, daemon=True)
    reader.start()
    ready.wait(10)
    time.sleep(0.3)
    writer = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    sent = {}
    for number in range(count):
        due = time.perf_counter() + 1 / LATENCY_RATE
        body = json.dumps({"latency": number, "pad": "x" * (MESSAGE_BYTES - 40)})
        sent[number] = time.perf_counter()
        headers = {"content-type": "application/json"}
        writer.request("POST", f"/v1/stream/{name}", body, headers)
        writer.getresponse().read()
        time.sleep(max(0.0, due - time.perf_counter()))
    done.wait(5)
    writer.close()
    taken = sorted(1000 * (arrived[n] - sent[n]) for n in sent if n in arrived)
    if len(taken) < 0.95 * count:
        raise click.ClickException(f"{server.name}: {len(taken)} of {count} arrived by {mode}")
    return {"p50_ms": quantile(taken, 0.5), "p99_ms": quantile(taken, 0.99)}


_NUMBER = re.compile(rb'"latency": ?(\d+)')


def _follow_sse(
    server: Server,
    name: str,
    arrived: dict[int, float],
    count: int,
    ready: threading.Event,
    done: threading.Event,
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as link:
        asked = f"GET /v1/stream/{name}?offset=now&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n"
        link.sendall(asked.encode())
        kept = b""
        while len(arrived) < count:
            data = link.recv(1 << 16)
            if not data:
                return
            now = time.perf_counter()
            ready.set()
            kept += data
            for found in _NUMBER.finditer(kept):
                arrived.setdefault(int(found[1]), now)
            kept = kept[-30:]
    done.set()


def _follow_long_poll(
    server: Server,
    name: str,
    arrived: dict[int, float],
    count: int,
    ready: threading.Event,
    done: threading.Event,
) -> None:
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    link.request("HEAD", f"/v1/stream/{name}")
    answer = link.getresponse()
    answer.read()
    offset = answer.headers["stream-next-offset"]
    ready.set()
    while len(arrived) < count:
        link.request("GET", f"/v1/stream/{name}?offset={offset}&live=long-poll")
        answer = link.getresponse()
        body = answer.read()
        now = time.perf_counter()
        offset = answer.headers["stream-next-offset"] or offset
        for found in _NUMBER.finditer(body):
            arrived.setdefault(int(found[1]), now)
    done.set()
    link.close()


def require_wrk() -> None:
    if shutil.which("wrk") is None:
        raise click.ClickException("the load comes from wrk: install it (apt install wrk)")


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise click.ClickException(f"nothing like {pattern!r} in: {text[:500]}")
    return match[1]


def _milliseconds(text: str) -> float:
    match = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text)
    assert match is not None, text
    return float(match[1]) * _UNITS[match[2]]
