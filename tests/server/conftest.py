"""Shared fixtures of the server tests."""

from __future__ import annotations

import pytest
from served_streams import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    server = Served(tmp_path_factory.mktemp("served") / "store")
    yield server
    server.kill()
