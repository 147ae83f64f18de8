"""The servers: how each is started, stopped, put to sleep while others are measured, and asked for
its processor time and memory.
"""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import click

PACKAGES = ("@durable-streams/server@0.3.7", "@prisma/streams-server@0.1.11", "bun@1.4.4")
TUNED = {
    "DS_INGEST_FLUSH_MS": "1",
    "DS_INGEST_CONCURRENCY": "256",
    "DS_READ_CONCURRENCY": "64",
    "DS_READ_MAX_RECORDS": "100000",
    "DS_READ_MAX_BYTES": "16777216",
}
_FILE_SERVER = """
import {{ DurableStreamTestServer }} from "{module}"
const server = new DurableStreamTestServer({{ port: {port}, host: "127.0.0.1", dataDir: "{data}" }})
await server.start()
"""
_TICKS = os.sysconf("SC_CLK_TCK")
_SETTLED_SHARE = 0.15
"""Of one processor: some servers look at their queues a thousand times a second."""
_SETTLE_S = 6.0

Command = tuple[list[str], dict[str, str]]


class Server:
    """One server on a port and a folder of its own."""

    def __init__(self, name: str, start: Callable[[int, Path], Command], folder: Path) -> None:
        self.name = name
        self._start = start
        self.folder = folder
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        command, environment = self._start(self.port, self.folder)
        self.process = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + 30
        while not self._listens():
            if time.monotonic() > until or self.process.poll() is not None:
                raise click.ClickException(f"{self.name} did not start: {' '.join(command)}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.wake()
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def sleep(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def settle(self) -> None:
        """Let it finish what it does in the background, up to a time."""
        until = time.monotonic() + _SETTLE_S
        while time.monotonic() < until:
            before = self.cpu_seconds()
            time.sleep(0.25)
            if self.cpu_seconds() - before <= 0.25 * _SETTLED_SHARE + 1 / _TICKS:
                return

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory_mib(self, field: str = "VmRSS") -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def forget_peak(self) -> None:
        """Reset the peak of its memory."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def create(self, name: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(
            "PUT", f"/v1/stream/{name}", headers={"content-type": "application/json"}
        )
        status = connection.getresponse().status
        connection.close()
        if status not in {200, 201}:
            raise click.ClickException(f"{self.name} made no stream: {status}")

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


def install(folder: Path) -> None:
    """The peers, from npm, into a folder of their own."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise click.ClickException("the peers come from npm, which is not installed")
    wanted = folder / "installed"
    if wanted.exists() and wanted.read_text() == " ".join(PACKAGES):
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"name": "peers", "private": true, "type": "module"}')
    command = ["npm", "install", "--no-audit", "--no-fund", *PACKAGES]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=600)
    wanted.write_text(" ".join(PACKAGES))


def fourfold(
    name: str, folder: Path, *options: str, settings: dict[str, str] | None = None
) -> Server:
    """`fourfold serve`, with these options and these variables."""

    def start(port: int, data: Path) -> Command:
        command = [sys.executable, "-m", "fourfold", "serve", str(data / "store")]
        # Readers that wait have a connection each, and there are more of them than by default.
        environment = {"FOURFOLD_SERVER_CONNECTIONS_MAX": "20000", **(settings or {})}
        return [*command, f"--port={port}", *options], environment

    return Server(name, start, folder)


def prisma(name: str, folder: Path, peers: Path, settings: dict[str, str]) -> Server:
    bun = _bun(peers / "node_modules")
    server = peers / "node_modules" / "@prisma" / "streams-server" / "src" / "server.ts"

    def start(port: int, data: Path) -> Command:
        where = {"PORT": str(port), "DS_HOST": "127.0.0.1", "DS_ROOT": str(data / "root")}
        command = [str(bun), str(server), "--object-store", "local", "--no-auth"]
        return command, {**where, **settings}

    return Server(name, start, folder)


def all_servers(folder: Path, peers: Path) -> list[Server]:
    """Every server that can be had here, ours first."""

    def file_store(port: int, data: Path) -> Command:
        script = data / "server.mjs"
        module = peers / "node_modules" / "@durable-streams" / "server" / "dist" / "index.js"
        script.write_text(_FILE_SERVER.format(port=port, data=data / "data", module=module))
        return ["node", str(script)], {}

    def redis(port: int, data: Path) -> Command:
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(data)]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        return [*command, "--auto-aof-rewrite-percentage", "0"], {}

    found = [
        fourfold("fourfold", folder / "fourfold"),
        prisma("prisma-tuned", folder / "prisma-tuned", peers, TUNED),
        prisma("prisma", folder / "prisma", peers, {}),
        Server("file", file_store, folder / "file"),
    ]
    if shutil.which("redis-server") and shutil.which("redis-benchmark"):
        found.append(Server("redis-always", redis, folder / "redis"))
    return found


def _bun(modules: Path) -> Path:
    """Its binary lies in one of two places, whether or not npm ran the scripts of packages."""
    for found in (*modules.glob("@oven/bun-*/bin/bun"), modules / "bun" / "bin" / "bun.exe"):
        if found.exists() and found.stat().st_size > 1_000_000:
            return found
    raise click.ClickException(f"npm installed no bun in {modules}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
