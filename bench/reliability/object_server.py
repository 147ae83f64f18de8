"""An S3 server for rounds of faults, and a proxy before it that fails as a network does.

errors    503 and 500, before the request has any effect
delays    the request, or its response, takes up to two seconds
torn      the connection ends within the body of the request, or before the response: then the
          client cannot know whether its write succeeded
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Final, Literal
from urllib.parse import quote

from bench.place import ROOT

ObjectFault = Literal["object_errors", "object_delays", "torn_puts"]
OBJECT_FAULTS: Final[tuple[ObjectFault, ...]] = ("object_errors", "object_delays", "torn_puts")
ENVIRONMENT: Final = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
"""Credentials of the server, which accepts any."""
_SERVER = ROOT / "tests" / "support" / "s3_server.py"
_BUCKET = "objects"
_NOT_FORWARDED = {"connection", "transfer-encoding"}


class ObjectServer:
    """S3 in a process of its own, reached through a proxy whose faults are off at first."""

    def __init__(self, seed: int) -> None:
        self.hits = 0
        """Requests that a fault has concerned."""
        self._random = Random(f"objects-{seed}")
        self._fault: ObjectFault | None = None
        self._process = subprocess.Popen(
            [sys.executable, _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())
        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._proxy.daemon_threads = True
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()
        connection = self.connect()
        connection.request("PUT", f"/{_BUCKET}")
        assert connection.getresponse().status == 200
        connection.close()

    @property
    def url(self) -> str:
        """URL of the bucket, through the proxy."""
        endpoint = f"http://127.0.0.1:{self._proxy.server_port}"
        return f"s3://{_BUCKET}?endpoint={quote(endpoint, safe='')}"

    def start(self, fault: ObjectFault) -> None:
        """Let most requests fail from now on."""
        self._fault = fault

    def stop(self) -> None:
        """Let requests succeed again."""
        self._fault = None

    def close(self) -> None:
        """End the proxy and the server."""
        self._proxy.shutdown()
        self._proxy.server_close()
        self._process.kill()
        self._process.communicate()

    def connect(self) -> http.client.HTTPConnection:
        """Open a connection to the server itself."""
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)

    def draw(self) -> tuple[ObjectFault | None, float]:
        """Return the fault of the next request, and a number from 0 to 1 that decides its kind."""
        fault, number = self._fault, self._random.random()
        if fault is None or self._random.random() < 0.2:
            return None, number
        self.hits += 1
        return fault, number


def _handler(server: ObjectServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            # A client that was killed resets its connection.
            with suppress(ConnectionError):
                super().handle()

        def _handle(self) -> None:
            fault, number = server.draw()
            length = int(self.headers.get("content-length") or 0)
            if fault == "torn_puts" and number < 0.5:
                # The client is cut off within its body: the object must stay as it was.
                self.rfile.read(length // 2)
                self.close_connection = True
                return
            body = self.rfile.read(length)
            if fault == "object_errors":
                self._send(503 if number < 0.5 else 500, {"Content-Length": "0"}, b"")
                return
            if fault == "object_delays" and number < 0.5:
                time.sleep(number * 4)
            status, headers, data = self._forward(body)
            if fault == "object_delays" and number >= 0.5:
                time.sleep((number - 0.5) * 4)
            if fault == "torn_puts":
                self.close_connection = True
                return
            self._send(status, headers, data)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle  # noqa: N815

        def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            connection = server.connect()
            try:
                headers = dict(self.headers.items())
                connection.request(self.command, self.path, body or None, headers)
                response = connection.getresponse()
                data = response.read()
                received = {
                    name: value
                    for name, value in response.getheaders()
                    if name.lower() not in _NOT_FORWARDED
                }
                if self.command != "HEAD":
                    received["Content-Length"] = str(len(data))
                return response.status, received, data
            finally:
                connection.close()

        def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
            with suppress(OSError):
                self.send_response_only(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler
