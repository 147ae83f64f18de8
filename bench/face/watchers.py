"""`python -m bench.face.watchers PORT PATH COUNT`: read feeds until stdin ends."""

from __future__ import annotations

import selectors
import socket
import sys


def open_feed(port: int, path: str) -> socket.socket:
    """Return a connection whose feed has begun."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n\r\n"
    connection.sendall(request.encode())
    received = b""
    while b"\nid: " not in received:
        received += connection.recv(65536)
    return connection


def main(port: int, path: str, count: int) -> None:
    """Read feeds, and report when all of them are open."""
    selector = selectors.DefaultSelector()
    for _ in range(count):
        selector.register(open_feed(port, path), selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                return
            assert isinstance(key.fileobj, socket.socket)
            if not key.fileobj.recv(65536):
                selector.unregister(key.fileobj)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
