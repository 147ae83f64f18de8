"""Serve exported files to Spark's executors, which need no folder of the driver's machine.

The driver answers the read operations of WebHDFS, the HTTP interface of Hadoop, whose client is
part of Spark: so Spark's own Parquet reader reads `webhdfs://DRIVER:PORT/...` on every machine of a
cluster. The path of a file contains a random token, without which nothing is served.
"""

from __future__ import annotations

import json
import secrets
import shutil
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import parse_qs, quote, urlsplit

from fourfold import _version

_PREFIX: Final = "/webhdfs/v1/"
_TIMEOUT_S: Final = 60.0
_lock = threading.Lock()
_servers: dict[str, FileServer] = {}


class FileServer:
    """An HTTP server that serves the files that were added, while this process lives."""

    def __init__(self, bind: str) -> None:
        self._token = secrets.token_urlsafe(24)
        self._http = _HTTPServer((bind, 0), _Handler)
        self._http.files = {}
        threading.Thread(
            target=self._http.serve_forever, name="fourfold-files", daemon=True
        ).start()

    def add(self, path: str, host: str) -> str:
        """Serve a file; return its address for executors that reach the driver as `host`."""
        name = f"{self._token}/{Path(path).name}"
        self._http.files[name] = Path(path)
        address = f"[{host}]" if ":" in host else host
        return f"webhdfs://{address}:{self._http.server_port}/{name}"

    def close(self) -> None:
        """Stop serving."""
        self._http.shutdown()
        self._http.server_close()


def get_server(bind: str) -> FileServer:
    """Return the server of this process on an address, started on first use."""
    with _lock:
        if bind not in _servers:
            _servers[bind] = FileServer(bind)
        return _servers[bind]


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    files: dict[str, Path]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a reader that closes its connection: it has what it needs."""


class _Handler(BaseHTTPRequestHandler):
    # Responses have no Content-Type: to parse one, the client needs a class that Spark lacks.
    protocol_version = "HTTP/1.1"
    server_version = f"fourfold/{_version.__version__}"
    timeout = _TIMEOUT_S

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query = {name.lower(): values[0] for name, values in parse_qs(address.query).items()}
        files = cast("_HTTPServer", self.server).files
        path = files.get(address.path.removeprefix(_PREFIX))
        if path is None or not path.is_file():
            self._fail(HTTPStatus.NOT_FOUND, "FileNotFoundException", "unknown file")
            return
        operation = query.get("op", "").upper()
        if operation == "OPEN":
            self._send_file(path, int(query.get("offset", 0)))
        elif operation == "GETFILESTATUS":
            self._send_json({"FileStatus": _status(path)})
        elif operation == "LISTSTATUS":
            self._send_json({"FileStatuses": {"FileStatus": [_status(path)]}})
        elif operation == "GETFILEBLOCKLOCATIONS":
            self._send_json({"BlockLocations": {"BlockLocation": []}})
        else:
            message = f"unsupported operation {operation}"
            self._fail(HTTPStatus.BAD_REQUEST, "UnsupportedOperationException", message)

    def _send_file(self, path: Path, offset: int) -> None:
        with path.open("rb") as file:
            size = path.stat().st_size
            start = min(max(offset, 0), size)
            file.seek(start)
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Length", str(size - start))
            self.end_headers()
            shutil.copyfileobj(file, self.wfile, 1 << 20)

    def _send_json(self, document: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _fail(self, status: HTTPStatus, exception: str, message: str) -> None:
        java = {"FileNotFoundException": "java.io.FileNotFoundException"}
        self._send_json(
            {
                "RemoteException": {
                    "exception": exception,
                    "javaClassName": java.get(exception, f"java.lang.{exception}"),
                    "message": f"{message}: {quote(self.path.partition('?')[0][-80:])}",
                }
            },
            status,
        )

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - of the base class
        """Log nothing: requests contain the token."""


def _status(path: Path) -> dict[str, Any]:
    facts = path.stat()
    return {
        "accessTime": 0,
        "blockSize": 128 * 1024 * 1024,
        "childrenNum": 0,
        "fileId": facts.st_ino,
        "group": "fourfold",
        "length": facts.st_size,
        "modificationTime": facts.st_mtime_ns // 1_000_000,
        "owner": "fourfold",
        "pathSuffix": "",
        "permission": "400",
        "replication": 1,
        "storagePolicy": 0,
        "type": "FILE",
    }
