"""The examples of every page run as a reader pastes them: one terminal, one Python session."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import markdown_pages as markdown
import pytest
import repository_files as tree

from support import forked_commands
from support.forked_commands import ForkedCommands
from support.forked_process import ForkedProcess

TUTORIALS = [
    "README.md",
    "docs/start.md",
    "docs/documents.md",
    "docs/explorer.md",
    "docs/http.md",
    "docs/mcp.md",
    "docs/streams.md",
    "docs/graphs.md",
    "docs/sessions.md",
    "docs/archive.md",
    "docs/ask.md",
    "docs/memory.md",
    "docs/pipeline.md",
    "docs/scale.md",
]
SPARK = {"docs/pipeline.md"}
"""Pages that start Spark."""

NOT_RUN = {
    ("README.md", "make demo     # "): "builds the environment that the tests run in",
    ("docs/start.md", "$ fourfold demo"): "serves until it is interrupted",
    ("docs/documents.md", "$ fourfold space merge kitchen did:web:kitchen.example spicy"): (
        "shows a conflict, which exits with an error"
    ),
    ("docs/sessions.md", "FOURFOLD_SESSIONS_OTLP_URL="): "serves until it is interrupted",
    ("docs/archive.md", "$ fourfold serve shop --objects s3://my-bucket/shop"): "needs S3",
    ("docs/archive.md", "$ fourfold bootstrap shop-then "): "has the id of a restore point",
    ("docs/archive.md", "from fourfold.pipeline import published"): "starts Spark",
    ("docs/pipeline.md", "pip install 'fourfold[spark]'"): "installs packages",
    ("docs/pipeline.md", "$ fourfold sql "): "needs S3",
    ("docs/pipeline.md", "$ fourfold pipeline run materialize my-store --into s3"): "needs S3",
    ("docs/pipeline.md", "$ fourfold pipeline run verify home "): "needs the folders of tenants",
    ("docs/pipeline.md", "$ fourfold pipeline run lineage home "): "needs the folders of tenants",
}
"""Blocks of tutorials that are not run, by page and first line, and why."""

PORT = "4437"
"""The port of the pages; the tests use a free one."""


def parameters():
    for path in tree.pages():
        name = tree.short(path)
        if markdown.steps(path.read_text(encoding="utf-8")):
            slow = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]
            marks = slow if name in SPARK else [pytest.mark.timeout(600)]
            yield pytest.param(path, id=name, marks=marks)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """The socket of a server that runs `fourfold` at once; a page starts it many times."""
    path = tmp_path_factory.mktemp("commands") / "socket"
    server = ForkedCommands(path)
    yield path
    server.close()


@pytest.mark.parametrize("path", list(parameters()))
def test_examples_run_in_one_terminal_and_one_python(path, tmp_path, commands):
    folder, home, tools = tmp_path / "here", tmp_path / "home", tmp_path / "bin"
    for part in (folder, home, tools):
        part.mkdir()
    port = free_port()
    program = tools / "fourfold"
    serve = f'if [ "$1" = serve ]; then set -- "$@" --port {port}; fi'
    command = f'"{sys.executable}" -I -S "{forked_commands.__file__}" "{commands}"'
    program.write_text(f'#!/bin/sh\n{serve}\nexec {command} "$@"\n')
    program.chmod(0o755)
    steps = json.dumps(markdown.steps(path.read_text(encoding="utf-8")))
    (tmp_path / "steps").write_text(steps.replace(f"127.0.0.1:{PORT}", f"127.0.0.1:{port}"))
    environment = tree.environment(
        HOME=str(home), XDG_CACHE_HOME=str(home), PATH=f"{tools}{os.pathsep}{os.environ['PATH']}"
    )
    script = Path(__file__).with_name("run_page.py")
    with (tmp_path / "steps").open() as steps, (tmp_path / "output").open("w+") as output:
        page = ForkedProcess(
            [script, tree.short(path)],
            stdin=steps,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=environment,
        )
        try:
            code = page.wait(900)
        finally:
            page.kill()
        output.seek(0)
        assert code == 0, output.read()


@pytest.mark.parametrize("name", TUTORIALS)
def test_blocks_that_are_not_run_are_listed_with_a_reason(name):
    text = (tree.ROOT / name).read_text(encoding="utf-8")
    listed = [start for page, start in NOT_RUN if page == name]
    runnable = {"python", *markdown.SHELLS}
    for block in markdown.blocks(text):
        if block.language in runnable and not block.runs:
            matching = [start for start in listed if block.text.startswith(start)]
            assert matching, f"{name}:{block.line} is not run, and not listed"
            listed.remove(matching[0])
    assert not listed, "these run now, or are gone"


@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorials_import_at_most_one_level_deep(name):
    text = (tree.ROOT / name).read_text(encoding="utf-8")
    for block in markdown.blocks(text):
        for line in block.text.splitlines():
            if line.startswith(("from fourfold", "import fourfold")):
                module = line.split()[1]
                assert module.count(".") <= 1 or module.startswith("fourfold.adapters."), line
