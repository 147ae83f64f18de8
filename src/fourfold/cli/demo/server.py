"""The server of the demo: a process of its own that inherits a socket which listens already.

The address is known, and a browser that opens it waits, before the server has started; this module
imports little, so that the address is printed soon, also on a busy machine.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fourfold.errors import StorageError

HOST: Final = "127.0.0.1"
START_S: Final = 60.0
STOP_S: Final = 10.0
_BACKLOG: Final = 128


class DemoServer:
    """A server of the folder `root`; it starts when its block is entered."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._socket = socket.create_server((HOST, 0), backlog=_BACKLOG)
        self.url = f"http://{HOST}:{self._socket.getsockname()[1]}/"
        self._log = root.with_name(f"{root.name}-server.log")
        self.process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the process; it is stopped at the end of the block."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        number = self._socket.fileno()
        command = [sys.executable, "-m", "fourfold", "serve", str(self._root)]
        with self._log.open("wb") as file:
            process = self.process = subprocess.Popen(
                [*command, "--listen-fd", str(number)],
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                pass_fds=(number,),
            )
        # Otherwise connections would wait here after the server has failed.
        self._socket.close()
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._log.unlink(missing_ok=True)

    def await_ready(self) -> None:
        """Wait until the server responds.

        Raises:
            StorageError: It did not start; the message is the last line of its output.
        """
        deadline = time.monotonic() + START_S
        assert self.process is not None
        while self.process.poll() is None and (left := deadline - time.monotonic()) > 0:
            try:
                urllib.request.urlopen(f"{self.url}readyz", timeout=left).close()  # noqa: S310 - ours
            except OSError:
                # It has closed the socket: it ends soon, or does so at once.
                time.sleep(0.05)
            else:
                return
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise StorageError(
            f"the server of the demo did not start: {lines[-1] if lines else 'no output'}",
            hint=f"Start it yourself: `fourfold serve {self._root}`.",
        )
