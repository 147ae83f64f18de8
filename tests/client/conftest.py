"""Fixtures of the client tests: a real server in its own process."""

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

import fourfold
from fourfold.cli import main
from fourfold.client import StreamClient, transport


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    server = Served(tmp_path_factory.mktemp("served") / "store")
    yield server
    server.kill()


@pytest.fixture(scope="module", params=["folder", "server"])
def store(request, tmp_path_factory):
    """Return the same store twice: opened in a folder, and connected to over HTTP."""
    root = tmp_path_factory.mktemp(request.param) / "store"
    if request.param == "folder":
        with fourfold.open(root) as opened:
            yield opened
        return
    served = Served(root, long_poll="1")
    with fourfold.connect(f"http://127.0.0.1:{served.port}") as connected:
        yield connected
    served.kill()


@pytest.fixture
def client(served):
    with StreamClient(f"http://127.0.0.1:{served.port}") as made:
        yield made


@pytest.fixture
def quick_retries(monkeypatch):
    """Clients pause shortly before they retry."""
    monkeypatch.setattr(transport, "CLIENT_BACKOFF_S", 0.005)


@pytest.fixture
def name():
    return f"s-{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Return a folder, and the address of a server on another one."""
    folder = tmp_path_factory.mktemp("places")
    served = Served(folder / "served")
    yield [str(folder / "store"), f"http://127.0.0.1:{served.port}"]
    served.kill()


@pytest.fixture
def both(places, monkeypatch, capfd):
    """Run a command on both places and return its output, which must be equal."""

    def call(name, *arguments, stdin=b"", code=0):
        printed = []
        for place in places:
            monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
            assert main.run(["stream", name, place, *arguments]) == code
            out, err = capfd.readouterr()
            output = re.sub(r'_ms": \d+', '_ms": 0', out) or err
            # Only the client's messages name the operation.
            output = re.sub(r"append to '[^']*': ", "", output)
            output = re.sub(r"(?m)^hint: .*\n|: [a-z]+ '[^']*'", "", output)
            printed.append(output.replace(place, ""))
        assert printed[0] == printed[1]
        return printed[0]

    return call
