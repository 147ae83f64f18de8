"""An idle server has loaded nothing that only some requests or commands need."""

from __future__ import annotations

import json
import subprocess
import sys

CHILD = """
import json, sys
import uvicorn

def run(server, sockets):
    server.started = True
    print(json.dumps(sorted(sys.modules)))

uvicorn.Server.run = run
from fourfold.cli.main import main
main(["serve", sys.argv[1], "--port", "1"])
"""

LARGE = (
    *("pyspark", "py4j", "pyarrow", "pandas", "numpy", "polars", "duckdb", "deltalake"),
    *("langgraph", "langchain_core", "openai", "agents"),
    *("boto3", "botocore", "obstore", "httpx", "httpcore", "rich", "plotly", "pydantic"),
    *("cryptography", "jsonschema", "hypothesis", "pytest", "playwright", "websockets"),
    "jinja2",
)
UNUSED = (
    # Web pages are loaded for the first visit, other commands never.
    *("fourfold.explorer.explorer", "fourfold.explorer.page", "fourfold.cli.space"),
    *("fourfold.cli.app_sync", "fourfold.cli.app_sync_http"),
    # Queries run in other processes.
    "fourfold.query.engine",
    # A store that publishes nothing seals nothing, and few streams are searched.
    *("fourfold.models.streams.archive.archiver", "fourfold.models.streams.archive.publisher"),
    *("fourfold.models.streams.search.engine", "fourfold.models.streams.search.companions.reader"),
    *("fourfold.objects.s3", "fourfold.testing.faulty_store"),
    # Verification, collection, bundles, and sessions that are only in memory.
    *("fourfold.models.streams.archive.verify", "fourfold.models.sessions.verify"),
    *("fourfold.models.documents.verify", "fourfold.models.documents.file_verify"),
    *("fourfold.models.graphs.verify", "fourfold.models.streams.verify"),
    *("fourfold.models.documents.gc.sweep", "fourfold.models.sessions.bundle"),
    "fourfold.models.sessions.memory_log",
    # Large parts of the standard library, for one message or for packages in ZIP files.
    *("csv", "difflib", "html.entities", "zipfile"),
)


def test_idle_server_has_not_loaded_large_libraries(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert lines, done.stderr
    names = json.loads(lines[-1])
    packages = {name.partition(".")[0] for name in names}
    assert "uvicorn" in packages
    assert packages.isdisjoint(LARGE), packages & set(LARGE)
    loaded = set(UNUSED) & set(names)
    assert not loaded, loaded
