"""An S3 server for tests: moto in its own process, on a free loopback port, with many buckets.

    with serve_s3() as server:
        store = server.store("a-prefix")

The server stores everything in memory, starts with the first block and ends with the test process,
however that ends; each block has its own bucket. moto handles requests in threads and checks
conditions without a lock, so here requests are served one at a time: races in tests are decided by
our code and by the protocol, not by the emulator.
"""

from __future__ import annotations

import atexit
import itertools
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from fourfold.errors import MissingDependency, StorageError
from fourfold.objects import S3Settings, S3Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_buckets = itertools.count()
_CONDITIONS = ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH")


@dataclass(frozen=True, slots=True)
class S3Server:
    """Address of the server, which accepts any credentials."""

    endpoint: str
    bucket: str
    access_key_id: str = "test"
    secret_access_key: str = "test"

    def settings(self, prefix: str = "", **changes: Any) -> S3Settings:
        """Return the settings of a store under `prefix`."""
        values: dict[str, Any] = {
            "bucket": self.bucket,
            "prefix": prefix,
            "endpoint": self.endpoint,
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
        }
        return S3Settings(**(values | changes))

    def store(self, prefix: str = "") -> S3Store:
        """Open a store under `prefix`."""
        return S3Store(self.settings(prefix))

    def url(self, prefix: str = "") -> str:
        """Return the URL of a store under `prefix`."""
        return f"s3://{self.bucket}/{prefix}?{urlencode({'endpoint': self.endpoint})}"


@contextmanager
def serve_s3(*, ignore_conditions: bool = False) -> Iterator[S3Server]:
    """Create a bucket on the server, which is started if it does not run.

    With `ignore_conditions` it drops If-Match and If-None-Match, as some S3-compatible servers do.
    """
    port = _start(ignore_conditions=ignore_conditions)
    bucket = f"fourfold-test-{next(_buckets)}"
    _create_bucket(port, bucket)
    yield S3Server(f"http://127.0.0.1:{port}", bucket)


@cache
def _start(*, ignore_conditions: bool) -> int:
    """Start the server and return its port."""
    command = [sys.executable, __file__]
    if ignore_conditions:
        command.append("--ignore-conditions")
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    atexit.register(_stop, process)
    assert process.stdout is not None
    port = process.stdout.readline().strip()
    if not port:
        raise StorageError(
            "S3 test server: did not start",
            hint="Run `python tests/support/s3_server.py` to see why.",
        )
    return int(port)


def _stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def _create_bucket(port: int, bucket: str) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("PUT", f"/{bucket}")
        status = connection.getresponse().status
    finally:
        connection.close()
    if status != 200:
        raise StorageError(f"S3 test server: cannot create a bucket, got status {status}")


def main(arguments: list[str]) -> None:
    """Serve until standard input ends; print the port as the first line."""
    try:
        from moto.moto_server.werkzeug_app import (  # noqa: PLC0415
            DomainDispatcherApplication,
            create_backend_app,
        )
        from werkzeug.serving import make_server  # noqa: PLC0415
    except ImportError as exc:
        raise MissingDependency(
            "the S3 test server requires moto, which is not installed",
            hint="pip install 'fourfold[dev]'",
        ) from exc
    application = _one_at_a_time(
        DomainDispatcherApplication(create_backend_app),
        dropped=_CONDITIONS if "--ignore-conditions" in arguments else (),
    )
    server = make_server("127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.shutdown()


def _one_at_a_time(
    application: Callable[..., Iterable[bytes]], *, dropped: tuple[str, ...]
) -> Callable[..., Iterable[bytes]]:
    lock = threading.Lock()

    def locked(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        for header in dropped:
            environ.pop(header, None)
        with lock:
            return application(environ, start_response)

    return locked


if __name__ == "__main__":
    main(sys.argv[1:])
