"""The client for threads is the one for coroutines, without `async`."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import generate_client


@pytest.mark.parametrize("path", generate_client.modules(), ids=lambda path: path.stem)
def test_module_for_threads_is_up_to_date(path):
    written = generate_client.target(path).read_text(encoding="utf-8")
    assert written == generate_client.to_threads(path), "run: make generate"


def test_every_module_for_threads_has_a_source():
    written = {path.name for path in generate_client.TARGET.glob("*.py")} - {"__init__.py"}
    assert written == {path.name for path in generate_client.modules()}


def test_no_coroutine_is_left_in_the_client_for_threads(tmp_path):
    source = tmp_path / "orders.py"
    source.write_text(
        '"""For coroutines: `await AsyncOrders().count()`, `async with`."""\n'
        "import asyncio\n"
        "class AsyncOrders:\n"
        "    async def count(self, timeout=1):  # noqa: ASYNC109 - a limit\n"
        "        await asyncio.sleep(timeout)\n"
        "        return [row async for row in self.rows()]  # all of them\n"
    )
    text = generate_client.to_threads(source)
    assert [node for node in ast.walk(ast.parse(text)) if type(node).__name__[:5] == "Async"] == []
    assert text.splitlines()[1] == '"""For threads: `Orders().count()`, `with`."""'
    assert "    def count(self, timeout=1):\n        time.sleep(timeout)\n" in text
    assert text.endswith("return [row for row in self.rows()]  # all of them\n")
