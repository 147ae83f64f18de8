#!/usr/bin/env python
"""Install a wheel without extras, with each extra alone and with all, and use what each is for.

    python scripts/smoke_wheel.py dist/fourfold-*.whl [EXTRA...] [--json FILE]

Each installation has an environment of its own, without the packages of any other. For each, one
line: the time of `import fourfold`, the number of packages, their size, and the result of its
program. With `uv` on the PATH installations take seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

ROOT = Path(__file__).resolve().parents[1]
IMPORT_MS_MAX = 150.0
PACKAGES_MAX = 12
"""Budget: the time of `import fourfold`, and packages without extras, with what they depend on."""
NOT_INSTALLED = {"dev", "docs"}
"""Extras of a checkout, which users of a wheel do not install."""
ALL = "all"

CORE = """
import fourfold
with fourfold.open("store") as store:
    space = store.space("did:web:a")
    space.set("note", {"title": "Hello"})
    assert space.read("note", at=1).document == {"title": "Hello"}
    stream = store.streams.create("orders", "application/json")
    stream.append([{"id": 1}])
    store.sessions.create_session({"id": "s", "model": "any"})
    store.graphs.register_app("notes", "Notes")
    store.backup("backup")
    assert not store.verify().problems
"""
PROGRAMS = {
    "": CORE,
    "archive": CORE
    + """
import subprocess, sys
run = lambda *words: subprocess.run([sys.executable, "-m", "fourfold", *words], check=True)
run("publish", "store", "--objects", "objects")
run("bootstrap", "copy", "--objects", "objects")
with fourfold.open("copy") as store:
    assert store.space("did:web:a").read("note").document == {"title": "Hello"}
""",
    "client": """
import os, fourfold
with fourfold.connect(os.environ["SERVER"]) as store:
    store.space("did:web:client").set("note", {"n": 1})
    assert store.space("did:web:client").read("note").document == {"n": 1}
""",
    "connect": """
import fourfold.pipeline
from pyspark.sql.connect.session import SparkSession
assert fourfold.pipeline.session
assert SparkSession.builder.remote("sc://localhost")
""",
    "langgraph": """
import fourfold
from langgraph.checkpoint.base import empty_checkpoint
from fourfold.adapters.langgraph import FourfoldSaver
with fourfold.open("store") as store:
    saver = FourfoldSaver(store.sessions)
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    stored = saver.put(config, empty_checkpoint(), {}, {})
    assert saver.get_tuple(config).config == stored
""",
    "mcp": """
import asyncio, fourfold
from fourfold.adapters.mcp.server import make_server
with fourfold.open("store") as store:
    store.space("did:web:a").set("note", {"n": 1})
    names = {tool.name for tool in asyncio.run(make_server(store).list_tools())}
    assert {"read", "search", "sql"} <= names, names
""",
    "openai-agents": """
import asyncio, fourfold
from agents.memory import Session
from fourfold.adapters.openai_agents import AgentsSession
with fourfold.open("store") as store:
    session = AgentsSession("u", store.sessions)
    assert isinstance(session, Session)
    asyncio.run(session.add_items([{"role": "user", "content": "Hello"}]))
    assert asyncio.run(session.get_items()) == [{"role": "user", "content": "Hello"}]
""",
    "otlp": """
import os, subprocess, sys, fourfold
with fourfold.open("store") as store:
    agent = fourfold.Runtime(store.sessions, lambda turn: fourfold.Final("done"))
    agent.start({"id": "s", "model": "any"})
    agent.run_turn("s", "Hello")
words = ["session", "export", "store", "s", "--otlp", os.environ["COLLECTOR"]]
subprocess.run([sys.executable, "-m", "fourfold", *words], check=True)
""",
    "pydantic-ai": """
import asyncio, fourfold
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.models.test import TestModel
from fourfold.adapters.pydantic_ai import FourfoldConversationStore
with fourfold.open("store") as store:
    conversations = FourfoldConversationStore(store.sessions)
    async def reply():
        agent = Agent(TestModel(custom_output_text="Hi!"))
        result = await agent.run("Hello", conversation=Conversation(conversation_id="a"))
        await conversations.save(result)
        return await conversations.load("a")
    assert asyncio.run(reply()) is not None
""",
    "s3": """
import os
from fourfold.objects import S3Settings, S3Store
keys = {"access_key_id": "a", "secret_access_key": "s"}
store = S3Store(S3Settings(bucket="smoke", endpoint=os.environ["S3"], **keys))
store.put("key", b"bytes")
assert store.get("key").data == b"bytes"
""",
    "schemas": """
import fourfold
from fourfold.errors import FourfoldError
with fourfold.open("store") as store:
    stream = store.streams.create("orders", "application/json")
    stream.set_schema({"type": "object", "required": ["id"]})
    stream.append({"id": 1})
    try:
        stream.append({})
    except FourfoldError:
        pass
    else:
        raise SystemExit("the schema was not checked")
""",
    "server": """
import importlib.util, os, socket, subprocess, sys, time, urllib.request
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
words = ["serve", "store", "--port", str(port)]
has_otlp = importlib.util.find_spec("opentelemetry") is not None
words += ["--otlp", os.environ["COLLECTOR"]] if has_otlp else []
served = subprocess.Popen([sys.executable, "-m", "fourfold", *words])
try:
    url = f"http://127.0.0.1:{port}"
    for _ in range(200):
        try:
            urllib.request.urlopen(url + "/readyz")
            break
        except OSError:
            time.sleep(0.05)
    request = urllib.request.Request(url + "/v1/stream/a", b"hello", method="PUT")
    assert urllib.request.urlopen(request).status == 201
    assert urllib.request.urlopen(url + "/v1/stream/a").read() == b"hello"
    assert b"<html" in urllib.request.urlopen(url + "/").read()
finally:
    served.terminate()
    served.wait()
if has_otlp:
    assert urllib.request.urlopen(os.environ["COLLECTOR"] + "/v1/metrics").read()
""",
    "spark": """
import fourfold
with fourfold.open("store") as store:
    store.space("did:web:a").set("note", {"n": 1})
import subprocess, sys
subprocess.run([sys.executable, "-m", "fourfold", "pipeline", "run", "stats", "store"], check=True)
""",
    "sync": """
import fourfold
signer = fourfold.Ed25519Signer.generate()
with fourfold.open("store") as store:
    graphs = store.graphs
    app = graphs.register_app("notes", "Notes").app_id
    note = graphs.register_type(app, "parent", "note")
    graphs.define_domain("notes", 1)
    me = graphs.add_identity(signer.public_key).id
    graphs.insert_parent(app, {"type_id": note, "owner_identity": me, "sync_flags": 1})
    assert len(graphs.export_package("notes", signer).data) > 100
""",
    "vectors": """
import fourfold
with fourfold.open("store") as store:
    space = store.space("did:web:a")
    space.set("tea", {"v": [0.9, 0.1]})
    space.set("coffee", {"v": [0.1, 0.9]})
    space.indexes.create("meaning", "/v", kind="vector")
    assert [hit.id for hit in space.search(vector=[1, 0], limit=1)] == ["tea"]
""",
}
"""What each extra is for. `all` runs all of them in one environment."""
IMPORT = """
import time
before = time.perf_counter()
import fourfold
print((time.perf_counter() - before) * 1000)
"""


@dataclass
class Installation:
    """One installation and what its program did."""

    extra: str
    packages: int
    megabytes: float
    import_ms: float
    passed: bool
    error: str = ""


def install(folder: Path, wheel: Path, extra: str) -> Path:
    """Create an environment with the wheel; return its Python."""
    python = folder / "bin" / "python"
    chosen = ",".join(extras()) if extra == ALL else extra
    requirement = f"fourfold[{chosen}] @ {wheel.resolve().as_uri()}"
    if uv := shutil.which("uv"):
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, folder], check=True)
        subprocess.run([uv, "pip", "install", "-q", "--python", python, requirement], check=True)
    else:
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", requirement], check=True)
    return python


def extras() -> list[str]:
    """Return the extras of users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return sorted(project["optional-dependencies"].keys() - NOT_INSTALLED)


def try_out(wheel: Path, extra: str, environment: dict[str, str]) -> Installation:
    """Install the wheel with one extra, and run its program."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        python = install(folder / "venv", wheel, extra)
        (site,) = (folder / "venv" / "lib").glob("*/site-packages")
        size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
        times = [
            float(
                subprocess.run(
                    [python, "-c", IMPORT],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
            )
            for _ in range(5)
        ]
        errors = []
        for name in PROGRAMS if extra == ALL else [extra]:
            work = folder / f"work-{name}"
            work.mkdir()
            done = subprocess.run(
                [python, "-c", PROGRAMS[name]],
                cwd=work,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
            if done.returncode:
                errors.append(f"{name}: {(done.stdout + done.stderr)[-2000:]}")
        packages = len(list(site.glob("*.dist-info")))
        if min(times) > IMPORT_MS_MAX:
            errors.append(f"import takes {min(times):.0f} ms, at most {IMPORT_MS_MAX:.0f}")
        if not extra and packages > PACKAGES_MAX:
            errors.append(f"{packages} packages, at most {PACKAGES_MAX}")
        return Installation(
            extra or "none",
            packages,
            round(size / 1e6, 1),
            round(min(times), 1),
            not errors,
            "\n".join(errors),
        )


class Quiet(WSGIRequestHandler):
    """Log no requests."""

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


def objects() -> Any:
    """Serve as an S3 bucket and as a receiver of traces, for the programs that need one."""
    stored: dict[str, bytes] = {}

    def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        path, length = environ["PATH_INFO"], int(environ.get("CONTENT_LENGTH") or 0)
        if environ["REQUEST_METHOD"] in {"PUT", "POST"}:
            stored[path] = environ["wsgi.input"].read(length)
            start_response("200 OK", [("ETag", '"1"'), ("Content-Length", "0")])
            return [b""]
        body = stored.get(path)
        headers = [
            ("ETag", '"1"'),
            ("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT"),
            ("Content-Length", str(len(body or b""))),
        ]
        start_response("404 Not Found" if body is None else "200 OK", headers)
        return [body or b""]

    server = make_server("127.0.0.1", 0, application, handler_class=Quiet)
    Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> None:
    """Try out the installations that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("extras", nargs="*")
    parser.add_argument("--json", type=Path, help="write the results here, too")
    parser.add_argument("--server", help="URL of a running server, for the extra client")
    options = parser.parse_args()
    server = objects()
    url = f"http://127.0.0.1:{server.server_port}"
    hidden = ("PYTHONPATH", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"S3": url, "COLLECTOR": url, "SERVER": options.server or url}
    names = options.extras or ["none", *extras(), ALL]
    results = []
    for name in names:
        result = try_out(options.wheel, "" if name == "none" else name, environment)
        results.append(result)
        state = "ok" if result.passed else f"FAILED\n{result.error}"
        sys.stdout.write(
            f"{result.extra:14} {result.packages:4} packages {result.megabytes:8.1f} MB "
            f"import {result.import_ms:6.1f} ms  {state}\n"
        )
        sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    sys.exit(0 if all(result.passed for result in results) else 1)


if __name__ == "__main__":
    main()
