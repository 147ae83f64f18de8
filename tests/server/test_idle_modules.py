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
    assert "fourfold.explorer.explorer" in names
    # Queries run in other processes.
    assert "fourfold.query.engine" not in names
    assert packages.isdisjoint(LARGE), packages & set(LARGE)
