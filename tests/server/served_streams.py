"""A real server in its own process, for tests over HTTP."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import fourfold
from support.forked_process import ForkedProcess


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Served:
    """`fourfold serve` on a folder; it can be killed and restarted."""

    def __init__(self, root, long_poll="2", options=(), environment=None):
        self.root = root
        self._options = options
        self._environment = environment or {}
        self.port = free_port()
        self._long_poll = long_poll
        self.start()

    def start(self):
        self.process = ForkedProcess(
            [
                *("-m", "fourfold", "serve", str(self.root)),
                *("--port", str(self.port), "--long-poll", self._long_poll),
                *self._options,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **self._environment},
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                if self.ask("GET", "/health").status == 200:
                    return
            except OSError:
                assert self.process.poll() is None, self.process.stdout.read()
                time.sleep(0.02)
        raise TimeoutError("the server did not start")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def stop_and(self, work):
        """Stop, let `work` change the store, and restart."""
        self.stop()
        with fourfold.open(self.root) as store:
            work(store)
        self.start()

    def stop(self):
        """Ask the server to stop and return its exit code."""
        self.process.terminate()
        code = self.process.wait(60)
        self.process.stdout.close()
        return code

    def open_files(self):
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def ask(self, method, path, body=None, headers=None):
        """Send one request on a new connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            response.text = response.read()
            return response
        finally:
            connection.close()

    def stream(self, method, name, body=None, query="", **headers):
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return self.ask(method, f"/v1/stream/{name}{query}", body, named)
