"""Sessions in a store, for tests of adapters."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import fourfold

sys.path.insert(0, str(Path(__file__).parent.parent / "server"))

# The conformance test says that LangGraph is missing; these cannot even be read without it.
NEEDING = [
    "test_langgraph_deltas.py",
    "test_langgraph_graphs.py",
    "test_langgraph_ownership.py",
    "test_langgraph_programs.py",
    "test_langgraph_saver.py",
    "test_langgraph_store.py",
    "test_langgraph_workers.py",
    "test_langgraph_write_ownership.py",
    "test_transcripts.py",
]
collect_ignore = [] if find_spec("langgraph") else NEEDING


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def sessions(store):
    return store.sessions
