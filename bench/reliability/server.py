"""A server process that is killed, paused and started again, and requests to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_S = 120.0
_TIMEOUT_S = 30.0


class NotSent(Exception):
    """The request did not reach the server."""


class NoResponse(Exception):
    """The request may have reached the server, and no whole response came back."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response, received completely."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the decoded body."""
        return json.loads(self.body)


class Connection:
    """A connection of one client, opened again as needed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: http.client.HTTPConnection | None = None

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float = _TIMEOUT_S,
    ) -> Response:
        """Send a request with a body of JSON, and wait for the response."""
        if self._connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=timeout_s)
            try:
                connection.connect()
            except OSError as error:
                raise NotSent from error
            self._connection = connection
        assert self._connection.sock is not None
        self._connection.sock.settimeout(timeout_s)
        content = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        try:
            self._connection.request(method, path, content, sent)
            response = self._connection.getresponse()
            received = {name.lower(): value for name, value in response.getheaders()}
            result = Response(response.status, received, response.read())
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise NoResponse from error
        if response.will_close:
            self.close()
        return result

    def lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines of a feed, on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", path)
            yield from connection.getresponse()
        finally:
            connection.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def free_port() -> int:
    """Return a port on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """`fourfold serve` on a folder, in a process of its own."""

    def __init__(
        self,
        root: Path,
        *,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        self._root = root
        self._options = options
        self._environment = {**os.environ, **(environment or {})}
        self._log = root.with_name(f"{root.name}.log")
        self.start()

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def start(self) -> None:
        """Start the process; return when it is ready."""
        command = [sys.executable, "-m", "fourfold", "serve", str(self._root)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port), *self._options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            connection = Connection(self.port)
            try:
                if connection.request("GET", "/readyz", timeout_s=5).status == 200:
                    return
            except (NotSent, NoResponse):
                if self._process.poll() is not None:
                    break
            finally:
                connection.close()
            time.sleep(0.01)
        raise TimeoutError(f"the server did not start:\n{self.log()[-4000:]}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the process by SIGKILL."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Ask the process to end; return its exit code."""
        self._process.terminate()
        return self._process.wait(60)

    def log(self) -> str:
        """Return what the process wrote."""
        return self._log.read_text(errors="replace")
