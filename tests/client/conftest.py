"""What the tests of the client share: a real server in a process of its own."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "server"))

from served_streams import Served

from fourfold.client import StreamClient


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    server = Served(tmp_path_factory.mktemp("served") / "store")
    yield server
    server.kill()


@pytest.fixture
def client(served):
    with StreamClient(f"http://127.0.0.1:{served.port}") as made:
        yield made


@pytest.fixture
def name():
    return f"s-{uuid.uuid4().hex}"
