"""What the tests of the client share: a real server in a process of its own."""

from __future__ import annotations

import io
import re
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "server"))

from served_streams import Served

from fourfold.cli import main
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


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A folder, and the address of a server on another."""
    folder = tmp_path_factory.mktemp("places")
    served = Served(folder / "served")
    yield [str(folder / "store"), f"http://127.0.0.1:{served.port}"]
    served.kill()


@pytest.fixture
def both(places, monkeypatch, capfd):
    """Run a command on both; what they print, which must be the same."""

    def call(name, *arguments, stdin=b"", code=0):
        printed = []
        for place in places:
            monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
            assert main.run(["stream", name, place, *arguments]) == code
            out, err = capfd.readouterr()
            told = re.sub(r'_ms": \d+', '_ms": 0', out) or err
            # What a client was about to do is said by the client alone.
            told = re.sub(r"append to '[^']*': ", "", told)
            told = re.sub(r"(?m)^hint: .*\n|: [a-z]+ '[^']*'", "", told)
            printed.append(told.replace(place, ""))
        assert printed[0] == printed[1]
        return printed[0]

    return call
