"""A small HTTP server of tests' own: a proxy that loses answers, or a script of answers."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Answer = tuple[int, bytes]


def error(status: int, code: str) -> Answer:
    return status, f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode()


@contextmanager
def serve(
    decide: Callable[[str, str], Answer | str], upstream: str | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Serve what `decide(method, path)` says: an answer, "pass" on, or pass on and "lose" it."""
    log: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            log.append(self.command)
            decision = decide(self.command, self.path)
            if isinstance(decision, tuple):
                self.answer(decision[0], [], decision[1])
                return
            connection = HTTPConnection(urlsplit(upstream).netloc, timeout=30)
            connection.request(self.command, self.path, body, dict(self.headers))
            response = connection.getresponse()
            data = response.read()
            connection.close()
            if decision == "lose":
                self.close_connection = True
                self.connection.close()
                return
            self.answer(response.status, response.getheaders(), data)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any  # noqa: N815

        def answer(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
            self.send_response_only(status)
            skipped = {"connection", "transfer-encoding"}
            if self.command != "HEAD":
                skipped.add("content-length")
                self.send_header("content-length", str(len(data)))
            for name, value in headers:
                if name.lower() not in skipped:
                    self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

        def finish(self) -> None:
            try:
                super().finish()
            except OSError:
                self.connection.close()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", log
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
